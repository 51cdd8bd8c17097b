// What fork() leaves in the child: a copy of everything but the threads. Nothing of the parent's
// can be used there, and nothing there may touch what the two still share, which is what
// descriptors stand for. So handles know in which process they were made, and the child closes its
// copies of our descriptors at once: only then does the kernel tell the peers when the parent dies.
#pragma once

#include <atomic>
#include <cstdint>

namespace tcpx {

namespace forked_detail {
extern std::atomic<uint32_t> generation;
}

// From here on fork() is noticed. Any number of times, before anything is made that counts.
void watch_forks();

// Of this process: another one after fork(). No system call.
inline uint32_t process_generation() {
  return forked_detail::generation.load(std::memory_order_relaxed);
}

// Where an object was made.
class MadeHere {
 public:
  bool is_inherited() const { return generation_ != process_generation(); }

 private:
  const uint32_t generation_ = process_generation();
};

// Descriptors that a child closes. Told behind the call that opens one and before the one that
// closes it; from any thread.
void descriptor_opened(int fd) noexcept;
void descriptor_closes(int fd) noexcept;

}  // namespace tcpx
