// CPU bindings: their text, their machine, and the threads they bind.
#include "config/bindings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <thread>

#include "config/options.h"
#include "fake_sysfs.h"
#include "path/loop.h"
#include "topo/binding_check.h"
#include "topo/thread_cpus.h"

namespace tcpx {
namespace {

using test::FakeSysfs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using namespace std::string_view_literals;

// What launchers export on an A3-high.
constexpr const char* kA3Tx =
    "eth1:8-21,112-125;eth2:8-21,112-125;eth3:60-73,164-177;eth4:60-73,164-177";
constexpr const char* kA3Rx =
    "eth1:22-35,126-139;eth2:22-35,126-139;eth3:74-87,178-191;eth4:74-87,178-191";

CpuSet cpus(std::string_view text) {
  CpuSet out;
  Status s = parse_cpu_list(text, &out);
  EXPECT_TRUE(s.ok()) << s.text();
  return out;
}

Bindings bindings(std::string_view text) {
  Bindings out;
  Status s = parse_bindings(text, &out);
  EXPECT_TRUE(s.ok()) << s.text();
  return out;
}

// ---- CPU lists ------------------------------------------------------------------------------

TEST(CpuList, GoesBothWays) {
  for (const char* text : {"", "0", "0-1", "0-51,104-155", "1,3,5", "1023", "0-1023"})
    EXPECT_EQ(format_cpus(cpus(text)), text);
  EXPECT_EQ(format_cpus(cpus("3,1-2,2-2")), "1-3");
}

TEST(CpuList, RefusesOtherText) {
  for (auto text : {","sv, "1,"sv, "-"sv, "1-"sv, "-1"sv, "2-1"sv, "1024"sv, "0-1024"sv, "a"sv,
                    "1 "sv, "0x1"sv, "0-99999999999999999999"sv, "1-2-3"sv}) {
    CpuSet out = cpus("7");
    Status s = parse_cpu_list(text, &out);
    EXPECT_EQ(s.code(), TCPX_BAD_CONFIG) << text;
    EXPECT_THAT(s.text(), HasSubstr("e.g. 0-3,8"));
    EXPECT_EQ(out, cpus("7")) << "output written on failure";
  }
}

// ---- the text of bindings -------------------------------------------------------------------

TEST(ParseBindings, TakesWhatTheDocumentsExport) {
  Bindings tx = bindings(kA3Tx);
  ASSERT_EQ(tx.size(), 4u);
  EXPECT_EQ(tx[0].interface, "eth1");
  EXPECT_EQ(format_cpus(tx[0].cpus), "8-21,112-125");
  EXPECT_EQ(tx[3].interface, "eth4");
  EXPECT_EQ(format_cpus(tx[3].cpus), "60-73,164-177");
  EXPECT_THAT(bindings(""), IsEmpty());
  EXPECT_EQ(format_cpus(bindings("a:3-3")[0].cpus), "3");
}

struct BadBinding {
  std::string_view text;
  const char *where, *piece, *what;
};

TEST(ParseBindings, SaysWhichPieceIsWrongWhereAndWhatToWrite) {
  const BadBinding cases[] = {
      {"eth1", "character 1:", "\"eth1\"", "no colon"},
      {"eth1:8-9;eth2", "character 10:", "\"eth2\"", "no colon"},
      {":8-9", "character 1:", "\"\"", "no name of an interface"},
      {" eth1:8-9", "character 1:", "\" eth1\"", "without spaces"},
      {"eth1/2:8-9", "character 1:", "\"eth1/2\"", "no name of an interface"},
      {"a-name-of-17-chars:8-9", "character 1:", "a-name", "no name of an interface"},
      {"eth1:", "character 6:", "\"\"", "empty range"},
      {"eth1:8-9,", "character 10:", "\"\"", "remove a comma"},
      {"eth1:8-9,,10-11", "character 10:", "\"\"", "remove a comma"},
      {"eth1:8-9;", "character 10:", "\"\"", "remove a semicolon"},
      {";eth1:8-9", "character 1:", "\"\"", "remove a semicolon"},
      {"eth1:8-9;;eth2:8-9", "character 10:", "\"\"", "remove a semicolon"},
      {"eth1:8", "character 6:", "\"8\"", "write 8-8"},
      {"eth1:8-9;eth2:10-11,12", "character 21:", "\"12\"", "write 12-12"},
      {"eth1:21-8", "character 6:", "\"21-8\"", "write 8-21"},
      {"eth1:8-", "character 6:", "\"8-\"", "first-last"},
      {"eth1:-8", "character 6:", "\"-8\"", "first-last"},
      {"eth1:8-x", "character 6:", "\"8-x\"", "first-last"},
      {"eth1:8 -9", "character 6:", "\"8 -9\"", "without spaces"},
      {"eth1: 8-9", "character 6:", "\" 8-9\"", "without spaces"},
      {"eth1:8-9-10", "character 6:", "\"8-9-10\"", "first-last"},
      {"eth1:8-1024", "character 6:", "\"8-1024\"", "beyond CPU 1023"},
      {"eth1:0-18446744073709551616", "character 6:", "0-1844", "first-last"},
      {"eth1:8-9:10-11", "character 6:", "\"8-9:10-11\"", "first-last"},
      {"eth1:8-9;eth2:1-2;eth1:3-4", "character 19:", "\"eth1\"", "an entry already"},
      {"eth1:8-9\0"sv, "character 6:", "8-9", "first-last"},
  };
  for (const BadBinding& bad : cases) {
    Bindings out(1);
    Status s = parse_bindings(bad.text, &out);
    EXPECT_EQ(s.code(), TCPX_BAD_CONFIG) << bad.text;
    EXPECT_THAT(s.text(), AllOf(HasSubstr(bad.where), HasSubstr(bad.piece), HasSubstr(bad.what),
                                HasSubstr("e.g. eth1:8-21,112-125")))
        << bad.text;
    EXPECT_EQ(out.size(), 1u) << "output written on failure";
  }
}

// ---- as options -----------------------------------------------------------------------------

Status load(const NameValues& values, std::vector<const char*> environment, Config* out) {
  environment.push_back(nullptr);
  return load_config(values, environment.data(), out);
}

TEST(BindingOptions, ComeFromTheOptionOrFromNcclsName) {
  Config config;
  Status s =
      load({{"net_rx_bindings", "eth1:3-4"}},
           {"NCCL_GPUDIRECTTCPX_TX_BINDINGS=eth1:1-2", "NCCL_GPUDIRECTTCPX_RX_BINDINGS=eth1:5-6"},
           &config);
  ASSERT_TRUE(s.ok()) << s.text();
  EXPECT_EQ(config.options.net_tx_bindings, "eth1:1-2");
  EXPECT_EQ(config.options.net_rx_bindings, "eth1:3-4");
  s = load({}, {"NCCL_GPUDIRECTTCPX_TX_BINDINGS=eth1:1-2;eth2:7"}, &config);
  EXPECT_EQ(s.code(), TCPX_BAD_CONFIG);
  EXPECT_THAT(s.text(), AllOf(HasSubstr("NCCL_GPUDIRECTTCPX_TX_BINDINGS: character 15"),
                              HasSubstr("write 7-7"), HasSubstr("net_tx_bindings")));
}

TEST(SocketOptions, MoreThanEightPerCommAreRefused) {
  struct Case {
    const char *sockets, *threads;
    bool good;
  };
  const Case cases[] = {{"0", "0", true},  {"8", "0", true},  {"8", "1", true}, {"0", "8", true},
                        {"4", "2", true},  {"2", "4", true},  {"1", "8", true}, {"8", "2", false},
                        {"5", "2", false}, {"3", "3", false}, {"8", "8", false}};
  for (const Case& c : cases) {
    Config config;
    Status s = load({{"net_sockets", c.sockets}, {"net_threads", c.threads}}, {}, &config);
    EXPECT_EQ(s.ok(), c.good) << c.sockets << " x " << c.threads << " " << s.text();
    if (c.good) continue;
    EXPECT_EQ(s.code(), TCPX_BAD_CONFIG);
    EXPECT_THAT(s.text(), AllOf(HasSubstr(std::string("net_sockets=") + c.sockets),
                                HasSubstr(std::string("net_threads=") + c.threads),
                                HasSubstr("8 sockets"), HasSubstr("e.g. net_sockets=4")));
  }
}

// ---- against a machine ----------------------------------------------------------------------

class BindingsOfAnA3 : public ::testing::Test {
 protected:
  BindingsOfAnA3() {
    test::make_a3_high(sysfs);
    EXPECT_TRUE(topo::read_pci_map(topo::Sysfs(sysfs.root()), &map).ok());
    machine = topo::read_cpus(topo::Sysfs(sysfs.root()));
  }
  Status check(std::string_view text, const std::vector<std::string>& devices = {}) {
    warnings.clear();
    return topo::check_bindings("net_tx_bindings", bindings(text), map, machine, devices,
                                &warnings);
  }
  FakeSysfs sysfs;
  topo::PciMap map;
  topo::MachineCpus machine;
  std::vector<std::string> warnings;
};

TEST_F(BindingsOfAnA3, KnowTheCpusOfTheMachine) {
  EXPECT_EQ(format_cpus(machine.online), "0-207");
  ASSERT_EQ(machine.node.size(), 2u);
  EXPECT_EQ(format_cpus(machine.node[1]), "52-103,156-207");
}

TEST_F(BindingsOfAnA3, ThoseOfTheDocumentsFit) {
  for (const char* text : {kA3Tx, kA3Rx, ""}) {
    EXPECT_TRUE(check(text).ok());
    EXPECT_THAT(warnings, IsEmpty());
  }
}

TEST_F(BindingsOfAnA3, UnknownInterfacesAreErrorsThatNameTheNearest) {
  Status s = check("eth1:8-9;eht2:8-9");
  EXPECT_EQ(s.code(), TCPX_BAD_CONFIG);
  EXPECT_THAT(s.text(), AllOf(HasSubstr("net_tx_bindings: "), HasSubstr("\"eht2\""),
                              HasSubstr("did you mean \"eth2\""), HasSubstr("eth0, eth1")));
  // A plugin may know devices that are no interfaces.
  EXPECT_FALSE(check("emu0:8-9").ok());
  EXPECT_TRUE(check("emu0:8-9", {"emu0"}).ok());
}

TEST_F(BindingsOfAnA3, CpusThatAreNotOnlineAreErrors) {
  Status s = check("eth1:8-9;eth4:200-210");
  EXPECT_EQ(s.code(), TCPX_BAD_CONFIG);
  EXPECT_THAT(s.text(), AllOf(HasSubstr("CPUs 208-210 of eth4"), HasSubstr("only CPUs of 0-207")));
  machine.online.reset();  // unknown: nothing to hold against
  EXPECT_TRUE(check("eth4:200-210").ok());
}

TEST_F(BindingsOfAnA3, CpusOfTheOtherNodeAreWarnedOf) {
  EXPECT_TRUE(check("eth1:50-53;eth3:60-61").ok());
  EXPECT_THAT(warnings, ElementsAre(AllOf(HasSubstr("CPUs 52-53 of eth1"),
                                          HasSubstr("NUMA node 0, which has 0-51,104-155"))));
  EXPECT_TRUE(check("lo:50-53").ok());  // has no node
  EXPECT_THAT(warnings, IsEmpty());
}

TEST(WorkerCpus, AreThoseOfBothDirections) {
  Bindings tx = bindings(kA3Tx), rx = bindings(kA3Rx);
  EXPECT_EQ(format_cpus(topo::worker_cpus(tx, rx, "eth1")), "8-35,112-139");
  EXPECT_EQ(format_cpus(topo::worker_cpus(tx, rx, "eth4")), "60-87,164-191");
  EXPECT_EQ(format_cpus(topo::worker_cpus(tx, {}, "eth1")), "8-21,112-125");
  EXPECT_TRUE(topo::worker_cpus(tx, rx, "eth0").none());
  EXPECT_TRUE(topo::worker_cpus(tx, rx, "eth").none());
}

TEST(MachineCpus, OfAMachineThatSaysNothingAreUnknown) {
  FakeSysfs sysfs;
  sysfs.file("devices/system/node/node0/cpulist", "garbage");
  sysfs.file("devices/system/node/nodes/cpulist", "0-1");
  topo::MachineCpus machine = topo::read_cpus(topo::Sysfs(sysfs.root()));
  EXPECT_TRUE(machine.online.none());
  ASSERT_EQ(machine.node.size(), 1u);
  EXPECT_TRUE(machine.node[0].none());
}

// ---- threads --------------------------------------------------------------------------------

size_t first_of(const CpuSet& set) {
  size_t cpu = 0;
  while (!set[cpu]) ++cpu;
  return cpu;
}

TEST(ThreadCpus, AreWhatTheThreadWasBoundTo) {
  CpuSet before = topo::cpus_of_thread(0), one, effective;
  ASSERT_TRUE(before.any());
  one.set(first_of(before));
  Status s = topo::try_binding(one, &effective);
  EXPECT_TRUE(s.ok()) << s.text();
  EXPECT_EQ(effective, one);
  EXPECT_EQ(topo::cpus_of_thread(0), before) << "the caller was bound";
  std::thread([&] {
    EXPECT_TRUE(topo::bind_this_thread(one).ok());
    EXPECT_EQ(topo::cpus_of_thread(0), one);
  }).join();
}

TEST(ThreadCpus, CpusThatAreNotThereAreAnError) {
  CpuSet none, effective;
  none.set(kMaxCpus - 1);
  Status s = topo::try_binding(none, &effective);
  EXPECT_FALSE(s.ok());
  EXPECT_THAT(s.text(), HasSubstr("CPUs 1023"));
  EXPECT_TRUE(effective.none());
}

TEST(ThreadCpus, ALoopSaysWhereItsThreadRuns) {
  std::unique_ptr<Loop> loop;
  Loop::Settings settings;
  settings.own_thread_only = true;
  ASSERT_TRUE(Loop::create(settings, &loop).ok());
  CpuSet all = topo::cpus_of_thread(0), one;
  one.set(first_of(all));
  ASSERT_TRUE(loop->run_exclusive([] {}));  // the thread has begun
  EXPECT_EQ(loop->thread_cpus(), format_cpus(all));
  ASSERT_TRUE(loop->run_exclusive([one] { EXPECT_TRUE(topo::bind_this_thread(one).ok()); }));
  EXPECT_EQ(loop->thread_cpus(), format_cpus(one));
  EXPECT_EQ(topo::cpus_of_thread(0), all);
  ASSERT_TRUE(loop->stop());
  EXPECT_EQ(loop->thread_cpus(), "");
}

}  // namespace
}  // namespace tcpx
