#include "session/service.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>

#include "base/caught.h"
#include "base/thread.h"
#include "session/sockets.h"

namespace tcpx {

namespace {

// Per turn. An honest handshake takes several turns, each behind the newcomers of one; tasks and
// ticks wait a millisecond at most.
constexpr int kEventsPerTurn = 32;
constexpr int kGuestsPerTurn = 8;
constexpr Nanos kAfterFailure = 20 * kMilli;  // until what threw is tried again

}  // namespace

Service::~Service() {
  stop();
}

Status Service::start() {
  epoll_.reset(epoll_create1(EPOLL_CLOEXEC));
  wake_.reset(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  knocked_.reset(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!epoll_ || !wake_ || !knocked_)
    return Status::system(errno, TCPX_BLAST_ENGINE, "cannot create the service thread");
  watch(wake_.get(), EPOLLIN, true);
  watch(knocked_.get(), EPOLLIN, true);
  return start_thread(&thread_, "the service thread", [this] { run(); });
}

void Service::stop() {
  if (!thread_.joinable()) return;
  stopping_.store(true);
  hurry();
  thread_.join();
  run_tasks();
  entries_.clear();
  MutexLock lock(mu_);
  guests_.clear();
}

void Service::defer(std::function<void()> task) {
  {
    MutexLock lock(mu_);
    tasks_.push_back(std::move(task));
  }
  hurry();
}

void Service::hurry() {
  uint64_t one = 1;
  (void)!write(wake_.get(), &one, sizeof one);
}

Fd Service::share_wake() const {
  return Fd(fcntl(wake_.get(), F_DUPFD_CLOEXEC, 0));
}

void Service::watch(int fd, uint32_t events, bool add) {
  epoll_event event{};
  event.events = events;
  event.data.fd = fd;
  epoll_ctl(epoll_.get(), add ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, fd, &event);
}

void Service::run() {
  while (!stopping_.load()) {
    Nanos next = more_guests_ ? 0 : std::min(next_tick_, next_expiry_);
    Nanos left = std::max<Nanos>(0, next - now_ns());
    int timeout = static_cast<int>(std::min<Nanos>((left + kMilli - 1) / kMilli, 1000));
    epoll_event events[kEventsPerTurn];
    int count = epoll_wait(epoll_.get(), events, kEventsPerTurn, timeout);
    for (int i = 0; i < count; ++i) attempt("a connection", [&] { event(events[i].data.fd); });
    // Behind those who shake hands already: newcomers may take their places.
    attempt("a connection", [&] { greet_some(); });
    run_tasks();
    Nanos now = now_ns();
    attempt("connections that are late", [&] { expire(now); });
    if (now < next_tick_) continue;
    next_tick_ = now + kAfterFailure;
    attempt("a tick", [&] { next_tick_ = owner_.tick(now); });
  }
}

// Nothing that is done here for one peer may end the thread that serves them all.
template <class F>
void Service::attempt(const char* what, F&& f) noexcept {
  try {
    f();
  } catch (...) {
    owner_.failed(what, caught(TCPX_BLAST_NOTHING));
  }
}

void Service::event(int fd) {
  if (fd != wake_.get() && fd != knocked_.get()) return step(fd);
  uint64_t value;
  (void)!read(fd, &value, sizeof value);
  if (fd == wake_.get())
    next_tick_ = 0;
  else
    more_guests_ = true;
}

void Service::run_tasks() {
  std::vector<std::function<void()>> batch;
  {
    MutexLock lock(mu_);
    if (tasks_.empty()) return;
    batch.swap(tasks_);
  }
  for (auto& task : batch) attempt("a task", task);
}

// ---- guests --------------------------------------------------------------------------------

bool Service::greet(Guest guest) {
  {
    MutexLock lock(mu_);
    if (guests_.size() >= places_) return false;
    guests_.push_back(std::move(guest));
  }
  uint64_t one = 1;
  (void)!write(knocked_.get(), &one, sizeof one);
  return true;
}

size_t Service::half_open() {
  MutexLock lock(mu_);
  return guests_.size() + serving_.load();
}

void Service::greet_some() {
  for (int i = 0; more_guests_ && i < kGuestsPerTurn; ++i) {
    MutexLock lock(mu_);
    more_guests_ = !guests_.empty();
    if (!more_guests_) return;
    Guest guest = std::move(guests_.front());
    guests_.pop_front();
    lock.unlock();
    attempt("a connection", [&] { admit(std::move(guest)); });
  }
}

void Service::admit(Guest guest) {
  Nanos now = now_ns();
  if (serving_.load() >= places_) {
    size_t evicted = make_room(now);
    owner_.crowded(evicted);
    if (evicted == 0) return;
  }
  const int fd = guest.handshake->fd();
  next_expiry_ = std::min(next_expiry_, guest.handshake->deadline());
  Entry entry;
  entry.handshake = std::move(guest.handshake);
  entry.source = guest.source;
  entry.standing = entry.handshake->standing();
  entry.since = now;
  entry.watched = EPOLLIN;
  entries_[fd] = std::move(entry);
  serving_.fetch_add(1);
  watch(fd, EPOLLIN, true);
  step(fd);
}

size_t Service::make_room(Nanos now) {
  visitors_.clear();
  for (auto& [fd, entry] : entries_)
    if (entry.handshake->is_server())
      visitors_.push_back({static_cast<uint32_t>(fd), entry.source, entry.standing, entry.since});
  std::vector<uint32_t> leaving = choose_leaving(visitors_, now);
  for (uint32_t fd : leaving) remove(static_cast<int>(fd));
  return leaving.size();
}

// ---- handshakes ----------------------------------------------------------------------------

void Service::add_client(std::unique_ptr<Handshake> handshake, OnEnd on_end) {
  int fd = handshake->fd();
  next_expiry_ = std::min(next_expiry_, handshake->deadline());
  Entry entry;
  entry.handshake = std::move(handshake);
  entry.on_end = std::move(on_end);
  entry.watched = EPOLLIN | EPOLLOUT;
  entries_[fd] = std::move(entry);
  watch(fd, EPOLLIN | EPOLLOUT, true);
}

void Service::step(int fd) {
  auto found = entries_.find(fd);
  if (found == entries_.end()) return;
  Entry& entry = found->second;
  Handshake& handshake = *entry.handshake;
  try {
    if (handshake.step() != Handshake::Progress::kMore) return finish(fd, false);
  } catch (...) {
    // finish() has taken it out already: then it was about its end.
    if (entries_.contains(fd)) return drop(fd, caught(TCPX_BLAST_LANE));
    throw;
  }
  const uint32_t events = handshake.wants_write() ? EPOLLIN | EPOLLOUT : EPOLLIN;
  if (events != entry.watched) watch(fd, entry.watched = events, false);
  if (!handshake.is_server() || handshake.standing() == entry.standing) return;
  entry.standing = handshake.standing();
  entry.since = now_ns();
}

// Closes it without a word.
void Service::remove(int fd) {
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);  // a fork may hold the socket too
  if (entries_.erase(fd) > 0) serving_.fetch_sub(1);
}

// A handshake that cannot go on on this side.
void Service::drop(int fd, const Status& status) noexcept {
  auto node = entries_.extract(fd);
  Entry& entry = node.mapped();
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
  if (entry.handshake->is_server()) serving_.fetch_sub(1);
  owner_.failed("a handshake", status);
  if (entry.on_end) attempt("a handshake", [&] { entry.on_end(*entry.handshake, status); });
}

void Service::finish(int fd, bool timed_out) {
  auto node = entries_.extract(fd);
  Entry& entry = node.mapped();
  Handshake& handshake = *entry.handshake;
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
  if (handshake.is_server()) serving_.fetch_sub(1);
  bool done = !timed_out && handshake.step() == Handshake::Progress::kDone;
  if (!handshake.is_server()) {
    if (entry.on_end) entry.on_end(handshake, done ? Status() : handshake.status());
    return;
  }
  if (done)
    owner_.accepted(handshake);
  else
    owner_.refused(handshake, timed_out);
}

void Service::expire(Nanos now) {
  if (now < next_expiry_) return;
  std::vector<int> late;
  Nanos next = kNever;
  for (auto& [fd, entry] : entries_) {
    Nanos deadline = entry.handshake->deadline();
    if (deadline <= now)
      late.push_back(fd);
    else
      next = std::min(next, deadline);
  }
  next_expiry_ = next;
  for (int fd : late) {
    auto found = entries_.find(fd);
    if (found == entries_.end()) continue;
    try {
      found->second.handshake->expire();
    } catch (...) {
      drop(fd, caught(TCPX_BLAST_LANE));
      continue;
    }
    attempt("a connection that is late", [&] { finish(fd, true); });
  }
}

}  // namespace tcpx
