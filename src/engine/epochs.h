// Epochs: how old a transfer is, as the owner of the memory counts. A region that was suspended and
// has come back is refused to what was posted before, whether anything of that had arrived or not.
// Any thread.
#pragma once

#include <atomic>
#include <cstdint>

#include "engine/shared.h"

namespace tcpx {

class Epochs {
 public:
  // What is posted to the peer says that it is this young.
  uint64_t of_peer() const { return of_peer_.load(std::memory_order_relaxed); }
  void hear(uint64_t of_peer) { (void)raise(&of_peer_, of_peer); }
  // Of ours, the latest that the peer has heard of.
  uint64_t answered() const { return answered_.load(); }
  bool was_heard(uint64_t ours) { return raise(&answered_, ours); }  // whether that is news

 private:
  // Whether it was smaller.
  static bool raise(std::atomic<uint64_t>* value, uint64_t to) {
    uint64_t before = value->load(std::memory_order_relaxed);
    while (before < to)
      if (value->compare_exchange_weak(before, to)) return true;
    return false;
  }

  std::atomic<uint64_t> of_peer_{kFirstEpoch}, answered_{kFirstEpoch};
};

}  // namespace tcpx
