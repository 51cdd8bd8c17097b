#include "range_blob.h"

namespace tcpx_nixl {

namespace {

constexpr size_t kNumberBytes = 8;
constexpr size_t kPlaceBytes = 4 * kNumberBytes;

void put(uint64_t number, std::string* out) {
  for (size_t i = 0; i < kNumberBytes; ++i) out->push_back(static_cast<char>(number >> (8 * i)));
}

uint64_t get(const std::string& in, size_t at) {
  uint64_t number = 0;
  for (size_t i = 0; i < kNumberBytes; ++i)
    number |= uint64_t{static_cast<uint8_t>(in[at + i])} << (8 * i);
  return number;
}

}  // namespace

void add_place(const RangePlace& place, std::string* blob) {
  for (uint64_t number : {place.base, place.device}) {
    put(number, blob);
    put(~number, blob);
  }
}

bool split_place(const std::string& blob, RangePlace* place, std::string* description) {
  if (blob.size() < kPlaceBytes) return false;
  size_t at = blob.size() - kPlaceBytes;
  for (uint64_t* number : {&place->base, &place->device}) {
    *number = get(blob, at);
    if (get(blob, at + kNumberBytes) != ~*number) return false;
    at += 2 * kNumberBytes;
  }
  *description = blob.substr(0, blob.size() - kPlaceBytes);
  return true;
}

}  // namespace tcpx_nixl
