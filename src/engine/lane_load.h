// What a lane tells of itself to those who decide what it carries. Written in the exclusive section
// of its loop (`dealt` also under the peer's mutex, by who deals), read by anybody.
#pragma once

#include <atomic>
#include <cstdint>

namespace tcpx {

struct LaneLoad {
  std::atomic<bool> open{false};
  std::atomic<uint32_t> in_flight{0};  // our chunks without an answer
  std::atomic<uint32_t> serving{0};    // data for the peer on its way out
  std::atomic<bool> dealt{false};      // a chunk lies with it for which it has not come yet
  // A lane that may hang cannot be dealt to: nobody could take the chunk back.
  bool may_hang = false;

  bool is_open() const { return open.load(std::memory_order_acquire); }
  uint32_t held() const { return in_flight.load(std::memory_order_relaxed); }
  bool idle() const {
    return held() == 0 && serving.load(std::memory_order_relaxed) == 0 &&
           !dealt.load(std::memory_order_acquire);
  }
};

}  // namespace tcpx
