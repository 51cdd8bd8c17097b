// A transfer that hangs is named in the log: lane, transfer, chunk, offset, age, the peer's view.
#include <mutex>
#include <regex>

#include "fault_fixture.h"

namespace tcpx::test {
namespace {

constexpr int64_t kKeepalive = 200;
constexpr uint64_t kChunk = 256 << 10, kChunks = 256, kLength = kChunk * kChunks;

// The figures of such a line.
struct Report {
  uint64_t peer, lane, port, transfer, chunk, offset, bytes;
  std::string where;
  int64_t age_ms;
  uint64_t outstanding, sent, received;
};

bool parse(const std::string& line, Report* out) {
  static const std::regex form(
      R"(peer (\d+) \(.*\) stalls: lane (\d+) to 127\.0\.0\.1:(\d+): transfer (\d+) chunk (\d+) at offset (\d+) )"
      R"(\((\d+) bytes, (not yet out|awaiting the answer)\) has waited (\d+) ms; (\d+) chunks outstanding, )"
      R"((\d+) bytes sent, peer says it has received (\d+) payload bytes)");
  std::smatch match;
  if (!std::regex_search(line, match, form)) return false;
  auto number = [&](size_t i) { return std::stoull(match[i]); };
  *out = {number(1),  number(2),  number(3),
          number(4),  number(5),  number(6),
          number(7),  match[8],   static_cast<int64_t>(number(9)),
          number(10), number(11), number(12)};
  return true;
}

class StallReport : public ::testing::Test {
 protected:
  void SetUp() override {
    Options options = fault_options({{"peer_timeout", time_option(5'000)},
                                     {"lane_timeout", time_option(5'000)},
                                     {"chunk_bytes", std::to_string(kChunk)},
                                     {"lanes", "1"}});
    engine = make_engine(options, [this](tcpx_log_level, const char* line) {
      std::lock_guard lock(mu_);
      lines_.emplace_back(line);
    });
    target = std::make_unique<ProcessTarget>(kLength, options);
    local = make_local(engine, kLength, 0, 1);
    ASSERT_TRUE(succeeded(engine.connect(target->program.info(), &peer)));
    ASSERT_TRUE(succeeded(engine.peer_wait(peer, kLong)));
  }
  void TearDown() override { engine.destroy(); }

  // The first report since forget().
  bool reported(Report* out) {
    std::lock_guard lock(mu_);
    for (const std::string& line : lines_)
      if (parse(line, out)) return true;
    return false;
  }
  void forget() {
    std::lock_guard lock(mu_);
    lines_.clear();
  }
  std::string said() {
    std::lock_guard lock(mu_);
    std::string all;
    for (const std::string& line : lines_) all += line + "\n";
    return all;
  }
  uint64_t sent_by_lane() {
    return counters(engine).at("peers").at(0).at("lanes").at(0).at("bytes_out").get<uint64_t>();
  }

  Local local;
  Engine engine;
  std::unique_ptr<ProcessTarget> target;
  tcpx_peer peer = 0;

 private:
  std::mutex mu_;
  std::vector<std::string> lines_;
};

// The peer is stopped somewhere in the middle. What it has received is what it said last, so one
// report comes before the one that is looked at: the ping that goes out meanwhile is answered when
// the peer goes on.
TEST_F(StallReport, NamesWhatHangsWhileThePeerIsStopped) {
  uint64_t posts = 0, done = 0;
  until_under_way([&](bool* met) {
    forget();
    Transfer transfer;
    ASSERT_TRUE(succeeded(engine.prepare(peer, TCPX_WRITE, {{local.region, 0, kLength}},
                                         {{&target->memory, 0, kLength}}, &transfer)));
    Stopwatch since_post;
    ASSERT_TRUE(succeeded(transfer.post(Ms{60'000})));
    ++posts;
    // Some of it has to be there before the peer stands still, also on a machine that is fast.
    const uint64_t before = sent_by_lane();
    (void)eventually([&] { return sent_by_lane() > before + 4 * kChunk; }, Ms{200});
    target->program.freeze();
    Report seen{};
    bool hangs = !eventually([&] { return transfer.poll().code() != TCPX_IN_PROGRESS; }, Ms{1}) &&
                 eventually([&] { return reported(&seen); }, patience(4'000));
    Ms longest = since_post.elapsed();
    uint64_t sent = sent_by_lane();
    target->program.thaw();
    ASSERT_TRUE(succeeded(transfer.wait(kLong))) << transfer.error();
    *met = hangs && seen.chunk > 0 && seen.received > 0;
    if (hangs) {
      EXPECT_EQ(seen.peer, peer);
      EXPECT_EQ(seen.lane, 0u);
      EXPECT_EQ(seen.transfer, posts) << "they are counted by session";
      EXPECT_LT(seen.chunk, kChunks);
      EXPECT_EQ(seen.offset, seen.chunk * kChunk);
      EXPECT_EQ(seen.bytes, kChunk);
      EXPECT_GE(seen.age_ms, 2 * patience(kKeepalive).count()) << "a report is due after that";
      EXPECT_LE(seen.age_ms, longest.count() + 1);
      EXPECT_GE(seen.outstanding, 1u);
      EXPECT_LE(seen.outstanding, kChunks - seen.chunk);
      EXPECT_GE(seen.sent, done + seen.offset) << "every chunk before it was answered";
      EXPECT_LE(seen.sent, sent);
      EXPECT_EQ(seen.received % kChunk, 0u) << "whole chunks";
      EXPECT_LE(seen.received, done + seen.offset + seen.outstanding * kChunk);
      if (HasFailure()) ADD_FAILURE() << said();
    }
    done += kLength;
  });
}

}  // namespace
}  // namespace tcpx::test
