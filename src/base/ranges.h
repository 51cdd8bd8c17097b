// What a profiler shows of chunks on their way: ranges from a beginning to an end, each with its
// bytes, in NVTX's domain "tcpx" (docs/gpu.md). Without a tool in the process a range is one look
// at a word; built without NVTX's header it is nothing.
#pragma once

#include <atomic>
#include <cstdint>

namespace tcpx {

enum class RangeName : uint8_t { kCopyOut, kGather, kCopyIn, kScatter, kSend, kReceive };

// Lets a tool that waits for this process (NVTX_INJECTION64_PATH) in, once. Reads the environment.
void attach_profiler();

// Begun and ended by any threads, one after the other.
class ProfiledRange {
 public:
  void begin(RangeName name, uint64_t bytes) {
    if (is_seen.load(std::memory_order_acquire)) start(name, bytes);
  }
  void end() {
    if (id_ != 0) stop();
  }

 private:
  friend void attach_profiler();
  void start(RangeName name, uint64_t bytes);
  void stop();

  static inline std::atomic<bool> is_seen{false};
  uint64_t id_ = 0;
};

}  // namespace tcpx
