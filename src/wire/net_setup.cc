#include "wire/net_setup.h"

#include <algorithm>
#include <vector>

#include "wire/bytes.h"
#include "wire/frame.h"
#include "wire/protocol_error.h"

// 448 bytes
//   offset size field
//        0    4 magic "TCPN"
//        4    1 step
//        5    1 version of the plugin's ABI
//        6    2 status
//        8    8 request_bytes
//       16   32 nonce
//       48  128 handle
//      176   64 plugin
//      240  208 text

namespace tcpx::wire {
namespace {

constexpr char kProofLabel[] = "tcpx net comm v1";

template <size_t Size>
void put_text(std::string_view text, std::span<uint8_t, Size> out) {
  const size_t length = std::min(text.size(), Size - 1);
  std::copy_n(text.begin(), length, out.begin());
  std::fill(out.begin() + static_cast<std::ptrdiff_t>(length), out.end(), uint8_t{0});
}

template <size_t Size>
std::string get_text(std::span<const uint8_t, Size> in) {
  const auto text = in.template first<Size - 1>();
  return std::string(text.begin(), std::find(text.begin(), text.end(), uint8_t{0}));
}

Status check(const NetSetup& setup) {
  if (setup.step == NetStep::kOffer &&
      (setup.request_bytes < kMinNetRequest || setup.request_bytes > kMaxNetRequest)) {
    return bad("net setup: request_bytes is {}, allowed are {} to {}", setup.request_bytes,
               kMinNetRequest, kMaxNetRequest);
  }
  if (!is_result(setup.status)) return bad("net setup: status {} is no result", setup.status);
  if ((setup.step == NetStep::kFailed) == (setup.status == TCPX_OK)) {
    return bad("net setup: status {} in step {}", setup.status, static_cast<int>(setup.step));
  }
  return {};
}

}  // namespace

void encode(const NetSetup& in, std::span<uint8_t, kNetSetupBytes> out) {
  put<0>(out, kNetSetupMagic);
  put<4>(out, static_cast<uint8_t>(in.step));
  put<5>(out, in.version);
  put<6>(out, in.status);
  put<8>(out, in.request_bytes);
  put_bytes<16>(out, in.nonce);
  put_bytes<48>(out, in.handle);
  put_text(in.plugin, out.subspan<176, kNameBytes>());
  put_text(in.text, out.subspan<240, kNetTextBytes>());
}

Status decode(std::span<const uint8_t> in, NetSetup* out) {
  if (in.size() != kNetSetupBytes)
    return bad("net setup: {} bytes, {} expected", in.size(), kNetSetupBytes);
  const std::span<const uint8_t, kNetSetupBytes> bytes(in.data(), kNetSetupBytes);
  if (get<uint32_t, 0>(bytes) != kNetSetupMagic) return bad("net setup: wrong magic");
  const auto step = get<uint8_t, 4>(bytes);
  if (step < 1 || step > static_cast<uint8_t>(NetStep::kFailed))
    return bad("net setup: unknown step {}", step);
  NetSetup setup;
  setup.step = static_cast<NetStep>(step);
  setup.version = get<uint8_t, 5>(bytes);
  setup.status = get<uint16_t, 6>(bytes);
  setup.request_bytes = get<uint64_t, 8>(bytes);
  setup.nonce = get_bytes<16, kNonceBytes>(bytes);
  setup.handle = get_bytes<48, kNetHandleBytes>(bytes);
  setup.plugin = get_text(bytes.subspan<176, kNameBytes>());
  setup.text = get_text(bytes.subspan<240, kNetTextBytes>());
  if (Status status = check(setup); !status) return status;
  *out = std::move(setup);
  return {};
}

bool net_proof(std::span<const uint8_t> session_key, uint32_t lane, const NetSetup& offer,
               Digest* out) {
  std::vector<uint8_t> message(kProofLabel, kProofLabel + sizeof kProofLabel);
  for (int shift = 0; shift < 32; shift += 8)
    message.push_back(static_cast<uint8_t>(lane >> shift));
  message.insert(message.end(), offer.nonce.begin(), offer.nonce.end());
  message.insert(message.end(), offer.handle.begin(), offer.handle.end());
  return hmac_sha256(session_key, message, out);
}

}  // namespace tcpx::wire
