#include <gtest/gtest.h>

#include "engine/connector.h"

namespace tcpx {
namespace {

LocalAddress local(const char* interface, const char* ip, uint8_t prefix) {
  LocalAddress out;
  out.interface = interface;
  EXPECT_TRUE(parse_ip(ip, &out.address).ok());
  out.address.prefix_length = prefix;
  return out;
}
wire::Address remote(const char* ip, uint8_t prefix) {
  wire::Address out = local("", ip, prefix).address;
  out.port = 20000;
  return out;
}

TEST(Rails, EveryInterfaceMeetsItsOwnNetwork) {
  std::vector<LocalAddress> here = {local("eth1", "10.0.1.1", 120), local("eth2", "10.0.2.1", 120),
                                    local("eth3", "10.0.3.1", 120)};
  std::vector<wire::Address> there = {remote("10.0.3.2", 120), remote("10.0.1.2", 120),
                                      remote("10.0.2.2", 120)};
  auto rails = pair_rails(here, there);
  ASSERT_EQ(rails.size(), 3u);
  EXPECT_EQ(rails[0].local->interface, "eth1");
  EXPECT_EQ(to_string(rails[0].remote), "10.0.1.2:20000");
  EXPECT_EQ(to_string(rails[1].remote), "10.0.2.2:20000");
  EXPECT_EQ(to_string(rails[2].remote), "10.0.3.2:20000");
}

TEST(Rails, AnInterfaceWithTwoFamiliesIsOneRail) {
  std::vector<LocalAddress> here = {local("lo", "127.0.0.1", 104), local("lo", "::1", 128)};
  std::vector<wire::Address> there = {remote("127.0.0.1", 104), remote("::1", 128)};
  EXPECT_EQ(pair_rails(here, there).size(), 1u);
}

TEST(Rails, WithoutACommonNetworkTheKernelRoutes) {
  std::vector<LocalAddress> here = {local("eth0", "10.0.1.1", 120)};
  std::vector<wire::Address> there = {remote("192.168.7.7", 120), remote("192.168.8.8", 120)};
  auto rails = pair_rails(here, there);
  ASSERT_EQ(rails.size(), 2u);
  EXPECT_EQ(rails[0].local, nullptr);
}

}  // namespace
}  // namespace tcpx
