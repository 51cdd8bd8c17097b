// What an authenticated peer can make us hold is bounded, and given back when it has gone.
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "fault_fixture.h"
#include "raw_client.h"

namespace tcpx::test {
namespace {

using wire::FrameType;

constexpr uint64_t kMiB = 1 << 20;
// What a child process grows by for other reasons: stacks, pools, the allocator's arenas.
constexpr uint64_t kSlack = kSanitized ? 96 * kMiB : 16 * kMiB;

// The engine under test is a process of its own, so that its memory can be told from ours.
class GreedyPeer : public ::testing::Test {
 protected:
  void SetUp() override {
    victim = std::make_unique<ProcessTarget>(
        4096, fault_options(
                  {{"peer_timeout", time_option(20'000)}, {"lane_timeout", time_option(15'000)}}));
    target = Target::from_info(victim->program.info());
    quiet = rss();
  }
  uint64_t rss() {
    std::istringstream words(victim->program("holdings"));
    uint64_t fds = 0, threads = 0, bytes = 0;
    words >> fds >> threads >> bytes;
    return bytes;
  }
  uint64_t grown() {
    uint64_t now = rss();
    return now > quiet ? now - quiet : 0;
  }
  std::vector<std::unique_ptr<RawClient>> session(uint32_t lanes) {
    std::vector<std::unique_ptr<RawClient>> out;
    out.push_back(std::make_unique<RawClient>(target));
    out[0]->hello.lanes = lanes;
    EXPECT_TRUE(out[0]->handshake());
    for (uint32_t i = 1; i < lanes; ++i) {
      auto lane = std::make_unique<RawClient>(target);
      lane->hello = out[0]->hello;
      lane->hello.kind = wire::HelloKind::kJoinLane;
      lane->hello.session = out[0]->welcome.session;
      lane->hello.lane = i;
      EXPECT_TRUE(lane->handshake(out[0]->session_key()));
      out.push_back(std::move(lane));
    }
    return out;
  }
  // So that answers that are not read do not all fit into the kernel.
  static void keep_little(RawClient& lane) {
    int small = 64 << 10;
    ::setsockopt(lane.socket().fd(), SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
  }
  // Sends for as long as the other side takes it. How many bytes that were.
  static size_t flood(RawClient& lane, std::span<const uint8_t> bytes, Ms patience_with_it) {
    size_t sent = 0;
    while (sent < bytes.size()) {
      size_t part = std::min<size_t>(bytes.size() - sent, 64 << 10);
      ssize_t n =
          ::send(lane.socket().fd(), bytes.data() + sent, part, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (n > 0) {
        sent += static_cast<size_t>(n);
        continue;
      }
      pollfd waiter{lane.socket().fd(), POLLOUT, 0};
      if (::poll(&waiter, 1, static_cast<int>(patience_with_it.count())) <= 0) break;
    }
    return sent;
  }

  std::unique_ptr<ProcessTarget> victim;
  Target target;
  uint64_t quiet = 0;
};

TEST_F(GreedyPeer, AnAnnouncedNotificationTakesNoMemoryBeforeItArrives) {
  constexpr uint32_t kLanes = 32;
  wire::Header head = frame_of(FrameType::kNotify, 1);
  head.payload_bytes = 16 * kMiB;
  for (int round = 0; round < 2; ++round) {
    auto lanes = session(kLanes);
    for (auto& lane : lanes) ASSERT_TRUE(lane->send_header(head));
    for (auto& lane : lanes) ASSERT_TRUE(lane->socket().send(std::vector<uint8_t>(100'000)));
    std::this_thread::sleep_for(patience(100));
    EXPECT_LT(grown(), kSlack + kLanes * 256 * 1024) << "for 100 KB on each of 32 lanes";
  }
  EXPECT_TRUE(eventually([&] { return grown() < kSlack; }, patience(10'000)))
      << grown() << " bytes are kept after the peer has gone";
}

struct Question {
  const char* name;
  wire::Header header;
};
std::ostream& operator<<(std::ostream& out, const Question& question) {
  return out << question.name;
}

Question question(const char* name, FrameType type) {
  wire::Header header = frame_of(type, 1);
  if (type == FrameType::kPing) header.transfer = 0;
  return {name, header};
}

class UnreadAnswers : public GreedyPeer, public ::testing::WithParamInterface<Question> {};

// Who asks without reading the answers is no longer read; its questions wait with it, none is lost.
TEST_P(UnreadAnswers, AreFewAndThenTheLaneIsNotRead) {
  auto lanes = session(2);
  RawClient& lane = *lanes[1];
  keep_little(lane);
  const size_t count = smaller_if_sanitized<size_t>(600'000, 200'000);
  wire::Header header = GetParam().header;
  if (header.type == FrameType::kWrite) {  // of no bytes
    header.piece_count = 1;
    header.piece.region = victim->memory.id;
    header.aux = lane.welcome.epoch;
  }
  std::vector<uint8_t> bytes = lane.burst(header, count);
  size_t sent = flood(lane, bytes, patience(500));
  EXPECT_LT(grown(), kSlack + 8 * kMiB) << "after " << sent << " bytes of " << bytes.size();
  ASSERT_TRUE(lanes[0]->ping()) << "the session lives";

  // Now it reads.
  std::atomic<bool> all_sent{false};
  std::thread reader([&] {
    uint8_t scrap[64 << 10];
    for (Stopwatch quiet_for; quiet_for.elapsed() < kLong;) {
      ssize_t n = ::recv(lane.socket().fd(), scrap, sizeof scrap, MSG_DONTWAIT);
      if (n > 0) continue;
      if (n == 0 || all_sent) return;
      std::this_thread::sleep_for(Ms{1});
    }
  });
  EXPECT_TRUE(lane.socket().send({bytes.data() + sent, bytes.size() - sent}, kLong));
  all_sent = true;
  reader.join();
  EXPECT_LT(grown(), kSlack + 8 * kMiB);
  EXPECT_TRUE(lanes[0]->ping());
  lanes.clear();
  EXPECT_TRUE(eventually([&] { return grown() < kSlack; }, patience(10'000)))
      << grown() << " bytes are kept after the peer has gone";
}

INSTANTIATE_TEST_SUITE_P(Kinds, UnreadAnswers,
                         ::testing::Values(question("pings", FrameType::kPing),
                                           question("empty_writes", FrameType::kWrite)),
                         [](auto& row) { return row.param.name; });

// Dead to us, not silent: it could be read, and is given up because it does not read.
TEST_F(GreedyPeer, ALaneWhoseAnswersAreNeverReadIsGivenUp) {
  victim = std::make_unique<ProcessTarget>(4096, fault_options());
  target = Target::from_info(victim->program.info());
  auto lanes = session(2);
  std::atomic<bool> over{false};
  std::thread lives([&] {  // answers pings, also while the flood is being made
    while (!over) (void)lanes[0]->receive(Ms{20});
  });
  keep_little(*lanes[1]);
  std::vector<uint8_t> bytes = lanes[1]->burst(frame_of(FrameType::kPing), 400'000);
  flood(*lanes[1], bytes, patience(300));
  EXPECT_TRUE(eventually(
      [&] {
        return nlohmann::json::parse(victim->program("counters"))["engine"]["lanes_lost"] == 1;
      },
      patience(5'000)));
  over = true;
  lives.join();
  EXPECT_TRUE(lanes[0]->ping());
}

// Lanes that ask without a pause, and read.
class Flooders {
 public:
  Flooders(std::vector<std::unique_ptr<RawClient>>& lanes, const wire::Header& header) {
    thread_ = std::thread([this, &lanes, header] {
      std::vector<std::vector<uint8_t>> bytes;
      std::vector<size_t> at(lanes.size());
      for (auto& lane : lanes) bytes.push_back(lane->burst(header, 2'000));
      uint8_t scrap[64 << 10];
      while (!stop_) {
        for (size_t i = 0; i < lanes.size(); ++i) {
          int fd = lanes[i]->socket().fd();
          ssize_t n = ::send(fd, bytes[i].data() + at[i], bytes[i].size() - at[i],
                             MSG_NOSIGNAL | MSG_DONTWAIT);
          if (n > 0) at[i] += static_cast<size_t>(n);
          if (at[i] == bytes[i].size()) {
            bytes[i] = lanes[i]->burst(header, 2'000);
            at[i] = 0;
          }
          while (::recv(fd, scrap, sizeof scrap, MSG_DONTWAIT) > 0) {
          }
        }
      }
    });
  }
  ~Flooders() {
    stop_ = true;
    thread_.join();
  }

 private:
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

class FloodingPeer : public GreedyPeer, public ::testing::WithParamInterface<Question> {
 protected:
  // Times of small writes, sorted.
  std::vector<double> write_times(Engine& honest, tcpx_peer peer, size_t count) {
    Local local = make_local(honest, 4096, 0, 9);
    Transfer transfer;
    EXPECT_TRUE(succeeded(honest.prepare(peer, TCPX_WRITE, {{local.region, 0, 4096}},
                                         {{&victim->memory, 0, 4096}}, &transfer)));
    std::vector<double> ms;
    for (size_t i = 0; i < count; ++i) {
      auto from = Clock::now();
      EXPECT_TRUE(succeeded(transfer.post()));
      EXPECT_TRUE(succeeded(transfer.wait(kLong)));
      ms.push_back(std::chrono::duration<double, std::milli>(Clock::now() - from).count());
    }
    std::sort(ms.begin(), ms.end());
    transfer.release();
    EXPECT_TRUE(succeeded(honest.deregister(local.region)));
    return ms;
  }
};

TEST_P(FloodingPeer, OthersHaveTheirTurnsAndMayConnect) {
  Engine honest = make_engine(fault_options({{"connect_timeout", time_option(10'000)}}));
  tcpx_peer peer = 0;
  ASSERT_TRUE(succeeded(honest.connect(victim->program.info(), &peer)));
  ASSERT_TRUE(succeeded(honest.peer_wait(peer, kLong)));
  double quiet_ms = write_times(honest, peer, 50)[25];
  auto lanes = session(32);
  Flooders flooders(lanes, GetParam().header);
  std::this_thread::sleep_for(patience(200));
  std::vector<double> busy = write_times(honest, peer, 50);
  // Far above what is promised: other processes want the cores, too.
  double allowed = kSanitized ? 400 : 60;
  EXPECT_LT(busy[25], allowed) << "median; " << quiet_ms << " ms in quiet";
  EXPECT_LT(busy[48], 4 * allowed);
  for (int i = 0; i < 3; ++i) {
    Engine late = make_engine(fault_options({{"connect_timeout", time_option(10'000)}}));
    Stopwatch watch;
    ASSERT_TRUE(succeeded(late.connect(victim->program.info(), &peer)));
    EXPECT_TRUE(succeeded(late.peer_wait(peer, kLong)));
    EXPECT_LT(watch.elapsed(), patience(2'000));
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, FloodingPeer,
                         ::testing::Values(question("pings", FrameType::kPing)),
                         [](auto& row) { return row.param.name; });

// A gap in the ids, which an honest peer leaves when one of its notifications was refused, costs
// nothing however many follow.
TEST(NoticeIds, AGapIsNotRememberedForEver) {
  Engine engine = make_engine(fault_options());
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> taken{0};
  std::thread application([&] {
    char buffer[16];
    while (!stop) {
      size_t length = sizeof buffer;
      if (tcpx_next_notification(engine.raw(), 5, nullptr, buffer, &length) == TCPX_OK) ++taken;
    }
  });
  RawClient client(Target::from_info(engine.connection_info()));
  ASSERT_TRUE(client.handshake());
  const uint64_t count = smaller_if_sanitized<uint64_t>(300'000, 50'000);
  uint64_t before = 0, sent = 0;
  while (sent < count) {
    wire::Header header = frame_of(FrameType::kNotify, 2 + sent);
    ASSERT_TRUE(client.socket().send(client.burst(header, 100), kLong));
    std::vector<uint8_t> answers(100 * wire::kHeaderBytes);
    ASSERT_TRUE(client.socket().receive(answers, kLong));
    sent += 100;
    if (sent == 10'000) before = rss_bytes();
  }
  EXPECT_TRUE(eventually([&] { return taken == count; }));
  uint64_t after = rss_bytes();
  stop = true;
  application.join();
  // ASan keeps what was freed for a while.
  const uint64_t bound = (kSanitized ? 64 : 8) * kMiB;
  EXPECT_LT(after > before ? after - before : 0, bound) << "for " << count << " of them";
}

}  // namespace
}  // namespace tcpx::test
