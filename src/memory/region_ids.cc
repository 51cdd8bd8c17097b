#include "memory/region_ids.h"

#include <cstring>

#include "base/ids.h"
#include "base/text.h"
#include "wire/mac.h"

namespace tcpx {

namespace {

constexpr uint32_t kHalfBits = (64 - RegionIds::kSlotBits) / 2;
constexpr uint32_t kHalfMask = (1u << kHalfBits) - 1;
constexpr int kRounds = 4;  // Luby and Rackoff: no fewer hide where a value came from

// One round: fixed length, so a plain hash of key and message is as good as an HMAC.
struct Round {
  uint8_t key[32];
  uint32_t slot;
  uint32_t round;
  uint32_t half;
};
static_assert(sizeof(Round) == 44);

}  // namespace

Status RegionIds::permute(uint32_t slot, uint64_t number, uint64_t* out) const {
  Round round{};
  memcpy(round.key, key_.data(), key_.size());
  round.slot = slot;
  auto left = static_cast<uint32_t>(number >> kHalfBits);
  auto right = static_cast<uint32_t>(number & kHalfMask);
  for (round.round = 0; round.round < kRounds; ++round.round) {
    round.half = right;
    wire::Digest digest;
    if (!wire::sha256({reinterpret_cast<const uint8_t*>(&round), sizeof round}, &digest))
      return wire::no_digest("region id: SHA-256");
    uint32_t mixed;
    memcpy(&mixed, digest.data(), sizeof mixed);
    uint32_t next = left ^ (mixed & kHalfMask);
    left = right;
    right = next;
  }
  *out = uint64_t{left} << kHalfBits | right;
  return {};
}

Status RegionIds::next(uint32_t slot, uint64_t* given, uint64_t* id) {
  if (!has_key_) {
    if (Status status = random_bytes(key_); !status) return status;
    has_key_ = true;
  }
  uint64_t generation = 0;
  while (generation == 0) {  // once in the life of a slot
    if (*given + 1 >= kGenerations)
      return bad_call(TCPX_LIMIT, strf("slot {} has had all its generations", slot));
    if (Status status = permute(slot, ++*given, &generation); !status) return status;
  }
  *id = generation << kSlotBits | slot;
  return {};
}

}  // namespace tcpx
