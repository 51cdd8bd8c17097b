#include "base/forked.h"

#include <pthread.h>
#include <unistd.h>

namespace tcpx {

std::atomic<uint32_t> forked_detail::generation{1};

namespace {

// A bit for each descriptor, so that the handler needs no lock. More than any process has open;
// what lies beyond, the child keeps. Pages of it that are never used cost nothing.
constexpr uint32_t kMost = 1u << 20, kBits = 64;
std::atomic<uint64_t> open_here[kMost / kBits];
std::atomic<uint32_t> words_used{0};

// In the child, before fork() returns there: only what is safe in a signal handler. close() alone
// leaves the connection and its place in the parent's epoll sets as they are.
void in_child() {
  forked_detail::generation.fetch_add(1);
  uint32_t words = words_used.load();
  for (uint32_t word = 0; word < words; ++word)
    for (uint64_t bits = open_here[word].exchange(0); bits != 0; bits &= bits - 1)
      close(static_cast<int>(word * kBits + static_cast<uint32_t>(__builtin_ctzll(bits))));
}

}  // namespace

void watch_forks() {
  static const int registered = pthread_atfork(nullptr, nullptr, in_child);
  (void)registered;
}

void descriptor_opened(int fd) noexcept {
  auto number = static_cast<uint32_t>(fd);
  if (fd < 0 || number >= kMost) return;
  uint32_t words = number / kBits + 1, used = words_used.load();
  while (used < words && !words_used.compare_exchange_weak(used, words)) {
  }
  open_here[number / kBits].fetch_or(uint64_t{1} << (number % kBits));
}

void descriptor_closes(int fd) noexcept {
  auto number = static_cast<uint32_t>(fd);
  if (fd < 0 || number >= kMost) return;
  open_here[number / kBits].fetch_and(~(uint64_t{1} << (number % kBits)));
}

}  // namespace tcpx
