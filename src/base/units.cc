#include "base/units.h"

#include <cctype>
#include <charconv>
#include <span>

#include "base/log.h"

namespace tcpx {
namespace {

struct Unit {
  std::string_view name;
  uint64_t factor;
};

// Largest first: formatting takes the first that divides.
constexpr Unit kSizes[] = {
    {"T", 1ull << 40}, {"G", 1ull << 30}, {"M", 1ull << 20}, {"K", 1ull << 10}, {"", 1}};
constexpr Unit kTimes[] = {{"h", 3600ull * kSecond}, {"m", 60ull * kSecond}, {"s", kSecond},
                           {"ms", kMilli},           {"us", kMicro},         {"ns", 1}};

Status bad_text(std::string_view text, std::string_view why, std::string_view example) {
  constexpr size_t kShown = 80;
  std::string shown = escaped(text.substr(0, kShown));
  if (text.size() > kShown) shown += "...";
  return bad_call(TCPX_BAD_CONFIG, strf("\"{}\" {}, e.g. {}", shown, why, example));
}

enum class Digits { kNone, kOverflow, kOk };

// Splits "512K" into 512 and "K". from_chars alone would take a minus sign for unsigned types.
Digits split_number(std::string_view text, uint64_t* number, std::string_view* rest) {
  if (text.empty() || text[0] < '0' || text[0] > '9') return Digits::kNone;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *number);
  *rest = text.substr(static_cast<size_t>(end - text.data()));
  return error == std::errc() ? Digits::kOk : Digits::kOverflow;
}

const Unit* find_unit(std::span<const Unit> units, std::string_view name) {
  for (const Unit& unit : units) {
    if (unit.name == name) return &unit;
  }
  return nullptr;
}

bool multiply(uint64_t number, uint64_t factor, uint64_t limit, uint64_t* out) {
  return !__builtin_mul_overflow(number, factor, out) && *out <= limit;
}

// "KiB", "Ki", "k" -> "K"; "B" -> ""; anything else stays and is then not found.
std::string size_unit(std::string_view text) {
  std::string unit(text);
  if (unit == "B" || unit == "b") return "";
  if (unit.size() == 3 && (unit[2] == 'B' || unit[2] == 'b')) unit.pop_back();
  if (unit.size() == 2 && unit[1] == 'i') unit.pop_back();
  if (unit.size() == 1) unit[0] = static_cast<char>(toupper(static_cast<unsigned char>(unit[0])));
  return unit;
}

}  // namespace

Status parse_count(std::string_view text, uint64_t* out) {
  uint64_t number = 0;
  std::string_view rest;
  switch (split_number(text, &number, &rest)) {
    case Digits::kNone: return bad_text(text, "is not a whole number", "16");
    case Digits::kOverflow: return bad_text(text, "is too large", "16");
    case Digits::kOk: break;
  }
  if (!rest.empty()) return bad_text(text, "is not a whole number", "16");
  *out = number;
  return {};
}

Status parse_size(std::string_view text, uint64_t* out) {
  uint64_t number = 0;
  std::string_view rest;
  switch (split_number(text, &number, &rest)) {
    case Digits::kNone: return bad_text(text, "is not a size", "512K, 4MiB or 1G");
    case Digits::kOverflow: return bad_text(text, "is too large", "512K, 4MiB or 1G");
    case Digits::kOk: break;
  }
  const Unit* unit = find_unit(kSizes, size_unit(rest));
  if (unit == nullptr) {
    return bad_text(text, "is not a size (units are K, M, G, T in powers of two)",
                    "512K, 4MiB or 1G");
  }
  uint64_t bytes = 0;
  if (!multiply(number, unit->factor, UINT64_MAX, &bytes)) {
    return bad_text(text, "is too large", "512K, 4MiB or 1G");
  }
  *out = bytes;
  return {};
}

Status parse_time(std::string_view text, Nanos* out) {
  uint64_t number = 0;
  std::string_view rest;
  switch (split_number(text, &number, &rest)) {
    case Digits::kNone: return bad_text(text, "is not a time", "250us, 5ms, 30s or 2m");
    case Digits::kOverflow: return bad_text(text, "is too large", "250us, 5ms, 30s or 2m");
    case Digits::kOk: break;
  }
  if (rest.empty() && number == 0) {
    *out = 0;
    return {};
  }
  const Unit* unit = find_unit(kTimes, rest);
  if (unit == nullptr) {
    return bad_text(text, "needs one of the units ns, us, ms, s, m, h", "250us, 5ms, 30s or 2m");
  }
  uint64_t nanos = 0;
  if (!multiply(number, unit->factor, static_cast<uint64_t>(INT64_MAX), &nanos)) {
    return bad_text(text, "is too large", "250us, 5ms, 30s or 2m");
  }
  *out = static_cast<Nanos>(nanos);
  return {};
}

std::string format_size(uint64_t bytes) {
  for (const Unit& unit : kSizes) {
    if (bytes != 0 && bytes % unit.factor == 0) {
      return strf("{}{}", bytes / unit.factor, unit.name);
    }
  }
  return "0";
}

std::string format_time(Nanos time) {
  auto nanos = static_cast<uint64_t>(time);
  for (const Unit& unit : kTimes) {
    if (nanos != 0 && nanos % unit.factor == 0) {
      return strf("{}{}", nanos / unit.factor, unit.name);
    }
  }
  return "0";
}

}  // namespace tcpx
