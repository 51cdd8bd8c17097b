// 64 peers in one process: threads do not grow with them, memory is bounded, every one works.
#include "../support/proc.h"
#include "fixture.h"

namespace tcpx::test {
namespace {

TEST(ManyPeers, SixtyFourPeersCostNoThreadsAndLittleMemory) {
  constexpr size_t kPeers = 64;
  constexpr uint64_t kPart = 10'000;
  Engine server = make_engine(loopback_options());
  Engine client = make_engine(loopback_options());
  std::vector<uint8_t> there(kPeers * kPart, 0xEE), here(kPeers * kPart);
  for (size_t i = 0; i < here.size(); ++i) here[i] = static_cast<uint8_t>(i * 131 >> 3);
  tcpx_region local = 0, shared = 0;
  ASSERT_TRUE(succeeded(client.register_memory(here.data(), here.size(), 0, &local)));
  ASSERT_TRUE(succeeded(server.register_memory(there.data(), there.size(), 3, &shared)));
  Bytes description;
  ASSERT_TRUE(succeeded(server.export_region(shared, &description)));
  tcpx_remote_region remote{};
  ASSERT_TRUE(succeeded(Engine::import_region(description, &remote)));

  size_t threads = thread_count();
  uint64_t memory = rss_bytes();
  std::vector<tcpx_peer> peers(kPeers);
  for (tcpx_peer& peer : peers)
    ASSERT_TRUE(succeeded(client.connect(server.connection_info(), &peer)));
  for (tcpx_peer peer : peers) ASSERT_TRUE(succeeded(client.peer_wait(peer)));
  std::vector<Transfer> transfers(kPeers);
  for (size_t i = 0; i < kPeers; ++i) {
    ASSERT_TRUE(succeeded(client.prepare(peers[i], TCPX_WRITE, {{local, i * kPart, kPart}},
                                         {{&remote, i * kPart, kPart}}, &transfers[i])));
    ASSERT_TRUE(succeeded(transfers[i].post()));
  }
  for (Transfer& transfer : transfers) EXPECT_TRUE(succeeded(transfer.wait()));
  EXPECT_EQ(thread_count(), threads);
  EXPECT_EQ(there, here);
  if (!kSanitized) {
    EXPECT_LT(rss_bytes() - memory, 2 * kPeers * (256u << 10));  // both ends are here
  }
}

}  // namespace
}  // namespace tcpx::test
