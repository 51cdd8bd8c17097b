// Which GPU may use which NIC: every pair of an A3-high, and machines that are odd.
#include "topo/pairing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fake_sysfs.h"

namespace tcpx::topo {
namespace {

using test::FakeSysfs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

PciMap read(const FakeSysfs& sysfs) {
  PciMap map;
  Status s = read_pci_map(Sysfs(sysfs.root()), &map);
  EXPECT_TRUE(s.ok()) << s.text();
  return map;
}

std::string nic_name(const PciMap& map, const Gpu& gpu) {
  const Nic* nic = nic_for(map, gpu);
  return nic == nullptr ? "none" : nic->name;
}

class A3High : public ::testing::Test {
 protected:
  A3High() {
    make_a3_high(sysfs);
    map = read(sysfs);
  }
  FakeSysfs sysfs;
  PciMap map;
};

TEST_F(A3High, IsReadAsItWasMeasured) {
  const char* roots[] = {"pci0000:01", "pci0000:07", "pci0000:81", "pci0000:87"};
  const char* addresses[] = {"0000:04:00.0", "0000:05:00.0", "0000:0a:00.0", "0000:0b:00.0",
                             "0000:84:00.0", "0000:85:00.0", "0000:8a:00.0", "0000:8b:00.0"};
  const char* nics[] = {"0000:06:00.0", "0000:0c:00.0", "0000:86:00.0", "0000:8c:00.0"};
  ASSERT_EQ(map.gpus.size(), 8u);
  for (int i = 0; i < 8; ++i) {
    const Gpu& gpu = map.gpus[static_cast<size_t>(i)];
    EXPECT_EQ(gpu.index, i);
    EXPECT_EQ(gpu.place.address, addresses[i]);
    EXPECT_EQ(gpu.place.root, roots[i / 2]);
    EXPECT_EQ(gpu.place.bridges.size(), 3u);
    EXPECT_EQ(gpu.numa_node, i / 4);
  }
  for (int i = 0; i < 4; ++i) {
    const Nic* nic = map.nic("eth" + std::to_string(i + 1));
    ASSERT_NE(nic, nullptr);
    ASSERT_TRUE(nic->place);
    EXPECT_EQ(nic->place->address, nics[i]);
    EXPECT_EQ(nic->place->root, roots[i]);
    EXPECT_EQ(nic->numa_node, i / 2);
    EXPECT_FALSE(nic->virtual_function);
  }
  EXPECT_FALSE(map.nic("lo")->place);
  EXPECT_EQ(map.nic("eth9"), nullptr);
}

// GPU index, NIC index.
class A3HighPair : public A3High, public ::testing::WithParamInterface<std::tuple<int, int>> {};

TEST_P(A3HighPair, MayMeetOnlyBelowOneRoot) {
  auto [gpu_index, nic_index] = GetParam();
  const Gpu& gpu = map.gpus[static_cast<size_t>(gpu_index)];
  const Nic& nic = *map.nic("eth" + std::to_string(nic_index));
  std::string own = "eth" + std::to_string(gpu_index / 2 + 1);
  EXPECT_EQ(nic_name(map, gpu), own);
  Status s = check_pair(map, gpu, nic);
  EXPECT_EQ(s.ok(), nic.name == own) << s.text();
  EXPECT_EQ(check_nics_of_gpu(map, gpu, std::vector{nic.name}).text(), s.text());
  Verdict verdict = judge_pair(map, gpu, nic);
  EXPECT_EQ(verdict.allowed, s.ok());
  if (s.ok()) {
    EXPECT_THAT(verdict.reason, AllOf(HasSubstr(gpu.place.root), HasSubstr(gpu.place.bridges[1])));
  } else {
    EXPECT_EQ(s.code(), TCPX_BAD_CONFIG);
    EXPECT_THAT(s.text(), AllOf(HasSubstr("GPU " + std::to_string(gpu_index) + " is"),
                                HasSubstr(gpu.place.root), HasSubstr(nic.place->root),
                                HasSubstr(nic.name + " below"), HasSubstr("use " + own)));
  }
}

INSTANTIATE_TEST_SUITE_P(All, A3HighPair,
                         ::testing::Combine(::testing::Range(0, 8), ::testing::Range(1, 5)));

TEST_F(A3High, TheControlNicAndVirtualOnesCarryNoGpuMemory) {
  const Gpu& gpu = map.gpus[5];
  EXPECT_THAT(check_pair(map, gpu, *map.nic("eth0")).text(),
              AllOf(HasSubstr("pci0000:00"), HasSubstr("pci0000:81"), HasSubstr("use eth3")));
  EXPECT_THAT(check_pair(map, gpu, *map.nic("lo")).text(),
              AllOf(HasSubstr("lo is not on PCI"), HasSubstr("pci0000:81"), HasSubstr("use eth3")));
}

TEST_F(A3High, SeveralNicsForOneGpuAreRefusedWithBothRootsAndTheRightNic) {
  const Gpu& gpu = map.gpus[0];
  Status s = check_nics_of_gpu(map, gpu, std::vector<std::string>{"eth2", "eth1"});
  EXPECT_EQ(s.code(), TCPX_BAD_CONFIG);
  EXPECT_THAT(s.text(),
              AllOf(HasSubstr("2 NICs (eth1, eth2)"), HasSubstr("GPU 0"), HasSubstr("pci0000:01"),
                    HasSubstr("eth2 is below pci0000:07"), HasSubstr("use eth1 alone")));
  // The same one twice is one.
  EXPECT_TRUE(check_nics_of_gpu(map, gpu, std::vector<std::string>{"eth1", "eth1"}).ok());
  EXPECT_THAT(check_nics_of_gpu(map, gpu, {}).text(), HasSubstr("use eth1"));
  EXPECT_THAT(check_nics_of_gpu(map, gpu, std::vector<std::string>{"eth1", "eth9"}).text(),
              AllOf(HasSubstr("no NIC \"eth9\""), HasSubstr("eth0, eth1")));
}

TEST_F(A3High, GpusAreFoundByIndexAndByAddress) {
  EXPECT_EQ(map.gpu("3"), &map.gpus[3]);
  EXPECT_EQ(map.gpu("0000:0b:00.0"), &map.gpus[3]);
  for (const char* wrong : {"8", "-1", "", "03", "0b:00.0", "eth1"})
    EXPECT_EQ(map.gpu(wrong), nullptr) << wrong;
}

TEST_F(A3High, NicsAsAPluginDescribesThemAreJudgedAlike) {
  PciMap mixed = map;
  mixed.nics = {nic_of_plugin("eth1",
                              "/sys/devices/pci0000:01/0000:01:00.0/0000:02:00.0/0000:03:02.0/"
                              "0000:06:00.0"),
                nic_of_plugin("eth3", "/sys/devices/pci0000:81/0000:81:00.0/0000:86:00.0"),
                nic_of_plugin("emu0", "")};
  EXPECT_TRUE(check_pair(mixed, map.gpus[1], mixed.nics[0]).ok());
  EXPECT_FALSE(check_pair(mixed, map.gpus[1], mixed.nics[1]).ok());
  EXPECT_FALSE(check_pair(mixed, map.gpus[1], mixed.nics[2]).ok());
  EXPECT_TRUE(check_pair(mixed, map.gpus[4], mixed.nics[1]).ok());
}

TEST(OddMachine, WithoutGpusHasNicsOnly) {
  FakeSysfs sysfs;
  sysfs.nic("eth0", "pci0000:00/0000:00:03.0");
  sysfs.pci("pci0000:00/0000:00:04.0", "0x030000", "0x1234");  // a GPU, not NVIDIA's
  sysfs.pci("pci0000:00/0000:00:05.0", "0x040300", "0x10de");  // NVIDIA's, not a GPU
  PciMap map = read(sysfs);
  EXPECT_TRUE(map.gpus.empty());
  ASSERT_EQ(map.nics.size(), 1u);
  EXPECT_EQ(map.nics[0].numa_node, kNoNode);
}

TEST(OddMachine, WithoutAnythingHasAnEmptyMap) {
  FakeSysfs sysfs;
  PciMap map = read(sysfs);
  EXPECT_TRUE(map.gpus.empty() && map.nics.empty());
  Status s = read_pci_map(Sysfs(sysfs.root() + "/nowhere"), &map);
  EXPECT_EQ(s.code(), TCPX_INVALID_ARGUMENT);
  EXPECT_THAT(s.text(), AllOf(HasSubstr("/nowhere"), HasSubstr("cp -a")));
}

TEST(OddMachine, NumaNodesMayBeMissingOrUnknown) {
  FakeSysfs sysfs;
  sysfs.gpu("pci0000:01/0000:01:00.0/0000:04:00.0");
  sysfs.nic("eth1", "pci0000:01/0000:01:01.0/0000:06:00.0", "-1");
  sysfs.nic("eth2", "pci0000:01/0000:01:02.0/0000:07:00.0", "nonsense");
  PciMap map = read(sysfs);
  EXPECT_EQ(map.gpus[0].numa_node, kNoNode);
  for (const Nic& nic : map.nics) EXPECT_EQ(nic.numa_node, kNoNode);
  // Two root ports of one root: allowed, and said.
  Verdict verdict = judge_pair(map, map.gpus[0], map.nics[0]);
  EXPECT_TRUE(verdict.allowed);
  EXPECT_THAT(verdict.reason, HasSubstr("ports of their own"));
}

TEST(OddMachine, InterfacesThatAreNoPlainPciDevices) {
  FakeSysfs sysfs;
  sysfs.gpu("pci0000:01/0000:04:00.0");
  sysfs.virtual_interface("docker0");
  sysfs.file("class/net/bonding_masters", "bond0");
  sysfs.pci("pci0000:01/0000:06:00.0", "0x020000", "0x1af4", "1");
  sysfs.interface("eth0", "pci0000:01/0000:06:00.0/virtio2");  // behind virtio
  sysfs.nic("eth1", "pci0000:01/0000:06:00.1");
  sysfs.link("devices/pci0000:01/0000:06:00.1/physfn", "devices/pci0000:01/0000:06:00.0");
  sysfs.interface("usb0", "platform/soc/usb1");
  std::filesystem::create_symlink("../../devices/gone", sysfs.root() + "/class/net/gone");
  PciMap map = read(sysfs);
  std::vector<std::string> names;
  for (const Nic& nic : map.nics) names.push_back(nic.name);
  EXPECT_THAT(names, ElementsAre("docker0", "eth0", "eth1", "usb0"));
  EXPECT_FALSE(map.nic("docker0")->place);
  EXPECT_FALSE(map.nic("usb0")->place);
  ASSERT_TRUE(map.nic("eth0")->place);
  EXPECT_EQ(map.nic("eth0")->place->address, "0000:06:00.0");
  EXPECT_EQ(map.nic("eth0")->numa_node, 1);
  EXPECT_FALSE(map.nic("eth0")->virtual_function);
  EXPECT_TRUE(map.nic("eth1")->virtual_function);
  EXPECT_THAT(check_pair(map, map.gpus[0], *map.nic("docker0")).text(), HasSubstr("not on PCI"));
}

TEST(OddMachine, OfTwoNicsBelowARootTheOneBehindTheSameSwitchIsMeant) {
  FakeSysfs sysfs;
  sysfs.gpu("pci0000:01/0000:01:00.0/0000:02:00.0/0000:04:00.0");
  sysfs.gpu("pci0000:01/0000:01:01.0/0000:08:00.0/0000:0a:00.0");
  sysfs.nic("eth1", "pci0000:01/0000:01:01.0/0000:08:00.0/0000:0b:00.0");
  sysfs.nic("eth2", "pci0000:01/0000:01:00.0/0000:02:00.0/0000:05:00.0");
  sysfs.nic("eth3", "pci0000:01/0000:01:00.0/0000:02:00.0/0000:06:00.0");
  PciMap map = read(sysfs);
  EXPECT_EQ(nic_name(map, map.gpus[0]), "eth2");
  EXPECT_EQ(nic_name(map, map.gpus[1]), "eth1");
  for (const Nic& nic : map.nics) EXPECT_TRUE(check_pair(map, map.gpus[0], nic).ok());
  // Still one NIC per GPU.
  EXPECT_THAT(check_nics_of_gpu(map, map.gpus[0], std::vector<std::string>{"eth2", "eth3"}).text(),
              HasSubstr("use eth2 alone"));
}

TEST(OddMachine, AGpuBehindTwoSwitchesIsBelowItsRootAllTheSame) {
  FakeSysfs sysfs;
  const std::string first = "pci0000:40/0000:40:01.0/0000:41:00.0/0000:42:00.0/";
  sysfs.gpu(first + "0000:43:00.0/0000:44:00.0/0000:45:00.0");
  sysfs.nic("eth1", first.substr(0, first.size() - 13) + "0000:42:01.0/0000:50:00.0");
  PciMap map = read(sysfs);
  ASSERT_EQ(map.gpus.size(), 1u);
  EXPECT_EQ(map.gpus[0].place.bridges.size(), 5u);
  EXPECT_EQ(nic_name(map, map.gpus[0]), "eth1");
  EXPECT_THAT(judge_pair(map, map.gpus[0], map.nics[0]).reason, HasSubstr("0000:41:00.0"));
}

TEST(OddMachine, AGpuWhoseRootHasNoNicIsTold) {
  FakeSysfs sysfs;
  sysfs.gpu("pci0000:01/0000:04:00.0");
  sysfs.nic("eth1", "pci0000:02/0000:06:00.0");
  PciMap map = read(sysfs);
  EXPECT_EQ(nic_for(map, map.gpus[0]), nullptr);
  EXPECT_THAT(check_pair(map, map.gpus[0], map.nics[0]).text(),
              AllOf(HasSubstr("no NIC below pci0000:01"), Not(HasSubstr("; use "))));
}

TEST(PciPlaceOf, ReadsPathsOfSysfs) {
  auto place = place_of("/sys/devices/pci0000:01/0000:01:00.0/0000:06:00.0/virtio2/net/eth0");
  ASSERT_TRUE(place);
  EXPECT_EQ(place->root, "pci0000:01");
  EXPECT_THAT(place->bridges, ElementsAre("0000:01:00.0"));
  EXPECT_EQ(place->address, "0000:06:00.0");
  auto nested = place_of("devices/pci0000:00/0000:00:0e.0/pci10000:e0/10000:e0:06.0/10000:e1:00.0");
  ASSERT_TRUE(nested);
  EXPECT_EQ(nested->root, "pci0000:00");
  EXPECT_EQ(nested->address, "10000:e1:00.0");
  for (const char* path : {"", "/", "/sys/devices/virtual/net/lo", "/sys/devices/pci0000:01",
                           "0000:06:00.0", "pci0000:01/0000:06:00", "pci0000:01/0000:06:00.8",
                           "pci0000:1/0000:06:00.0", "PCI0000:01/0000:06:00.0"})
    EXPECT_FALSE(place_of(path)) << path;
}

}  // namespace
}  // namespace tcpx::topo
