#include "path/net/handle_check.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

#include "base/text.h"

namespace tcpx::net {
namespace {

// Addresses are a union of sockaddr_in and sockaddr_in6 in all of them.
constexpr size_t kAddressBytes = 28;
static_assert(sizeof(sockaddr_in6) == kAddressBytes && sizeof(sockaddr_in) < kAddressBytes);

struct Rule {
  enum Kind { kZero, kCount, kFlag, kAddress } kind;
  size_t offset, size;
  int32_t least, most;  // of a count
  const char* what;

  constexpr size_t end() const { return offset + size; }
};
constexpr Rule zero(size_t offset, size_t size, const char* what) {
  return {Rule::kZero, offset, size, 0, 0, what};
}
constexpr Rule count(size_t offset, int32_t least, int32_t most, const char* what) {
  return {Rule::kCount, offset, sizeof(int32_t), least, most, what};
}
constexpr Rule address(size_t offset, const char* what) {
  return {Rule::kAddress, offset, kAddressBytes, 0, 0, what};
}
constexpr Rule flag(size_t offset, const char* what) {
  return {Rule::kFlag, offset, 1, 0, 1, what};
}

// GPUDirect-TCPX 3.1: 88 bytes. Ports between the first address and the counts are not used.
constexpr Rule kTcpx[] = {
    address(0, "address"),
    count(36, 1, 8, "number of sockets"),
    count(40, 1, 16, "number of threads"),
    flag(44, "flag"),
    address(48, "control address"),
    zero(80, 8, "pointer"),
};
// NCCL's own sockets, 2.18 to 2.30: 72 bytes, the last 24 are the stage of the connect.
constexpr Rule kSocket[] = {
    address(0, "address"),
    count(40, 0, 64, "number of sockets"),
    count(44, 0, 16, "number of threads"),
    zero(48, 24, "pointers"),
};
// plugins/tcpx_emu/setup.h.
constexpr Rule kEmulator[] = {
    address(16, "address"),
    address(44, "control address"),
    count(72, 0, 8, "number of sockets"),
    zero(80, 16, "pointer"),
};

struct Known {
  std::string_view plugin;
  std::span<const Rule> rules;
};
constexpr Known kKnown[] = {
    {"GPUDirectTCPX_v7", kTcpx}, {"Socket", kSocket}, {"TCPX_EMU", kEmulator}};
constexpr std::string_view kNames[] = {kKnown[0].plugin, kKnown[1].plugin, kKnown[2].plugin};

constexpr bool inside_and_apart(std::span<const Rule> rules) {
  for (size_t i = 0; i < rules.size(); ++i) {
    if (rules[i].end() > wire::kNetHandleBytes) return false;
    if (i > 0 && rules[i].offset < rules[i - 1].end()) return false;
  }
  return true;
}
static_assert(inside_and_apart(kTcpx) && inside_and_apart(kSocket) && inside_and_apart(kEmulator));

const Known* find(std::string_view plugin) {
  auto found = std::find_if(std::begin(kKnown), std::end(kKnown),
                            [&](const Known& known) { return known.plugin == plugin; });
  return found == std::end(kKnown) ? nullptr : found;
}

bool holds(const Rule& rule, const uint8_t* bytes) {
  switch (rule.kind) {
    case Rule::kZero:
      return std::all_of(bytes, bytes + rule.size, [](uint8_t byte) { return byte == 0; });
    case Rule::kFlag: return *bytes <= 1;
    case Rule::kCount: {
      int32_t value;
      memcpy(&value, bytes, sizeof value);
      return value >= rule.least && value <= rule.most;
    }
    case Rule::kAddress: {
      sa_family_t family;
      memcpy(&family, bytes, sizeof family);
      return family == AF_INET || family == AF_INET6;
    }
  }
  return false;
}

}  // namespace

bool knows_handles_of(std::string_view plugin) {
  return find(plugin) != nullptr;
}

Status check_handle(std::string_view plugin, const wire::NetHandle& handle) {
  const Known* known = find(plugin);
  if (known == nullptr) return {};
  for (const Rule& rule : known->rules)
    if (!holds(rule, handle.data() + rule.offset))
      return lane_error(TCPX_PROTOCOL_ERROR,
                        strf("the peer's handle for {} is not one that listen() makes: its {} (at "
                             "byte {}) would harm the plugin here",
                             plugin, rule.what, rule.offset));
  return {};
}

std::span<const std::string_view> plugins_with_known_handles() {
  return kNames;
}

}  // namespace tcpx::net
