// A transfer that hangs is named in the log: lane, transfer, chunk, offset, age, the peer's view.
#include <mutex>

#include "fault_fixture.h"

namespace tcpx::test {
namespace {

TEST(StallReport, NamesWhatHangsWhileThePeerIsStopped) {
  std::mutex mu;
  std::string lines;
  Engine engine = make_engine(fault_options({{"peer_timeout", time_option(5'000)}}),
                              [&](tcpx_log_level, const char* line) {
                                std::lock_guard lock(mu);
                                lines += std::string(line) + "\n";
                              });
  auto said = [&](const char* text) {
    std::lock_guard lock(mu);
    return lines.find(text) != std::string::npos;
  };
  constexpr uint64_t kBytes = 64 << 20;
  ProcessTarget target(kBytes, fault_options({{"peer_timeout", time_option(5'000)}}));
  Local local = make_local(engine, kBytes, 0, 1);
  tcpx_peer peer = 0;
  ASSERT_TRUE(succeeded(engine.connect(target.program.info(), &peer)));
  ASSERT_TRUE(succeeded(engine.peer_wait(peer, kLong)));
  target.program.freeze();
  Transfer transfer;
  ASSERT_TRUE(succeeded(engine.prepare(peer, TCPX_WRITE, {{local.region, 0, kBytes}},
                                       {{&target.memory, 0, kBytes}}, &transfer)));
  ASSERT_TRUE(succeeded(transfer.post(Ms{60'000})));
  EXPECT_TRUE(eventually([&] { return said("stalls: lane 0 "); }, patience(4'000))) << lines;
  for (const char* part : {"chunk ", "at offset ", "has waited ", "peer says it has received "})
    EXPECT_TRUE(said(part)) << part << "\n" << lines;
  target.program.thaw();
  EXPECT_TRUE(succeeded(transfer.wait(kLong))) << transfer.error();
  transfer.release();
  engine.destroy();
}

}  // namespace
}  // namespace tcpx::test
