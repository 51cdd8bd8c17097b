#include "base/ids.h"

#include <sys/random.h>

#include <algorithm>
#include <cerrno>
#include <vector>

namespace tcpx {
namespace {

constexpr char kHexDigits[] = "0123456789abcdef";

int hex_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

Status random_bytes(std::span<uint8_t> out) {
  // Requests above 256 bytes may be cut short or interrupted.
  while (!out.empty()) {
    ssize_t got = ::getrandom(out.data(), out.size(), 0);
    if (got < 0) {
      if (errno == EINTR) continue;
      return Status::system(errno, TCPX_BLAST_NOTHING, "getrandom");
    }
    out = out.subspan(static_cast<size_t>(got));
  }
  return {};
}

std::string to_hex(std::span<const uint8_t> bytes) {
  std::string out;
  out.reserve(bytes.size() * 2);
  for (uint8_t byte : bytes) {
    out += kHexDigits[byte >> 4];
    out += kHexDigits[byte & 15];
  }
  return out;
}

bool from_hex(std::string_view text, std::span<uint8_t> out) {
  if (text.size() != out.size() * 2) return false;
  std::vector<uint8_t> bytes(out.size());
  for (size_t i = 0; i < bytes.size(); ++i) {
    int high = hex_value(text[2 * i]);
    int low = hex_value(text[2 * i + 1]);
    if (high < 0 || low < 0) return false;
    bytes[i] = static_cast<uint8_t>(high << 4 | low);
  }
  std::copy(bytes.begin(), bytes.end(), out.begin());
  return true;
}

}  // namespace tcpx
