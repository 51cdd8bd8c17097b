// Bytes as text, for the line protocol between tests and test peers.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace tcpx::test {

// An empty list is "-": every argument of the line protocol has at least one character.
inline std::string to_hex(const void* bytes, size_t length) {
  static constexpr char kDigits[] = "0123456789abcdef";
  if (length == 0) return "-";
  std::string out;
  out.reserve(length * 2);
  for (size_t i = 0; i < length; ++i) {
    uint8_t b = static_cast<const uint8_t*>(bytes)[i];
    out += kDigits[b >> 4];
    out += kDigits[b & 15];
  }
  return out;
}
inline std::string to_hex(const std::vector<uint8_t>& bytes) {
  return to_hex(bytes.data(), bytes.size());
}
inline std::string to_hex(std::string_view bytes) {
  return to_hex(bytes.data(), bytes.size());
}

inline std::vector<uint8_t> from_hex(std::string_view text) {
  std::vector<uint8_t> out;
  if (text == "-") return out;
  auto digit = [](char c) -> int {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    throw std::runtime_error("not hex");
  };
  out.reserve(text.size() / 2);
  for (size_t i = 0; i + 1 < text.size(); i += 2)
    out.push_back(static_cast<uint8_t>(digit(text[i]) * 16 + digit(text[i + 1])));
  return out;
}

}  // namespace tcpx::test
