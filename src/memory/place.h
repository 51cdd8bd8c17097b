// Where memory lies. Every region has one place; a chunk lies in one place on each side, so that
// whoever moves it has one kind of work to do.
#pragma once

#include <tcpx/tcpx.h>

#include <bit>
#include <cstdint>
#include <string>

#include "base/text.h"

namespace tcpx {

struct Place {
  enum class Kind : uint8_t { kHost = TCPX_MEMORY_HOST, kCuda = TCPX_MEMORY_CUDA };

  Kind kind = Kind::kHost;
  uint16_t device = 0;  // of its kind; 0 for host memory

  bool is_host() const { return kind == Kind::kHost; }
  std::string text() const { return is_host() ? "host" : strf("cuda:{}", device); }
  bool operator==(const Place&) const = default;
};

// A set of places: a bit each.
using PlaceMask = uint64_t;
inline constexpr PlaceMask kHostBit = 1;
inline constexpr uint16_t kMostDevices = 63;
inline PlaceMask mask_of(const Place& place) {
  return place.is_host() ? kHostBit : PlaceMask{2} << place.device;
}
// Those of GPUs.
inline constexpr PlaceMask kGpuBits = ~kHostBit;
// The one whose bit is the lowest.
inline Place first_of(PlaceMask mask) {
  const int bit = std::countr_zero(mask);
  if (bit == 0) return {};
  return {Place::Kind::kCuda, static_cast<uint16_t>(bit - 1)};
}

// Kinds of places.
class PlaceKinds {
 public:
  constexpr PlaceKinds() = default;
  constexpr explicit PlaceKinds(Place::Kind kind) : bits_(bit(kind)) {}
  constexpr PlaceKinds operator|(PlaceKinds other) const {
    PlaceKinds out;
    out.bits_ = static_cast<uint8_t>(bits_ | other.bits_);
    return out;
  }
  constexpr bool has(const Place& place) const { return (bits_ & bit(place.kind)) != 0; }

 private:
  static constexpr uint8_t bit(Place::Kind kind) {
    return static_cast<uint8_t>(1u << static_cast<unsigned>(kind));
  }
  uint8_t bits_ = 0;
};

}  // namespace tcpx
