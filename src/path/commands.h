// What other threads want done in a loop's exclusive section by whoever drives it.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/status.h"

namespace tcpx {

// Outlives its caller if the loop's thread hangs.
class Command {
 public:
  explicit Command(std::function<void()> f) : f_(std::move(f)) {}
  void run() noexcept;  // in the exclusive section
  // Whether it has run; waits for that until `give_up`.
  bool wait_until(Nanos give_up);
  // It must not run any more, if it has not begun. Whether it has run after all.
  bool abandon();
  // What it threw is thrown again, as std::bad_alloc or std::runtime_error.
  void rethrow() const;

 private:
  const std::function<void()> f_;
  mutable Mutex mu_;
  std::condition_variable cv_;
  bool done_ TCPX_GUARDED_BY(mu_) = false;
  bool abandoned_ TCPX_GUARDED_BY(mu_) = false;
  tcpx_code thrown_ TCPX_GUARDED_BY(mu_) = TCPX_OK;
};

class Commands {
 public:
  bool any() const { return any_.load(); }
  std::shared_ptr<Command> push(std::function<void()> f);
  bool run_all();  // in the exclusive section; whether there were any

 private:
  std::atomic<bool> any_{false};
  Mutex mu_;
  std::vector<std::shared_ptr<Command>> waiting_ TCPX_GUARDED_BY(mu_);
};

}  // namespace tcpx
