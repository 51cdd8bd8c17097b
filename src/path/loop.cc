#include "path/loop.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <new>
#include <stdexcept>

#include "base/caught.h"
#include "base/thread.h"
#include "topo/thread_cpus.h"

namespace tcpx {

namespace {
constexpr int kEventsPerPoll = 64;
constexpr uint32_t kHotPollsPerEpoll = 8, kDirectPollsPerEpoll = 8;
// What an owner may do in a round, in bytes of payload: as much as keeps the cost of going round
// small, and where there are others, no more than they can wait for (70 us).
constexpr uint64_t kTurn = 4u << 20, kSharedTurn = 512u << 10;
// A gap this long between two polls of a spinning thread means something else had our core.
constexpr Nanos kPreemptedGap = 300 * kMicro;
// A sleep this short says that what we waited for was on its way when we gave up spinning.
constexpr Nanos kShortSleep = 500 * kMicro;
// With the budget at nothing, every so many idle periods a short spin tests whether it pays again.
constexpr uint32_t kProbeEvery = 32;
constexpr int kDozeMillis = 5;
// A move is mostly over within the time a loop spins; one that takes longer is looked at this
// often.
constexpr int kMoveMillis = 1;
// Calls of poll() that follow each other this closely, so many times in a row, make a lease. It
// lasts as long after the last one; the thread looks at it now and then, and takes over when it has
// ended. Each look takes a core from somebody, so a lease that goes on is looked at more rarely.
constexpr Nanos kPollsClose = 50 * kMicro;
constexpr uint32_t kPollsForLease = 3;
constexpr Nanos kLeaseLasts = 100 * kMicro;
constexpr Nanos kLeaseWatch = 250 * kMicro, kLongestLeaseWatch = 2 * kMilli;
constexpr int kRoundsPerPoll = 8;
constexpr uint32_t kAlwaysWatched = EPOLLIN | EPOLLRDHUP | EPOLLET;
// Who waits for a thread that may hang looks this often; a look counts for so much at most.
constexpr Nanos kLookEvery = 20 * kMilli, kLongestLook = 250 * kMilli;

std::chrono::nanoseconds look_time(Nanos left) {
  return std::chrono::nanoseconds(std::min(left, kLookEvery));
}
}  // namespace

Status Loop::create(const Settings& settings, std::unique_ptr<Loop>* out) {
  std::unique_ptr<Loop> loop(new Loop(settings));
  if (settings.movers != nullptr)
    loop->mover_ =
        settings.movers->make(settings.own_thread_only ? MoverFor::kBeside : MoverFor::kStreams);
  loop->epoll_.reset(epoll_create1(EPOLL_CLOEXEC));
  loop->outer_.reset(epoll_create1(EPOLL_CLOEXEC));
  loop->wake_fd_.reset(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  loop->lease_timer_.reset(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC));
  if (!loop->epoll_ || !loop->outer_ || !loop->wake_fd_ || !loop->lease_timer_)
    return Status::system(errno, TCPX_BLAST_ENGINE, "cannot create a progress loop");
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = kWakeIndex;
  if (epoll_ctl(loop->epoll_.get(), EPOLL_CTL_ADD, loop->wake_fd_.get(), &event) != 0)
    return Status::system(errno, TCPX_BLAST_ENGINE, "epoll_ctl");
  event.events = EPOLLIN | EPOLLONESHOT;
  if (epoll_ctl(loop->outer_.get(), EPOLL_CTL_ADD, loop->epoll_.get(), &event) != 0)
    return Status::system(errno, TCPX_BLAST_ENGINE, "epoll_ctl");
  event.events = EPOLLIN | EPOLLET;
  event.data.u64 = kLeaseIndex;
  if (epoll_ctl(loop->outer_.get(), EPOLL_CTL_ADD, loop->lease_timer_.get(), &event) != 0)
    return Status::system(errno, TCPX_BLAST_ENGINE, "epoll_ctl");
  Status started =
      start_thread(&loop->thread_, "a progress thread", [raw = loop.get()] { raw->thread_main(); });
  if (started) *out = std::move(loop);
  return started;
}

Loop::Loop(const Settings& settings)
    : settings_(settings), wake_bits_(kMaxSources / 64), spin_budget_(settings.spin) {
  hot_.reserve(1024);
  hot_scratch_.reserve(1024);
}

Loop::~Loop() {
  stop();
  // Whoever waited for moves has given up on them: the slots they use must not be freed.
  if (awaits_moves()) (void)mover_.release();
}

bool Loop::hangs(Nanos now) {
  Nanos began = round_began_.load(std::memory_order_relaxed);
  if (!settings_.own_thread_only || began == 0 || thread_ended_.load()) return false;
  std::lock_guard lock(look_mu_);
  if (began != looked_at_round_) {
    looked_at_round_ = last_look_ = began;
    seen_in_round_ = 0;
  }
  seen_in_round_ += std::clamp<Nanos>(now - last_look_, 0, kLongestLook);
  last_look_ = std::max(last_look_, now);
  return seen_in_round_ > settings_.hang_patience;
}

bool Loop::stop(Nanos patience) {
  std::unique_lock one_at_a_time(stop_mu_, std::defer_lock);
  if (patience == 0 ? !one_at_a_time.try_lock() : (one_at_a_time.lock(), false)) return false;
  if (stopped_.load()) return true;
  stopping_.store(true);
  signal();
  {
    Nanos give_up = deadline_after(now_ns(), patience);
    std::unique_lock lock(end_mu_);
    auto ended = [&] { return thread_ended_.load() || !thread_.joinable(); };
    if (!settings_.own_thread_only) ended_cv_.wait(lock, ended);
    while (!ended()) {
      Nanos now = now_ns();
      if (now >= give_up || hangs(now)) return false;
      ended_cv_.wait_for(lock, look_time(give_up - now), ended);
    }
  }
  if (thread_.joinable()) thread_.join();
  stopped_.store(true);
  run_late_commands();
  return true;
}

std::string Loop::thread_cpus() const {
  std::lock_guard lock(end_mu_);
  if (thread_id_ == 0 || thread_ended_) return {};
  return format_cpus(topo::cpus_of_thread(thread_id_));
}

void Loop::thread_main() {
  {
    std::lock_guard lock(end_mu_);
    thread_id_ = gettid();
  }
  drive_as_thread();
  std::lock_guard lock(end_mu_);
  thread_ended_ = true;
  ended_cv_.notify_all();
}

void Loop::drive_as_thread() {
  while (!stopping_.load()) {
    epoll_event event{};
    Nanos from = now_ns();
    if (epoll_wait(outer_.get(), &event, 1, -1) < 0 && errno != EINTR) return;
    Nanos to = now_ns();
    thread_wakes_.fetch_add(1, std::memory_order_relaxed);
    // Whoever drives now arms the outer epoll when it leaves; if it left before seeing the flag,
    // the second try_lock succeeds.
    if (!drive_mu_.try_lock()) {
      thread_wants_.store(true);
      if (!drive_mu_.try_lock()) {
        // One who left just before a lease began may take the flag from who has it now, and would
        // not set the lease's timer.
        if (event.data.u64 == kLeaseIndex) watch_lease(kLongestLeaseWatch);
        continue;
      }
    }
    if (lease_holds(to) && !stopping_.load()) {
      lease_watch_ = std::min(2 * lease_watch_, kLongestLeaseWatch);
      watch_lease(lease_watch_);
      drive_mu_.unlock();
      continue;
    }
    leased_ = false;
    thread_drives_.store(true, std::memory_order_relaxed);
    enter();
    slept(from, to);
    // What sources and commands throw is caught there; should anything else, the loop goes on.
    quietly([&] {
      while (!stopping_.load(std::memory_order_relaxed) &&
             callers_wanting_.load(std::memory_order_relaxed) == 0)
        if (!spin_or_poll() && !doze()) break;
    });
    thread_wants_.store(true);
    thread_drives_.store(false, std::memory_order_relaxed);
    leave();
    round_began_.store(0, std::memory_order_relaxed);
  }
}

void Loop::enter() {
  if (settings_.driven != nullptr) settings_.driven->fetch_add(1, std::memory_order_relaxed);
  asleep_.store(false);
  idle_since_ = 0;
}

// Work that arrived between the last poll and the unlock is announced through wake_fd_, which the
// armed thread sees.
void Loop::leave() {
  // A lane that was polled eagerly has mostly nothing left to do: find out here rather than wake
  // the thread for it.
  if (!hot_.empty()) run_hot();
  if (settings_.driven != nullptr) settings_.driven->fetch_sub(1, std::memory_order_relaxed);
  asleep_.store(true);
  bool pending = has_pending() || awaits_moves();
  bool leased = leased_;  // then the thread comes by itself when the lease has ended
  // It met us at work and would have found that the lease goes on.
  if (thread_wants_.load() && lease_holds(now_ns()))
    lease_watch_ = std::min(2 * lease_watch_, kLongestLeaseWatch);
  Nanos watch = lease_watch_;
  drive_mu_.unlock();
  if (pending && !leased) signal();
  if (!thread_wants_.exchange(false)) return;
  if (leased)
    watch_lease(watch);  // it came while we were inside
  else
    arm(true);
}

void Loop::arm(bool on) {
  epoll_event event{};
  event.events = on ? EPOLLIN | EPOLLONESHOT : 0u;
  event.data.u64 = kWakeIndex;
  epoll_ctl(outer_.get(), EPOLL_CTL_MOD, epoll_.get(), &event);
}

void Loop::poll() {
  if (!others_may_drive() || !lock_for_poll()) return;
  enter();
  renew_lease(now_ns());
  for (int round = 0; round < kRoundsPerPoll && poll_once(true); ++round) {
  }
  leave();
}

// The loop's thread gives way, another caller does not.
bool Loop::lock_for_poll() {
  if (drive_mu_.try_lock()) return true;
  if (!thread_drives_.load(std::memory_order_relaxed)) return false;
  callers_wanting_.fetch_add(1);
  nudge();
  bool locked = false;
  for (Nanos give_up = now_ns() + 20 * kMicro; !locked && now_ns() < give_up;)
    locked = drive_mu_.try_lock();
  callers_wanting_.fetch_sub(1);
  return locked;
}

void Loop::renew_lease(Nanos now) {
  polls_close_ = now - last_polled_ < kPollsClose ? polls_close_ + 1 : 0;
  last_polled_ = now;
  if (leased_ || polls_close_ < kPollsForLease) return;
  leased_ = true;
  lease_watch_ = kLeaseWatch;
  arm(false);
  watch_lease(lease_watch_);
}

bool Loop::lease_holds(Nanos now) const {
  return leased_ && now - last_polled_ < kLeaseLasts;
}

// Wakes the thread, which asks whether the lease still holds.
void Loop::watch_lease(Nanos after) {
  itimerspec when{};
  when.it_value.tv_nsec = after;
  timerfd_settime(lease_timer_.get(), 0, &when, nullptr);
}

void Loop::signal() {
  uint64_t one = 1;
  // Fails only when the counter is full, which wakes just as well.
  (void)!write(wake_fd_.get(), &one, sizeof one);
}

void Loop::nudge() {
  if (asleep_.load()) signal();
}

void Loop::wake(uint32_t index) {
  wake_bits_[index / 64].fetch_or(uint64_t{1} << (index % 64), std::memory_order_release);
  any_wake_.store(true);
  nudge();
}

// Outlives its caller if the loop's thread hangs.
struct Loop::Command {
  std::function<void()> f;
  std::mutex mu;
  std::condition_variable cv;
  bool done = false;
  bool abandoned = false;
  tcpx_code thrown = TCPX_OK;

  void run() noexcept {
    {
      std::lock_guard before(mu);
      if (abandoned) return;
    }
    tcpx_code code = TCPX_OK;
    try {
      f();
    } catch (...) {
      code = caught(TCPX_BLAST_NOTHING).code();
    }
    std::lock_guard after(mu);
    thrown = code;
    done = true;
    cv.notify_one();
  }
};

Loop::Asked Loop::ask(const std::function<void()>& f) {
  if (try_exclusive(f)) return nullptr;
  auto command = std::make_shared<Command>();
  command->f = f;
  {
    std::lock_guard lock(command_mu_);
    commands_.push_back(command);
    any_command_.store(true);
  }
  signal();
  // Stopped between our try and our push: nobody else runs it.
  if (stopped_.load()) run_late_commands();
  return command;
}

bool Loop::wait_for(const Asked& command, Nanos patience) {
  if (command == nullptr) return true;
  std::unique_lock lock(command->mu);
  if (command->abandoned) return false;
  auto done = [&] { return command->done; };
  if (!settings_.own_thread_only) command->cv.wait(lock, done);
  for (Nanos give_up = deadline_after(now_ns(), patience); !done();) {
    Nanos now = now_ns();
    if (now >= give_up || hangs(now)) {
      command->abandoned = true;
      break;
    }
    command->cv.wait_for(lock, look_time(give_up - now), done);
    if (done() || !thread_ended_.load()) continue;
    // Its thread has gone without it, and who stops the loop has not come back yet.
    lock.unlock();
    (void)stop(0);
    lock.lock();
  }
  if (command->thrown == TCPX_NO_MEMORY) throw std::bad_alloc();
  if (command->thrown != TCPX_OK) throw std::runtime_error("a command of a progress loop failed");
  return command->done;
}

bool Loop::has_pending() const {
  return any_wake_.load() || any_command_.load() || !hot_.empty();
}

bool Loop::poll_once(bool spinning) {
  ++round_;
  turn_over_ = false;
  bool busy = false;
  if (any_command_.load(std::memory_order_relaxed)) busy |= run_commands();
  if (any_wake_.load(std::memory_order_relaxed)) busy |= run_wakes();
  if (!hot_.empty()) busy |= run_hot();
  if (awaits_moves()) busy |= run_waiting();
  // A hot lane is polled directly; asking epoll as well every time would double its system calls.
  // Where one has done all it may, the others are asked for.
  if (!hot_.empty() && !turn_over_ && ++hot_polls_ % kHotPollsPerEpoll != 0) return true;
  if (!busy && spinning && may_ask_directly())
    return with_source(last_heard_, [](LoopSource& source) { return source.on_spin(); });
  return poll_events(0) || busy;
}

// One call that asks the socket instead of two, and the socket knows before its epoll sets have
// been told: 4 KiB 14 us by epoll, 12 us so. Not while somebody waits for room, which epoll alone
// tells, and by turns where the loop has other sources.
bool Loop::may_ask_directly() {
  if (last_heard_ == kNoSource || waiting_for_room_ > 0) return false;
  bool alone = sources_.size() == free_sources_.size() + 1;
  return ++direct_polls_ % (alone ? kDirectPollsPerEpoll : 2) != 0;
}

// Whoever drives may be a caller that waits for something else: what a source throws ends that
// source and goes no further.
template <class F>
bool Loop::with_source(uint32_t index, F&& f) {
  std::shared_ptr<LoopSource> source = sources_[index];
  if (source == nullptr) return false;
  try {
    return f(*source);
  } catch (...) {
    source->on_failure(caught(TCPX_BLAST_PEER));
    return false;
  }
}

bool Loop::poll_events(int timeout_ms) {
  epoll_event events[kEventsPerPoll];
  int count = epoll_wait(epoll_.get(), events, kEventsPerPoll, timeout_ms);
  // Awake before the events are handled: what they end must not signal us, which would wake the
  // loop's thread for nothing, and put it on the core that the peer's thread was about to get.
  if (timeout_ms != 0) asleep_.store(false);
  for (int i = 0; i < count; ++i) {
    uint64_t index = events[i].data.u64;
    if (index == kWakeIndex) {
      uint64_t value;
      (void)!read(wake_fd_.get(), &value, sizeof value);
    } else {
      with_source(static_cast<uint32_t>(index), [&](LoopSource& source) {
        source.on_events(events[i].events);
        return true;
      });
    }
  }
  return count > 0;
}

bool Loop::run_commands() {
  std::vector<Asked> batch;
  {
    std::lock_guard lock(command_mu_);
    batch.swap(commands_);
    any_command_.store(false);
  }
  for (Asked& command : batch) command->run();
  return !batch.empty();
}

// Those that came too late for the thread. Several of us may be here, and each waits for a command
// that another may have taken.
void Loop::run_late_commands() {
  std::lock_guard lock(drive_mu_);
  run_commands();
}

bool Loop::run_wakes() {
  any_wake_.exchange(false);  // not a store: the bits below must not be read before it
  bool busy = false;
  uint32_t words = wake_words_.load();
  for (uint32_t word = 0; word < words; ++word) {
    uint64_t bits = wake_bits_[word].load(std::memory_order_relaxed);
    if (bits == 0) continue;
    bits = wake_bits_[word].exchange(0, std::memory_order_acquire);
    for (; bits != 0; bits &= bits - 1) {
      uint32_t index = word * 64 + static_cast<uint32_t>(__builtin_ctzll(bits));
      if (index >= sources_.size()) continue;
      with_source(index, [](LoopSource& source) {
        source.on_wake();
        return true;
      });
      busy = true;
    }
  }
  return busy;
}

bool Loop::run_hot() {
  hot_scratch_.swap(hot_);
  for (uint32_t index : hot_scratch_) {
    if (sources_[index] != nullptr && turn_left(index) == 0)
      hot_late_.push_back(index);
    else
      with_source(index, [&](LoopSource& source) {
        has_left(index, source.on_hot());
        return true;
      });
  }
  hot_scratch_.clear();
  // Whose owner had no more to spend is the first in the next round.
  for (; !hot_late_.empty(); hot_late_.pop_back()) {
    std::erase(hot_, hot_late_.back());
    hot_.insert(hot_.begin(), hot_late_.back());
  }
  return true;
}

void Loop::has_left(uint32_t index, Work work) {
  if (sources_[index] == nullptr) return;  // it has gone
  if (work == Work::kMore) make_hot(index);
  if (work == Work::kWaiting) make_waiting(index);
}

// Whether anybody has come further.
bool Loop::run_waiting() {
  bool busy = false;
  waiting_scratch_.swap(waiting_);
  for (uint32_t index : waiting_scratch_)
    with_source(index, [&](LoopSource& source) {
      Work work = source.on_hot();
      has_left(index, work);
      busy |= work != Work::kWaiting;
      return true;
    });
  waiting_scratch_.clear();
  for (auto finish = unfinished_.begin(); finish != unfinished_.end();) {
    const bool over = (*finish)();
    finish = over ? unfinished_.erase(finish) : std::next(finish);
    busy |= over;
  }
  return busy;
}

void Loop::make_waiting(uint32_t index) {
  if (std::find(waiting_.begin(), waiting_.end(), index) == waiting_.end())
    waiting_.push_back(index);
}

uint64_t Loop::turn_left(uint32_t index) const {
  const Turn& turn = turns_[turn_of_[index]];
  uint64_t whole = owners_ > 1 ? kSharedTurn : kTurn;
  uint64_t spent = turn.round == round_ ? turn.spent : 0;
  return spent < whole ? whole - spent : 0;
}

void Loop::spend(uint32_t index, uint64_t cost) {
  Turn& turn = turns_[turn_of_[index]];
  turn.spent = cost + (turn.round == round_ ? turn.spent : 0);
  turn.round = round_;
  turn_over_ |= turn_left(index) == 0;
}

void Loop::make_hot(uint32_t index) {
  for (uint32_t present : hot_)
    if (present == index) return;
  hot_.push_back(index);
}

Status Loop::add(int fd, std::shared_ptr<LoopSource> source, uint32_t* index, uint64_t owner) {
  if (free_sources_.empty()) {
    if (sources_.size() == kMaxSources)
      return Status(TCPX_LIMIT, TCPX_BLAST_LANE, "65536 lanes on one progress loop");
    // Room first, so that nothing is allocated when a source becomes hot or leaves.
    size_t room = sources_.capacity() > sources_.size() ? sources_.capacity()
                                                        : std::max<size_t>(16, 2 * sources_.size());
    for (auto* list : {&free_sources_, &hot_, &hot_scratch_, &hot_late_, &turn_of_, &waiting_,
                       &waiting_scratch_})
      list->reserve(room);
    turns_.reserve(room);
    sources_.reserve(room);
    free_sources_.push_back(static_cast<uint32_t>(sources_.size()));
    sources_.emplace_back();
    turn_of_.emplace_back();
    wake_words_.store(static_cast<uint32_t>((sources_.size() + 63) / 64));
  }
  uint32_t slot = free_sources_.back();
  epoll_event event{};
  event.events = kAlwaysWatched;
  event.data.u64 = slot;
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0)
    return Status::system(errno, TCPX_BLAST_LANE, "epoll_ctl");
  free_sources_.pop_back();
  sources_[slot] = std::move(source);
  auto turn = std::find_if(turns_.begin(), turns_.end(),
                           [&](const Turn& t) { return t.sources > 0 && t.owner == owner; });
  if (turn == turns_.end()) {
    turn = std::find_if(turns_.begin(), turns_.end(), [](const Turn& t) { return t.sources == 0; });
    if (turn == turns_.end()) turn = turns_.emplace(turn);
    *turn = {owner, 0, 0, 0};
    ++owners_;
  }
  ++turn->sources;
  turn_of_[slot] = static_cast<uint32_t>(turn - turns_.begin());
  *index = slot;
  return {};
}

void Loop::watch_room(uint32_t index, int fd, bool on) {
  epoll_event event{};
  waiting_for_room_ += on ? 1 : -1;
  event.events = on ? kAlwaysWatched | EPOLLOUT : kAlwaysWatched;
  event.data.u64 = index;
  epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event);
}

void Loop::remove(uint32_t index, int fd) {
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
  sources_[index].reset();
  if (--turns_[turn_of_[index]].sources == 0) --owners_;
  if (last_heard_ == index) last_heard_ = kNoSource;
  free_sources_.push_back(index);
  std::erase(hot_, index);
  std::erase(waiting_, index);
}

// In the middle of a transfer the thread sleeps without giving the loop up: leaving, arming the
// outer epoll and coming back would be four system calls for every wake-up. False: leave now.
bool Loop::doze() {
  if (engaged_ == 0 && !awaits_moves()) return false;
  asleep_.store(true);
  bool woken = false;
  if (!has_pending() && callers_wanting_.load() == 0) woken = nap(kDozeMillis);
  asleep_.store(false);
  return woken || awaits_moves();
}

// One poll. False: nothing came for as long as it is worth spinning; sleep now.
bool Loop::spin_or_poll() {
  round_begins();
  bool busy = poll_once(idle_since_ != 0);
  Nanos now = now_ns();
  if (busy) {
    if (idle_since_ != 0) spin_budget_ = std::min(settings_.spin, 2 * spin_budget_ + kMicro);
    idle_since_ = 0;
    return true;
  }
  if (idle_since_ == 0) {
    idle_since_ = last_poll_ = now;
    spun_in_vain_ = false;
    if (spin_budget_ < kMicro && ++spins_skipped_ % kProbeEvery == 0)
      spin_budget_ = settings_.spin / 4;
  }
  bool preempted = now - last_poll_ > kPreemptedGap;
  last_poll_ = now;
  relax(kBetweenPolls);
  Nanos budget = engaged_ > 0 ? spin_budget_ * settings_.engaged_factor : spin_budget_;
  bool crowded = settings_.driven != nullptr &&
                 settings_.driven->load(std::memory_order_relaxed) > settings_.max_spinning;
  if (crowded) {
    idle_since_ = 0;
    return false;
  }
  if (!preempted && now - idle_since_ < budget) return true;
  if (preempted) spin_budget_ /= 2;
  spun_in_vain_ = spin_budget_ > 0;
  idle_since_ = 0;
  return false;
}

// Asleep until something comes, or a move is over. Whoever waits for moves is asked now and then,
// without a spin in between.
bool Loop::nap(int timeout_ms) {
  if (!awaits_moves()) return poll_events(timeout_ms);
  for (; timeout_ms > 0; timeout_ms -= kMoveMillis) {
    asleep_.store(true);
    if (has_pending() || poll_events(kMoveMillis)) return true;
    if (run_waiting() || callers_wanting_.load(std::memory_order_relaxed) > 0) return true;
  }
  return false;
}

// A sleep ended. If it was short, the spin before it was in vain: whoever had the answer needed
// our core to give it.
void Loop::slept(Nanos from, Nanos to) {
  if (spun_in_vain_ && to - from < kShortSleep) spin_budget_ = spin_budget_ / 2;
  spun_in_vain_ = false;
}

void Loop::sleep_until(Nanos deadline) {
  Nanos from = now_ns();
  if (from >= deadline) return;
  sleeps_.fetch_add(1, std::memory_order_relaxed);
  int timeout = static_cast<int>(std::min<Nanos>((deadline - from) / kMilli + 1, 1000));
  if (nap(timeout)) slept(from, now_ns());
}

}  // namespace tcpx
