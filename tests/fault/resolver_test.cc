// Names that the system's resolver cannot tell: connecting by address returns at once, ends by
// connect_timeout, and nobody else waits for it.
#include <dlfcn.h>
#include <netdb.h>

#include <atomic>
#include <condition_variable>
#include <mutex>

#include "../support/ports.h"
#include "fault_fixture.h"

namespace {

std::mutex hang_mutex;
std::condition_variable hang_ends;
bool hanging = true;
std::atomic<int> in_resolver{0};

}  // namespace

// In place of the C library's: names below "hang.test" are not answered until the test says so, as
// with a name server that is gone.
extern "C" int getaddrinfo(const char* node, const char* service, const addrinfo* hints,
                           addrinfo** result) {
  if (node != nullptr && std::string_view(node).ends_with(".hang.test")) {
    ++in_resolver;
    std::unique_lock lock(hang_mutex);
    hang_ends.wait_for(lock, std::chrono::seconds(20), [] { return !hanging; });
    --in_resolver;
    return EAI_AGAIN;
  }
  using Function = int (*)(const char*, const char*, const addrinfo*, addrinfo**);
  static const auto real = reinterpret_cast<Function>(::dlsym(RTLD_NEXT, "getaddrinfo"));
  return real(node, service, hints, result);
}

namespace tcpx::test {
namespace {

constexpr const char* kKey = "a key for names, long enough: 0123456789";

class Resolver : public ::testing::Test {
 protected:
  void SetUp() override { set_hanging(true); }
  // Nothing of ours is left behind for the next test.
  void TearDown() override {
    set_hanging(false);
    EXPECT_TRUE(eventually([] { return in_resolver == 0; }));
  }
  static void set_hanging(bool value) {
    std::lock_guard lock(hang_mutex);
    hanging = value;
    hang_ends.notify_all();
  }
  static Options options() {
    return fault_options({{"auth_key", kKey}, {"connect_timeout", time_option(500)}});
  }
};

TEST_F(Resolver, ThatHangsHoldsUpNeitherTheCallNorTheEngine) {
  Engine server = make_engine(options());
  Engine client = make_engine(options());
  Stopwatch watch;
  tcpx_peer hung = 0;
  ASSERT_TRUE(succeeded(client.connect_address("server.hang.test:1234", &hung)));
  EXPECT_LT(watch.elapsed(), patience(400)) << "it starts connecting in the background";
  // Others are connected to meanwhile, by address and by name.
  for (const char* host : {"127.0.0.1", "localhost"}) {
    tcpx_peer peer = 0;
    std::string address = strf("{}:{}", host, listening_port(server.connection_info(), kKey));
    ASSERT_TRUE(succeeded(client.connect_address(address, &peer)));
    EXPECT_TRUE(succeeded(client.peer_wait(peer, kLong))) << host;
  }
  Result result = client.peer_wait(hung, kLong);
  EXPECT_EQ(result.code(), TCPX_CONNECT_FAILED) << result.text();
  EXPECT_NE(result.text().find("server.hang.test"), std::string::npos) << result.text();
  EXPECT_LT(watch.elapsed(), patience(5'000));
  Stopwatch end;
  client.destroy();
  EXPECT_LT(end.elapsed(), patience(3'000)) << "destroy does not wait for the resolver";
  EXPECT_GE(in_resolver.load(), 1);
}

TEST_F(Resolver, ManyHangingLookupsAreBounded) {
  Engine client = make_engine(options());
  size_t before = thread_count();
  std::vector<tcpx_peer> peers(100);
  size_t refused = 0;
  for (tcpx_peer& peer : peers) {
    Result result = client.connect_address("server.hang.test:1234", &peer);
    if (result) continue;
    EXPECT_EQ(result.code(), TCPX_LIMIT) << result.text();
    ++refused;
  }
  EXPECT_GT(refused, 0u);
  EXPECT_LT(refused, peers.size());
  for (tcpx_peer peer : peers) {
    if (peer != 0) {
      EXPECT_EQ(client.peer_wait(peer, kLong).code(), TCPX_CONNECT_FAILED);
    }
  }
  EXPECT_LE(thread_count(), before + 32);
}

TEST_F(Resolver, ANameThatDoesNotExistEndsTheConnectWithItsName) {
  Engine client = make_engine(options());
  tcpx_peer peer = 0;
  Result result = client.connect_address("no-such-host.invalid:5", &peer);
  if (result) result = client.peer_wait(peer, kLong);
  EXPECT_EQ(result.code(), TCPX_CONNECT_FAILED);
  EXPECT_NE(result.text().find("no-such-host.invalid"), std::string::npos) << result.text();
}

}  // namespace
}  // namespace tcpx::test
