// What the sockets do to GPU memory that is staged: pairs of threads of one process, a plain TCP
// connection over loopback each, chunks that come from and go to different kinds of memory. Only
// send() and recv() are timed, so that a chunk that takes longer beside others can be laid to the
// socket, to memory that a GPU has just written or will read, or to the GPU.
//
//   tcpx_gpu_sockets [--lanes 1,2,4,8] [--chunk 512K] [--slots 1,4,16] [--buffer 0,1M]
//   [--kinds dma,...] [--seconds 0.3] [--device 0] [--no-gpu 1]
//
// --buffer: SO_SNDBUF and SO_RCVBUF; 0: as the kernel tunes them.
//
// Kinds of memory, alike at both ends unless it says otherwise:
//
// - ring: a few chunks of ordinary memory, used again and again (in the cache)
// - walk: 256 MiB of ordinary memory per end of a connection, walked through
// - pinned: the driver's pinned memory, no copy
// - dma: pinned, every chunk copied out of the GPU before it is sent, and into it after it has come
// - dma-huge: the same in huge pages of our own that the driver pinned
// - dma-combined: `dma`, but what is received into is write-combined: the CPU only writes there, so
//   a GPU that reads it need not ask its caches
// - beside: `pinned`, while a thread copies as much both ways through other pinned memory
// - dma-out, dma-in: `dma` at the sender or the receiver alone, `pinned` at the other end
// - warm: `dma`, but the sender reads one byte of every cache line before it sends
//
// A JSON document per line of the result.
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <cstdio>
#include <cstring>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/units.h"
#include "cuda_driver.h"

namespace {

using namespace tcpx;
using bench::Cuda;

constexpr time_t kPatience = 30;
constexpr uint64_t kWalked = 256 << 20;
constexpr size_t kLine = 64;

[[noreturn]] void fail(const std::string& what) {
  throw std::runtime_error(what);
}

enum class Kind {
  kRing,
  kWalk,
  kPinned,
  kDma,
  kDmaHuge,
  kDmaCombined,
  kDmaOut,
  kDmaIn,
  kBeside,
  kWarm
};
enum class End { kSender, kReceiver };
constexpr std::pair<Kind, const char*> kKinds[] = {
    {Kind::kRing, "ring"},      {Kind::kWalk, "walk"},        {Kind::kPinned, "pinned"},
    {Kind::kDma, "dma"},        {Kind::kDmaHuge, "dma-huge"}, {Kind::kDmaCombined, "dma-combined"},
    {Kind::kDmaOut, "dma-out"}, {Kind::kDmaIn, "dma-in"},     {Kind::kBeside, "beside"},
    {Kind::kWarm, "warm"}};

bool needs_gpu(Kind kind) {
  return kind != Kind::kRing && kind != Kind::kWalk;
}
bool copies(Kind kind, End end) {
  if (kind == Kind::kDmaOut || kind == Kind::kDmaIn)
    return (kind == Kind::kDmaOut) == (end == End::kSender);
  return kind == Kind::kDma || kind == Kind::kDmaHuge || kind == Kind::kDmaCombined ||
         kind == Kind::kWarm;
}

// Chunks of one end of a connection.
class Chunks {
 public:
  Chunks(const Cuda* cuda, Kind kind, End end, uint64_t chunk, size_t slots)
      : cuda_(cuda),
        kind_(kind),
        copies_(copies(kind, end)),
        chunk_(chunk),
        slots_(kind == Kind::kWalk ? kWalked / chunk : slots) {
    const uint64_t bytes = chunk_ * slots_;
    if (needs_gpu(kind) && kind != Kind::kDmaHuge) {
      const bool combined = kind == Kind::kDmaCombined && end == End::kReceiver;
      const unsigned flags = Cuda::kPortable | (combined ? Cuda::kWriteCombined : 0);
      cuda_->check(cuda_->mem_host_alloc(&memory_, bytes, flags), "cuMemHostAlloc");
    } else {
      mapped_ = (bytes + (2 << 20) - 1) & ~((uint64_t{2} << 20) - 1);
      memory_ = mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (memory_ == MAP_FAILED) fail("no memory");
      (void)madvise(memory_, mapped_, MADV_HUGEPAGE);
    }
    std::memset(memory_, 1, bytes);
    if (kind == Kind::kDmaHuge)
      cuda_->check(cuda_->mem_host_register(memory_, mapped_, Cuda::kPortable),
                   "cuMemHostRegister");
    if (!copies_) return;
    cuda_->check(cuda_->mem_alloc(&device_, bytes), "cuMemAlloc");
    cuda_->check(cuda_->stream_create(&stream_, Cuda::kNonBlocking), "cuStreamCreate");
    for (size_t i = 0; i < slots_; ++i)
      cuda_->check(cuda_->event_create(&events_.emplace_back(), Cuda::kDisableTiming),
                   "cuEventCreate");
  }
  ~Chunks() {
    if (copies_) {
      (void)cuda_->stream_synchronize(stream_);
      for (Cuda::Event event : events_) (void)cuda_->event_destroy(event);
      (void)cuda_->stream_destroy(stream_);
      (void)cuda_->mem_free(device_);
    }
    if (kind_ == Kind::kDmaHuge) (void)cuda_->mem_host_unregister(memory_);
    if (mapped_ != 0) {
      munmap(memory_, mapped_);
    } else {
      (void)cuda_->mem_free_host(memory_);
    }
  }
  Chunks(const Chunks&) = delete;
  Chunks& operator=(const Chunks&) = delete;

  size_t slots() const { return slots_; }
  char* at(uint64_t i) const { return static_cast<char*>(memory_) + i % slots_ * chunk_; }
  void begin_out(uint64_t i) {
    if (!copies_) return;
    cuda_->check(cuda_->copy_to_host_async(at(i), device_ + i % slots_ * chunk_, chunk_, stream_),
                 "cuMemcpyDtoHAsync");
    cuda_->check(cuda_->event_record(events_[i % slots_], stream_), "cuEventRecord");
  }
  void begin_in(uint64_t i) {
    if (!copies_) return;
    cuda_->check(cuda_->copy_to_device_async(device_ + i % slots_ * chunk_, at(i), chunk_, stream_),
                 "cuMemcpyHtoDAsync");
    cuda_->check(cuda_->event_record(events_[i % slots_], stream_), "cuEventRecord");
  }
  void await(uint64_t i) const {
    if (copies_) cuda_->await(events_[i % slots_]);
  }
  void warm(uint64_t i) const {
    if (kind_ != Kind::kWarm) return;
    for (const volatile char *p = at(i), *end = p + chunk_; p < end; p += kLine) (void)*p;
  }

 private:
  const Cuda* cuda_;
  const Kind kind_;
  const bool copies_;
  const uint64_t chunk_;
  const size_t slots_;
  void* memory_ = nullptr;
  uint64_t mapped_ = 0;  // 0: the driver's
  Cuda::Pointer device_ = 0;
  Cuda::Stream stream_ = nullptr;
  std::vector<Cuda::Event> events_;
};

// Time in the calls of one end.
struct Spent {
  uint64_t chunks = 0, queued = 0;  // bytes, when a chunk began to be received
  Nanos in_socket = 0, for_gpu = 0;
};

struct Plan {
  Kind kind;
  uint64_t chunk;
  size_t slots;
  uint64_t buffer;
  double seconds;
};

void send_chunks(const Plan& plan, int fd, Chunks& chunks, Spent* spent) {
  const Nanos until = now_ns() + static_cast<Nanos>(plan.seconds * 1e9);
  for (uint64_t i = 0; i < chunks.slots(); ++i) chunks.begin_out(i);
  for (uint64_t i = 0; now_ns() < until; ++i) {
    const Nanos began = now_ns();
    chunks.await(i);
    chunks.warm(i);
    const Nanos ready = now_ns();
    for (uint64_t sent = 0; sent < plan.chunk;) {
      const ssize_t n = send(fd, chunks.at(i) + sent, plan.chunk - sent, MSG_NOSIGNAL);
      if (n <= 0) fail("send: the other end is gone, or stuck");
      sent += static_cast<uint64_t>(n);
    }
    spent->in_socket += now_ns() - ready;
    spent->for_gpu += ready - began;
    ++spent->chunks;
    chunks.begin_out(i);
  }
  shutdown(fd, SHUT_WR);
}

void receive_chunks(const Plan& plan, int fd, Chunks& chunks, Spent* spent) {
  for (uint64_t i = 0;; ++i) {
    const Nanos began = now_ns();
    if (i >= chunks.slots()) chunks.await(i);
    int queued = 0;
    if (ioctl(fd, FIONREAD, &queued) == 0) spent->queued += static_cast<uint64_t>(queued);
    const Nanos ready = now_ns();
    for (uint64_t got = 0; got < plan.chunk;) {
      const ssize_t n = recv(fd, chunks.at(i) + got, plan.chunk - got, MSG_WAITALL);
      if (n == 0 && got == 0) return;
      if (n <= 0) fail("recv: the other end is gone, or silent");
      got += static_cast<uint64_t>(n);
    }
    spent->in_socket += now_ns() - ready;
    spent->for_gpu += ready - began;
    ++spent->chunks;
    chunks.begin_in(i);
  }
}

void set_buffers(int fd, uint64_t buffer) {
  const int bytes = static_cast<int>(buffer);
  if (bytes == 0) return;
  setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
  setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
}

std::pair<int, int> make_connection(uint64_t buffer) {
  const int listener = socket(AF_INET, SOCK_STREAM, 0), out = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof at;
  auto* address = reinterpret_cast<sockaddr*>(&at);
  if (bind(listener, address, sizeof at) != 0 || listen(listener, 1) != 0 ||
      getsockname(listener, address, &length) != 0 || connect(out, address, sizeof at) != 0)
    fail("cannot connect over loopback");
  const int in = accept(listener, nullptr, nullptr);
  close(listener);
  if (in < 0) fail("cannot accept");
  for (int fd : {in, out}) {
    set_buffers(fd, buffer);
    const timeval limit{kPatience, 0};
    const int one = 1;
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    // No pacing, as lanes have it on one host: bbr stops a sender that had to wait for a copy.
    setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "reno", 4);
  }
  return {out, in};
}

// The other threads wait for one that fails: there is nothing to go back to.
template <typename Work>
auto or_exit(Work work) {
  return [work = std::move(work)] {
    try {
      work();
    } catch (const std::exception& what) {
      std::fprintf(stderr, "tcpx_gpu_sockets: %s\n", what.what());
      _exit(1);
    }
  };
}

// Copies both ways until it is told to stop, as many bytes at a time as a transfer would.
class Disturber {
 public:
  Disturber(const Cuda* cuda, const Plan& plan) {
    if (plan.kind != Kind::kBeside) return;
    thread_ = std::thread(or_exit([this, cuda, plan] {
      cuda->enter();
      Chunks out(cuda, Kind::kDma, End::kSender, plan.chunk, 4);
      Chunks in(cuda, Kind::kDma, End::kReceiver, plan.chunk, 4);
      for (uint64_t i = 0; !stop_; ++i) {
        if (i >= 4) out.await(i), in.await(i);
        out.begin_out(i);
        in.begin_in(i);
      }
    }));
  }
  ~Disturber() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
  }

 private:
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

void measure(const Cuda* cuda, const Plan& plan, const char* name, size_t lanes) {
  std::vector<Spent> out(lanes), in(lanes);
  std::vector<std::thread> threads;
  Disturber disturber(cuda, plan);
  std::barrier memory_is_there(static_cast<ptrdiff_t>(2 * lanes));
  const auto start = [&](int fd, End end, auto work, Spent* spent) {
    threads.emplace_back(or_exit([=, &plan, &memory_is_there] {
      if (needs_gpu(plan.kind)) cuda->enter();
      Chunks chunks(cuda, plan.kind, end, plan.chunk, plan.slots);
      memory_is_there.arrive_and_wait();
      work(plan, fd, chunks, spent);
      close(fd);
    }));
  };
  for (size_t i = 0; i < lanes; ++i) {
    const auto [sender, receiver] = make_connection(plan.buffer);
    start(sender, End::kSender, send_chunks, &out[i]);
    start(receiver, End::kReceiver, receive_chunks, &in[i]);
  }
  for (auto& thread : threads) thread.join();
  Spent sent, received;
  for (size_t i = 0; i < lanes; ++i) {
    for (auto [sum, one] : {std::pair{&sent, &out[i]}, std::pair{&received, &in[i]}}) {
      sum->chunks += one->chunks;
      sum->queued += one->queued;
      sum->in_socket += one->in_socket;
      sum->for_gpu += one->for_gpu;
    }
  }
  const auto each = [](Nanos sum, uint64_t chunks) {
    return static_cast<double>(sum) / 1e3 / static_cast<double>(chunks);
  };
  std::printf(
      "{\"kind\": \"%s\", \"lanes\": %zu, \"chunk\": %lu, \"slots\": %zu, \"buffer\": %lu, "
      "\"gb_per_s\": %.3f, \"send_us\": %.1f, \"send_gpu_us\": %.1f, \"recv_us\": %.1f, "
      "\"recv_gpu_us\": %.1f, \"queued\": %lu}\n",
      name, lanes, plan.chunk, plan.slots, plan.buffer,
      static_cast<double>(sent.chunks * plan.chunk) / (plan.seconds * 1e9),
      each(sent.in_socket, sent.chunks), each(sent.for_gpu, sent.chunks),
      each(received.in_socket, received.chunks), each(received.for_gpu, received.chunks),
      received.queued / std::max<uint64_t>(received.chunks, 1));
  std::fflush(stdout);
}

std::vector<std::string> parts_of(const std::string& text) {
  std::vector<std::string> out;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    out.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return out;
}

std::vector<uint64_t> parse_list(const std::string& text, uint64_t least = 1) {
  std::vector<uint64_t> out;
  for (const std::string& part : parts_of(text)) {
    uint64_t value = 0;
    if (Status s = parse_size(part, &value); !s || value < least)
      fail("not a list of sizes: " + text);
    out.push_back(value);
  }
  return out;
}

int run_all(int argc, char** argv) {
  std::vector<uint64_t> lanes{1, 2, 4, 8}, slots{1, 4, 16}, buffers{0};
  std::vector<std::string> kinds;  // none: all
  uint64_t chunk = 512 << 10;
  double seconds = 0.3;
  int device = 0;
  bool gpu = true;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i], value = argv[i + 1];
    if (name == "--lanes")
      lanes = parse_list(value);
    else if (name == "--slots")
      slots = parse_list(value);
    else if (name == "--buffer")
      buffers = parse_list(value, 0);
    else if (name == "--kinds")
      kinds = parts_of(value);
    else if (name == "--chunk")
      chunk = parse_list(value).front();
    else if (name == "--seconds")
      seconds = std::stod(value);
    else if (name == "--device")
      device = std::stoi(value);
    else if (name == "--no-gpu")
      gpu = value == "0";
    else
      fail("unknown argument " + name);
  }
  if (argc % 2 == 0) fail("an argument without a value");
  for (const std::string& asked : kinds)
    if (std::none_of(std::begin(kKinds), std::end(kKinds),
                     [&](const auto& known) { return asked == known.second; }))
      fail("no kind of memory is called " + asked);
  const std::unique_ptr<Cuda> cuda = gpu ? std::make_unique<Cuda>(device) : nullptr;
  for (const auto& [kind, name] : kKinds) {
    const bool asked = kinds.empty() || std::find(kinds.begin(), kinds.end(), name) != kinds.end();
    if (!asked || (needs_gpu(kind) && !gpu)) continue;
    for (uint64_t count : lanes)
      for (uint64_t ring : kind == Kind::kWalk ? std::vector<uint64_t>{1} : slots)
        for (uint64_t buffer : buffers)
          measure(cuda.get(), {kind, chunk, ring, buffer, seconds}, name, count);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run_all(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "tcpx_gpu_sockets: %s\n", error.what());
    return 1;
  }
}
