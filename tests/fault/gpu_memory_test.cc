// GPU memory as applications have it: copies of theirs that have just returned, ranges made of many
// allocations, the wrong device, a child of fork, a peer that stops.
#include <sys/wait.h>

#include "gpu_fixture.h"

namespace tcpx::test {
namespace {

// Physical memory in chunks behind one range of addresses, as expandable segments are made of.
class VmmMemory {
 public:
  static constexpr uint64_t kChunk = 2 << 20;

  // `devices`: whose each chunk is, where they are of several.
  explicit VmmMemory(size_t chunks, int device = 0, std::vector<int> devices = {})
      : size_(chunks * kChunk), device_(device), devices_(std::move(devices)) {
    CudaScope scope(device);
    check("cuMemAddressReserve",
          cuda().function<int(uint64_t*, size_t, size_t, uint64_t, uint64_t)>(
              "cuMemAddressReserve")(&base_, size_, 0, 0, 0));
    for (size_t i = 0; i < chunks; ++i) map(i);
  }
  ~VmmMemory() {
    CudaScope scope(device_);
    for (size_t i = 0; i < size_ / kChunk; ++i)
      if (handles_.size() > i && handles_[i] != 0) unmap(i);
    cuda().function<int(uint64_t, size_t)>("cuMemAddressFree")(base_, size_);
  }
  void unmap(size_t i) {
    CudaScope scope(device_);
    cuda().function<int(uint64_t, size_t)>("cuMemUnmap")(base_ + i * kChunk, kChunk);
    cuda().function<int(uint64_t)>("cuMemRelease")(std::exchange(handles_[i], 0));
  }
  uint64_t address() const { return base_; }
  void* pointer() const { return reinterpret_cast<void*>(base_); }
  uint64_t size() const { return size_; }

 private:
  struct Location {
    int type, id;
  };
  struct Properties {
    int type, handles;
    Location location;
    void* attributes;
    unsigned char flags[8];
  };
  struct Access {
    Location location;
    int flags;
  };
  void check(const char* what, int code) { cuda().check(code, what); }
  void map(size_t i) {
    const int device = devices_.empty() ? device_ : devices_[i];
    const Properties properties{1, 0, {1, device}, nullptr, {}};
    const Access access{{1, device}, 3};
    const uint64_t at = base_ + i * kChunk;
    handles_.push_back(0);
    check("cuMemCreate", cuda().function<int(uint64_t*, size_t, const Properties*, uint64_t)>(
                             "cuMemCreate")(&handles_[i], kChunk, &properties, 0));
    check("cuMemMap", cuda().function<int(uint64_t, size_t, size_t, uint64_t, uint64_t)>(
                          "cuMemMap")(at, kChunk, 0, handles_[i], 0));
    check("cuMemSetAccess", cuda().function<int(uint64_t, size_t, const Access*, size_t)>(
                                "cuMemSetAccess")(at, kChunk, &access, 1));
  }

  uint64_t base_ = 0, size_;
  int device_;
  std::vector<int> devices_;
  std::vector<uint64_t> handles_;
};

std::vector<uint8_t> get(uint64_t from, uint64_t length) {
  std::vector<uint8_t> bytes(length);
  CudaScope scope(0);
  const auto stream = cuda_device(0).stream;
  cuda().check(cuda().copy_to_host(bytes.data(), from, length, stream), "copy");
  cuda().check(cuda().stream_synchronize(stream), "copy");
  return bytes;
}

// ---- what has just been copied
// --------------------------------------------------------------------

class GpuJustCopied : public GpuFault, public ::testing::WithParamInterface<const char*> {
 protected:
  // A copy within the device, and one of a little pageable memory: both return before they are
  // over, unless the memory says otherwise.
  void expect_sends_what_was_copied(tcpx_region region, uint64_t to) {
    DeviceMemory fresh(kPiece);
    auto copy = cuda().function<int(uint64_t, uint64_t, size_t)>("cuMemcpyDtoD_v2");
    auto copy_in = cuda().function<int(uint64_t, const void*, size_t)>("cuMemcpyHtoD_v2");
    for (int round = 1; round <= 4; ++round) {
      std::vector<uint8_t> bytes(kPiece, static_cast<uint8_t>(round));
      fresh.store(0, bytes.data(), kPiece);
      Transfer transfer;
      ASSERT_TRUE(succeeded(pair->a.prepare(pair->b_at_a, TCPX_WRITE, {{region, 0, kPiece}},
                                            {{&pair->remote_b, 0, kPiece}}, &transfer)));
      plan("copy_us:30000");
      {
        CudaScope scope(0);
        cuda().check(round % 2 == 0 ? copy_in(to, bytes.data(), kPiece)
                                    : copy(to, fresh.device_address(), kPiece),
                     "cuMemcpy");
      }
      std::this_thread::sleep_for(Ms{3});  // it is under way, and those of the engine are faster
      fake_cuda()->clear_plan();
      ASSERT_TRUE(succeeded(transfer.post()));
      ASSERT_TRUE(succeeded(transfer.wait(kLong))) << transfer.error();
      uint8_t arrived = 0;
      pair->memory_b.memory->load(kPiece - 1, &arrived, 1);
      EXPECT_EQ(arrived, round) << "what was there before the copy was sent";
    }
  }
};

TEST_F(GpuJustCopied, IsSentOutOfPlainMemory) {
  start("cuda", "host");
  expect_sends_what_was_copied(pair->memory_a.region,
                               reinterpret_cast<uint64_t>(pair->memory_a.memory->address()));
}

TEST_F(GpuJustCopied, IsSentOutOfVirtualMemory) {
  start("host", "host");
  VmmMemory memory(2);
  tcpx_region region = 0;
  ASSERT_TRUE(succeeded(pair->a.register_memory(memory.pointer(), memory.size(), 0, &region)));
  expect_sends_what_was_copied(region, memory.address());
  ASSERT_TRUE(succeeded(pair->a.deregister(region)));
  EXPECT_EQ(cuda_counts()->calls("cuCtxSetFlags", 0), 1u);
  ASSERT_TRUE(succeeded(pair->a.register_memory(memory.pointer(), memory.size(), 0, &region)));
  EXPECT_EQ(cuda_counts()->calls("cuCtxSetFlags", 0), 1u) << "once";
  ASSERT_TRUE(succeeded(pair->a.deregister(region)));
}

// ---- ranges -------------------------------------------------------------------------------------

TEST_F(GpuFault, VirtualMemoryOfManyChunksAndOddBorders) {
  start("host", "host");
  VmmMemory memory(3);
  const uint64_t skew = 77, size = memory.size() - skew - 33;
  tcpx_region region = 0;
  ASSERT_TRUE(succeeded(pair->b.register_memory(reinterpret_cast<void*>(memory.address() + skew),
                                                size, kReadWrite, &region)));
  tcpx_remote_region remote = describe(pair->b, region);
  for (uint64_t border : {VmmMemory::kChunk, 2 * VmmMemory::kChunk}) {
    const uint64_t at = border - skew - 100'001, length = 300'003;
    std::vector<uint8_t> wanted(length);
    Pattern(7, border).fill(wanted.data(), length, 0);
    pair->memory_a.memory->store(0, wanted.data(), length);
    Transfer write, read;
    ASSERT_TRUE(
        succeeded(pair->a.prepare(pair->b_at_a, TCPX_WRITE, {{pair->memory_a.region, 0, length}},
                                  {{&remote, at, length}}, &write)));
    ASSERT_TRUE(succeeded(write.post()));
    ASSERT_TRUE(succeeded(write.wait(kLong))) << write.error();
    EXPECT_EQ(get(memory.address() + skew + at, length), wanted);
    ASSERT_TRUE(succeeded(pair->a.prepare(pair->b_at_a, TCPX_READ,
                                          {{pair->memory_a.region, 1'000'000, length}},
                                          {{&remote, at, length}}, &read)));
    ASSERT_TRUE(succeeded(read.post()));
    ASSERT_TRUE(succeeded(read.wait(kLong))) << read.error();
    EXPECT_EQ(mismatch(*pair->memory_a.memory, 1'000'000, length, Pattern(7, border), 0), -1);
  }
  ASSERT_TRUE(succeeded(pair->b.deregister(region)));
}

// What an address tells: its allocation alone, all that is mapped beside it, or all that was
// reserved around it.
struct Telling {
  const char *name, *plan;
};
class GpuRanges : public GpuFault, public ::testing::WithParamInterface<Telling> {
 protected:
  void start_here() {
    start("host", "host");
    plan(GetParam().plan);
  }
};
INSTANTIATE_TEST_SUITE_P(
    All, GpuRanges,
    ::testing::Values(Telling{"ToldOneByOne", "ranges_are_reservations:0;neighbours_are_one:0"},
                      Telling{"ToldWithNeighbours",
                              "ranges_are_reservations:0;neighbours_are_one:1"},
                      Telling{"ToldAsReserved", "ranges_are_reservations:1"}),
    [](const auto& test) { return std::string(test.param.name); });

TEST_P(GpuRanges, OfManyAllocationsAreTaken) {
  start_here();
  VmmMemory memory(5);
  tcpx_region region = 0;
  for (uint64_t at : {uint64_t{0}, uint64_t{77}, VmmMemory::kChunk, 3 * VmmMemory::kChunk - 1}) {
    ASSERT_TRUE(succeeded(pair->a.register_memory(reinterpret_cast<void*>(memory.address() + at),
                                                  memory.size() - at, 0, &region)));
    EXPECT_EQ(describe(pair->a, region).memory, TCPX_MEMORY_CUDA);
    ASSERT_TRUE(succeeded(pair->a.deregister(region)));
    ASSERT_TRUE(succeeded(pair->a.register_memory(memory.pointer(), at + 1, 0, &region)));
    ASSERT_TRUE(succeeded(pair->a.deregister(region)));
  }
}

TEST_P(GpuRanges, OfTwoGpusAreRefused) {
  start_here();
  VmmMemory memory(4, 0, {0, 0, 0, 1});
  tcpx_region region = 0;
  Result result = pair->a.register_memory(reinterpret_cast<void*>(memory.address() + 5),
                                          memory.size() - 5, 0, &region);
  EXPECT_EQ(result.code(), TCPX_INVALID_ARGUMENT);
  EXPECT_NE(result.text().find(strf("cuda:1 from byte {} of", 3 * VmmMemory::kChunk - 5)),
            std::string::npos)
      << result.text();
  ASSERT_TRUE(
      succeeded(pair->a.register_memory(memory.pointer(), 3 * VmmMemory::kChunk, 0, &region)));
  EXPECT_EQ(describe(pair->a, region).device, 0);
  ASSERT_TRUE(succeeded(pair->a.deregister(region)));
  ASSERT_TRUE(succeeded(
      pair->a.register_memory(reinterpret_cast<void*>(memory.address() + 3 * VmmMemory::kChunk),
                              VmmMemory::kChunk, 0, &region)));
  EXPECT_EQ(describe(pair->a, region).device, 1);
  ASSERT_TRUE(succeeded(pair->a.deregister(region)));
}

// No call of ours leaves it to the driver which context it is for.
TEST_F(GpuFault, EveryCallHasItsContext) {
  plan("any_context:1");
  cuda_counts()->reset_counters();
  start("cuda", "cuda:1");
  expect_works("with a driver that finds a context by itself");
  EXPECT_EQ(fake_cuda()->calls_without_context(), 0u);
}

// Wherever the hole is: whoever reads there ends the context for good.
TEST_P(GpuRanges, WithAHoleAreRefused) {
  start_here();
  for (size_t hole : {1, 2, 0}) {
    VmmMemory memory(3);
    memory.unmap(hole);
    tcpx_region region = 0;
    EXPECT_FALSE(pair->a.register_memory(memory.pointer(), memory.size(), 0, &region).ok()) << hole;
    const uint64_t whole = memory.address() + (hole == 0 ? VmmMemory::kChunk : 0);
    ASSERT_TRUE(succeeded(
        pair->a.register_memory(reinterpret_cast<void*>(whole), VmmMemory::kChunk, 0, &region)));
    ASSERT_TRUE(succeeded(pair->a.deregister(region)));
  }
}

TEST_P(GpuRanges, WithOneOfAnotherGpuBetweenAreRefused) {
  start_here();
  VmmMemory memory(3, 0, {0, 1, 0});
  tcpx_region region = 0;
  Result result = pair->a.register_memory(memory.pointer(), memory.size(), 0, &region);
  EXPECT_EQ(result.code(), TCPX_INVALID_ARGUMENT);
  EXPECT_NE(result.text().find(strf("cuda:1 from byte {} of", VmmMemory::kChunk)),
            std::string::npos)
      << result.text();
}

TEST_F(GpuFault, MemoryOfAnotherGpuThanItIsSaidToBeIsRefused) {
  start("host", "host");
  DeviceMemory memory(kPiece);
  tcpx_register_args args{};
  args.memory = TCPX_MEMORY_CUDA;
  args.device = 1;
  tcpx_region region = 0;
  const int contexts = cuda_counts()->contexts_made(1);
  Result result = pair->a.register_as(memory.address(), kPiece, args, &region);
  EXPECT_EQ(result.code(), TCPX_INVALID_ARGUMENT);
  EXPECT_NE(result.text().find("cuda:0"), std::string::npos) << result.text();
  EXPECT_EQ(cuda_counts()->contexts_made(1), contexts);
}

// ---- chunks and slots of all sizes -----------------------------------------------------------

// Whoever asks cuts by what the owner of the memory takes at a time, and by its own slots.
TEST_F(GpuFault, ChunksAreAsShortAsEitherSideNeeds) {
  const Options large = {{"chunk_bytes", "16M"}, {"gpu_staging", "256M"}, {"io_threads", "1"}},
                small = {{"chunk_bytes", "64K"}, {"gpu_staging", "1M"}, {"io_threads", "2"}},
                cramped = {{"chunk_bytes", "16M"}, {"gpu_staging", "1M"}, {"io_threads", "8"}},
                pieces = {{"chunk_bytes", "1M"}, {"gpu_slot", "5000"}, {"io_threads", "1"}};
  for (const Options& a : {large, small, cramped, pieces})
    for (const Options& b : {large, small, cramped, pieces}) {
      SCOPED_TRACE(strf("{} {} with {} {}", a[0].second, a[1].second, b[0].second, b[1].second));
      start("cuda", "cuda:1", a, b);
      if (HasFailure()) return;
      pair.reset();
    }
}

// One that is short for its lanes is cut so that what is copied, what is sent and what is copied at
// the other end are different parts of it.
TEST_F(GpuFault, ShortTransfersAreInPartsThatOverlap) {
  constexpr uint64_t kShort = 1 << 20;
  start("cuda", "host", {{"chunk_bytes", "512K"}});
  const auto chunks = [](Transfer transfer) {
    EXPECT_TRUE(succeeded(transfer.post()));
    EXPECT_TRUE(succeeded(transfer.wait(kLong))) << transfer.error();
    return transfer.receipt().chunks;
  };
  for (tcpx_op op : {TCPX_WRITE, TCPX_READ}) {
    EXPECT_EQ(chunks(pair->prepare(op, kShort)), 8u);
    Transfer host;
    ASSERT_TRUE(succeeded(pair->a.prepare(pair->b_at_a, op, {{host_a_.region, 0, kShort}},
                                          {{&pair->remote_b, 0, kShort}}, &host)));
    EXPECT_EQ(chunks(std::move(host)), 2u);
  }
}

TEST_F(GpuFault, ThePinnedStagingIsNotMoreThanWasGiven) {
  constexpr uint64_t kMarks = 64 << 10;
  for (const char* chunk : {"4K", "512K", "16M"})
    for (const char* slot : {"0", "1", "4K", "100K", "16M"})
      for (const char* threads : {"1", "3", "16"}) {
        SCOPED_TRACE(strf("chunk {} slot {} threads {}", chunk, slot, threads));
        const uint64_t before = fake_cuda()->host_bytes();
        Engine engine = make_engine(fault_options({{"chunk_bytes", chunk},
                                                   {"gpu_slot", slot},
                                                   {"gpu_staging", "1M"},
                                                   {"io_threads", threads}}));
        Local local = make_local(engine, kPiece, 0, 1, "cuda");
        EXPECT_LE(fake_cuda()->host_bytes() - before, (1u << 20) + kMarks);
        const tcpx_remote_region told = describe(engine, local.region);
        EXPECT_GE(told.chunk_bytes, 4096u);
        EXPECT_LE(told.chunk_bytes, uint64_t{1} << 20);
      }
}

TEST_F(GpuFault, AChildOfForkHasAnEngineForHostMemoryAndTheParentGoesOn) {
  start("cuda", "cuda");
  const pid_t child = ::fork();
  if (child == 0) {
    int wrong = 0;
    tcpx_region region = 0;
    wrong |= pair->a.register_memory(pair->memory_a.memory->address(), kBytes, 0, &region).code() ==
                     TCPX_UNSUPPORTED
                 ? 0
                 : 1;
    try {
      Engine own = make_engine(fault_options());
      Local host = make_local(own, kBytes, kReadWrite, 5, "host");
      wrong |= own.deregister(host.region).ok() ? 0 : 4;
    } catch (...) {
      wrong |= 8;
    }
    ::_exit(wrong);
  }
  expect_works("beside the child");
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  expect_works("after the child");
}

// ---- peers --------------------------------------------------------------------------------------

TEST_F(GpuFault, OneOfFourPeersIsStoppedAndTheOthersGoOn) {
  Options options = fault_options({{"gpu_staging", "2M"},
                                   {"chunk_bytes", "256K"},
                                   {"lanes", "2"},
                                   {"peer_timeout", time_option(20'000)},
                                   {"lane_timeout", time_option(15'000)}});
  Engine engine = make_engine(options);
  constexpr size_t kPeers = 4;
  constexpr uint64_t kEach = 2 << 20;
  Peer programs[kPeers];
  tcpx_remote_region remotes[kPeers];
  tcpx_peer peers[kPeers];
  Local here = make_local(engine, kEach, 0, 1, "cuda");
  Transfer writes[kPeers], reads[kPeers];
  for (size_t i = 0; i < kPeers; ++i) {
    programs[i].create(options);
    remotes[i] = programs[i].memory("m", kEach, kReadWrite, 2, "cuda");
    ASSERT_TRUE(succeeded(engine.connect(programs[i].info(), &peers[i])));
    ASSERT_TRUE(succeeded(engine.peer_wait(peers[i], kLong)));
    for (auto [op, to] : {std::pair{TCPX_WRITE, writes}, std::pair{TCPX_READ, reads}})
      ASSERT_TRUE(succeeded(engine.prepare(peers[i], op, {{here.region, 0, kEach}},
                                           {{&remotes[i], 0, kEach}}, &to[i])));
  }
  ASSERT_TRUE(succeeded(writes[0].post(Ms{60'000})));
  ASSERT_TRUE(succeeded(reads[0].post(Ms{60'000})));
  programs[0].freeze();
  ASSERT_TRUE(succeeded(writes[0].cancel(Ms{100})) || !writes[0].poll().in_progress());
  ASSERT_TRUE(succeeded(reads[0].cancel(Ms{100})));
  Transfer again;
  ASSERT_TRUE(succeeded(engine.prepare(peers[0], TCPX_WRITE, {{here.region, 0, kEach}},
                                       {{&remotes[0], 0, kEach}}, &again)));
  ASSERT_TRUE(succeeded(again.post(Ms{60'000})));
  for (int round = 0; round < 10; ++round)
    for (size_t i = 1; i < kPeers; ++i)
      for (Transfer* transfer : {&writes[i], &reads[i]}) {
        ASSERT_TRUE(succeeded(transfer->post(patience(5'000))));
        ASSERT_TRUE(succeeded(transfer->wait(kLong))) << transfer->error();
      }
  programs[0].thaw();
  EXPECT_TRUE(succeeded(again.wait(kLong))) << again.error();
}

}  // namespace
}  // namespace tcpx::test
