// The engine as a guest in its process: connection info, lifetime, options, what it leaves behind.
#include <signal.h>
#include <sys/stat.h>

#include <set>

#include "../support/ports.h"
#include "../support/proc.h"
#include "../support/rounds.h"
#include "fixture.h"

namespace tcpx::test {
namespace {

TEST(ConnectionInfo, IsConstantAndEveryChangedBitIsRejected) {
  Engine target = make_engine(loopback_options());
  Engine engine = make_engine(loopback_options());
  Bytes info = target.connection_info();
  EXPECT_EQ(info, target.connection_info());
  EXPECT_NE(info, engine.connection_info());
  tcpx_peer untouched = 4711, peer = untouched;
  for (size_t bit = 0; bit < info.size() * 8; ++bit) {
    Bytes changed = info;
    changed[bit / 8] ^= static_cast<uint8_t>(1 << (bit % 8));
    Result result = engine.connect(changed, &peer);
    EXPECT_TRUE(result.code() == TCPX_TAMPERED || result.code() == TCPX_VERSION_MISMATCH ||
                result.code() == TCPX_INVALID_ARGUMENT)
        << "bit " << bit << ": " << result.name();
  }
  for (size_t length = 0; length < info.size(); ++length)
    EXPECT_FALSE(engine.connect(Bytes(info.begin(), info.begin() + length), &peer).ok()) << length;
  Bytes longer = info;
  longer.push_back(0);
  EXPECT_FALSE(engine.connect(longer, &peer).ok());
  EXPECT_FALSE(engine.connect(Bytes(5000, 0x41), &peer).ok());
  EXPECT_EQ(peer, untouched) << "outputs are written only on success";
  ASSERT_TRUE(succeeded(engine.connect(info, &peer)));
  EXPECT_TRUE(succeeded(engine.peer_wait(peer, kLong)));
}

TEST(ConnectionInfo, WithAConfiguredKeyItCarriesNoSecretAndForgeryIsDetected) {
  Options keyed = loopback_options({{"auth_key", "a long enough shared key 0123456789"}});
  Options other = loopback_options({{"auth_key", "another long enough shared key 98765"}});
  Engine target = make_engine(keyed), engine = make_engine(keyed), stranger = make_engine(other);
  tcpx_peer peer = 0;
  ASSERT_TRUE(succeeded(engine.connect(target.connection_info(), &peer)));
  ASSERT_TRUE(succeeded(engine.peer_wait(peer, kLong)));
  Result result = stranger.connect(target.connection_info(), &peer);
  if (result) result = stranger.peer_wait(peer, kLong);
  EXPECT_TRUE(result.code() == TCPX_TAMPERED || result.code() == TCPX_AUTH_FAILED) << result.name();
}

TEST(Engine, BadOptionsAreErrorsThatNameTheNearestOne) {
  Engine engine;
  Result result = Engine::create(loopback_options({{"lane", "4"}}), &engine);
  EXPECT_EQ(result.code(), TCPX_BAD_CONFIG);
  EXPECT_NE(result.text().find("lanes"), std::string::npos) << result.text();
  for (Options bad : {Options{{"lanes", "many"}},
                      {{"lanes", "-1"}},
                      {{"lanes", "65"}},
                      {{"chunk_bytes", "3"}},
                      {{"chunk_bytes", "1G"}},
                      {{"deadline", "5"}},
                      {{"pacing", "maybe"}},
                      {{"striping", "random"}},
                      {{"interfaces", "nosuchdevice0"}},
                      {{"port_range", "9-5"}},
                      {{"auth_key", "x"}, {"auth_key_file", "/tmp/x"}}}) {
    Result each = Engine::create(loopback_options(bad), &engine);
    EXPECT_EQ(each.code(), TCPX_BAD_CONFIG) << bad[0].first << "=" << bad[0].second;
    EXPECT_NE(each.text(), "") << bad[0].first;
  }
  EXPECT_FALSE(engine);
}

TEST(Engine, ConfigTextEchoesEveryValueWithItsOrigin) {
  Engine engine = make_engine(loopback_options(
      {{"lanes", "3"}, {"window", "5"}, {"chunk_bytes", "256K"}, {"port_range", "21000-21099"}}));
  std::string text = engine.config_text();
  for (const char* line : {"lanes=3 (", "window=5 (", "chunk_bytes=256K (",
                           "port_range=21000-21099 (", "keepalive=1s ("})
    EXPECT_NE(text.find(line), std::string::npos) << line << " not in\n" << text;
}

TEST(Engine, ListensInsideThePortRangeAndAnExhaustedRangeIsAClearError) {
  const OwnPorts ports;
  Engine first = make_engine(loopback_options({{"port_range", ports.text()}}));
  const int port = listening_port(first.connection_info());
  EXPECT_TRUE(ports.first <= port && port <= ports.last) << port;
  Options one = loopback_options({{"port_range", std::to_string(port)}});
  Engine second;
  Result result = Engine::create(one, &second);
  EXPECT_FALSE(result.ok());
  EXPECT_NE(result.text().find(std::to_string(port)), std::string::npos) << result.text();
  Engine client = make_engine(loopback_options());
  tcpx_peer peer = 0;
  ASSERT_TRUE(succeeded(client.connect(first.connection_info(), &peer)));
  EXPECT_TRUE(succeeded(client.peer_wait(peer, kLong)));
  first.destroy();
  EXPECT_TRUE(succeeded(Engine::create(one, &second))) << "the port is free again";
}

TEST(Engine, ConnectByAddressWorksForEnginesThatShareAKey) {
  const OwnPorts ports;
  const std::string key = "a long enough shared key 0123456789";
  for (const char* address : {"127.0.0.1", "::1"}) {
    SCOPED_TRACE(address);
    Options options = merged({{"interfaces", address},
                              {"connect_timeout", strf("{}ms", patience(500).count())},
                              {"auth_key", key}},
                             loopback_options());
    Engine server = make_engine(merged({{"port_range", ports.text()}}, options));
    Engine client = make_engine(options);
    std::string host = std::string(address) == "::1" ? "[::1]" : address;
    std::string there = strf("{}:{}", host, listening_port(server.connection_info(), key));
    std::string nowhere = strf("{}:{}", host, ports.last);
    ASSERT_NE(there, nowhere);
    tcpx_peer peer = 0;
    ASSERT_TRUE(succeeded(client.connect_address(there, &peer)));
    EXPECT_TRUE(succeeded(client.peer_wait(peer, kLong)));
    for (const char* bad : {"", "127.0.0.1", "127.0.0.1:", "127.0.0.1:0", "127.0.0.1:99999", "[::1",
                            "[::1]", "127.0.0.1:80x"})
      EXPECT_FALSE(client.connect_address(bad, &peer).ok()) << bad;
    ASSERT_TRUE(succeeded(client.connect_address(nowhere, &peer))) << "nobody is there";
    Stopwatch watch;
    EXPECT_EQ(client.peer_wait(peer, kLong).code(), TCPX_CONNECT_FAILED);
    EXPECT_LT(watch.elapsed(), patience(2'000));
  }
}

TEST(Engine, CreateAndDestroyLeaveNoFdThreadOrMemoryBehind) {
  { Pair warm(loopback_options({{"lanes", "4"}})); }
  Holdings before;
  uint64_t rss = 0;
  const int rounds = smaller_if_sanitized(60, 10);
  for (int i = 0; i < rounds; ++i) {
    if (i == rounds / 3) rss = rss_bytes();
    Pair pair(loopback_options({{"lanes", "4"}}));
    pair.allocate(1 << 20);
    Transfer transfer = pair.prepare(TCPX_WRITE, 1 << 20);
    ASSERT_TRUE(succeeded(transfer.post()));
    ASSERT_TRUE(succeeded(transfer.wait(kLong)));
  }
  EXPECT_TRUE(before.restored()) << before.now();
  if (!kSanitized) {
    EXPECT_LT(rss_bytes(), rss + (16 << 20));
  }
}

TEST(Engine, TheOptionTableIsReadable) {
  std::set<std::string> names;
  tcpx_option_info row{};
  size_t rows = 0;
  for (; tcpx_option_get(rows, &row) == TCPX_OK; ++rows) {
    EXPECT_TRUE(names.insert(row.name).second) << row.name << " twice";
    for (const char* text : {row.unit, row.default_value, row.range, row.help, row.aliases})
      EXPECT_NE(text, nullptr) << row.name;
    EXPECT_STRNE(row.help, "") << row.name;
  }
  EXPECT_EQ(tcpx_option_get(rows, &row), TCPX_NOT_FOUND);
  EXPECT_EQ(tcpx_option_get(0, nullptr), TCPX_INVALID_ARGUMENT);
  for (const char* name : {"lanes", "deadline", "require_path", "net_plugin"})
    EXPECT_EQ(names.count(name), 1u) << name;
  // What the table names, an engine takes.
  Engine engine = make_engine(loopback_options());
  std::string config = engine.config_text();
  for (const std::string& name : names)
    EXPECT_NE(config.find(name), std::string::npos) << name << " is not among an engine's options";
}

void destroy_under_a_transfer(bool* met) {
  const uint64_t length = 64 << 20;
  Transfer running, finished, never;
  {
    Pair pair(loopback_options());
    pair.allocate(length);
    finished = pair.prepare(TCPX_WRITE, 100);
    ASSERT_TRUE(succeeded(finished.post()));
    ASSERT_TRUE(succeeded(finished.wait(kLong)));
    never = pair.prepare(TCPX_WRITE, 100);
    running = pair.prepare(TCPX_READ, length);
    ASSERT_TRUE(succeeded(running.post()));
    pair.a.destroy();
    tcpx_code code = running.poll().code();
    *met = code != TCPX_OK;
    EXPECT_TRUE(code == TCPX_CANCELLED || code == TCPX_SHUTDOWN || code == TCPX_OK)
        << tcpx_code_name(code);
    EXPECT_EQ(running.poll().code(), code);
    EXPECT_EQ(running.receipt().result, code);
    EXPECT_TRUE(succeeded(finished.poll())) << "done stays done";
    EXPECT_FALSE(running.post().ok());
    EXPECT_FALSE(never.post().ok());
    EXPECT_TRUE(succeeded(running.cancel(Ms{100})));
  }
  EXPECT_TRUE(succeeded(finished.poll())) << "also when both engines are gone";
}
TEST(Engine, DestroyEndsTransfersAndTheirHandlesStayValid) {
  until_under_way(destroy_under_a_transfer);
}

TEST(Engine, DestroySaysGoodbyeSoThePeerKnowsItWasNoCrash) {
  Pair pair(loopback_options());
  pair.a.destroy();
  tcpx_peer_info info{};
  EXPECT_TRUE(eventually([&] {
    return pair.b.peer_info(pair.a_at_b, &info).ok() && info.state == TCPX_PEER_CLOSED;
  })) << tcpx_code_name(info.state);
}

TEST(Engine, InstallsNoSignalHandlerAndPrintsNothing) {
  struct sigaction before[65]{}, after[65]{};
  for (int i = 1; i < 65; ++i) ::sigaction(i, nullptr, &before[i]);
  std::fflush(nullptr);
  char path[] = "/tmp/tcpx-silent-XXXXXX";
  int file = ::mkstemp(path);
  int out = ::dup(1), err = ::dup(2);
  ::dup2(file, 1);
  ::dup2(file, 2);
  {
    Pair pair(loopback_options({{"log_level", "trace"}}));
    pair.allocate(1 << 20);
    Transfer transfer = pair.prepare(TCPX_WRITE, 1 << 20);
    (void)transfer.post();
    (void)transfer.wait(kLong);
    tcpx_remote_region forged = pair.remote_b;
    forged.length = 1 << 30;
    Transfer bad;
    (void)pair.a.prepare(pair.b_at_a, TCPX_WRITE, {{pair.memory_a.region, 0, 100}},
                         {{&forged, 1 << 29, 100}}, &bad);
    (void)bad.post();
    (void)bad.wait(kLong);
    Engine none;
    (void)Engine::create({{"nonsense", "1"}}, &none);
    for (int i = 1; i < 65; ++i) ::sigaction(i, nullptr, &after[i]);
  }
  std::fflush(nullptr);
  ::dup2(out, 1);
  ::dup2(err, 2);
  ::close(out);
  ::close(err);
  struct stat size {};
  ::fstat(file, &size);
  ::close(file);
  ::unlink(path);
  EXPECT_EQ(size.st_size, 0) << "something was printed";
  for (int i = 1; i < 65; ++i)
    EXPECT_EQ(before[i].sa_handler, after[i].sa_handler) << "signal " << i;
}

TEST(Engine, RunningOpenNeedsTheSettingOnBothSidesAndIsLoudlyLogged) {
  std::mutex mutex;
  std::string warnings;
  auto log = [&](tcpx_log_level level, const char* line) {
    std::lock_guard lock(mutex);
    if (level <= TCPX_LOG_WARN) warnings += line;
  };
  Engine open = make_engine(loopback_options({{"auth", "off"}}), log);
  EXPECT_NE(warnings.find("auth"), std::string::npos) << "no warning: " << warnings;
  Engine also_open = make_engine(loopback_options({{"auth", "off"}}));
  Engine closed = make_engine(loopback_options());
  tcpx_peer peer = 0;
  ASSERT_TRUE(succeeded(also_open.connect(open.connection_info(), &peer)));
  EXPECT_TRUE(succeeded(also_open.peer_wait(peer, kLong)));
  Result result = closed.connect(open.connection_info(), &peer);
  if (result) result = closed.peer_wait(peer, kLong);
  EXPECT_EQ(result.code(), TCPX_AUTH_FAILED);
  result = also_open.connect(closed.connection_info(), &peer);
  if (result) result = also_open.peer_wait(peer, kLong);
  EXPECT_EQ(result.code(), TCPX_AUTH_FAILED);
}

TEST(Engine, ConnectsToItselfAsToAnyPeer) {
  Engine engine = make_engine(loopback_options());
  tcpx_peer peer = 0;
  ASSERT_TRUE(succeeded(engine.connect(engine.connection_info(), &peer)));
  ASSERT_TRUE(succeeded(engine.peer_wait(peer, kLong)));
  Local from = make_local(engine, 100'000, 0, 1);
  Local to = make_local(engine, 100'000, kReadWrite, 2);
  tcpx_remote_region remote = describe(engine, to.region);
  Transfer transfer;
  ASSERT_TRUE(succeeded(engine.prepare(peer, TCPX_WRITE, {{from.region, 0, 100'000}},
                                       {{&remote, 0, 100'000}}, &transfer)));
  ASSERT_TRUE(succeeded(transfer.post_notify("self")));
  ASSERT_TRUE(succeeded(transfer.wait(kLong)));
  EXPECT_EQ(mismatch(*to.memory, 0, 100'000, Pattern(1), 0), -1);
  Notification got;
  ASSERT_TRUE(succeeded(engine.next_notification(&got, kLong)));
  EXPECT_EQ(got.view(), "self");
  engine.destroy();
}

// Memory and threads do not grow with peers beyond what their lanes need.
TEST(Engine, SixtyFourPeersAddNoThreadsAndBoundedMemory) {
  const size_t count = smaller_if_sanitized<size_t>(64, 12);
  Options small = loopback_options({{"lanes", "1"}, {"io_threads", "1"}});
  Engine hub = make_engine(loopback_options({{"lanes", "1"}}));
  Local memory = make_local(hub, 1 << 20, kReadWrite, 1);
  tcpx_remote_region remote = describe(hub, memory.region);
  std::vector<Engine> engines(count);
  for (Engine& engine : engines) engine = make_engine(small);
  size_t threads = thread_count();
  uint64_t rss = rss_bytes();
  std::vector<tcpx_peer> peers(count);
  for (size_t i = 0; i < count; ++i)
    ASSERT_TRUE(succeeded(engines[i].connect(hub.connection_info(), &peers[i])));
  for (size_t i = 0; i < count; ++i)
    ASSERT_TRUE(succeeded(engines[i].peer_wait(peers[i], kLong))) << i;
  EXPECT_LE(thread_count(), threads);
  if (!kSanitized) {
    EXPECT_LT(rss_bytes() - rss, count * (1 << 20)) << "per peer, both ends of it";
  }
  for (size_t i = 0; i < count; ++i) {
    Local own = make_local(engines[i], 4096, 0, i);
    Transfer transfer;
    ASSERT_TRUE(succeeded(engines[i].prepare(peers[i], TCPX_WRITE, {{own.region, 0, 4096}},
                                             {{&remote, i * 4096, 4096}}, &transfer)));
    ASSERT_TRUE(succeeded(transfer.post()));
    ASSERT_TRUE(succeeded(transfer.wait(kLong)));
    EXPECT_EQ(mismatch(*memory.memory, i * 4096, 4096, Pattern(i), 0), -1);
    ASSERT_TRUE(succeeded(engines[i].deregister(own.region)));
  }
  hub.destroy();
}

}  // namespace
}  // namespace tcpx::test
