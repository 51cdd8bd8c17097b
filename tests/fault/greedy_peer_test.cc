// What an authenticated peer can make us hold is bounded, and given back when it has gone.
#include <sys/socket.h>

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
  if (type == FrameType::kPing || type == FrameType::kLaneDown) header.transfer = 0;
  if (type == FrameType::kLaneDown) header.chunk = 63;
  if (type == FrameType::kRead || type == FrameType::kWrite) {
    header.piece_count = 1;
    header.piece.slot = 4'000'000;
    header.piece.generation = 1;
    header.payload_bytes = type == FrameType::kRead ? 100 : 0;
    header.piece.length = header.payload_bytes;
  }
  return {name, header};
}

class UnreadAnswers : public GreedyPeer, public ::testing::WithParamInterface<Question> {};

// Who asks without reading the answers is no longer read; its questions wait with it, none is lost.
TEST_P(UnreadAnswers, AreFewAndThenTheLaneIsNotRead) {
  auto lanes = session(2);
  RawClient& lane = *lanes[1];
  int small = 64 << 10;
  ::setsockopt(lane.socket().fd(), SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
  const size_t count = smaller_if_sanitized<size_t>(600'000, 200'000);
  std::vector<uint8_t> bytes = lane.burst(GetParam().header, count);
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
                                           question("refused_reads", FrameType::kRead),
                                           question("empty_writes", FrameType::kWrite),
                                           question("lane_downs", FrameType::kLaneDown)),
                         [](auto& row) { return row.param.name; });

// Dead to us, not silent: it could be read, and is given up because it does not read.
TEST_F(GreedyPeer, ALaneWhoseAnswersAreNeverReadIsGivenUp) {
  victim = std::make_unique<ProcessTarget>(4096, fault_options());
  target = Target::from_info(victim->program.info());
  auto lanes = session(2);
  std::vector<uint8_t> bytes = lanes[1]->burst(frame_of(FrameType::kPing), 400'000);
  flood(*lanes[1], bytes, patience(300));
  EXPECT_TRUE(eventually(
      [&] {
        (void)lanes[0]->receive(Ms{20});  // answers pings: this lane lives
        return nlohmann::json::parse(victim->program("counters"))["engine"]["lanes_lost"] == 1;
      },
      patience(5'000)));
  EXPECT_TRUE(lanes[0]->ping());
}

}  // namespace
}  // namespace tcpx::test
