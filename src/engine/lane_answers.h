// A question to every lane of a peer, each asked in its loop, and what they have answered so far. A
// lane whose thread is in a plugin's call answers late or never: whoever asks decides how long to
// wait for it, if at all.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>

#include "base/wait.h"

namespace tcpx {

class LaneAnswers {
 public:
  explicit LaneAnswers(size_t lanes) : missing_(lanes) {}

  // `held`: frames and chunks of the lane whose memory is still in use.
  void add(size_t held) {
    held_.fetch_add(held, std::memory_order_relaxed);
    if (missing_.fetch_sub(1, std::memory_order_acq_rel) > 1) return;
    std::lock_guard lock(mu_);
    completed_.notify_all();
  }
  bool complete() const { return missing_.load(std::memory_order_acquire) == 0; }
  bool all_let_go() const { return complete() && held_.load(std::memory_order_relaxed) == 0; }
  bool await(Nanos deadline) {
    std::unique_lock lock(mu_);
    return wait_until(completed_, lock, deadline, [this] { return complete(); });
  }

 private:
  std::atomic<size_t> missing_;
  std::atomic<size_t> held_{0};
  std::mutex mu_;
  std::condition_variable completed_;
};
using Answers = std::shared_ptr<LaneAnswers>;

}  // namespace tcpx
