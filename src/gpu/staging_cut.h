// How the pinned staging of a GPU is cut: for each loop and way as many slots, three chunks at
// least: one that is copied, one on its way behind it, and one that is kept for what waits in spare
// memory. Chunks of its memory are as short as that takes, so the staging is never more than was
// given. Pure.
#pragma once

#include <algorithm>
#include <cstdint>

namespace tcpx::gpu {

struct StagingCut {
  static constexpr uint64_t kPage = 4096;
  // More than a lane's window has chunks are never used.
  static constexpr uint64_t kMostChunks = 32;

  // `slot`: as it was asked for; 0: as large as a chunk.
  StagingCut(uint64_t staging, uint64_t slot_asked, uint64_t chunk_asked, uint64_t loops) {
    const uint64_t each = std::max(down(staging / (2 * loops)), 2 * kPage);
    const uint64_t most = std::clamp(down(each / 3), kPage, up(chunk_asked));
    slot = slot_asked == 0 ? most : std::min(up(slot_asked), most);
    chunk = most / slot * slot;
    slots_of_each = static_cast<uint32_t>(std::min(each / chunk, kMostChunks) * (chunk / slot));
  }

  uint64_t slot;           // bytes
  uint64_t chunk;          // bytes, the most that is moved at a time
  uint32_t slots_of_each;  // per loop and way

 private:
  static uint64_t down(uint64_t bytes) { return bytes / kPage * kPage; }
  static uint64_t up(uint64_t bytes) { return down(bytes + kPage - 1); }
};

}  // namespace tcpx::gpu
