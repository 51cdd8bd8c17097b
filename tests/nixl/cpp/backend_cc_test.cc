// The backend called from C++ by several threads at once. Under Python no sanitizer sees it; here
// ThreadSanitizer and AddressSanitizer do. What NIXL itself makes of it is tested by the scripts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <thread>

#include "agent.h"

namespace tcpx_nixl::test {

using tcpx::test::eventually;
using tcpx::test::patience;
using tcpx::test::Stopwatch;

namespace {

constexpr size_t kMiB = 1 << 20;
constexpr uint8_t kPoison = 0xEE;

// Two agents that know each other, with one range each.
struct Two {
  explicit Two(size_t size, const std::string& kind_a = "host", const std::string& kind_b = "host")
      : at_a(size, kind_a), at_b(size, kind_b), a("a"), b("b") {
    a.add(at_a);
    b.add(at_b);
    introduce();
  }
  void introduce() {
    a.know(b);
    b.know(a);
    a.load(b, at_b);
    b.load(a, at_a);
  }
  ~Two() {
    EXPECT_EQ(at_a.damage(), "");
    EXPECT_EQ(at_b.damage(), "");
  }
  Range at_a, at_b;  // declared first: they outlive the agents
  Agent a, b;
};

// Repeats until `turn` says that it met a transfer under way, so that a test shows what it claims.
// At least `usual` turns.
::testing::AssertionResult some_under_way(int usual, const std::function<bool()>& turn) {
  constexpr int kMost = 60;
  int hits = 0;
  for (int i = 0; i < kMost; ++i) {
    hits += turn();
    if (::testing::Test::HasFailure()) return ::testing::AssertionFailure() << "in turn " << i;
    if (hits > 0 && i + 1 >= usual) return ::testing::AssertionSuccess();
  }
  return ::testing::AssertionFailure() << "not one of " << kMost << " was under way";
}

void in_threads(size_t count, const std::function<void(size_t)>& body) {
  std::vector<std::thread> threads;
  for (size_t i = 0; i < count; ++i) threads.emplace_back(body, i);
  for (std::thread& thread : threads) thread.join();
}

// Takes notifications until as many came as are wanted, and a moment longer.
notif_list_t notifications(const Agent& agent, size_t wanted, notif_list_t taken = {}) {
  auto take = [&] {
    notif_list_t more;
    EXPECT_EQ(agent->getNotifs(more), NIXL_SUCCESS);
    taken.insert(taken.end(), more.begin(), more.end());
    return taken.size() >= wanted;
  };
  eventually(take, patience(5000));
  std::this_thread::sleep_for(Ms{20});
  take();
  return taken;
}

// Only this one. Between two agents of one process it is also what ThreadSanitizer can see of the
// order: it does not see payload and answers pass through sockets, but what a GPU's copies touch it
// does.
void expect_notified(const Agent& agent, const Agent& by, const std::string& message) {
  EXPECT_THAT(notifications(agent, 1), ::testing::ElementsAre(::testing::Pair(by.name(), message)));
}

}  // namespace

TEST(NixlBackend, Plugin) {
  EXPECT_EQ(plugin().api_version, NIXL_PLUGIN_API_VERSION);
  EXPECT_STREQ(plugin().get_plugin_name(), "TCPX");
  const nixl_mem_list_t mems = plugin().get_backend_mems();  // GPU memory where a GPU is
  ASSERT_FALSE(mems.empty());
  EXPECT_EQ(mems[0], DRAM_SEG);
  EXPECT_EQ(plugin().get_backend_options().count("require_path"), 1u);
  EnginePtr wrong = create("wrong", {{"lanes", "many"}});
  ASSERT_NE(wrong, nullptr);
  EXPECT_TRUE(wrong->getInitErr());
}

using Kinds = std::pair<std::string, std::string>;
class NixlBackendMemory : public ::testing::TestWithParam<Kinds> {};
INSTANTIATE_TEST_SUITE_P(Kinds, NixlBackendMemory,
                         ::testing::Values(Kinds{"host", "host"}, Kinds{"cuda", "cuda"},
                                           Kinds{"cuda", "host"}, Kinds{"host", "cuda"}),
                         [](const auto& row) { return row.param.first + "_" + row.param.second; });

TEST_P(NixlBackendMemory, BothWays) {
  constexpr size_t kSize = 300'001;
  Two two(kSize, GetParam().first, GetParam().second);
  uint64_t seed = 0;
  auto both = [&](Agent& from, Range& here, Agent& to, Range& there) {
    here.fill(++seed, 0, kSize);
    there.set(kPoison);
    Request write(from, NIXL_WRITE, {here}, to.name(), {there}, kSize, 7);
    EXPECT_EQ(write.check(), NIXL_ERR_NOT_POSTED);
    EXPECT_EQ(write.run("written"), NIXL_SUCCESS);
    EXPECT_EQ(write.check(), NIXL_SUCCESS) << "again";
    expect_notified(to, from, "written");
    EXPECT_TRUE(there.holds(seed, 0, kSize));
    here.set(kPoison);
    Request read(from, NIXL_READ, {here}, to.name(), {there}, kSize, 3);
    EXPECT_EQ(read.run("read"), NIXL_SUCCESS);
    EXPECT_TRUE(here.holds(seed, 0, kSize));
    expect_notified(to, from, "read");
  };
  both(two.a, two.at_a, two.b, two.at_b);
  both(two.b, two.at_b, two.a, two.at_a);
}

// The same range under a peer that keeps its metadata, while its transfers go on.
TEST_P(NixlBackendMemory, RegisteredAgainUnderAPeer) {
  constexpr size_t kSize = 1'000'003;
  Two two(kSize, GetParam().first, GetParam().second);
  const std::string before = two.at_b.public_data;
  for (uint64_t seed = 1; seed < 6; ++seed) {
    two.at_a.fill(seed, 0, kSize);
    {
      Request under_way(two.a, NIXL_WRITE, {two.at_a}, "b", {two.at_b}, kSize, 100);
      under_way.post();
      two.b.remove(two.at_b);
      two.at_b.reuse(kPoison);
      EXPECT_TRUE(two.at_b.all(kPoison)) << "a fence";
    }
    two.b.add(two.at_b);
    EXPECT_EQ(two.at_b.public_data, before);
    Request write(two.a, NIXL_WRITE, {two.at_a}, "b", {two.at_b}, kSize, 100);
    EXPECT_EQ(write.run("written"), NIXL_SUCCESS);
    expect_notified(two.b, two.a, "written");
    EXPECT_TRUE(two.at_b.holds(seed, 0, kSize));
  }
}

TEST(NixlBackend, RefusesWhatItCannotDo) {
  Two two(5000);
  nixlBackendMD* md = nullptr;
  EXPECT_LT(two.a->registerMem(two.at_a.blob(), VRAM_SEG, md), 0) << "it is host memory";
  EXPECT_EQ(two.a->registerMem(two.at_a.blob(), FILE_SEG, md), NIXL_ERR_NOT_SUPPORTED);
  EXPECT_EQ(two.a->loadRemoteMD(two.at_b.blob(), VRAM_SEG, "b", md), NIXL_ERR_MISMATCH);
  EXPECT_EQ(two.a->loadRemoteMD(two.at_b.blob(), DRAM_SEG, "nobody", md), NIXL_ERR_NOT_FOUND);
  EXPECT_EQ(two.a->genNotif("nobody", "?"), NIXL_ERR_NOT_FOUND);
  EXPECT_LT(two.a->loadRemoteConnInfo("b", "no connection info"), 0);
  Request request(two.a, NIXL_WRITE, {two.at_a}, "b", {two.at_b}, 5000);
  EXPECT_EQ(request.run(), NIXL_SUCCESS) << "what was refused does no harm";
  Request beyond(two.a, NIXL_WRITE, {two.at_a}, "b", {two.at_b, 1}, 5000);
  EXPECT_LT(beyond.status(), 0);
}

// What NIXL carries from one agent to the other about a range, with each of its bits wrong once: it
// is refused, or what is read is right all the same.
TEST(NixlBackend, AFlippedBitInARangesMetadataIsRefusedOrHarmless) {
  constexpr size_t kSize = 4096;
  Two two(kSize);
  two.at_b.fill(3, 0, kSize);
  const nixlBlobDesc right = two.at_b.blob();
  size_t loaded = 0;
  auto try_it = [&](const nixlBlobDesc& wrong, const std::string& what) {
    nixlBackendMD* md = nullptr;
    if (two.a->loadRemoteMD(wrong, DRAM_SEG, "b", md) != NIXL_SUCCESS) return;
    ++loaded;
    // As the core does: it looks for the address in the range it was told of.
    List here, there;
    here.add(two.at_a.at(), 16, two.at_a.md);
    uintptr_t asked = std::max<uintptr_t>(wrong.addr, right.addr);
    there.add(reinterpret_cast<const uint8_t*>(asked), 16, md);
    nixlBackendReqH* handle = nullptr;
    if (asked - wrong.addr + 16 <= wrong.len &&
        two.a->prepXfer(NIXL_READ, here.get(), there.get(), "b", handle, nullptr) == NIXL_SUCCESS) {
      two.at_a.set(kPoison);
      nixl_status_t status =
          two.a->postXfer(NIXL_READ, here.get(), there.get(), "b", handle, nullptr);
      eventually([&] { return (status = two.a->checkXfer(handle)) != NIXL_IN_PROG; });
      if (status == NIXL_SUCCESS && asked - right.addr + 16 <= kSize) {
        EXPECT_EQ(memcmp(two.at_a.at(), two.at_b.at(asked - right.addr), 16), 0)
            << what << ": other bytes than were asked for";
      }
      two.a->releaseReqH(handle);
    }
    two.a->unloadMD(md);
  };
  for (int bit = 0; bit < 64; ++bit) {
    nixlBlobDesc wrong = right;
    wrong.addr ^= uint64_t{1} << bit;
    try_it(wrong, "address, bit " + std::to_string(bit));
    wrong = right;
    wrong.len ^= uint64_t{1} << bit;
    try_it(wrong, "length, bit " + std::to_string(bit));
    wrong = right;
    wrong.devId ^= uint64_t{1} << bit;
    try_it(wrong, "device, bit " + std::to_string(bit));
  }
  for (size_t bit = 0; bit < right.metaInfo.size() * 8; ++bit) {
    nixlBlobDesc wrong = right;
    wrong.metaInfo[bit / 8] ^= static_cast<char>(1 << bit % 8);
    try_it(wrong, "description, bit " + std::to_string(bit));
  }
  EXPECT_EQ(loaded, 0u) << "each of them can be told";
  for (size_t size = 0; size < right.metaInfo.size(); ++size) {
    nixlBlobDesc cut = right;
    cut.metaInfo.resize(size);
    try_it(cut, "cut to " + std::to_string(size));
  }
  EXPECT_EQ(loaded, 0u);
  Request read(two.a, NIXL_READ, {two.at_a}, "b", {two.at_b}, kSize);
  EXPECT_EQ(read.run(), NIXL_SUCCESS);
  EXPECT_TRUE(two.at_a.holds(3, 0, kSize));
}

// Every function that the core may call, at the same time, on both agents.
TEST(NixlBackend, ManyThreads) {
  constexpr size_t kWorkers = 2, kKeepers = 2, kSlot = 40'001;
  constexpr int kRounds = 12;
  struct Half {
    explicit Half(const std::string& name)
        : out(kWorkers * kSlot),
          in(kWorkers * kSlot),
          back(kWorkers * kSlot),
          spare(5000),
          agent(name, {{"log_level", "debug"}}) {}
    Range out, in, back, spare;
    Agent agent;
    std::mutex mu;
    notif_list_t taken;
  };
  Half halves[2] = {Half("left"), Half("right")};
  for (Half& half : halves)
    for (Range* range : {&half.out, &half.in, &half.back}) half.agent.add(*range);
  for (int i = 0; i < 2; ++i) {
    halves[i].agent.know(halves[1 - i].agent);
    halves[i].agent.load(halves[1 - i].agent, halves[1 - i].in);
  }

  auto worker = [&](Half& mine, Half& other, size_t index) {
    const std::string peer = other.agent.name(), tag = std::to_string(index) + ".";
    size_t slot = index * kSlot;
    for (int round = 0; round < kRounds && !::testing::Test::HasFailure(); ++round) {
      uint64_t seed = 1000 * index + static_cast<uint64_t>(round);
      Request write(mine.agent, NIXL_WRITE, {mine.out, slot}, peer, {other.in, slot}, kSlot, 5);
      Request read(mine.agent, NIXL_READ, {mine.back, slot}, peer, {other.in, slot}, kSlot, 2);
      for (int post = 0; post < 2; ++post) {
        mine.out.fill(++seed, slot, kSlot);
        EXPECT_EQ(write.run(tag + std::to_string(2 * round + post)), NIXL_SUCCESS);
        EXPECT_EQ(read.run(), NIXL_SUCCESS);
        EXPECT_TRUE(mine.back.holds(seed, slot, kSlot)) << peer << " " << index << " " << round;
      }
      EXPECT_EQ(mine.agent->genNotif(peer, tag + "sent"), NIXL_SUCCESS);
      std::chrono::microseconds duration{};
      EXPECT_EQ(write.estimate(&duration), NIXL_SUCCESS);
      EXPECT_GT(duration.count(), 0);
      Request given_up(mine.agent, NIXL_READ, {mine.back, slot}, peer, {other.in, slot}, kSlot);
      EXPECT_EQ(given_up.post(), NIXL_IN_PROG);
    }
  };
  std::atomic<int> working{2 * kWorkers};
  auto keeper = [&](Half& mine, Half& other) {
    notif_list_t taken;
    for (int turn = 0; working.load() > 0; ++turn) {
      EXPECT_EQ(mine.agent->getNotifs(taken), NIXL_SUCCESS);
      EXPECT_EQ(mine.agent->loadRemoteConnInfo(other.agent.name(), other.agent.info()),
                NIXL_SUCCESS);
      // Memory that nobody else uses, or once more what transfers are using.
      Range& range = turn % 2 == 0 ? mine.spare : mine.in;
      nixlBackendMD *local = nullptr, *self = nullptr;
      std::string description = "what was in it before";
      ASSERT_EQ(mine.agent->registerMem(range.blob(), DRAM_SEG, local), NIXL_SUCCESS);
      ASSERT_EQ(mine.agent->loadLocalMD(local, self), NIXL_SUCCESS);
      EXPECT_EQ(mine.agent->getPublicData(local, description), NIXL_SUCCESS);
      if (&range == &mine.in) {
        EXPECT_EQ(description, mine.in.public_data);
      }
      EXPECT_EQ(mine.agent->unloadMD(self), NIXL_SUCCESS);
      EXPECT_EQ(mine.agent->deregisterMem(local), NIXL_SUCCESS);
    }
    std::lock_guard lock(mine.mu);
    mine.taken.insert(mine.taken.end(), taken.begin(), taken.end());
  };
  auto estimator = [&](Half& mine, Half& other) {
    Request never_posted(mine.agent, NIXL_READ, {mine.back}, other.agent.name(), {other.in}, 1);
    while (working.load() > 0) {
      std::chrono::microseconds duration{};
      EXPECT_EQ(never_posted.estimate(&duration), NIXL_SUCCESS);
    }
  };
  in_threads(2 * (kKeepers + kWorkers) + 2, [&](size_t thread) {
    Half &mine = halves[thread % 2], &other = halves[1 - thread % 2];
    if (thread >= 2 * (kKeepers + kWorkers)) return estimator(mine, other);
    if (thread < 2 * kKeepers) return keeper(mine, other);
    worker(mine, other, thread / 2 - kKeepers);
    --working;
  });

  for (int i = 0; i < 2; ++i) {
    notif_list_t wanted;
    for (size_t index = 0; index < kWorkers; ++index) {
      std::string tag = std::to_string(index) + ".";
      for (int n = 0; n < 2 * kRounds; ++n)
        wanted.emplace_back(halves[1 - i].agent.name(), tag + std::to_string(n));
      for (int n = 0; n < kRounds; ++n)
        wanted.emplace_back(halves[1 - i].agent.name(), tag + "sent");
    }
    notif_list_t taken = notifications(halves[i].agent, wanted.size(), halves[i].taken);
    EXPECT_THAT(taken, ::testing::UnorderedElementsAreArray(wanted));
    for (Range* range : {&halves[i].out, &halves[i].in, &halves[i].back})
      EXPECT_EQ(range->damage(), "");
  }
}

// Local memory is the application's again when the release returns.
TEST(NixlBackend, ReleasedInProgress) {
  constexpr size_t kSize = 8 * kMiB;
  Two two(kSize);
  Range small_a(64), small_b(64);
  two.a.add(small_a);
  two.b.add(small_b);
  two.a.load(two.b, small_b);
  // What was under way on the connection has passed when this has.
  auto drain = [&] {
    EXPECT_EQ(Request(two.a, NIXL_WRITE, {small_a}, "b", {small_b}, 64).run(), NIXL_SUCCESS);
    EXPECT_EQ(Request(two.a, NIXL_READ, {small_a}, "b", {small_b}, 64).run(), NIXL_SUCCESS);
  };
  EXPECT_TRUE(some_under_way(3, [&] {
    two.at_b.set(0x11);
    Request read(two.a, NIXL_READ, {two.at_a}, "b", {two.at_b}, kSize);
    EXPECT_EQ(read.post("never sent"), NIXL_IN_PROG);
    bool under_way = read.check() == NIXL_IN_PROG;
    read.release();
    two.at_a.reuse(kPoison);
    drain();
    EXPECT_TRUE(two.at_a.all(kPoison)) << "a released READ wrote";
    return under_way;
  }));
  EXPECT_TRUE(some_under_way(3, [&] {
    two.at_a.set(0x22);
    Request write(two.a, NIXL_WRITE, {two.at_a}, "b", {two.at_b}, kSize);
    EXPECT_EQ(write.post(), NIXL_IN_PROG);
    bool under_way = write.check() == NIXL_IN_PROG;
    write.release();
    two.at_a.reuse(0x5A);
    drain();
    EXPECT_EQ(memchr(two.at_b.at(), 0x5A, kSize), nullptr) << "a released WRITE read";
    return under_way;
  }));
}

// A fence, as the release is: for the memory of the initiator, and for that of the target.
TEST(NixlBackend, DeregisteredInProgress) {
  constexpr size_t kSize = 8 * kMiB;
  Two two(kSize);
  two.at_b.set(0x11);
  EXPECT_TRUE(some_under_way(2, [&] {
    Range gone(kSize);
    two.a.add(gone);
    Request read(two.a, NIXL_READ, {gone}, "b", {two.at_b}, kSize);
    EXPECT_EQ(read.post(), NIXL_IN_PROG);
    two.a.remove(gone);
    gone.reuse(kPoison);
    nixl_status_t status = read.wait();
    EXPECT_TRUE(status == NIXL_SUCCESS || status == NIXL_ERR_CANCELED) << status;
    EXPECT_TRUE(gone.all(kPoison)) << "written after the fence";
    return status == NIXL_ERR_CANCELED;
  }));
  Range target(kSize);
  EXPECT_TRUE(some_under_way(2, [&] {
    two.b.add(target);
    two.a.load(two.b, target);
    Request write(two.a, NIXL_WRITE, {two.at_a}, "b", {target}, kSize);
    EXPECT_EQ(write.post(), NIXL_IN_PROG);
    two.b.remove(target);
    target.reuse(kPoison);
    nixl_status_t status = write.wait();
    EXPECT_TRUE(status == NIXL_SUCCESS || status == NIXL_ERR_NOT_FOUND) << status;
    EXPECT_TRUE(target.all(kPoison)) << "written after the fence";
    return status == NIXL_ERR_NOT_FOUND;
  }));
  EXPECT_EQ(Request(two.a, NIXL_READ, {two.at_a}, "b", {two.at_b}, kSize).run(), NIXL_SUCCESS);
  EXPECT_TRUE(two.at_a.all(0x11));
}

// The peer is forgotten and loaded again while threads have requests with it. The peer is well, so
// nobody may be told that it is lost: cores would drop the session that was just made.
TEST(NixlBackend, DisconnectedInProgress) {
  constexpr size_t kWorkers = 3, kSlot = kMiB;
  Two two(kWorkers * kSlot);
  two.at_b.set(0x11);
  std::shared_mutex metadata;  // the core's lock: requests are made, or metadata changes
  std::atomic<bool> stop{false};
  std::atomic<int> done{0}, interrupted{0};
  auto worker = [&](size_t index) {
    while (!stop) {
      std::optional<Request> read;
      {
        std::shared_lock lock(metadata);
        if (two.a.knows("b", two.at_b))  // else the core would refuse
          read.emplace(two.a, NIXL_READ, Place{two.at_a, index * kSlot}, "b",
                       Place{two.at_b, index * kSlot}, kSlot, 4);
      }
      if (!read) {
        std::this_thread::sleep_for(Ms{1});  // lets the lock's other side have it
        continue;
      }
      nixl_status_t status = read->status();
      if (status == NIXL_SUCCESS) status = read->run();
      if (status == NIXL_SUCCESS) {
        ++done;
      } else {
        ++interrupted;
        EXPECT_TRUE(status == NIXL_ERR_CANCELED || status == NIXL_ERR_NOT_FOUND) << status;
      }
      read->release();
      memset(two.at_a.at(index * kSlot), kPoison, kSlot);  // ours again
    }
  };
  auto invalidate = [&] {
    auto before = done + interrupted;
    EXPECT_TRUE(eventually([&] { return done + interrupted > before; }));
    std::unique_lock lock(metadata);
    two.a.unload("b");
    lock.unlock();
    EXPECT_EQ(two.a->disconnect("b"), NIXL_SUCCESS);
    lock.lock();
    two.introduce();
  };
  in_threads(kWorkers + 1, [&](size_t thread) {
    if (thread > 0) return worker(thread - 1);
    EXPECT_TRUE(some_under_way(10, [&] {
      invalidate();
      return interrupted > 0;
    }));
    stop = true;
  });
  EXPECT_GT(done, 0);
  EXPECT_EQ(Request(two.a, NIXL_READ, {two.at_a}, "b", {two.at_b}, kSlot).run(), NIXL_SUCCESS);
  EXPECT_EQ(memchr(two.at_a.at(), kPoison, kSlot), nullptr);
}

// A request outlives the session it was made in; it neither moves anything nor speaks for the new
// one.
TEST(NixlBackend, RequestOfAnEarlierSession) {
  Two two(5000);
  Request old(two.a, NIXL_WRITE, {two.at_a}, "b", {two.at_b}, 5000);
  EXPECT_EQ(old.run(), NIXL_SUCCESS);
  two.a.unload("b");
  EXPECT_EQ(two.a->disconnect("b"), NIXL_SUCCESS);
  EXPECT_EQ(old.check(), NIXL_SUCCESS);
  EXPECT_EQ(old.post(), NIXL_ERR_NOT_FOUND);
  two.introduce();
  two.at_b.set(kPoison);
  EXPECT_EQ(old.post("no"), NIXL_ERR_NOT_FOUND);
  EXPECT_TRUE(two.at_b.all(kPoison));
  EXPECT_EQ(Request(two.a, NIXL_WRITE, {two.at_a}, "b", {two.at_b}, 5000).run("new"), NIXL_SUCCESS);
  EXPECT_THAT(notifications(two.b, 1), ::testing::ElementsAre(::testing::Pair("a", "new")));
}

// The peer ends under transfers of several threads; another one takes its name.
TEST(NixlBackend, PeerEnds) {
  constexpr size_t kWorkers = 3, kSlot = 2 * kMiB;
  Range at_a(kWorkers * kSlot), at_b(kWorkers * kSlot);
  Agent a("a");
  std::optional<Agent> b(std::in_place, "b");
  a.add(at_a);
  b->add(at_b);
  a.know(*b);
  a.load(*b, at_b);
  std::atomic<int> moved{0};
  in_threads(kWorkers + 1, [&](size_t thread) {
    if (thread == 0) {
      EXPECT_TRUE(eventually([&] { return moved >= 3; }));
      b.reset();
      at_b.set(kPoison);  // nobody touches it any more
      return;
    }
    size_t slot = (thread - 1) * kSlot;
    Request request(a, thread % 2 == 0 ? NIXL_READ : NIXL_WRITE, {at_a, slot}, "b", {at_b, slot},
                    kSlot);
    nixl_status_t status = NIXL_SUCCESS;
    for (Stopwatch watch; status == NIXL_SUCCESS && watch.elapsed() < kLong; ++moved)
      status = request.run();
    // The target takes its memory back before it closes.
    EXPECT_TRUE(status == NIXL_ERR_REMOTE_DISCONNECT || status == NIXL_ERR_NOT_FOUND) << status;
    EXPECT_TRUE(eventually([&] { return request.run() == NIXL_ERR_REMOTE_DISCONNECT; }));
  });
  Request late(a, NIXL_READ, {at_a}, "b", {at_b}, kSlot);
  EXPECT_EQ(late.status(), NIXL_SUCCESS) << "only a post may say that the peer is lost";
  EXPECT_EQ(late.post(), NIXL_ERR_REMOTE_DISCONNECT);
  EXPECT_TRUE(at_b.all(kPoison));

  b.emplace("b");
  b->add(at_b);
  a.know(*b);
  a.load(*b, at_b);
  EXPECT_EQ(late.post(), NIXL_ERR_NOT_FOUND) << "made for the one before";
  EXPECT_EQ(Request(a, NIXL_READ, {at_a}, "b", {at_b}, kSlot).run(), NIXL_SUCCESS);
  EXPECT_EQ(*at_a.at(), kPoison);
}

// The connection to oneself is made by the first who needs it, here several at once.
TEST(NixlBackend, SelfTransfer) {
  constexpr size_t kWorkers = 3, kSlot = 70'001;
  Range range(2 * kWorkers * kSlot);
  Agent agent("me");
  agent.add(range);
  notif_list_t taken;
  in_threads(kWorkers + 1, [&](size_t index) {
    if (index == kWorkers) {
      taken = notifications(agent, 2 * kWorkers);
      return;
    }
    size_t from = index * kSlot, to = (kWorkers + index) * kSlot;
    range.fill(index, from, kSlot);
    Request write(agent, NIXL_WRITE, {range, from}, "me", {range, to}, kSlot, 3);
    EXPECT_EQ(write.run("moved"), NIXL_SUCCESS);
    EXPECT_TRUE(range.holds(index, to, kSlot));
    memset(range.at(from), kPoison, kSlot);
    Request read(agent, NIXL_READ, {range, from}, "me", {range, to}, kSlot);
    EXPECT_EQ(read.run(), NIXL_SUCCESS);
    EXPECT_TRUE(range.holds(index, from, kSlot));
    EXPECT_EQ(agent->genNotif("me", "sent"), NIXL_SUCCESS);
  });
  notif_list_t wanted;
  for (const char* message : {"moved", "sent"})
    wanted.insert(wanted.end(), kWorkers, {"me", message});
  EXPECT_THAT(taken, ::testing::UnorderedElementsAreArray(wanted));
}

// The application forgets its requests, and the core ends the agent all the same.
TEST(NixlBackend, DestroyedWithRequestsOpen) {
  static auto& forgotten = *new std::vector<nixlBackendReqH*>;  // nobody may release them any more
  constexpr size_t kSize = 32 * kMiB, kRead = 24 * kMiB;
  Range at_a(kSize), at_b(kSize), sink(kSize);
  Agent b("b");
  b.add(at_b);
  b.add(sink);
  at_a.set(kPoison);
  at_b.set(0x11);
  EXPECT_TRUE(some_under_way(3, [&] {
    Range small(64);
    std::optional<Agent> a(std::in_place, "a");
    a->add(at_a);
    a->add(small);
    a->know(b);
    a->load(b, at_b);
    a->load(b, sink);
    Request never_posted(*a, NIXL_READ, {small}, "b", {at_b}, 64);
    Request ended(*a, NIXL_READ, {small}, "b", {at_b}, 64);
    EXPECT_EQ(ended.run(), NIXL_SUCCESS);
    EXPECT_TRUE(at_a.all(kPoison)) << "written after the end of its agent";
    Request write(*a, NIXL_WRITE, {at_a}, "b", {sink}, kSize - kRead);
    Request read(*a, NIXL_READ, {at_a, kSize - kRead}, "b", {at_b}, kRead);
    EXPECT_EQ(write.post(), NIXL_IN_PROG);
    EXPECT_EQ(read.post(), NIXL_IN_PROG);
    bool under_way = read.check() == NIXL_IN_PROG && write.check() == NIXL_IN_PROG;
    for (Request* request : {&never_posted, &ended, &write, &read})
      forgotten.push_back(request->forget());
    Stopwatch watch;
    a.reset();
    EXPECT_LT(watch.elapsed(), patience(5000));
    at_a.reuse(kPoison);
    return under_way;
  }));
  Range again(kSize);
  Agent c("c");
  c.add(again);
  c.know(b);
  c.load(b, at_b);
  EXPECT_EQ(Request(c, NIXL_READ, {again}, "b", {at_b}, kSize).run(), NIXL_SUCCESS);
  EXPECT_TRUE(again.all(0x11));
  EXPECT_TRUE(at_a.all(kPoison)) << "written after the end of its agent";
}

}  // namespace tcpx_nixl::test
