// One process with eight engines, two on each of four pretended NICs, against another such process
// (S16); the eight-process layout is in net_layout_test.py. And what the settings of the net path
// come to: CPU bindings (S13) and sockets (S14).
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <mutex>
#include <thread>

#include "../support/emulator.h"
#include "../support/engines.h"
#include "topo/thread_cpus.h"

namespace tcpx::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int kGpus = 8, kNics = 4;
constexpr uint64_t kBytes = (2u << 20) + 4321;

std::string nic_of(int gpu) {
  return "emu" + std::to_string(gpu / 2);  // as on an A3-high
}

// Plugins read the environment once, so every test has a file of its own.
class NetLayout : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : {"NCCL_DYNAMIC_CHUNK_SIZE", "NCCL_NSOCKS_PERTHREAD",
                             "NCCL_SOCKET_NTHREADS", "NCCL_MIN_ZCOPY_SIZE",
                             "NCCL_GPUDIRECTTCPX_TX_BINDINGS", "NCCL_GPUDIRECTTCPX_RX_BINDINGS"})
      ::unsetenv(name);
    ::setenv("NCCL_GPUDIRECTTCPX_SOCKET_IFNAME", "lo", 1);
    ::setenv("TCPX_EMU_DEVICES", std::to_string(kNics).c_str(), 1);
    char folder[] = "/tmp/tcpx_net_layout.XXXXXX";
    ASSERT_NE(::mkdtemp(folder), nullptr);
    folder_ = folder;
    plugin_ = folder_ + "/libnccl-net-emu.so";
    std::filesystem::copy_file(TCPX_TEST_EMULATOR_PATH, plugin_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  Options options(const Options& more = {}) const {
    return merged(more, loopback_options({{"net_plugin", plugin_}, {"require_path", "net"}}));
  }
  Engine::Log keep_lines() {
    return [this](tcpx_log_level level, const char* line) {
      std::lock_guard lock(mu_);
      lines_ += (level == TCPX_LOG_WARN ? "warning: " : "") + std::string(line) + "\n";
    };
  }
  std::string lines() {
    std::lock_guard lock(mu_);
    return lines_;
  }
  tcpx_emu_counters nic_counters(int nic) const { return emulator_counters(plugin_, nic); }
  // What an engine with these options is told.
  std::string refusal(const Options& more) {
    Engine engine;
    Result result = Engine::create(options(more), &engine, keep_lines());
    return result ? "accepted" : result.text();
  }

 private:
  std::string folder_, plugin_;
  std::mutex mu_;
  std::string lines_;
};

// ---- one process, eight engines -------------------------------------------------------------

void must(bool ok, const std::string& what) {
  if (!ok) throw std::runtime_error(what);
}
void put(int fd, const Bytes& bytes) {
  uint64_t size = bytes.size();
  must(::write(fd, &size, sizeof size) == sizeof size, "write");
  must(::write(fd, bytes.data(), size) == static_cast<ssize_t>(size), "write");
}
Bytes get(int fd) {
  uint64_t size = 0;
  must(::recv(fd, &size, sizeof size, MSG_WAITALL) == sizeof size && size < 65536, "read");
  Bytes bytes(size);
  must(::recv(fd, bytes.data(), size, MSG_WAITALL) == static_cast<ssize_t>(size), "read");
  return bytes;
}

// All targets of a host in this process; returns when the initiators are done with them.
void serve_all(int fd, const std::function<Options(int)>& options_of) {
  std::vector<Engine> engines;
  std::vector<Local> memory;
  for (int gpu = 0; gpu < kGpus; ++gpu) {
    engines.push_back(make_engine(options_of(gpu)));
    memory.push_back(make_local(engines.back(), kBytes, TCPX_REMOTE_READ | TCPX_REMOTE_WRITE,
                                static_cast<uint64_t>(100 + gpu)));
    Bytes description;
    must(engines.back().export_region(memory.back().region, &description).ok(), "export");
    put(fd, engines.back().connection_info());
    put(fd, description);
  }
  get(fd);  // they have written
  for (int gpu = 0; gpu < kGpus; ++gpu) {
    uint64_t half = kBytes / 2;
    Memory& here = *memory[static_cast<size_t>(gpu)].memory;
    must(mismatch(here, 0, half, Pattern(static_cast<uint64_t>(gpu)), 0) == -1, "written half");
    must(mismatch(here, half, kBytes - half, Pattern(static_cast<uint64_t>(100 + gpu)), half) == -1,
         "untouched half");
  }
  put(fd, {1});
  get(fd);  // they have read
  memory.clear();
  engines.clear();
}

struct Initiator {
  Local memory;
  Engine engine;
  tcpx_peer peer = 0;
  tcpx_remote_region remote{};
  std::string failure;

  void move(tcpx_op op, uint64_t offset, uint64_t length, const std::string& nic) {
    Transfer transfer;
    Result result = engine.prepare(peer, op, {{memory.region, offset, length}},
                                   {{&remote, offset, length}}, &transfer);
    if (result) result = transfer.post();
    if (result) result = transfer.wait(kLong);
    if (!result) failure += result.text() + "; ";
    tcpx_receipt receipt = transfer.receipt();
    if (std::string(receipt.path) != "net" || receipt.interfaces != nic)
      failure += std::string("went by ") + receipt.path + " over " + receipt.interfaces + "; ";
  }
};

void all_at_once(std::vector<Initiator>& all, const std::function<void(Initiator&, int)>& f) {
  std::vector<std::thread> threads;
  for (int gpu = 0; gpu < kGpus; ++gpu)
    threads.emplace_back([&, gpu] { f(all[static_cast<size_t>(gpu)], gpu); });
  for (std::thread& thread : threads) thread.join();
  for (int gpu = 0; gpu < kGpus; ++gpu)
    EXPECT_EQ(all[static_cast<size_t>(gpu)].failure, "") << "engine " << gpu;
}

TEST_F(NetLayout, OneProcessWithEightEnginesTwoPerNic) {
  auto options_of = [this](int gpu) {
    return options({{"net_devices", nic_of(gpu)}, {"lanes", "2"}});
  };
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  pid_t child = ::fork();
  ASSERT_GE(child, 0);
  ::close(ends[child == 0 ? 0 : 1]);
  if (child == 0) {
    try {
      serve_all(ends[1], options_of);
    } catch (const std::exception& error) {
      std::fprintf(stderr, "the serving process: %s\n", error.what());
      ::_exit(1);
    }
    ::_exit(0);
  }
  std::vector<Initiator> all(kGpus);
  for (int gpu = 0; gpu < kGpus; ++gpu) {
    Initiator& one = all[static_cast<size_t>(gpu)];
    Bytes info = get(ends[0]), description = get(ends[0]);
    one.engine = make_engine(options_of(gpu));
    one.memory = make_local(one.engine, kBytes, 0, static_cast<uint64_t>(gpu));
    ASSERT_TRUE(succeeded(Engine::import_region(description, &one.remote)));
    ASSERT_TRUE(succeeded(one.engine.connect(info, &one.peer)));
  }
  for (Initiator& one : all) ASSERT_TRUE(succeeded(one.engine.peer_wait(one.peer, kLong)));
  all_at_once(all,
              [](Initiator& one, int gpu) { one.move(TCPX_WRITE, 0, kBytes / 2, nic_of(gpu)); });
  put(ends[0], {1});
  get(ends[0]);  // and they were right
  all_at_once(all, [](Initiator& one, int gpu) {
    one.move(TCPX_READ, kBytes / 2, kBytes - kBytes / 2, nic_of(gpu));
  });
  for (int gpu = 0; gpu < kGpus; ++gpu) {
    uint64_t half = kBytes / 2;
    Memory& here = *all[static_cast<size_t>(gpu)].memory.memory;
    EXPECT_EQ(mismatch(here, half, kBytes - half, Pattern(static_cast<uint64_t>(100 + gpu)), half),
              -1);
    EXPECT_EQ(mismatch(here, 0, half, Pattern(static_cast<uint64_t>(gpu)), 0), -1);
  }
  for (int nic = 0; nic < kNics; ++nic) {
    tcpx_emu_counters seen = nic_counters(nic);
    EXPECT_GE(seen.tx_bytes, 2 * (kBytes / 2)) << "two engines on NIC " << nic;
    EXPECT_GE(seen.rx_devmem_bytes, 2 * (kBytes / 2)) << "two engines on NIC " << nic;
    EXPECT_EQ(seen.misuses, 0u);
  }
  put(ends[0], {1});
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

// ---- CPU bindings ---------------------------------------------------------------------------

// Two CPUs of this process, or the same one twice.
std::pair<std::string, std::string> two_cpus() {
  CpuSet mine = topo::cpus_of_thread(0);
  size_t first = 0, last = kMaxCpus - 1;
  while (!mine[first]) ++first;
  while (!mine[last]) --last;
  return {std::to_string(first), std::to_string(last)};
}

TEST_F(NetLayout, ThreadsOfANicRunOnTheCpusOfItsBindings) {
  auto [first, last] = two_cpus();
  std::string tx = "emu0:" + first + "-" + first + ";emu1:" + last + "-" + last;
  std::string rx = "emu0:" + first + "-" + first;
  Engine::Log log = keep_lines();
  Options bound = options({{"net_tx_bindings", tx},
                           {"net_rx_bindings", rx},
                           {"net_devices", "emu0,emu1,emu2"},
                           {"lanes", "3"}});
  Engine a = make_engine(bound, log), b = make_engine(bound, log);
  tcpx_peer peer = 0, back = 0;
  ASSERT_TRUE(succeeded(a.connect(b.connection_info(), &peer)));
  ASSERT_TRUE(succeeded(a.peer_wait(peer, kLong)));
  ASSERT_TRUE(succeeded(b.accept(&back, kLong)));
  std::string anywhere = format_cpus(topo::cpus_of_thread(0));
  for (Engine* engine : {&a, &b}) {
    nlohmann::json all = counters(*engine);
    ASSERT_EQ(all["peers"][0]["lanes"].size(), 3u);
    for (auto& lane : all["peers"][0]["lanes"]) {
      std::string nic = lane["interface"];
      std::string want = nic == "emu0" ? first : nic == "emu1" ? last : anywhere;
      EXPECT_EQ(lane["thread_cpus"], want) << nic;
    }
    for (auto& cpus : all["engine"]["progress_thread_cpus"])
      EXPECT_TRUE(cpus == anywhere || cpus == "") << cpus;  // "": it has not begun yet
  }
  // The plugin was told as well, and the log says what came of it.
  EXPECT_STREQ(::getenv("NCCL_GPUDIRECTTCPX_TX_BINDINGS"), tx.c_str());
  EXPECT_STREQ(::getenv("NCCL_GPUDIRECTTCPX_RX_BINDINGS"), rx.c_str());
  EXPECT_THAT(lines(), AllOf(HasSubstr("emu0 (CPUs " + first + ") emu1 (CPUs " + last + ") emu2;"),
                             HasSubstr("NCCL_GPUDIRECTTCPX_TX_BINDINGS=" + tx)));
  EXPECT_EQ(format_cpus(topo::cpus_of_thread(0)), anywhere) << "the caller was bound";
}

TEST_F(NetLayout, BindingsThatDoNotFitTheMachineAreRefused) {
  std::string cpu = two_cpus().first;
  EXPECT_THAT(refusal({{"net_tx_bindings", "emu9:" + cpu + "-" + cpu}}),
              AllOf(HasSubstr("net_tx_bindings"), HasSubstr("\"emu9\""), HasSubstr("emu0, emu1")));
  EXPECT_THAT(refusal({{"net_rx_bindings", "emu0:1023-1023"}}),
              AllOf(HasSubstr("net_rx_bindings"), HasSubstr("CPUs 1023 of emu0")));
  EXPECT_THAT(refusal({{"net_rx_bindings", "emu0:" + cpu}}), HasSubstr("write " + cpu + "-" + cpu));
}

TEST_F(NetLayout, AnEnvironmentThatSaysOtherwiseStandsForThePluginAndIsSaid) {
  std::string cpu = two_cpus().first, text = "emu0:" + cpu + "-" + cpu;
  ::setenv("NCCL_GPUDIRECTTCPX_TX_BINDINGS", ("emu1:" + cpu + "-" + cpu).c_str(), 1);
  EXPECT_EQ(refusal({{"net_tx_bindings", text}}), "accepted");
  EXPECT_THAT(lines(), AllOf(HasSubstr("warning: NCCL_GPUDIRECTTCPX_TX_BINDINGS is set to \"emu1"),
                             HasSubstr("emu0 (CPUs " + cpu + ") emu1 ")));
}

// ---- sockets --------------------------------------------------------------------------------

TEST_F(NetLayout, SettingsOfThePluginAreEchoedAsTheyAreInEffect) {
  ::setenv("NCCL_NSOCKS_PERTHREAD", "4", 1);
  EXPECT_EQ(refusal({{"net_sockets", "1"}, {"net_threads", "2"}, {"net_min_zerocopy", "4K"}}),
            "accepted");
  EXPECT_THAT(lines(), HasSubstr("NCCL_DYNAMIC_CHUNK_SIZE=524288 NCCL_NSOCKS_PERTHREAD=4 "
                                 "NCCL_SOCKET_NTHREADS=2 NCCL_MIN_ZCOPY_SIZE=4096 "
                                 "NCCL_GPUDIRECTTCPX_TX_BINDINGS=(unset)"));
}

TEST_F(NetLayout, MoreSocketsThanACommHasAreRefusedAlsoFromTheEnvironment) {
  ::setenv("NCCL_NSOCKS_PERTHREAD", "5", 1);
  EXPECT_THAT(refusal({{"net_threads", "2"}}),
              AllOf(HasSubstr("NCCL_NSOCKS_PERTHREAD=5 times NCCL_SOCKET_NTHREADS=2"),
                    HasSubstr("8 sockets"), HasSubstr("e.g. NCCL_NSOCKS_PERTHREAD=4")));
  EXPECT_EQ(::getenv("NCCL_SOCKET_NTHREADS"), nullptr) << "the next engine would take it for set";
  ::setenv("NCCL_SOCKET_NTHREADS", "9", 1);
  ::setenv("NCCL_NSOCKS_PERTHREAD", "1", 1);
  EXPECT_THAT(refusal({}), HasSubstr("times NCCL_SOCKET_NTHREADS=9"));
  ::setenv("NCCL_SOCKET_NTHREADS", "two", 1);
  EXPECT_THAT(refusal({}), HasSubstr("NCCL_SOCKET_NTHREADS=\"two\" is not a number"));
  ::setenv("NCCL_SOCKET_NTHREADS", "0", 1);
  EXPECT_THAT(refusal({}), HasSubstr("NCCL_SOCKET_NTHREADS=\"0\" is not a number"));
}

}  // namespace
}  // namespace tcpx::test
