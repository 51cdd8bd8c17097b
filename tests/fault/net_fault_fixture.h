// What every test of the net path's faults has: an emulator of its own with a plan of faults, an
// engine here and one in another process.
#pragma once

#include <dlfcn.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <set>

#include "../support/emulator.h"
#include "../support/ports.h"
#include "fault_fixture.h"

namespace tcpx::test {

inline constexpr uint64_t kBytes = 8 << 20;
inline constexpr Ms kLaneTimeout = patience(600), kConnectTimeout = patience(1'500);
inline constexpr Ms kGoodbye{500};  // to a peer that does not answer it
inline constexpr Ms kTicks =
    patience(700);  // until a thing is noticed that is looked for now and then

class NetFault : public ::testing::Test {
 protected:
  // Plugins read the environment once, when they are loaded. Every test has a plugin file of its
  // own, so that it is read also where one process runs several tests.
  void SetUp() override {
    for (const char* prefix : {"TCPX_EMU_", "NCCL_"}) forget_environment(prefix);
    ::setenv("NCCL_GPUDIRECTTCPX_SOCKET_IFNAME", "lo", 1);
    ::setenv("TCPX_EMU_DEVICE", "host", 1);
    char folder[] = "/tmp/tcpx_net_fault.XXXXXX";
    ASSERT_NE(::mkdtemp(folder), nullptr);
    folder_ = folder;
    plugin = folder_ + "/libnccl-net-emu.so";
    std::filesystem::copy_file(TCPX_TEST_EMULATOR_PATH, plugin);
  }
  void TearDown() override {
    transfer.release();
    Stopwatch watch;
    engine.destroy();
    EXPECT_LT(watch.elapsed(), kConnectTimeout + kNoticed);
    peer.reset();
    std::filesystem::remove_all(folder_);
  }

  static void forget_environment(const std::string& prefix) {
    std::vector<std::string> names;
    for (char** entry = environ; *entry != nullptr; ++entry)
      if (std::string text = *entry; text.rfind(prefix, 0) == 0)
        names.push_back(text.substr(0, text.find('=')));
    for (const std::string& name : names) ::unsetenv(name.c_str());
  }
  static void set_faults(const std::string& plan) { ::setenv("TCPX_EMU_FAULTS", plan.c_str(), 1); }

  // Net if it works, and nothing but net. One lane unless asked for more.
  Options allowed(const Options& more = {}) const {
    return fault_options(merged(more, {{"net_plugin", plugin}, {"lanes", "1"}}));
  }
  Options required(const Options& more = {}) const {
    return allowed(merged(more, {{"require_path", "net"}}));
  }
  Engine::Log keep_lines() {
    return [this, shown = log_to_stderr()](tcpx_log_level level, const char* line) {
      if (shown) shown(level, line);
      std::lock_guard lock(lines_mu_);
      lines_ += std::string(line) + "\n";
    };
  }
  bool logged(const std::string& text) {
    std::lock_guard lock(lines_mu_);
    return lines_.find(text) != std::string::npos;
  }
  std::string lines() {
    std::lock_guard lock(lines_mu_);
    return lines_;
  }

  // A peer process and the engine of this one; `here` and `there` are their plugins' faults. The
  // peer is more patient than we are, so it is we who notice.
  void start(const std::string& here, const Options& options, const std::string& there = "") {
    set_faults(there);
    peer = std::make_unique<Peer>();
    peer->create(merged({{"lane_timeout", "20s"}, {"peer_timeout", "30s"}}, options));
    remote = peer->memory("m", kBytes, kReadWrite, 2);
    set_faults(here);
    engine = make_engine(options, keep_lines());
    local = make_local(engine, kBytes, 0, 1);
  }
  Result meet() {
    Result result = engine.connect(peer->info(), &id);
    return result ? engine.peer_wait(id, kLong) : result;
  }
  Result post(tcpx_op op, uint64_t length = kBytes, Ms deadline = Ms{-1}) {
    Result result =
        engine.prepare(id, op, {{local.region, 0, length}}, {{&remote, 0, length}}, &transfer);
    return result ? transfer.post(deadline) : result;
  }
  Result move(tcpx_op op, uint64_t length = kBytes) {
    Result result = post(op, length);
    return result ? transfer.wait(kLong) : result;
  }
  void expect_content(tcpx_op op, uint64_t length = kBytes) {
    if (op == TCPX_WRITE) {
      EXPECT_EQ(peer->check("m", 0, length, 1, 0, 0), "");
      EXPECT_EQ((*peer)("damage m"), "");
    } else {
      EXPECT_EQ(mismatch(*local.memory, 0, length, Pattern(2), 0), -1);
      EXPECT_EQ(local.memory->damage(), "");
    }
  }
  std::string path() {
    tcpx_peer_info info{};
    return engine.peer_info(id, &info) ? info.path : "";
  }

  // WRITE, then READ of other content: both directions of the lane are right.
  void expect_both_ways_work(const std::string& expected_path) {
    ASSERT_TRUE(succeeded(move(TCPX_WRITE))) << transfer.error();
    expect_content(TCPX_WRITE);
    EXPECT_EQ(transfer.receipt().path, expected_path);
    (*peer)("fill m 0 {} 2 0 0", kBytes);
    ASSERT_TRUE(succeeded(move(TCPX_READ))) << transfer.error();
    expect_content(TCPX_READ);
  }
  // A fault that breaks one of two lanes in the middle.
  void expect_costs_one_lane(const std::string& fault, tcpx_op op, const std::string& words) {
    start(fault, required({{"lanes", "2"}, {"striping", "round_robin"}}));
    ASSERT_TRUE(succeeded(meet()));
    ASSERT_TRUE(succeeded(move(op))) << transfer.error();
    expect_content(op);
    EXPECT_TRUE(eventually([&] { return transfer.receipt().lanes_lost == 1; }, kTicks));
    // If the peer noticed first, our side says what its plugin said when the peer closed the comm.
    EXPECT_TRUE(logged(words) || logged("closed by remote peer")) << lines();
    ASSERT_TRUE(succeeded(move(op))) << "the other lane goes on: " << transfer.error();
  }
  // A fault that breaks the only lane.
  void expect_ends_the_peer(const std::string& fault, tcpx_op op, tcpx_code code,
                            const std::string& words, bool peer_sees_it_too = false) {
    start(fault, required());
    ASSERT_TRUE(succeeded(meet()));
    Stopwatch watch;
    EXPECT_EQ(move(op).code(), code) << transfer.error();
    EXPECT_LT(watch.elapsed(), kLaneTimeout + kTicks);
    // If the peer noticed first, it has closed the lane.
    bool closed = transfer.error().find("closed the connection") != std::string::npos;
    EXPECT_TRUE(transfer.error().find(words) != std::string::npos || (peer_sees_it_too && closed))
        << transfer.error();
    EXPECT_EQ(engine.peer_wait(id, Ms{0}).code(), code);
  }
  // A set-up that fails: tcp where that is allowed, else an error; both say why.
  void expect_fallback(const std::string& fault, const std::string& words) {
    start(fault, allowed());
    Stopwatch watch;
    ASSERT_TRUE(succeeded(meet()));
    EXPECT_LT(watch.elapsed(), kConnectTimeout + kTicks);
    EXPECT_EQ(path(), "tcp");
    EXPECT_TRUE(eventually([&] { return logged("path tcp"); }, kTicks));
    EXPECT_TRUE(logged(words)) << lines();
    expect_both_ways_work("tcp");
  }
  void expect_refused(const std::string& fault, const std::string& words) {
    start(fault, required());
    Stopwatch watch;
    Result result = meet();
    EXPECT_LT(watch.elapsed(), kConnectTimeout + kTicks);
    EXPECT_EQ(result.code(), TCPX_PATH_UNAVAILABLE) << result.text();
    EXPECT_NE(result.text().find("require_path is net"), std::string::npos) << result.text();
    EXPECT_NE(result.text().find(words), std::string::npos) << result.text();
  }
  // A plugin that cannot be used: an error where it is required, else life goes on without it.
  void expect_no_plugin(const Options& options, const std::string& words) {
    Engine none;
    Stopwatch watch;
    Result result = Engine::create(required(options), &none);
    EXPECT_LT(watch.elapsed(), kConnectTimeout + kTicks);
    EXPECT_EQ(result.code(), TCPX_PATH_UNAVAILABLE);
    EXPECT_NE(result.text().find(words), std::string::npos) << result.text();
    engine = make_engine(allowed(options), keep_lines());
    EXPECT_TRUE(logged("no net path: ")) << lines();
    EXPECT_TRUE(logged(words)) << lines();
    set_faults("");
    peer = std::make_unique<Peer>();
    peer->create(allowed());
    remote = peer->memory("m", kBytes, kReadWrite, 2);
    local = make_local(engine, kBytes, 0, 1);
    ASSERT_TRUE(succeeded(meet()));
    expect_both_ways_work("tcp");
  }
  // Whether the fault of this process's plugin has come: for a call that hangs, that it is in it.
  bool fired() const { return emulator_counters(plugin).faults_fired > 0; }
  // Posts until the call that never returns is reached. A transfer that only takes long is not yet
  // one that hangs. The time since the hang was known at the latest comes back in *watch.
  void post_until_it_hangs(tcpx_op op, Stopwatch* watch) {
    Result result;
    for (int round = 0; round < 100 && result; ++round) {
      *watch = {};
      ASSERT_TRUE(succeeded(post(op)));
      result = transfer.wait(Ms{200});
      if (!result.in_progress()) continue;
      EXPECT_LT(watch->elapsed(), patience(400)) << "a wait ends by its timeout";
      if (fired()) break;
      EXPECT_TRUE(eventually([&] { return fired() || !transfer.poll().in_progress(); }));
      *watch = {};
      result = transfer.poll();
    }
    ASSERT_TRUE(fired()) << "not one of the transfers came to the call that hangs";
    ASSERT_TRUE(result.in_progress()) << result.text();
  }
  // A call that never returns, in this process, once data moves. Other peers of the engine do not
  // notice, nor does the engine's service for new ones.
  void expect_hang_is_contained(const std::string& fault, tcpx_op op) {
    start(fault, allowed());
    Engine good = make_engine(fault_options({{"require_path", "tcp"}}));
    Local good_memory = make_local(good, kBytes, kReadWrite, 7);
    tcpx_remote_region good_remote = describe(good, good_memory.region);
    ASSERT_TRUE(succeeded(meet()));
    ASSERT_EQ(path(), "net");
    Stopwatch watch;
    ASSERT_NO_FATAL_FAILURE(post_until_it_hangs(op, &watch));

    Stopwatch service;
    tcpx_peer good_id = 0;
    ASSERT_TRUE(succeeded(engine.connect(good.connection_info(), &good_id)));
    ASSERT_TRUE(succeeded(engine.peer_wait(good_id, kLong)));
    Transfer with_good;
    ASSERT_TRUE(succeeded(engine.prepare(good_id, TCPX_WRITE, {{local.region, 0, kBytes}},
                                         {{&good_remote, 0, kBytes}}, &with_good)));
    ASSERT_TRUE(succeeded(with_good.post()));
    ASSERT_TRUE(succeeded(with_good.wait(kLong)));
    EXPECT_LT(service.elapsed(), patience(500)) << "a hanging plugin hangs nobody else";

    Result result = transfer.wait(kLong);
    EXPECT_LT(watch.elapsed(), kConnectTimeout + kTicks);
    EXPECT_EQ(result.code(), TCPX_PATH_UNAVAILABLE) << transfer.error();
    EXPECT_NE(transfer.error().find("the net plugin hangs"), std::string::npos) << transfer.error();
    ASSERT_TRUE(succeeded(with_good.post()));
    ASSERT_TRUE(succeeded(with_good.wait(kLong)));
    with_good.release();
    transfer.release();
    Stopwatch end;
    engine.destroy();
    EXPECT_LT(end.elapsed(), kConnectTimeout + kTicks);
  }

  Local local;
  Engine engine;
  Transfer transfer;
  std::unique_ptr<Peer> peer;
  tcpx_remote_region remote{};
  tcpx_peer id = 0;
  std::string plugin;

 private:
  std::string folder_;
  std::mutex lines_mu_;
  std::string lines_;
};

}  // namespace tcpx::test
