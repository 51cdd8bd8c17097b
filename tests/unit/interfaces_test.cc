#include "topo/interfaces.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tcpx {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using namespace std::string_view_literals;

wire::Address ip(std::string_view text, int prefix = 0) {
  wire::Address out;
  EXPECT_TRUE(parse_ip(text, &out).ok()) << text;
  out.prefix_length = static_cast<uint8_t>(prefix + (prefix != 0 && is_v4(out) ? 96 : 0));
  return out;
}

LocalAddress local(const char* interface, const char* address, int prefix) {
  LocalAddress out;
  out.interface = interface;
  out.address = ip(address, prefix);
  out.loopback = std::string_view(interface) == "lo";
  std::string_view text = address;
  out.link_local = text.starts_with("fe80") || text.starts_with("169.254");
  return out;
}

std::vector<LocalAddress> host() {
  return {local("lo", "127.0.0.1", 8),
          local("eth0", "10.0.0.1", 24),
          local("eth1", "10.0.1.1", 24),
          local("docker0", "172.17.0.1", 16),
          local("virbr0", "192.168.122.1", 24),
          local("eth3", "169.254.7.7", 16),
          local("lo", "::1", 128),
          local("eth0", "fd00::1", 64),
          local("eth0", "fe80::1", 64),
          local("eth2", "fe80::2", 64)};
}

std::vector<std::string> choose(std::string_view spec, const std::vector<LocalAddress>& all) {
  std::vector<LocalAddress> chosen;
  Status s = choose_addresses(spec, all, &chosen);
  if (!s) return {"error: " + s.text()};
  std::vector<std::string> out;
  for (auto& c : chosen) out.push_back(c.interface + " " + ip_to_string(c.address));
  return out;
}

TEST(ChooseAddresses, AutoTakesGlobalAddressesOfRealInterfaces) {
  EXPECT_THAT(choose("auto", host()),
              ElementsAre("eth0 10.0.0.1", "eth1 10.0.1.1", "eth0 fd00::1"));
}

TEST(ChooseAddresses, AutoFallsBackToLoopback) {
  EXPECT_THAT(choose("auto", {local("lo", "127.0.0.1", 8), local("docker0", "172.17.0.1", 16),
                              local("eth2", "fe80::2", 64), local("lo", "::1", 128)}),
              ElementsAre("lo 127.0.0.1", "lo ::1"));
  EXPECT_THAT(choose("auto", {}), ElementsAre(HasSubstr("no usable address")));
}

TEST(ChooseAddresses, ListOfNamesAddressesAndNetworks) {
  const std::pair<const char*, std::vector<std::string>> cases[] = {
      {"eth1", {"eth1 10.0.1.1"}},
      {"eth0", {"eth0 10.0.0.1", "eth0 fd00::1"}},
      {"eth1,eth0", {"eth1 10.0.1.1", "eth0 10.0.0.1", "eth0 fd00::1"}},
      {"lo", {"lo 127.0.0.1", "lo ::1"}},
      {"docker0", {"docker0 172.17.0.1"}},
      {"eth3", {"eth3 169.254.7.7"}},
      {"10.0.1.1", {"eth1 10.0.1.1"}},
      {"::1", {"lo ::1"}},
      {"10.0.0.0/16", {"eth0 10.0.0.1", "eth1 10.0.1.1"}},
      {"10.0.1.77/24", {"eth1 10.0.1.1"}},
      {"10.0.0.0/23", {"eth0 10.0.0.1", "eth1 10.0.1.1"}},
      {"0.0.0.0/0,eth1",
       {"lo 127.0.0.1", "eth0 10.0.0.1", "eth1 10.0.1.1", "docker0 172.17.0.1",
        "virbr0 192.168.122.1", "eth3 169.254.7.7"}},
      {"fd00::/8", {"eth0 fd00::1"}},
      {"::/0", {"lo ::1", "eth0 fd00::1"}},
      {"eth1,10.0.1.1,10.0.1.0/24,eth1", {"eth1 10.0.1.1"}},
  };
  for (auto& [spec, want] : cases) EXPECT_EQ(choose(spec, host()), want) << spec;
}

TEST(ChooseAddresses, WhatMatchesNothingIsAnErrorThatListsWhatThereIs) {
  for (auto spec : {"eth9"sv, "eth"sv, "ETH0"sv, "eth0,eth9"sv, "10.9.0.0/16"sv, "10.0.0.2"sv,
                    "10.0.0.0/33"sv, "10.0.0.0/"sv, "10.0.0.0/-1"sv, "/8"sv, ""sv, ","sv, "eth0,"sv,
                    " eth0"sv, "::/129"sv, "eth0\0"sv, "auto,eth0"sv, "\x1b"sv}) {
    std::vector<LocalAddress> chosen{local("keep", "1.1.1.1", 8)};
    Status s = choose_addresses(spec, host(), &chosen);
    EXPECT_EQ(s.code(), TCPX_BAD_CONFIG) << spec;
    EXPECT_THAT(s.text(), AllOf(HasSubstr("eth0 10.0.0.1/24"), HasSubstr("lo ::1/128")));
    EXPECT_EQ(chosen.size(), 1u) << "output written on failure";
  }
}

TEST(ChooseAddresses, LinkLocalOnlyInterfaceSaysWhyNot) {
  EXPECT_THAT(choose("eth2", host()), ElementsAre(HasSubstr("only link-local IPv6")));
}

TEST(ListLocalAddresses, FindsLoopbackOfThisMachine) {
  std::vector<LocalAddress> all;
  ASSERT_TRUE(list_local_addresses(&all).ok());
  bool found = false;
  for (auto& a : all) {
    EXPECT_FALSE(a.interface.empty());
    EXPECT_EQ(a.address.port, 0);
    EXPECT_EQ(a.interface.find(':'), std::string::npos);
    EXPECT_TRUE(!is_v4(a.address) || a.address.prefix_length >= 96);
    found |= a.loopback && ip_to_string(a.address) == "127.0.0.1";
  }
  EXPECT_TRUE(found);
  std::vector<LocalAddress> chosen;
  EXPECT_TRUE(choose_addresses("auto", all, &chosen).ok());
  EXPECT_FALSE(chosen.empty());
}

TEST(ParseIp, GoesBothWays) {
  for (auto text : {"0.0.0.0", "127.0.0.1", "255.255.255.255", "::", "::1", "fd00::1:2"}) {
    EXPECT_EQ(ip_to_string(ip(text)), text);
  }
  EXPECT_TRUE(is_v4(ip("1.2.3.4")));
  EXPECT_FALSE(is_v4(ip("::1")));
  EXPECT_EQ(ip("::ffff:1.2.3.4"), ip("1.2.3.4"));
  EXPECT_EQ(ip_to_string(ip("::ffff:1.2.3.4")), "1.2.3.4");
}

TEST(ParseIp, RefusesOtherText) {
  for (auto text : {""sv, "1.2.3"sv, "1.2.3.256"sv, "01.2.3.4x"sv, "1.2.3.4 "sv, "[::1]"sv, ":::"sv,
                    "fe80::1%lo"sv, "localhost"sv, "1.2.3.4\0"sv, "1.2.3.4:5"sv}) {
    wire::Address out;
    out.port = 9;
    Status s = parse_ip(text, &out);
    EXPECT_EQ(s.code(), TCPX_INVALID_ARGUMENT) << text;
    EXPECT_THAT(s.text(), HasSubstr("e.g. "));
    EXPECT_EQ(out.port, 9);
  }
}

TEST(ParseEndpoint, TakesAddressesAndHosts) {
  const std::pair<const char*, const char*> cases[] = {
      {"1.2.3.4:5", "1.2.3.4:5"},
      {"[::1]:65535", "[::1]:65535"},
      {"0.0.0.0:0", "0.0.0.0:0"},
      {"[::ffff:1.2.3.4]:5", "1.2.3.4:5"},
  };
  for (auto& [text, want] : cases) {
    wire::Address out;
    Status s = parse_endpoint(text, &out);
    EXPECT_TRUE(s.ok()) << s.text();
    EXPECT_EQ(to_string(out), want);
  }
  wire::Address out;
  Status s = parse_endpoint("localhost:7", &out);
  ASSERT_TRUE(s.ok()) << s.text();
  EXPECT_EQ(out.port, 7);
}

TEST(ParseEndpoint, ANameGivesAllItsAddressesOnce) {
  std::vector<wire::Address> all;
  ASSERT_TRUE(resolve_endpoint("localhost:7", &all).ok());
  ASSERT_FALSE(all.empty());
  for (size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(all[i].port, 7);
    for (size_t j = 0; j < i; ++j) EXPECT_NE(all[i], all[j]);
  }
  ASSERT_TRUE(resolve_endpoint("10.0.0.1:5", &all).ok());
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(to_string(all[0]), "10.0.0.1:5");
}

TEST(ParseEndpoint, RefusesOtherText) {
  for (auto text :
       {""sv, ":"sv, ":5"sv, "1.2.3.4"sv, "1.2.3.4:"sv, "1.2.3.4:65536"sv, "1.2.3.4:-1"sv,
        "1.2.3.4:5x"sv, "1.2.3.4:0x5"sv, "::1:5"sv, "fd00::1:20000"sv, "[::1]"sv, "[]:5"sv,
        "[1.2.3.4:5"sv, "[nope]:5"sv, "ho\0st:5"sv, "1.2.3.4:99999999999999999999999"sv}) {
    wire::Address out;
    out.port = 9;
    Status s = parse_endpoint(text, &out);
    EXPECT_EQ(s.code(), TCPX_INVALID_ARGUMENT) << text << " " << s.text();
    EXPECT_THAT(s.text(), HasSubstr("e.g. "));
    EXPECT_EQ(out.port, 9);
  }
  wire::Address out;
  EXPECT_FALSE(parse_endpoint(std::string(10000, 'h') + ":5", &out).ok());
}

TEST(ParseEndpoint, UnknownHostIsAConnectFailure) {
  wire::Address out;
  Status s = parse_endpoint("no-such-host.invalid:5", &out);
  EXPECT_EQ(s.code(), TCPX_CONNECT_FAILED);
  EXPECT_THAT(s.text(), HasSubstr("no-such-host.invalid"));
}

TEST(SameNetwork, EachHasToLieInTheOthersNetwork) {
  struct Case {
    wire::Address a, b;
    bool same;
  };
  const Case cases[] = {
      {ip("10.0.0.1", 24), ip("10.0.0.2", 24), true},
      {ip("10.0.0.1", 24), ip("10.0.1.2", 24), false},
      {ip("10.0.0.1", 23), ip("10.0.1.2", 23), true},
      {ip("10.0.0.1", 16), ip("10.0.1.2", 24), false},
      {ip("10.0.0.1", 24), ip("10.0.0.2"), true},
      {ip("10.0.0.1"), ip("10.0.0.1"), false},
      {ip("fd00::1", 64), ip("fd00::2", 64), true},
      {ip("fd00::1", 64), ip("fd00:0:0:1::2", 64), false},
      {ip("fd00::1", 64), ip("10.0.0.1", 24), false},
      {ip("::1", 128), ip("::1", 128), true},
  };
  for (auto& c : cases) {
    EXPECT_EQ(same_network(c.a, c.b), c.same) << to_string(c.a) << " " << to_string(c.b);
    EXPECT_EQ(same_network(c.b, c.a), c.same);
  }
  // A prefix length from a hostile peer must not read past the address.
  wire::Address odd = ip("10.0.0.1");
  odd.prefix_length = 255;
  EXPECT_TRUE(same_network(odd, odd));
}

}  // namespace
}  // namespace tcpx
