// A progress loop: a set of lanes, and the right to drive it.
//
// Exactly one thread at a time is inside the loop's exclusive section ("drives"). Everything a
// lane does, every byte received into or sent from user memory, happens there. That is what makes
// cancel and deregister fences: run_exclusive() changes the lanes' state, and when it has returned
// no thread is in the middle of touching the memory.
//
// Who drives: a caller inside tcpx_wait/tcpx_poll/tcpx_post if there is one, else the loop's own
// thread, which sleeps until something happens while nobody drives (path/event_set.h). So a waiting
// caller costs no thread switch, and a passive process still makes progress without any call.
//
// Four ways in: have something run in the section (run_exclusive), run it now if that can be
// (try_exclusive), drive until something is so (drive), and wake whoever drives (wake, nudge).
//
// Its parts: LoopSources (what is driven, one round of it), SpinBudget (how long to poll in vain),
// Lease (who polls closely drives alone), Commands, WakeBits, LoopThread, HangWatch.
//
// Lock order: a loop's exclusive section first, then a peer's mutex. Never two loops at once.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "base/clock.h"
#include "base/status.h"
#include "path/commands.h"
#include "path/hang_watch.h"
#include "path/lease.h"
#include "path/loop_sources.h"
#include "path/loop_thread.h"
#include "path/spin_budget.h"
#include "path/wake_bits.h"

namespace tcpx {

class Loop final : public LoopSources, private MoveWatcher {
 public:
  struct Settings {
    Nanos spin = 200 * kMicro;   // idle spinning before sleep, at most
    Drivers* drivers = nullptr;  // of the engine
    // Only the loop's own thread drives: for lanes that call code which may hang (a plugin), so
    // that it hangs nobody else.
    bool own_thread_only = false;
    // A round of such a thread that takes longer hangs in somebody else's code. Time in which this
    // process did not run (it was stopped) does not count.
    Nanos hang_patience = 10 * kSecond;
    Movers* movers = nullptr;
    MoverFor mover_for = MoverFor::kStreams;
  };

  static Status create(const Settings& settings, std::unique_ptr<Loop>* out);
  ~Loop();  // stops and joins the thread

  // ---- any thread ----
  // Runs `f` in the exclusive section, here or on the driving thread; returns when it has run.
  // False: the loop's thread hangs, or `patience` is over, and f may run later or never. So where a
  // loop has own_thread_only, f must own what it captures. What f throws is thrown here, as
  // std::bad_alloc or std::runtime_error, wherever it ran.
  bool run_exclusive(const std::function<void()>& f, Nanos patience = kNever) {
    return wait_for(ask(f), patience);
  }
  // Its two halves, so that several loops can be asked before any of them is waited for, or none
  // is: then f must own what it captures, and says itself that it has run.
  using Asked = std::shared_ptr<Command>;  // null: it has run
  Asked ask(const std::function<void()>& f);
  bool wait_for(const Asked& command, Nanos patience);

  // Runs f now if nobody drives; otherwise returns false. kLong: the loop's thread is not woken by
  // what happens meanwhile, and what has happened is handled before we leave.
  enum class Length { kShort, kLong };
  template <class F>
  bool try_exclusive(F&& f, Length length = Length::kShort);

  // Drives until stop() is true or `until` has passed: spinning while that pays, else asleep.
  // False: another caller drives (the loop's own thread gives way). Who waits keeps the loop's
  // thread asleep until it leaves; who polls comes back soon, or looks once (`until` has passed),
  // and has a lease if it does so again and again. A poll that sleeps may take a millisecond
  // longer.
  enum class Caller { kWaits, kPolls };
  template <class Stop>
  bool drive(Stop&& stop, Nanos until, Caller caller);

  // Has the source's on_wake() called soon. Never blocks, allocates or takes a lock.
  void wake(uint32_t source_index);
  // Makes a driving thread look at its stop condition.
  void nudge();
  // A move that its mover does not make by hand has begun, in the exclusive section.
  void move_begun() {
    assert_inside();
    move_due_ = now_ns() + tuning::kMoveSpin;
  }
  // Whether somebody drives it and does not sleep: then it costs nothing to wake a source.
  bool awake() const { return !asleep_.load(std::memory_order_relaxed); }

  // Ends the thread; afterwards nobody drives and run_exclusive runs f here. False: it has not
  // ended within `patience`, or hangs; ask again, it may come back. A loop that was not stopped is
  // not destroyed. Not from the loop's thread.
  bool stop(Nanos patience = kNever);
  // How long the own thread has been in its present round; 0 when it sleeps.
  Nanos round_time(Nanos now) const { return hang_.round_time(now); }
  // Whether the own thread hangs in a round (path/hang_watch.h).
  bool hangs(Nanos now);
  uint64_t sleeps() const { return sleeps_.load(std::memory_order_relaxed); }
  // How often the loop's thread was woken.
  uint64_t thread_wakes() const { return thread_wakes_.load(std::memory_order_relaxed); }
  std::string thread_cpus() const { return thread_.cpus(); }

 private:
  enum class Found { kWork, kNothing, kTimeToSleep };

  explicit Loop(const Settings& settings);
  // ---- MoveWatcher ----
  bool looks() const noexcept override { return awake(); }
  void look_now() noexcept override { nudge(); }
  // Once we are asleep: whether we are told when a move is over.
  bool tells() { return mover_ != nullptr && mover_->tells(); }
  void thread_main();
  bool take_as_thread();
  bool gives_back_for_lease();
  void drive_as_thread();
  bool others_may_drive() const { return !settings_.own_thread_only || thread_.stopped(); }
  template <class Stop>
  bool take_as_caller(Stop&& stop, Caller caller);
  void enter();
  void leave();

  Found step();
  bool poll_once();
  bool poll_awake(int timeout_ms);
  bool has_pending() const { return wakes_.any() || commands_.any() || has_more(); }
  void run_late_commands();

  template <class Stop>
  void sleep_unless(Stop&& stop, Nanos deadline);
  void sleep_until(Nanos deadline);
  bool doze();
  bool nap(int timeout_ms);

  const Settings settings_;
  LoopThread thread_;
  HangWatch hang_;  // own_thread_only
  Commands commands_;
  WakeBits wakes_;
  Lease lease_;

  std::mutex drive_mu_;                      // the exclusive section
  std::atomic<bool> asleep_{true};           // nobody polls: wakes need a signal
  std::atomic<bool> thread_wants_{false};    // the thread met a driver: arm when leaving
  std::atomic<bool> thread_watches_{false};  // a lease, and looks when it ends: no signal needed
  std::atomic<bool> thread_drives_{false};
  std::atomic<int> callers_wanting_{0};  // callers the thread gives way to

  SpinBudget spin_;     // in the exclusive section only
  Nanos move_due_ = 0;  // the same

  std::atomic<uint64_t> sleeps_{0}, thread_wakes_{0};
};

template <class F>
bool Loop::try_exclusive(F&& f, Length length) {
  if (!others_may_drive() || !drive_mu_.try_lock()) return false;
  enter();
  bool is_long = length == Length::kLong;
  // Who posts and polls has a lease: nothing needs to be switched off and on again.
  bool leased = is_long && lease_.keep(now_ns());
  if (is_long && !leased) events_.arm(false);
  auto over = [&] {
    if (leased) lease_.kept(now_ns());
    if (is_long && !leased) thread_wants_.store(true);  // leave() arms
    leave();
  };
  try {
    f();
    if (is_long) poll_once();
  } catch (...) {
    over();
    throw;
  }
  over();
  return true;
}

// The loop's thread gives way within one round of polling. Another caller does not; who waits tries
// all the same, because most sections are short.
template <class Stop>
bool Loop::take_as_caller(Stop&& stop, Caller caller) {
  if (drive_mu_.try_lock()) return true;
  auto worth_trying = [&] {
    return caller == Caller::kWaits || thread_drives_.load(std::memory_order_relaxed);
  };
  if (!worth_trying()) return false;
  callers_wanting_.fetch_add(1);
  nudge();
  bool taken = false;
  for (Nanos give_up = now_ns() + tuning::kGiveWay;
       !taken && worth_trying() && !stop() && now_ns() < give_up;)
    taken = drive_mu_.try_lock();
  callers_wanting_.fetch_sub(1);
  return taken;
}

template <class Stop>
bool Loop::drive(Stop&& stop, Nanos until, Caller caller) {
  if (!others_may_drive() || !take_as_caller(stop, caller)) return false;
  enter();
  bool polls = caller == Caller::kPolls;
  if (polls)
    lease_.poll_begins(now_ns());
  else
    events_.arm(false);
  while (!stop()) {
    Found found = step();
    if (seen_clock() >= until) break;
    if (found == Found::kNothing) relax_until(seen_clock() + tuning::kBetweenPolls);
    if (found == Found::kTimeToSleep) sleep_unless(stop, until);
  }
  if (polls)
    lease_.poll_ends(now_ns());
  else
    thread_wants_.store(true);  // leave() arms
  leave();
  return true;
}

// Asleep first, then look: whoever ends what we wait for either sees that we sleep and signals, or
// we see its end here.
template <class Stop>
void Loop::sleep_unless(Stop&& stop, Nanos deadline) {
  asleep_.store(true);
  if (!has_pending() && !stop()) sleep_until(deadline);
  asleep_.store(false);
}

}  // namespace tcpx
