// The table, the properties and the memory that NCCL's kernels read.
#include <cstring>

#include "plugin.h"

namespace tcpx::test {
namespace {

TEST(Abi, TableHasEverythingButDmaBuf) {
  const nccl::TableV7& t = plugin();
  EXPECT_STREQ(t.name, "TCPX_EMU");
  EXPECT_EQ(t.reg_mr_dma_buf, nullptr);
  const void* words[sizeof t / sizeof(void*)];
  std::memcpy(words, &t, sizeof t);
  for (size_t i = 0; i < std::size(words); ++i) {
    if (i != offsetof(nccl::TableV7, reg_mr_dma_buf) / sizeof(void*)) {
      EXPECT_NE(words[i], nullptr) << "pointer " << i;
    }
  }
  EXPECT_EQ(extras().version, 1u);
  EXPECT_EQ(extras().bytes, sizeof(tcpx_emu_v1));
}

TEST(Abi, PropertiesAreThoseOfTcpx) {
  Environment env;
  int count = 0;
  ASSERT_EQ(plugin().devices(&count), 0);
  ASSERT_EQ(count, 1);
  nccl::PropertiesV7 p;
  ASSERT_EQ(plugin().get_properties(0, &p), 0);
  EXPECT_STREQ(p.name, "lo");
  EXPECT_EQ(p.pci_path, nullptr);
  EXPECT_EQ(p.guid, 0u);
  EXPECT_EQ(p.ptr_support, nccl::kPtrHost | nccl::kPtrCuda);
  EXPECT_GT(p.speed, 0);
  EXPECT_EQ(p.max_comms, 65536);
  EXPECT_EQ(p.max_recvs, 1);
  EXPECT_EQ(p.device_type, nccl::kDeviceUnpack);
  EXPECT_EQ(p.device_version, nccl::kUnpackVersion);
  EXPECT_NE(plugin().get_properties(1, &p), 0);
  EXPECT_EQ(extras().device_is_host(), 1);
}

TEST(Abi, AcceptDescribesTheUnpackQueue) {
  Environment env;
  Pair pair;
  ASSERT_NE(pair.receive, nullptr);
  const nccl::DeviceHandle& d = pair.description;
  EXPECT_EQ(d.type, 1);
  EXPECT_EQ(d.version, 7);
  EXPECT_EQ(d.size, 24u);
  EXPECT_EQ(d.needs_proxy_progress, 1);
  ASSERT_NE(d.handle, nullptr);
  uint64_t words[3];  // as a kernel sees it: meta, bounce, head
  std::memcpy(words, d.handle, sizeof words);
  EXPECT_EQ(words[2], ~0ull);
  EXPECT_EQ(words[0] % 16, 0u);
  EXPECT_EQ(words[1] % 4096, 0u);
}

TEST(Abi, OneBounceBaseForAllComms) {
  Environment env({{"TCPX_EMU_DEVICES", "3"}});
  Pair a(0), b(0), c(2);
  ASSERT_NE(c.receive, nullptr);
  EXPECT_EQ(a.unpack()->bounce, b.unpack()->bounce);
  EXPECT_EQ(a.unpack()->bounce, c.unpack()->bounce);
  EXPECT_NE(a.unpack()->meta, b.unpack()->meta);
}

TEST(Abi, FlushAndDeviceRegistrationSucceedAndDoNothing) {
  Environment env;
  Pair pair;
  Pages pages(4096);
  Registered region(pair.receive, pages);
  void* device_region = &pages;
  EXPECT_EQ(plugin().get_device_mr(pair.receive, region.get(), &device_region), 0);
  EXPECT_EQ(device_region, &pages);
  void* data = pages.data();
  void* handle = region.get();
  int size = 4096;
  void* request = &pages;
  EXPECT_EQ(plugin().iflush(pair.receive, 1, &data, &size, &handle, &request), 0);
  EXPECT_EQ(request, nullptr);
}

TEST(Abi, InitMayBeCalledAgain) {
  Environment env;
  EXPECT_EQ(env.init_result, 0);
  EXPECT_EQ(plugin().init(nullptr), 0);
  Pair pair;
  EXPECT_NE(pair.send, nullptr);
}

TEST(Abi, InitOnceIsAsThePluginDoes) {
  Environment first;
  Environment second({{"TCPX_EMU_INIT_ONCE", "1"}});
  EXPECT_EQ(second.init_result, nccl::kInternalError);
  EXPECT_TRUE(PluginLog::has("gpu lib init twice"));
}

struct BadSetting {
  const char* name;
  const char* value;
  const char* says;
};
class BadSettings : public ::testing::TestWithParam<BadSetting> {};

TEST_P(BadSettings, AreRefusedWithTheReason) {
  Environment env({{GetParam().name, GetParam().value}});
  EXPECT_EQ(env.init_result, nccl::kInternalError);
  EXPECT_TRUE(PluginLog::has(GetParam().says)) << PluginLog::all();
}

INSTANTIATE_TEST_SUITE_P(
    All, BadSettings,
    ::testing::Values(
        BadSetting{"TCPX_EMU_FRAGMENTS", "tiny", "one of page, mtu, random, mixed"},
        BadSetting{"TCPX_EMU_POOL_MB", "4096", "a number from 1 to 4095"},
        BadSetting{"TCPX_EMU_STRICT", "yes", "TCPX_EMU_STRICT=yes"},
        BadSetting{"TCPX_EMU_FRAGMENT", "page", "TCPX_EMU_FRAGMENT is no variable"},
        BadSetting{"TCPX_EMU_DEVICE", "gpu", "one of auto, host, cuda"},
        BadSetting{"TCPX_EMU_FAULTS", "meteor", "no such fault"},
        BadSetting{"TCPX_EMU_FAULTS", "no_cmsg@0", "after @ a number from 1"},
        BadSetting{"TCPX_EMU_FAULTS", "no_cmsg:3", "takes nothing after :"},
        BadSetting{"TCPX_EMU_FAULTS", "slow_socket", "needs a number after :"},
        BadSetting{"TCPX_EMU_FAULTS", "slow_socket:fast", "a number, e.g. 100 or 64M"},
        BadSetting{"TCPX_EMU_FAULTS", "hang_in:bed", "after : one of init"},
        BadSetting{"TCPX_EMU_FAULTS", "no_cmsg,nic=0", "dev=D"},
        BadSetting{"TCPX_EMU_FAULTS", "ctrl_closed@3; data_hang@", "data_hang@"},
        BadSetting{"NCCL_GPUDIRECTTCPX_SOCKET_IFNAME", "nosuchif", "no interface found"},
        BadSetting{"NCCL_GPUDIRECTTCPX_CTRL_DEV", "nosuchif", "no ctrl interface found"},
        BadSetting{"NCCL_GPUDIRECTTCPX_SOCKET_ENABLE", "0", "SOCKET_ENABLE"},
        BadSetting{"TCPX_EMU_COUNTERS", "/nonexistent/file", "/nonexistent/file"}));

std::string first_name() {
  nccl::PropertiesV7 p{};
  return plugin().get_properties(0, &p) == 0 ? p.name : "";
}

TEST(Interfaces, PrefixExactAndExclude) {
  {
    Environment env({{"NCCL_GPUDIRECTTCPX_SOCKET_IFNAME", "zz,lo"}});
    EXPECT_EQ(first_name(), "lo");
  }
  {
    Environment env({{"NCCL_GPUDIRECTTCPX_SOCKET_IFNAME", "=lo"}});
    EXPECT_EQ(first_name(), "lo");
  }
  {
    Environment env({{"NCCL_GPUDIRECTTCPX_SOCKET_IFNAME", "=l1"}});
    EXPECT_NE(env.init_result, 0);
  }
  Environment env({{"NCCL_GPUDIRECTTCPX_SOCKET_IFNAME", "^lo"}});
  EXPECT_TRUE(env.init_result != 0 || first_name() != "lo");  // there may be no other
}

TEST(Interfaces, UnsetUsesWhatThereIs) {
  Environment env({{"NCCL_GPUDIRECTTCPX_SOCKET_IFNAME", ""}});
  EXPECT_EQ(env.init_result, 0) << PluginLog::all();
  Pair pair;
  EXPECT_NE(pair.send, nullptr);
}

TEST(Interfaces, PretendedOnes) {
  Environment env({{"TCPX_EMU_DEVICES", "8"}});
  int count = 0;
  ASSERT_EQ(plugin().devices(&count), 0);
  EXPECT_EQ(count, 8);
  nccl::PropertiesV7 p;
  ASSERT_EQ(plugin().get_properties(7, &p), 0);
  EXPECT_STREQ(p.name, "emu7");
  EXPECT_EQ(p.guid, 7u);
  EXPECT_EQ(p.pci_path, nullptr);
  Pair pair(7);
  EXPECT_NE(pair.send, nullptr);
}

}  // namespace
}  // namespace tcpx::test
