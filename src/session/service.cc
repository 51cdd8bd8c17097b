#include "session/service.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>

namespace tcpx {

Service::~Service() {
  stop();
}

Status Service::start(std::vector<Fd> listeners) {
  listeners_ = std::move(listeners);
  epoll_.reset(epoll_create1(EPOLL_CLOEXEC));
  wake_.reset(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!epoll_ || !wake_)
    return Status::system(errno, TCPX_BLAST_ENGINE, "cannot create the service thread");
  watch(wake_.get(), false, true);
  for (Fd& listener : listeners_) watch(listener.get(), false, true);
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

void Service::watch(int fd, bool write, bool add) {
  epoll_event event{};
  event.events = write ? EPOLLIN | EPOLLOUT : EPOLLIN;
  event.data.fd = fd;
  epoll_ctl(epoll_.get(), add ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, fd, &event);
}

Nanos Service::next_deadline() const {
  Nanos first = next_tick_;
  for (auto& [fd, entry] : entries_) first = std::min(first, entry.handshake->deadline());
  return first;
}

void Service::run() {
  while (!stopping_.load()) {
    Nanos left = std::max<Nanos>(0, next_deadline() - now_ns());
    int timeout = static_cast<int>(std::min<Nanos>((left + kMilli - 1) / kMilli, 1000));
    epoll_event events[32];
    int count = epoll_wait(epoll_.get(), events, 32, timeout);
    for (int i = 0; i < count; ++i) {
      int fd = events[i].data.fd;
      if (fd == wake_.get()) {
        uint64_t value;
        (void)!read(fd, &value, sizeof value);
        next_tick_ = 0;
      } else if (std::any_of(listeners_.begin(), listeners_.end(),
                             [fd](const Fd& listener) { return listener.get() == fd; })) {
        accept_all(fd);
      } else {
        step(fd);
      }
    }
    run_tasks();
    Nanos now = now_ns();
    expire(now);
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

void Service::accept_all(int listener) {
  for (;;) {
    Fd fd(accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!fd) return;
    if (half_open_.load() >= settings_.max_half_open) {
      owner_.overloaded();
      continue;
    }
    int raw = fd.get();
    Nanos deadline = now_ns() + settings_.handshake_timeout;
    entries_[raw] = {std::make_unique<Handshake>(std::move(fd), owner_, deadline), nullptr};
    half_open_.fetch_add(1);
    watch(raw, false, true);
    step(raw);
  }
}

void Service::add_client(std::unique_ptr<Handshake> handshake, OnEnd on_end) {
  int fd = handshake->fd();
  entries_[fd] = {std::move(handshake), std::move(on_end)};
  watch(fd, true, true);
}

void Service::step(int fd) {
  auto found = entries_.find(fd);
  if (found == entries_.end()) return;
  Handshake& handshake = *found->second.handshake;
  if (handshake.step() == Handshake::Progress::kMore)
    watch(fd, handshake.wants_write(), false);
  else
    finish(fd, false);
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
  std::vector<int> late;
  for (auto& [fd, entry] : entries_)
    if (entry.handshake->deadline() <= now) late.push_back(fd);
  for (int fd : late) {
    entries_[fd].handshake->expire();
    finish(fd, true);
  }
}

}  // namespace tcpx
