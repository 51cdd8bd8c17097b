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

// Per turn. A stranger costs some 20 us (accept, a handshake, epoll, close). An honest handshake
// takes several turns, each behind the newcomers of one; tasks and ticks wait a millisecond at
// most.
constexpr int kEventsPerTurn = 32;
constexpr int kAcceptsPerTurn = 8;
constexpr Nanos kShortestPause = 100 * kMilli;
constexpr Nanos kLongestPause = 1 * kSecond;
constexpr Nanos kAfterFailure = 20 * kMilli;  // until what threw is tried again

// accept() hands on what happened to the connection; the next one is another.
bool concerns_one_connection(int err) {
  switch (err) {
    case EINTR:
    case ECONNABORTED:
    case EPROTO:
    case ENOPROTOOPT:
    case EPERM:  // a firewall
    case ENETDOWN:
    case ENETUNREACH:
    case EHOSTDOWN:
    case EHOSTUNREACH:
    case ENONET:
    case EOPNOTSUPP: return true;
    default: return false;
  }
}

}  // namespace

Service::~Service() {
  stop();
}

Status Service::start(std::vector<Fd> listeners) {
  listeners_ = std::move(listeners);
  epoll_.reset(epoll_create1(EPOLL_CLOEXEC));
  wake_.reset(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!epoll_ || !wake_)
    return Status::system(errno, TCPX_BLAST_ENGINE, "cannot create the service thread");
  watch(wake_.get(), EPOLLIN, true);
  for (Fd& listener : listeners_) watch(listener.get(), EPOLLIN, true);
  return start_thread(&thread_, "the service thread", [this] { run(); });
}

void Service::stop() {
  if (!thread_.joinable()) return;
  stopping_.store(true);
  hurry();
  thread_.join();
  run_tasks();
  entries_.clear();
  listeners_.clear();
}

void Service::defer(std::function<void()> task) {
  {
    std::lock_guard lock(mu_);
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

bool Service::is_listener(int fd) const {
  return std::any_of(listeners_.begin(), listeners_.end(),
                     [fd](const Fd& listener) { return listener.get() == fd; });
}

Nanos Service::next_deadline() const {
  return std::min({next_tick_, next_expiry_, listen_at_});
}

void Service::run() {
  while (!stopping_.load()) {
    Nanos left = std::max<Nanos>(0, next_deadline() - now_ns());
    int timeout = static_cast<int>(std::min<Nanos>((left + kMilli - 1) / kMilli, 1000));
    epoll_event events[kEventsPerTurn];
    int count = epoll_wait(epoll_.get(), events, kEventsPerTurn, timeout);
    // Who is at the door has its say before newcomers are let in and may take its place.
    int accepts = kAcceptsPerTurn;
    for (bool newcomers : {false, true})
      for (int i = 0; i < count; ++i) {
        int fd = events[i].data.fd;
        if (is_listener(fd) == newcomers) attempt("a connection", [&] { event(fd, &accepts); });
      }
    run_tasks();
    Nanos now = now_ns();
    attempt("connections that are late", [&] { expire(now); });
    if (now >= listen_at_) attempt("the door", [&] { listen_again(); });
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

void Service::event(int fd, int* accepts) {
  if (is_listener(fd)) {
    accept_some(fd, accepts);
  } else if (fd == wake_.get()) {
    uint64_t value;
    (void)!read(fd, &value, sizeof value);
    next_tick_ = 0;
  } else {
    step(fd);
  }
}

void Service::run_tasks() {
  std::vector<std::function<void()>> batch;
  {
    std::lock_guard lock(mu_);
    if (tasks_.empty()) return;
    batch.swap(tasks_);
  }
  for (auto& task : batch) attempt("a task", task);
}

// ---- the door ------------------------------------------------------------------------------

void Service::accept_some(int listener, int* budget) {
  for (; *budget > 0 && listen_at_ == kNever; --*budget) {
    sockaddr_storage from{};
    socklen_t length = sizeof from;
    Fd fd(accept4(listener, reinterpret_cast<sockaddr*>(&from), &length,
                  SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (fd) {
      accept_pause_ = 0;
      admit(std::move(fd), address_of(from));
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      return;
    } else if (!concerns_one_connection(errno)) {
      return stop_accepting(errno);
    }
  }
}

void Service::admit(Fd fd, const wire::Address& remote) {
  Nanos now = now_ns();
  if (half_open_.load() >= settings_.max_half_open) {
    size_t evicted = make_room(now);
    owner_.crowded(evicted);
    if (evicted == 0) return;
  }
  int raw = fd.get();
  Nanos deadline = now + settings_.handshake_timeout;
  Entry entry;
  entry.handshake = std::make_unique<Handshake>(std::move(fd), to_string(remote), owner_, deadline);
  entry.source = source_of(remote);
  entry.since = now;
  entry.watched = EPOLLIN;
  entries_[raw] = std::move(entry);
  next_expiry_ = std::min(next_expiry_, deadline);
  half_open_.fetch_add(1);
  watch(raw, EPOLLIN, true);
  step(raw);
}

size_t Service::make_room(Nanos now) {
  visitors_.clear();
  for (auto& [fd, entry] : entries_)
    if (entry.handshake->is_server())
      visitors_.push_back({fd, entry.source, entry.standing, entry.since});
  std::vector<int> leaving = choose_leaving(visitors_, now);
  for (int fd : leaving) remove(fd);
  return leaving.size();
}

// Mostly no descriptor is left. The listener stays readable, so it is not watched for a while.
void Service::stop_accepting(int err) {
  if (make_room(now_ns()) > 0) return;
  accept_pause_ = std::clamp(accept_pause_ * 2, kShortestPause, kLongestPause);
  listen_at_ = now_ns() + accept_pause_;
  for (Fd& listener : listeners_) watch(listener.get(), 0, false);
  owner_.cannot_accept(err, accept_pause_);
}

void Service::listen_again() {
  listen_at_ = kNever;
  for (Fd& listener : listeners_) watch(listener.get(), EPOLLIN, false);
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
  if (entries_.erase(fd) > 0) half_open_.fetch_sub(1);
}

// A handshake that cannot go on on this side.
void Service::drop(int fd, const Status& status) noexcept {
  auto node = entries_.extract(fd);
  Entry& entry = node.mapped();
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
  if (entry.handshake->is_server()) half_open_.fetch_sub(1);
  owner_.failed("a handshake", status);
  if (entry.on_end) attempt("a handshake", [&] { entry.on_end(*entry.handshake, status); });
}

void Service::finish(int fd, bool timed_out) {
  auto node = entries_.extract(fd);
  Entry& entry = node.mapped();
  Handshake& handshake = *entry.handshake;
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
  if (handshake.is_server()) half_open_.fetch_sub(1);
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
