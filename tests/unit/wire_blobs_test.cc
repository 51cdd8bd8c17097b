#include "wire/blobs.h"

#include "base/text.h"
#include "wire/mac.h"
#include "wire_test_util.h"

namespace tcpx::wire {
namespace {

using test::counting_from;
using test::fails_with;

const std::string kSharedText = "correct horse battery staple";

std::span<const uint8_t> bytes_of(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

ConnectionInfo info_with(AuthMode auth) {
  ConnectionInfo info;
  info.uid = counting_from<16>(1);
  info.auth = auth;
  if (auth == AuthMode::kSecretInside) info.secret = counting_from<32>(0xe0);
  info.name = "nodeA:42";
  info.addresses = {{{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, 7}, 20000, 120},
                    {{0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9}, 65535, 64}};
  return info;
}

std::span<const uint8_t> key_for(AuthMode auth) {
  return auth == AuthMode::kSharedKey ? bytes_of(kSharedText) : std::span<const uint8_t>();
}

std::vector<uint8_t> encoded(AuthMode auth) {
  return encode_connection_info(info_with(auth), key_for(auth));
}

constexpr AuthMode kModes[] = {AuthMode::kOpen, AuthMode::kSecretInside, AuthMode::kSharedKey};

Status decode_info(std::span<const uint8_t> bytes, std::span<const uint8_t> key = {}) {
  ConnectionInfo out;
  Status status = decode_connection_info(bytes, key, &out);
  if (!status.ok()) {
    EXPECT_EQ(out, ConnectionInfo{}) << "output written on failure";
  }
  return status;
}

// Gives damaged open-mode bytes a right check again, as a hostile maker could.
void sign_open(std::vector<uint8_t>* bytes) {
  const std::string label = "tcpx-p2p connection info v1";
  Digest key, check;
  ASSERT_TRUE(hmac_sha256(bytes_of(label), {}, &key));
  ASSERT_TRUE(hmac_sha256(key, std::span(*bytes).first(bytes->size() - kDigestBytes), &check));
  std::copy(check.begin(), check.end(), bytes->end() - kDigestBytes);
}

// ---- connection info ----------------------------------------------------------------------------

TEST(WireConnectionInfoGolden, AllModes) {
  const std::vector<uint8_t> secret = encoded(AuthMode::kSecretInside);
  EXPECT_EQ(to_hex(secret),
            "544350490100900001080200000000000102030405060708090a0b0c0d0e0f10"
            "e0e1e2e3e4e5e6e7e8e9eaebecedeeeff0f1f2f3f4f5f6f7f8f9fafbfcfdfeff"
            "6e6f6465413a343200000000000000000000ffffc0000207204e780020010db8"
            "000000000000000000000009ffff4000b853642a34a81bf20713e4de792d1373"
            "bc2a3b69455c190047f4453be725569a");
  const std::vector<uint8_t> shared = encoded(AuthMode::kSharedKey);
  EXPECT_EQ(to_hex(std::span(shared).last(32)),
            "7f6650ddaf0957c53fd03fab27c5df5e8ec74ad4f88cd850659529cba600588d");
  const std::vector<uint8_t> open = encoded(AuthMode::kOpen);
  EXPECT_EQ(to_hex(std::span(open).last(32)),
            "e6d2481b09980584572984131cc567201f2b004317fed09e62286d925af4d53e");
}

TEST(WireConnectionInfo, ComesBack) {
  for (AuthMode auth : kModes) {
    ConnectionInfo back;
    const Status status = decode_connection_info(encoded(auth), key_for(auth), &back);
    ASSERT_TRUE(status.ok()) << status.to_string();
    EXPECT_EQ(back, info_with(auth));
  }
}

TEST(WireConnectionInfo, LargestAndSmallest) {
  ConnectionInfo info = info_with(AuthMode::kSecretInside);
  info.name.assign(200, 'n');
  info.addresses.assign(kMaxAddresses + 3, info.addresses[0]);
  ConnectionInfo back;
  const auto large = encode_connection_info(info, {});
  EXPECT_LE(large.size(), kMaxConnectionInfoBytes);
  ASSERT_TRUE(decode_connection_info(large, {}, &back).ok());
  EXPECT_EQ(back.name, std::string(kNameBytes - 1, 'n'));
  EXPECT_EQ(back.addresses.size(), kMaxAddresses);

  info.name = std::string("a\0b", 3);
  info.addresses.resize(1);
  ASSERT_TRUE(decode_connection_info(encode_connection_info(info, {}), {}, &back).ok());
  EXPECT_EQ(back.name, "a");
  info.addresses.clear();
  EXPECT_TRUE(
      fails_with(decode_info(encode_connection_info(info, {})), TCPX_TAMPERED, "addresses"));
}

TEST(WireConnectionInfo, SecretStaysInsideOnlyInItsMode) {
  ConnectionInfo info = info_with(AuthMode::kSharedKey);
  info.secret = counting_from<32>(0xe0);
  const std::string hex = to_hex(encode_connection_info(info, bytes_of(kSharedText)));
  EXPECT_EQ(hex.find("e0e1e2e3"), std::string::npos);
}

TEST(WireConnectionInfo, EverySingleBitFlipIsRefused) {
  for (AuthMode auth : kModes) {
    const std::vector<uint8_t> good = encoded(auth);
    for (size_t bit = 0; bit < good.size() * 8; ++bit) {
      std::vector<uint8_t> bytes = good;
      bytes[bit / 8] = static_cast<uint8_t>(bytes[bit / 8] ^ (1 << (bit % 8)));
      // With the key at hand too: no flip may turn one mode into another that passes.
      for (auto key : {key_for(auth), bytes_of(kSharedText)}) {
        const Status status = decode_info(bytes, key);
        ASSERT_FALSE(status.ok()) << "bit " << bit;
        ASSERT_FALSE(status.text().empty());
        if (bit >= 48) {
          ASSERT_TRUE(status.code() == TCPX_TAMPERED || status.code() == TCPX_AUTH_FAILED)
              << "bit " << bit << ' ' << status.to_string();
        }
      }
    }
  }
}

TEST(WireConnectionInfo, EveryTruncationAndExtensionIsRefused) {
  for (AuthMode auth : kModes) {
    std::vector<uint8_t> bytes = encoded(auth);
    for (size_t size = 0; size < bytes.size(); ++size) {
      ASSERT_FALSE(decode_info(std::span(bytes).first(size), key_for(auth)).ok()) << size;
    }
    EXPECT_TRUE(fails_with(decode_info(std::span(bytes).first(bytes.size() - 1), key_for(auth)),
                           TCPX_TAMPERED, "cut off"));
    bytes.push_back(0);
    EXPECT_TRUE(fails_with(decode_info(bytes, key_for(auth)), TCPX_TAMPERED, "added to"));
    bytes.resize(kMaxConnectionInfoBytes + 1);
    EXPECT_TRUE(fails_with(decode_info(bytes, key_for(auth)), TCPX_TAMPERED, "at most"));
  }
}

TEST(WireConnectionInfo, WhatIsNoConnectionInfo) {
  EXPECT_TRUE(fails_with(decode_info({}), TCPX_INVALID_ARGUMENT, "there are none"));
  for (int value : {0x00, 0xff}) {
    const std::vector<uint8_t> bytes(200, static_cast<uint8_t>(value));
    EXPECT_TRUE(fails_with(decode_info(bytes), TCPX_INVALID_ARGUMENT, "not made by this library"));
  }
  EXPECT_TRUE(fails_with(decode_info(encode_region({})), TCPX_INVALID_ARGUMENT,
                         "they are a region description"));
}

TEST(WireConnectionInfo, OtherVersions) {
  for (uint8_t version : {uint8_t{0}, uint8_t{kInfoVersion + 1}, uint8_t{255}}) {
    std::vector<uint8_t> bytes = encoded(AuthMode::kSecretInside);
    bytes[4] = version;
    EXPECT_TRUE(fails_with(decode_info(bytes), TCPX_VERSION_MISMATCH,
                           "version " + std::to_string(version)));
    // Whatever length another version has, it gets this answer and not "tampered".
    EXPECT_TRUE(
        fails_with(decode_info(std::span(bytes).first(8)), TCPX_VERSION_MISMATCH, "release"));
  }
}

TEST(WireConnectionInfo, SharedKeyIsNeededAndChecked) {
  const std::vector<uint8_t> bytes = encoded(AuthMode::kSharedKey);
  EXPECT_TRUE(fails_with(decode_info(bytes), TCPX_AUTH_FAILED, "auth_key_file"));
  const std::string other = "correct horse battery stapler";
  EXPECT_TRUE(fails_with(decode_info(bytes, bytes_of(other)), TCPX_TAMPERED, "another auth_key"));
  // A forger without the key cannot make one: not with the secret's way, not with the open one.
  std::vector<uint8_t> forged = bytes;
  sign_open(&forged);
  EXPECT_TRUE(fails_with(decode_info(forged, bytes_of(kSharedText)), TCPX_TAMPERED, "changed"));
}

TEST(WireConnectionInfo, ARightCheckDoesNotMakeBadFieldsGood) {
  struct Case {
    size_t offset;
    uint8_t value;
    const char* text;
  };
  // The name is at 64..71, the addresses at 72 and 92.
  const Case cases[] = {{11, 1, "reserved"},   {15, 1, "reserved"},      {32, 1, "secret"},
                        {63, 1, "secret"},     {9, 64, "name"},          {9, 63, "name"},
                        {9, 9, "NUL"},         {9, 7, "address"},        {10, 0, "addresses"},
                        {10, 17, "addresses"}, {10, 3, "addresses"},     {10, 1, "after its last"},
                        {66, 0, "NUL"},        {72 + 18, 129, "prefix"}, {72 + 19, 1, "reserved"},
                        {8, 3, "mode"},        {8, 255, "mode"}};
  for (const Case& c : cases) {
    std::vector<uint8_t> bytes = encoded(AuthMode::kOpen);
    bytes[c.offset] = c.value;
    sign_open(&bytes);
    EXPECT_TRUE(fails_with(decode_info(bytes), TCPX_TAMPERED, c.text)) << c.offset;
  }
  std::vector<uint8_t> unchanged = encoded(AuthMode::kOpen);
  sign_open(&unchanged);
  EXPECT_EQ(unchanged, encoded(AuthMode::kOpen)) << "the test signs as the library does";
}

// ---- region description -------------------------------------------------------------------------

RegionDescription some_region() {
  return {counting_from<16>(1), 0x0000000900000007,
          0x123456789a,         TCPX_REMOTE_READ | TCPX_REMOTE_WRITE,
          TCPX_MEMORY_CUDA,     0x0506,
          0x00000a0b0c};
}

Status decode_it(std::span<const uint8_t> bytes) {
  RegionDescription out;
  Status status = decode_region(bytes, &out);
  if (!status.ok()) {
    EXPECT_EQ(out, RegionDescription{});
  }
  return status;
}

TEST(WireRegionGolden, Description) {
  EXPECT_EQ(to_hex(encode_region(some_region())),
            "54435052020000000102030405060708090a0b0c0d0e0f100700000009000000"
            "9a7856341200000003000000010006050c0b0a00000000000000000000000000"
            "f1134dc3659f7fc2749993b433b6b80d");
}

TEST(WireRegion, ComesBack) {
  RegionDescription extreme = {counting_from<16>(0xf8), UINT64_MAX, UINT64_MAX, 0,
                               TCPX_MEMORY_CUDA,        UINT16_MAX, 16 << 20};
  for (const RegionDescription& region : {some_region(), extreme, RegionDescription{}}) {
    RegionDescription back;
    ASSERT_TRUE(decode_region(encode_region(region), &back).ok());
    EXPECT_EQ(back, region);
  }
}

TEST(WireRegion, EveryBitFlipTruncationAndExtensionIsRefused) {
  const auto good = encode_region(some_region());
  for (size_t bit = 0; bit < good.size() * 8; ++bit) {
    auto bytes = good;
    bytes[bit / 8] = static_cast<uint8_t>(bytes[bit / 8] ^ (1 << (bit % 8)));
    ASSERT_FALSE(decode_it(bytes).ok()) << bit;
  }
  for (size_t size = 0; size < good.size(); ++size) {
    ASSERT_FALSE(decode_it(std::span(good).first(size)).ok()) << size;
  }
  std::vector<uint8_t> longer(good.begin(), good.end());
  longer.push_back(0);
  EXPECT_TRUE(fails_with(decode_it(longer), TCPX_TAMPERED, "81 bytes"));
}

TEST(WireRegion, CodesSayWhatIsWrong) {
  EXPECT_TRUE(fails_with(decode_it({}), TCPX_INVALID_ARGUMENT, "there are none"));
  EXPECT_TRUE(fails_with(decode_it(encoded(AuthMode::kOpen)), TCPX_INVALID_ARGUMENT,
                         "they are a connection info"));
  auto bytes = encode_region(some_region());
  for (uint8_t version : {uint8_t{1}, uint8_t{3}}) {
    bytes[4] = version;
    EXPECT_TRUE(fails_with(decode_it(bytes), TCPX_VERSION_MISMATCH, strf("version {}", version)));
  }
  bytes = encode_region(some_region());
  bytes[30] ^= 1;
  EXPECT_TRUE(fails_with(decode_it(bytes), TCPX_TAMPERED, "damaged"));
  std::array<uint8_t, kRegionDescriptionBytes> ones;
  ones.fill(0xff);
  EXPECT_TRUE(fails_with(decode_it(ones), TCPX_INVALID_ARGUMENT, "not made"));
}

TEST(WireRegion, ARightCheckDoesNotMakeBadFieldsGood) {
  const std::pair<size_t, const char*> cases[] = {
      {6, "reserved"}, {7, "reserved"}, {56, "reserved"}, {63, "reserved"},
      {51, "chunks"},  {41, "access"},  {45, "place"},    {44, "place"}};
  for (const auto& [offset, text] : cases) {
    auto bytes = encode_region(some_region());
    bytes[offset] = offset == 44 ? 0 : 1;  // host memory has no device
    Digest digest;
    ASSERT_TRUE(sha256(std::span(bytes).first(64), &digest));
    std::copy_n(digest.begin(), 16, bytes.begin() + 64);
    EXPECT_TRUE(fails_with(decode_it(bytes), TCPX_TAMPERED, text)) << offset;
  }
}

// ---- property -----------------------------------------------------------------------------------

TEST(WireBlobsProperty, RandomInfosComeBackAndRandomDamageDoesNot) {
  std::mt19937_64 random(test::test_seed());
  const auto fill = [&random](std::span<uint8_t> out) {
    for (uint8_t& byte : out) byte = static_cast<uint8_t>(random());
  };
  for (int round = 0; round < 2000; ++round) {
    ConnectionInfo info;
    fill(info.uid);
    info.auth = kModes[random() % 3];
    if (info.auth == AuthMode::kSecretInside) fill(info.secret);
    info.name.assign(random() % kNameBytes, static_cast<char>(1 + random() % 255));
    info.addresses.resize(1 + random() % kMaxAddresses);
    for (Address& address : info.addresses) {
      fill(address.ip);
      address.port = static_cast<uint16_t>(1 + random() % 65535);
      address.prefix_length = static_cast<uint8_t>(random() % 129);
    }
    std::vector<uint8_t> bytes = encode_connection_info(info, key_for(info.auth));
    ConnectionInfo back;
    ASSERT_TRUE(decode_connection_info(bytes, key_for(info.auth), &back).ok());
    ASSERT_EQ(back, info);
    const std::vector<uint8_t> before = bytes;
    for (size_t i = 1 + random() % 8; i > 0; --i) {
      bytes[random() % bytes.size()] = static_cast<uint8_t>(random());
    }
    if (bytes != before) {
      ASSERT_FALSE(decode_info(bytes, key_for(info.auth)).ok());
    }
  }
}

}  // namespace
}  // namespace tcpx::wire
