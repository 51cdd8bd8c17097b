// The four handshake messages. The first byte picks the message; what is missing is zero, what is
// too much is ignored, as on a socket that is read for exactly the message's size.
#include <algorithm>
#include <array>
#include <cstdint>
#include <span>

#include "fuzz_check.h"
#include "wire/frame.h"
#include "wire/handshake.h"

namespace {

using namespace tcpx;
using namespace tcpx::wire;

void check_error(const Status& status) {
  FUZZ_CHECK(status.code() == TCPX_PROTOCOL_ERROR || status.code() == TCPX_VERSION_MISMATCH);
  FUZZ_CHECK(status.blast() == TCPX_BLAST_LANE);
  FUZZ_CHECK(!status.text().empty());
}

void check(const Hello& hello) {
  const uint16_t version = common_version(hello.versions, {});
  FUZZ_CHECK(version >= kOldestWireVersion && version <= kWireVersion);
  FUZZ_CHECK(hello.name.size() < kNameBytes && hello.name.find('\0') == std::string::npos);
  FUZZ_CHECK(hello.lane < kMaxLanes);
  FUZZ_CHECK(hello.lanes >= 1 && hello.lanes <= kMaxLanes);
  FUZZ_CHECK(hello.window <= kMaxWindow);
  FUZZ_CHECK(hello.chunk_bytes <= kMaxChunkBytes);
  const bool join = hello.kind == HelloKind::kJoinLane;
  FUZZ_CHECK(join || hello.kind == HelloKind::kNewSession);
  FUZZ_CHECK(join == (hello.session != 0));
  FUZZ_CHECK(join || (hello.lane == 0 && hello.chunk_bytes >= kMinChunkBytes));
}

void check(const Challenge& challenge) {
  FUZZ_CHECK(challenge.version >= kOldestWireVersion && challenge.version <= kWireVersion);
  FUZZ_CHECK(is_result(challenge.status));
}

void check(const Proof&) {}

void check(const Welcome& welcome) {
  FUZZ_CHECK(is_result(welcome.status));
  FUZZ_CHECK(welcome.name.size() < kNameBytes && welcome.name.find('\0') == std::string::npos);
  FUZZ_CHECK(welcome.lanes <= kMaxLanes && welcome.window <= kMaxWindow);
  FUZZ_CHECK(welcome.chunk_bytes <= kMaxChunkBytes);
  FUZZ_CHECK(welcome.addresses.size() <= kMaxAddresses);
  for (const Address& address : welcome.addresses) {
    FUZZ_CHECK(address.port != 0 && address.prefix_length <= 128);
  }
  if (welcome.status != TCPX_OK) return;
  FUZZ_CHECK(welcome.session != 0 && welcome.lanes >= 1 && welcome.window >= 1);
  FUZZ_CHECK(welcome.chunk_bytes >= kMinChunkBytes);
}

template <class Message, size_t Bytes>
void run(std::span<const uint8_t> input) {
  std::array<uint8_t, Bytes> bytes{};
  std::copy_n(input.begin(), std::min(input.size(), Bytes), bytes.begin());
  Message message;
  if (Status status = decode(bytes, &message); !status) {
    check_error(status);
    FUZZ_CHECK(message == Message{});
    return;
  }
  check(message);
  std::array<uint8_t, Bytes> again;
  again.fill(0xee);
  encode(message, again);
  Message twice;
  FUZZ_CHECK(decode(again, &twice).ok());
  FUZZ_CHECK(twice == message);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::span<const uint8_t> rest(data + 1, size - 1);
  switch (data[0] % 4) {
    case 0: run<Hello, kHelloBytes>(rest); break;
    case 1: run<Challenge, kChallengeBytes>(rest); break;
    case 2: run<Proof, kProofMessageBytes>(rest); break;
    case 3: run<Welcome, kWelcomeBytes>(rest); break;
  }
  return 0;
}
