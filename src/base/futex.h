// Sleeping on a word of memory, and waking who sleeps there: no lock, no allocation.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>

#include "base/clock.h"

namespace tcpx {

static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t));

// Returns at once if *word is not `value`, else when it is woken, after `timeout`, or for no
// reason.
inline void futex_wait(std::atomic<uint32_t>* word, uint32_t value, Nanos timeout) noexcept {
  timespec length{timeout / kSecond, timeout % kSecond};
  (void)syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, timeout == kNever ? nullptr : &length,
                nullptr, 0);
}

// One of those who sleep there.
inline void futex_wake(std::atomic<uint32_t>* word) noexcept {
  (void)syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
}

}  // namespace tcpx
