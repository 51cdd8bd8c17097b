// Messages between carriers: whatever arrives is refused or within bounds, and comes back the same.
#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "fuzz_check.h"
#include "path/net/handle_check.h"
#include "wire/frame.h"
#include "wire/net_setup.h"

using namespace tcpx;
using namespace tcpx::wire;

// What plugins follow as a pointer is zero in every handle that is passed on to them.
static void check_handles(const NetHandle& handle) {
  for (std::string_view plugin : net::plugins_with_known_handles()) {
    Status status = net::check_handle(plugin, handle);
    if (!status) {
      FUZZ_CHECK(status.code() == TCPX_PROTOCOL_ERROR && status.blast() == TCPX_BLAST_LANE);
      continue;
    }
    size_t from = plugin == "Socket" ? 48 : 80, to = plugin == "Socket" ? 72 : 88;
    FUZZ_CHECK(std::all_of(handle.begin() + static_cast<ptrdiff_t>(from),
                           handle.begin() + static_cast<ptrdiff_t>(to),
                           [](uint8_t byte) { return byte == 0; }));
  }
  FUZZ_CHECK(net::check_handle("another", handle).ok());
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // Half of the inputs get the right size and magic: the rest is where the decisions are.
  std::vector<uint8_t> bytes(data, data + size);
  if (size > 0 && (data[0] & 1)) {
    bytes.resize(kNetSetupBytes);
    for (int i = 0; i < 4; ++i)
      bytes[static_cast<size_t>(i)] = static_cast<uint8_t>(kNetSetupMagic >> (8 * i));
  }
  NetSetup setup;
  Status status = decode(bytes, &setup);
  if (!status) {
    FUZZ_CHECK(status.code() == TCPX_PROTOCOL_ERROR && status.blast() == TCPX_BLAST_LANE);
    FUZZ_CHECK(!status.text().empty());
    return 0;
  }
  FUZZ_CHECK(setup.step >= NetStep::kOffer && setup.step <= NetStep::kFailed);
  FUZZ_CHECK(is_result(setup.status));
  if (setup.step == NetStep::kOffer)
    FUZZ_CHECK(setup.request_bytes >= kMinNetRequest && setup.request_bytes <= kMaxNetRequest);
  FUZZ_CHECK(setup.plugin.size() < kNameBytes && setup.text.size() < kNetTextBytes);
  check_handles(setup.handle);
  std::array<uint8_t, kNetSetupBytes> again;
  encode(setup, again);
  NetSetup back;
  FUZZ_CHECK(decode(again, &back).ok() && back == setup);
  return 0;
}
