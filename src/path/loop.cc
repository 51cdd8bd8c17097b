#include "path/loop.h"

#include <algorithm>

#include "base/caught.h"

namespace tcpx {

namespace {

void sleep_until_clock(Nanos when) {
  timespec at{when / kSecond, when % kSecond};
  clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, nullptr);
}

}  // namespace

Status Loop::create(const Settings& settings, std::unique_ptr<Loop>* out) {
  std::unique_ptr<Loop> loop(new Loop(settings));
  if (settings.movers != nullptr) loop->mover_ = settings.movers->make(settings.mover_for, *loop);
  if (Status status = loop->events_.open(); !status) return status;
  Status started = loop->thread_.start([raw = loop.get()] { raw->thread_main(); });
  if (started) *out = std::move(loop);
  return started;
}

Loop::Loop(const Settings& settings)
    : settings_(settings), wakes_(kMaxSources), spin_(settings.spin) {}

Loop::~Loop() {
  stop();
  if (mover_ != nullptr) mover_->tell_nobody();
  // Whoever waited for moves has given up on them: the slots they use must not be freed.
  if (awaits_moves()) (void)mover_.release();
}

bool Loop::hangs(Nanos now) {
  return settings_.own_thread_only && !thread_.ended() && hang_.hangs(now, settings_.hang_patience);
}

bool Loop::stop(Nanos patience) {
  LoopThread::Ending ending;
  ending.wake = [this] { events_.signal(); };
  if (settings_.own_thread_only) ending.hangs = [this](Nanos now) { return hangs(now); };
  ending.last = [this] { run_late_commands(); };
  return thread_.stop(patience, ending);
}

// ---- who drives ----------------------------------------------------------------------------

void Loop::thread_main() {
  while (!thread_.stopping()) {
    Nanos from = now_ns();
    if (!events_.wait_armed()) return;
    thread_wakes_.fetch_add(1, std::memory_order_relaxed);
    if (!take_as_thread()) continue;
    enter();
    spin_.slept(from, now_ns());
    // What sources and commands throw is caught there; should anything else, the loop goes on.
    quietly([&] { drive_as_thread(); });
    thread_wants_.store(true);  // leave() arms
    thread_drives_.store(false, std::memory_order_relaxed);
    leave();
    hang_.sleeps();
  }
}

// Something happened while nobody drove. Who polls closely will see it; if it comes no more, we do.
// Whoever drives when the lease has ended arms when it leaves; if it left before seeing the flag,
// the second try_lock succeeds.
bool Loop::take_as_thread() {
  thread_watches_.store(true);
  bool taken = false;
  do {
    while (Nanos look = thread_.stopping() ? 0 : lease_.next_look(now_ns())) {
      sleep_until_clock(look);
      thread_wakes_.fetch_add(1, std::memory_order_relaxed);
    }
    taken = drive_mu_.try_lock();
    if (!taken) {
      thread_wants_.store(true);
      taken = drive_mu_.try_lock();
    }
  } while (taken && gives_back_for_lease());
  thread_watches_.store(false);
  if (taken) thread_drives_.store(true, std::memory_order_relaxed);
  return taken;
}

// Between our look at the lease and the lock another may have begun, if this thread was kept from
// running.
bool Loop::gives_back_for_lease() {
  if (thread_.stopping() || !lease_.holds(now_ns())) return false;
  drive_mu_.unlock();
  return true;
}

void Loop::drive_as_thread() {
  while (!thread_.stopping() && callers_wanting_.load(std::memory_order_relaxed) == 0) {
    if (settings_.own_thread_only) hang_.round_begins(now_ns());
    Found found = step();
    if (found == Found::kNothing) relax_until(seen_clock() + tuning::kBetweenPolls);
    if (found == Found::kTimeToSleep && !doze()) return;
  }
}

void Loop::enter() {
  inside_.enter();
  if (settings_.drivers != nullptr) settings_.drivers->enter();
  asleep_.store(false, std::memory_order_relaxed);  // seen late it costs a signal, no more
  // To who polls again and again, the polls are one wait.
  if (!lease_.holds()) spin_.begin_anew();
}

// What is left, or came between the last poll and the unlock, is announced by a signal, which wakes
// the thread once it is armed; or the thread comes by itself at the end of a lease that it watches.
void Loop::leave() {
  // Who had more to do has mostly little left: find out here rather than wake the thread for it.
  bool directly = false;
  if (has_more()) (void)run_asked(&directly);
  if (settings_.drivers != nullptr) settings_.drivers->leave();
  asleep_.store(true);
  bool pending = has_pending() || (awaits_moves() && !tells());
  inside_.leave();
  drive_mu_.unlock();
  bool wanted = thread_wants_.exchange(false);
  if (pending && (wanted || !thread_watches_.load())) events_.signal();
  if (wanted) events_.arm(true);
}

void Loop::nudge() {
  if (asleep_.load()) events_.signal();
}

void Loop::wake(uint32_t index) {
  wakes_.set(index);
  nudge();
}

Loop::Asked Loop::ask(const std::function<void()>& f) {
  if (try_exclusive(f)) return nullptr;
  Asked command = commands_.push(f);
  events_.signal();
  // Stopped between our try and our push: nobody else runs it.
  if (thread_.stopped()) run_late_commands();
  return command;
}

bool Loop::wait_for(const Asked& command, Nanos patience) {
  if (command == nullptr) return true;
  bool done = false;
  if (!settings_.own_thread_only) done = command->wait_until(kNever);
  for (Nanos give_up = deadline_after(now_ns(), patience); !done;) {
    Nanos now = now_ns();
    if (now >= give_up || hangs(now)) {
      done = command->abandon();
      break;
    }
    done = command->wait_until(std::min(give_up, now + tuning::kLookEvery));
    // Its thread has gone without it, and who stops the loop has not come back yet.
    if (!done && thread_.ended()) (void)stop(0);
  }
  command->rethrow();
  return done;
}

// Those that came too late for the thread. Several of us may be here, and each waits for a command
// that another may have taken.
void Loop::run_late_commands() {
  std::lock_guard lock(drive_mu_);
  inside_.enter();
  commands_.run_all();
  inside_.leave();
}

// ---- one round -----------------------------------------------------------------------------

Loop::Found Loop::step() {
  bool found = poll_once();
  const Nanos now = now_ns();
  saw_clock(now);
  bool core_is_free = settings_.drivers == nullptr || settings_.drivers->may_spin();
  // A move that has just begun is over before a sleep would be.
  if (!found && core_is_free && now < move_due_ && awaits_moves()) return Found::kNothing;
  bool spin_on = spin_.polled(now, found, something_is_due());
  if (found) return Found::kWork;
  if (spin_on && core_is_free) return Found::kNothing;
  if (spin_on) spin_.begin_anew();
  return Found::kTimeToSleep;
}

bool Loop::poll_once() {
  turns_.begin_round();
  bool found = false;
  if (commands_.any()) found |= commands_.run_all();
  if (wakes_.any())
    found |= wakes_.take(source_count(), [this](uint32_t index) { wake_source(index); });
  return poll_sources() || found;
}

// Awake before the events are handled: what they end must not signal us, which would wake the
// loop's thread for nothing, and put it on the core that another was about to get.
bool Loop::poll_awake(int timeout_ms) {
  return poll_events(timeout_ms, [this] { asleep_.store(false); });
}

// ---- sleeping ------------------------------------------------------------------------------

// In the middle of a transfer the thread sleeps without giving the loop up. False: leave now.
bool Loop::doze() {
  if (!something_is_due() && !awaits_moves()) return false;
  asleep_.store(true);
  bool woken = false;
  if (!has_pending() && callers_wanting_.load() == 0) woken = nap(tuning::kDozeMillis);
  asleep_.store(false);
  return woken || awaits_moves();
}

// Asleep until something comes, or a move is over. Whoever waits for moves is asked now and then,
// without a spin in between.
bool Loop::nap(int timeout_ms) {
  if (!awaits_moves()) return poll_awake(timeout_ms);
  for (; timeout_ms > 0; timeout_ms -= tuning::kMoveMillis) {
    asleep_.store(true);
    (void)tells();
    if (has_pending() || poll_awake(tuning::kMoveMillis)) return true;
    bool directly = false;
    if (run_asked(&directly) || finish_some()) return true;
    if (callers_wanting_.load(std::memory_order_relaxed) > 0) return true;
  }
  return false;
}

void Loop::sleep_until(Nanos deadline) {
  Nanos from = now_ns();
  if (from >= deadline) return;
  sleeps_.fetch_add(1, std::memory_order_relaxed);
  int timeout = static_cast<int>(std::min<Nanos>((deadline - from) / kMilli + 1, 1000));
  if (nap(timeout)) spin_.slept(from, now_ns());
}

}  // namespace tcpx
