// Messages that set up plugin comms beside a lane.
#include <gtest/gtest.h>

#include "wire/net_setup.h"
#include "wire_test_util.h"

namespace tcpx::wire {
namespace {

using test::counting_from;
using test::fails_with;

NetSetup an_offer() {
  NetSetup offer;
  offer.step = NetStep::kOffer;
  offer.version = 7;
  offer.request_bytes = 512 << 10;
  offer.nonce = counting_from<kNonceBytes>(0x10);
  offer.handle = counting_from<kNetHandleBytes>(0x40);
  offer.plugin = "GPUDirectTCPX_v7";
  return offer;
}

std::array<uint8_t, kNetSetupBytes> encoded(const NetSetup& message) {
  std::array<uint8_t, kNetSetupBytes> bytes;
  bytes.fill(0xee);
  encode(message, bytes);
  return bytes;
}

TEST(WireNetSetup, EveryStepComesBack) {
  NetSetup failed;
  failed.step = NetStep::kFailed;
  failed.status = TCPX_PATH_UNAVAILABLE;
  failed.text = "steering refused";
  NetSetup ready, bound;
  ready.step = NetStep::kReady;
  bound.step = NetStep::kBound;
  for (const NetSetup& message : {an_offer(), ready, bound, failed}) {
    NetSetup back;
    Status status = decode(encoded(message), &back);
    EXPECT_TRUE(status.ok()) << status.to_string();
    EXPECT_EQ(back, message);
  }
}

TEST(WireNetSetup, WhatNoPeerSendsIsRefused) {
  NetSetup out;
  auto good = encoded(an_offer());
  for (size_t size : {size_t{0}, kNetSetupBytes - 1})
    EXPECT_TRUE(
        fails_with(decode(std::span(good).first(size), &out), TCPX_PROTOCOL_ERROR, "bytes"));
  for (int step : {0, 5, 255}) {
    auto bytes = good;
    bytes[4] = static_cast<uint8_t>(step);
    EXPECT_TRUE(fails_with(decode(bytes, &out), TCPX_PROTOCOL_ERROR, "step")) << step;
  }
  for (uint64_t request : {uint64_t{0}, kMinNetRequest - 1, kMaxNetRequest + 1, UINT64_MAX}) {
    NetSetup offer = an_offer();
    offer.request_bytes = request;
    EXPECT_TRUE(fails_with(decode(encoded(offer), &out), TCPX_PROTOCOL_ERROR, "request_bytes"));
  }
  NetSetup offer = an_offer();
  offer.status = TCPX_LIMIT;
  EXPECT_TRUE(fails_with(decode(encoded(offer), &out), TCPX_PROTOCOL_ERROR, "status"));
  NetSetup failed;
  failed.step = NetStep::kFailed;
  EXPECT_TRUE(fails_with(decode(encoded(failed), &out), TCPX_PROTOCOL_ERROR, "status"));
  good[0] ^= 1;
  EXPECT_TRUE(fails_with(decode(good, &out), TCPX_PROTOCOL_ERROR, "magic"));
}

TEST(WireNetSetup, LongTextsAreCut) {
  NetSetup failed;
  failed.step = NetStep::kFailed;
  failed.status = TCPX_PATH_UNAVAILABLE;
  failed.text = std::string(1000, 'x');
  NetSetup back;
  ASSERT_TRUE(decode(encoded(failed), &back).ok());
  EXPECT_EQ(back.text, std::string(kNetTextBytes - 1, 'x'));
}

// A proof for one comm is worth nothing for another: it depends on everything that names it.
TEST(WireNetSetup, ProofDependsOnKeyLaneNonceAndHandle) {
  auto key = counting_from<32>(1);
  Digest proof, other;
  ASSERT_TRUE(net_proof(key, 3, an_offer(), &proof));
  auto expect_different = [&](std::span<const uint8_t> k, uint32_t lane, const NetSetup& offer) {
    ASSERT_TRUE(net_proof(k, lane, offer, &other));
    EXPECT_NE(proof, other);
  };
  auto wrong_key = counting_from<32>(2);
  expect_different(wrong_key, 3, an_offer());
  expect_different(key, 4, an_offer());
  NetSetup offer = an_offer();
  offer.nonce[31] ^= 1;
  expect_different(key, 3, offer);
  offer = an_offer();
  offer.handle[127] ^= 1;
  expect_different(key, 3, offer);
}

}  // namespace
}  // namespace tcpx::wire
