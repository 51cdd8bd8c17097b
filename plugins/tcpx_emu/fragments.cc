#include "fragments.h"

#include <algorithm>

#include "abi.h"
#include "pool.h"

namespace tcpx_emu {

namespace {

constexpr uint32_t kMtuBytes = 1448;  // payload of a 1500-byte packet

Fragments kind_of(const Settings& settings, uint64_t ordinal) {
  if (settings.fragments != Fragments::kMixed) return settings.fragments;
  constexpr Fragments kTurns[] = {Fragments::kPage, Fragments::kRandom, Fragments::kMtu};
  return kTurns[ordinal % std::size(kTurns)];
}

}  // namespace

uint64_t Random::next() {
  state_ += 0x9e3779b97f4a7c15;
  uint64_t x = state_;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

FragmentPlan::FragmentPlan(const Settings& settings, uint64_t ordinal, uint64_t total)
    : kind_(kind_of(settings, ordinal)),
      random_(static_cast<uint64_t>(settings.seed) ^ (ordinal << 20)) {
  // One fragment less per socket leaves room for the rest at the end of each piece.
  uint64_t most = nccl::kUnpackFragments - 64;
  least_ = static_cast<uint32_t>(std::min<uint64_t>((total + most - 1) / most, kPageBytes));
  least_ = std::max(least_, 1u);
}

void FragmentPlan::next(uint64_t left, uint32_t* length, uint32_t* offset) {
  uint64_t wanted = kPageBytes;
  if (kind_ == Fragments::kMtu) wanted = kMtuBytes;
  if (kind_ == Fragments::kRandom) {
    uint64_t range = kPageBytes - least_ + 1;
    wanted = least_ + random_.below(random_.below(8) == 0 ? std::min<uint64_t>(range, 64) : range);
  }
  *length = static_cast<uint32_t>(std::min(wanted, left));
  uint32_t room = kPageBytes - *length;
  *offset = 0;
  if (kind_ == Fragments::kPage || room == 0) return;
  *offset = static_cast<uint32_t>(random_.below(room + 1));
  if (kind_ == Fragments::kRandom && *offset < room) *offset |= 1;  // odd more often than not
}

}  // namespace tcpx_emu
