// The bounce pool of a GPU: pages that received bytes land in. Whoever consumes a receive gives its
// pages back; until then they hold its bytes. Shared by all comms of the GPU.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "base/mutex.h"
#include "clock.h"
#include "device.h"

namespace tcpx_emu {

inline constexpr uint32_t kPageBytes = 4096;

class Pool {
 public:
  // The pool of the device, made when first asked for. Null when there is no memory.
  static std::shared_ptr<Pool> of(Device& device, const Settings& settings);
  // Forgets pools that nobody uses, so that the next one has the size that is set then.
  static void forget_unused();

  Pool(Device& device, const Mapped& memory);
  ~Pool();

  uint8_t* host_base() const { return memory_.host; }
  uint8_t* device_base() const { return memory_.device; }
  size_t pages() const { return memory_.size / kPageBytes; }

  // All `count` or none: a receive that began to land can then always finish.
  bool take(uint32_t* pages, size_t count);
  // `delay`: they can be taken only after that time.
  void give(const uint32_t* pages, size_t count, Nanos delay = 0);

  // Its figures go into this NIC's counters from now on.
  void show_in(int nic);

 private:
  void take_back_late() TCPX_REQUIRES(mutex_);
  void show() TCPX_REQUIRES(mutex_);

  Device& device_;
  const Mapped memory_;
  tcpx::Mutex mutex_;
  // Last in, first out: pages still in the cache are used again first.
  std::vector<uint32_t> free_ TCPX_GUARDED_BY(mutex_);
  size_t min_free_ TCPX_GUARDED_BY(mutex_);
  struct Late {
    Nanos when;
    std::vector<uint32_t> pages;
  };
  std::deque<Late> late_ TCPX_GUARDED_BY(mutex_);
  uint32_t shown_in_ TCPX_GUARDED_BY(mutex_) = 0;  // bit per NIC
};

}  // namespace tcpx_emu
