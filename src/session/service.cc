#include "session/service.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>

#include "session/sockets.h"

namespace tcpx {

namespace {

// Per turn. A stranger costs some 30 us (accept, a handshake, epoll, close), so tasks and ticks
// wait a few milliseconds at most.
constexpr int kEventsPerTurn = 32;
constexpr int kAcceptsPerTurn = 32;
constexpr Nanos kShortestPause = 100 * kMilli;
constexpr Nanos kLongestPause = 1 * kSecond;

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
  thread_ = std::thread([this] { run(); });
  return {};
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
    for (bool newcomers : {false, true}) {
      for (int i = 0; i < count; ++i) {
        int fd = events[i].data.fd;
        if (is_listener(fd) != newcomers) continue;
        if (newcomers) {
          accept_some(fd, &accepts);
        } else if (fd == wake_.get()) {
          uint64_t value;
          (void)!read(fd, &value, sizeof value);
          next_tick_ = 0;
        } else {
          step(fd);
        }
      }
    }
    run_tasks();
    Nanos now = now_ns();
    expire(now);
    if (now >= listen_at_) listen_again();
    if (now >= next_tick_) next_tick_ = owner_.tick(now);
  }
}

void Service::run_tasks() {
  std::vector<std::function<void()>> batch;
  {
    std::lock_guard lock(mu_);
    if (tasks_.empty()) return;
    batch.swap(tasks_);
  }
  for (auto& task : batch) task();
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
  entries_[fd] = std::move(entry);
  watch(fd, EPOLLIN | EPOLLOUT, true);
}

void Service::step(int fd) {
  auto found = entries_.find(fd);
  if (found == entries_.end()) return;
  Entry& entry = found->second;
  Handshake& handshake = *entry.handshake;
  if (handshake.step() != Handshake::Progress::kMore) return finish(fd, false);
  watch(fd, handshake.wants_write() ? EPOLLIN | EPOLLOUT : EPOLLIN, false);
  if (!handshake.is_server() || handshake.standing() == entry.standing) return;
  entry.standing = handshake.standing();
  entry.since = now_ns();
}

// Closes it without a word.
void Service::remove(int fd) {
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);  // a fork may hold the socket too
  if (entries_.erase(fd) > 0) half_open_.fetch_sub(1);
}

void Service::finish(int fd, bool timed_out) {
  auto node = entries_.extract(fd);
  Entry& entry = node.mapped();
  Handshake& handshake = *entry.handshake;
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
  bool done = !timed_out && handshake.step() == Handshake::Progress::kDone;
  if (!handshake.is_server()) {
    if (entry.on_end) entry.on_end(handshake, done ? Status() : handshake.status());
    return;
  }
  half_open_.fetch_sub(1);
  if (done)
    owner_.accepted(handshake);
  else
    owner_.refused(handshake, timed_out);
}

void Service::expire(Nanos now) {
  if (now < next_expiry_) return;
  std::vector<int> late;
  next_expiry_ = kNever;
  for (auto& [fd, entry] : entries_) {
    Nanos deadline = entry.handshake->deadline();
    if (deadline <= now)
      late.push_back(fd);
    else
      next_expiry_ = std::min(next_expiry_, deadline);
  }
  for (int fd : late) {
    auto found = entries_.find(fd);
    if (found == entries_.end()) continue;
    found->second.handshake->expire();
    finish(fd, true);
  }
}

}  // namespace tcpx
