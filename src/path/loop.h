// A progress loop: an epoll set of lanes, and the right to drive it.
//
// Exactly one thread at a time is inside the loop's exclusive section ("drives"). Everything a
// lane does, every byte received into or sent from user memory, happens there. That is what makes
// cancel and deregister fences: run_exclusive() changes the lanes' state, and when it has returned
// no thread is in the middle of touching the memory.
//
// Who drives: a caller inside tcpx_wait/tcpx_poll/tcpx_post if there is one, else the loop's own
// thread, which sleeps in epoll_wait on an outer epoll that holds the inner one (one-shot, armed by
// whoever stops driving). So a waiting caller costs no thread switch, and a passive process still
// makes progress without any call.
//
// Lock order: a loop's exclusive section first, then a peer's mutex. Never two loops at once.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "base/status.h"
#include "memory/mover.h"

namespace tcpx {

// What a source has left to do that no event announces: nothing; something it can do now; something
// that is over when it is over (a copy on a GPU), which it has to be asked about.
enum class Work : uint8_t { kNone, kMore, kWaiting };

// What a loop drives. All calls are made in the loop's exclusive section.
class LoopSource {
 public:
  virtual ~LoopSource() = default;
  virtual void on_events(uint32_t epoll_events) = 0;
  virtual void on_wake() = 0;
  // Does some of it, and tells what is left.
  virtual Work on_hot() = 0;
  // Asked instead of epoll while the loop spins. Returns whether anything came.
  virtual bool on_spin() { return false; }
  // A call of the above threw. It costs this source alone, which ends; memory may be out.
  virtual void on_failure(const Status&) noexcept {}
};

class Loop {
 public:
  struct Settings {
    Nanos spin = 200 * kMicro;  // idle spinning before sleep, at most
    int engaged_factor = 5;     // times this while a frame is half-way or an answer is due
    // Loops of the engine that are being driven, and how many of them may spin at once: with more
    // spinners than cores they take the cores from each other, a scheduler slice at a time.
    std::atomic<int>* driven = nullptr;
    int max_spinning = 1 << 20;
    // Only the loop's own thread drives: for lanes that call code which may hang (a plugin), so
    // that it hangs nobody else.
    bool own_thread_only = false;
    // A round of such a thread that takes longer hangs in somebody else's code. Time in which this
    // process did not run (it was stopped) does not count.
    Nanos hang_patience = 10 * kSecond;
    Movers* movers = nullptr;
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
  struct Command;
  using Asked = std::shared_ptr<Command>;  // null: it has run
  Asked ask(const std::function<void()>& f);
  bool wait_for(const Asked& command, Nanos patience);
  // Ends the thread; afterwards nobody drives and run_exclusive runs f here. False: it has not
  // ended within `patience`, or hangs; ask again, it may come back. A loop that was not stopped is
  // not destroyed. Not from the loop's thread.
  bool stop(Nanos patience = kNever);
  // Runs f now if nobody drives; otherwise returns false.
  template <class F>
  bool try_exclusive(F&& f);
  // Has the source's on_wake() called soon. Never blocks, allocates or takes a lock.
  void wake(uint32_t source_index);
  // Makes a driving thread look at its stop condition.
  void nudge();
  // Drives until stop() is true or the deadline has passed. Returns false at once if another
  // caller drives (the loop's own thread gives way).
  template <class Stop>
  bool drive_until(Stop&& stop, Nanos deadline);
  // The same for work that takes a while: the loop's thread is not woken by what happens
  // meanwhile, and what has happened is handled before we leave.
  template <class F>
  bool try_exclusive_long(F&& f);
  // Some progress, unless another caller drives. Who polls again and again gets a lease: events no
  // longer wake the loop's thread, which would take turns with the poller on the same work.
  void poll();
  // The same for a while: goes on until stop() is true or the time has passed. Spinning, or asleep
  // where there is nothing to do (then up to a millisecond longer). False: another drives; who
  // would sleep does not take the loop from its thread.
  enum class Idle { kSpins, kSleeps };
  template <class Stop>
  bool poll_until(Stop&& stop, Nanos until, Idle idle);

  // ---- in the exclusive section ----
  // Sources of one owner take their turns together: an owner with 64 of them gets no more of the
  // loop than one with a single source.
  Status add(int fd, std::shared_ptr<LoopSource> source, uint32_t* index, uint64_t owner = 0);
  void remove(uint32_t index, int fd);
  // Whether room to send is an event for this source. Off unless asked for: a peer that reads
  // makes room all the time, and each time would wake somebody who has nothing to send.
  void watch_room(uint32_t index, int fd, bool on);
  void make_hot(uint32_t index);
  // The source is asked again in every round, and at least every millisecond. That keeps no loop
  // spinning.
  void make_waiting(uint32_t index);
  // The same for what is left of a source that has gone: called until it returns true.
  void finish_later(std::function<bool()> finish) { unfinished_.push_back(std::move(finish)); }
  // Of this loop alone; null where nothing is moved.
  Mover* mover() const { return mover_.get(); }
  // How much the source may do in this round, in bytes of payload; handling a frame has its price,
  // too. 0: its owner has had its turn; be hot, and come again in the next round.
  uint64_t turn_left(uint32_t index) const;
  void spend(uint32_t index, uint64_t cost);
  // The source that has heard something last is the one to ask while spinning.
  void heard(uint32_t index) { last_heard_ = index; }
  // Lanes say whether they expect traffic, so that the loop spins longer before it sleeps.
  void engage(int delta) { engaged_ += delta; }

  // How long the own thread has been in its present round; 0 when it sleeps.
  Nanos round_time(Nanos now) const {
    Nanos began = round_began_.load(std::memory_order_relaxed);
    return began == 0 ? 0 : now - began;
  }
  // Whether the own thread hangs in a round. Seen by who looks again and again: between two looks
  // so much counts at most, whatever the clock says. Over when the thread comes back.
  bool hangs(Nanos now);

  uint64_t sleeps() const { return sleeps_.load(std::memory_order_relaxed); }
  // How often the loop's thread was woken.
  uint64_t thread_wakes() const { return thread_wakes_.load(std::memory_order_relaxed); }
  // CPUs the loop's thread may run on now, e.g. "0-3,8"; "" once it has ended.
  std::string thread_cpus() const;

 private:
  // Polling without a pause keeps the locks of epoll set and socket busy, which the sender needs
  // to deliver. 4 KiB take 11 to 12 us with this pause and 12 to 13 with a whole microsecond; 1 MiB
  // the same.
  static constexpr Nanos kBetweenPolls = 300;
  static constexpr uint32_t kMaxSources = 1 << 16;
  static constexpr uint32_t kWakeIndex = UINT32_MAX;
  static constexpr uint32_t kLeaseIndex = UINT32_MAX - 1;
  static constexpr uint32_t kNoSource = UINT32_MAX;

  explicit Loop(const Settings& settings);
  void thread_main();
  void drive_as_thread();
  bool others_may_drive() const { return !settings_.own_thread_only || stopped_.load(); }
  // Whether anything happened. Spinning: only what is likely is looked at each time.
  bool poll_once(bool spinning);
  bool poll_events(int timeout_ms);
  bool may_ask_directly();
  bool run_commands();
  void run_late_commands();
  template <class F>
  bool with_source(uint32_t index, F&& f);
  bool run_wakes();
  bool run_hot();
  bool run_waiting();
  void has_left(uint32_t index, Work work);
  bool awaits_moves() const { return !waiting_.empty() || !unfinished_.empty(); }
  bool has_pending() const;
  void sleep_until(Nanos deadline);
  template <class Stop>
  void sleep_unless(Stop&& stop, Nanos deadline);
  bool spin_or_poll();
  bool doze();
  bool nap(int timeout_ms);
  void slept(Nanos from, Nanos to);
  void enter();
  void leave();
  void arm(bool on);
  bool lock_for_poll();
  void renew_lease(Nanos now);
  bool lease_holds(Nanos now) const;
  void watch_lease(Nanos after);
  void signal();
  void round_begins() {
    if (settings_.own_thread_only) round_began_.store(now_ns(), std::memory_order_relaxed);
  }

  const Settings settings_;
  Fd epoll_, outer_, wake_fd_, lease_timer_;
  std::thread thread_;
  std::atomic<bool> stopping_{false};
  std::atomic<bool> stopped_{false};
  std::atomic<Nanos> round_began_{0};  // own_thread_only; 0: it sleeps
  std::mutex look_mu_;
  Nanos looked_at_round_ = 0;  // the one that began then
  Nanos last_look_ = 0;
  Nanos seen_in_round_ = 0;
  std::mutex stop_mu_;
  mutable std::mutex end_mu_;
  pid_t thread_id_ = 0;  // 0: it has not begun
  std::condition_variable ended_cv_;
  std::atomic<bool> thread_ended_{false};  // set under end_mu_

  std::mutex drive_mu_;                    // the exclusive section
  std::atomic<bool> asleep_{true};         // nobody polls: wakes need a signal
  std::atomic<bool> thread_wants_{false};  // the thread met a driver: arm when leaving
  std::atomic<int> callers_wanting_{0};    // callers the thread gives way to
  std::atomic<bool> thread_drives_{false};

  std::atomic<bool> any_wake_{false};
  std::vector<std::atomic<uint64_t>> wake_bits_;
  std::atomic<uint32_t> wake_words_{1};

  std::atomic<bool> any_command_{false};
  std::mutex command_mu_;
  std::vector<Asked> commands_;

  // In the exclusive section only:
  std::vector<std::shared_ptr<LoopSource>> sources_;
  std::vector<uint32_t> free_sources_;
  std::vector<uint32_t> hot_;
  std::vector<uint32_t> hot_scratch_, hot_late_;
  struct Turn {
    uint64_t owner = 0;
    uint32_t sources = 0;
    uint64_t round = 0;  // of `spent`
    uint64_t spent = 0;
  };
  std::vector<Turn> turns_;
  std::vector<uint32_t> turn_of_;  // by source
  size_t owners_ = 0;
  uint64_t round_ = 1;
  bool turn_over_ = false;  // somebody's, in this round
  uint32_t hot_polls_ = 0;
  uint32_t last_heard_ = kNoSource;
  uint32_t direct_polls_ = 0;
  int waiting_for_room_ = 0;  // sources
  int engaged_ = 0;
  // Spinning pays while the other side has a core of its own to answer on; if it has to wait for
  // ours, every spin delays it. What the last spins brought decides how long the next one is.
  Nanos spin_budget_ = 0;  // 0..settings_.spin
  Nanos idle_since_ = 0;   // 0: the last poll found work
  Nanos last_poll_ = 0;
  bool spun_in_vain_ = false;  // gave up spinning before this sleep
  uint32_t spins_skipped_ = 0;
  bool leased_ = false;       // to who polls; the outer epoll is not armed
  Nanos lease_watch_ = 0;     // until the thread looks again
  Nanos last_polled_ = 0;     // by a caller
  uint32_t polls_close_ = 0;  // in a row

  std::vector<uint32_t> waiting_, waiting_scratch_;
  std::list<std::function<bool()>> unfinished_;
  std::unique_ptr<Mover> mover_;

  std::atomic<uint64_t> sleeps_{0}, thread_wakes_{0};
};

template <class F>
bool Loop::try_exclusive(F&& f) {
  if (!others_may_drive() || !drive_mu_.try_lock()) return false;
  enter();
  try {
    f();
  } catch (...) {
    leave();
    throw;
  }
  leave();
  return true;
}

template <class F>
bool Loop::try_exclusive_long(F&& f) {
  if (!others_may_drive() || !drive_mu_.try_lock()) return false;
  enter();
  if (!leased_) arm(false);
  try {
    f();
  } catch (...) {
    if (!leased_) thread_wants_.store(true);
    leave();
    throw;
  }
  poll_once(false);
  // Who posts and polls was not away, and its lease is watched already: to set the timer again
  // would cost 15 us (1 MiB, which takes 140).
  if (leased_)
    last_polled_ = now_ns();
  else
    thread_wants_.store(true);  // leave() arms
  leave();
  return true;
}

template <class Stop>
bool Loop::poll_until(Stop&& stop, Nanos until, Idle idle) {
  if (!others_may_drive()) return false;
  if (idle == Idle::kSpins ? !lock_for_poll() : !drive_mu_.try_lock()) return false;
  enter();
  renew_lease(now_ns());
  do {
    if (poll_once(idle == Idle::kSpins)) continue;
    if (idle == Idle::kSpins)
      relax(kBetweenPolls);
    else
      sleep_unless(stop, until);
  } while (!stop() && now_ns() < until);
  last_polled_ = now_ns();  // who stayed was not away
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

template <class Stop>
bool Loop::drive_until(Stop&& stop, Nanos deadline) {
  if (!others_may_drive()) return stop();
  callers_wanting_.fetch_add(1);
  bool driving = drive_mu_.try_lock();
  if (!driving) nudge();
  // The loop's thread gives way within one round of polling; another caller does not.
  for (Nanos give_up = now_ns() + 50 * kMicro; !driving && !stop() && now_ns() < give_up;)
    driving = drive_mu_.try_lock();
  callers_wanting_.fetch_sub(1);
  if (!driving) {
    if (thread_wants_.exchange(false)) arm(true);
    return stop();
  }
  enter();
  arm(false);
  while (!stop()) {
    bool busy = spin_or_poll();
    if (now_ns() >= deadline) break;
    if (!busy) sleep_unless(stop, deadline);
  }
  leased_ = false;
  thread_wants_.store(true);  // leave() arms
  leave();
  return true;
}

}  // namespace tcpx
