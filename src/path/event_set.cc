#include "path/event_set.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>

namespace tcpx {

namespace {

constexpr uint32_t kAlwaysWatched = EPOLLIN | EPOLLRDHUP | EPOLLET;

bool control(const Fd& set, int operation, int fd, uint32_t events, uint64_t data) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = data;
  return epoll_ctl(set.get(), operation, fd, &event) == 0;
}

}  // namespace

Status EventSet::open() {
  inner_.reset(epoll_create1(EPOLL_CLOEXEC));
  outer_.reset(epoll_create1(EPOLL_CLOEXEC));
  signal_.reset(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!inner_ || !outer_ || !signal_)
    return Status::system(errno, TCPX_BLAST_ENGINE, "cannot create a progress loop");
  if (!control(inner_, EPOLL_CTL_ADD, signal_.get(), EPOLLIN, kSignal) ||
      !control(outer_, EPOLL_CTL_ADD, inner_.get(), EPOLLIN | EPOLLONESHOT, 0))
    return Status::system(errno, TCPX_BLAST_ENGINE, "epoll_ctl");
  return {};
}

void EventSet::signal() {
  uint64_t one = 1;
  // Fails only when the counter is full, which wakes just as well.
  (void)!write(signal_.get(), &one, sizeof one);
}

void EventSet::arm(bool on) {
  control(outer_, EPOLL_CTL_MOD, inner_.get(), on ? EPOLLIN | EPOLLONESHOT : 0u, 0);
}

bool EventSet::wait_armed() {
  epoll_event event{};
  return epoll_wait(outer_.get(), &event, 1, -1) >= 0 || errno == EINTR;
}

int EventSet::wait(std::span<epoll_event> events, int timeout_ms) {
  int count = epoll_wait(inner_.get(), events.data(), static_cast<int>(events.size()), timeout_ms);
  for (int i = 0; i < count; ++i) {
    if (events[static_cast<size_t>(i)].data.u64 != kSignal) continue;
    uint64_t value;
    (void)!read(signal_.get(), &value, sizeof value);
  }
  return count;
}

Status EventSet::add(int fd, uint32_t index) {
  if (control(inner_, EPOLL_CTL_ADD, fd, kAlwaysWatched, index)) return {};
  return Status::system(errno, TCPX_BLAST_LANE, "epoll_ctl");
}

void EventSet::remove(int fd) {
  control(inner_, EPOLL_CTL_DEL, fd, 0, 0);
}

void EventSet::watch_room(int fd, uint32_t index, bool on) {
  room_watched_ += on ? 1 : -1;
  control(inner_, EPOLL_CTL_MOD, fd, on ? kAlwaysWatched | EPOLLOUT : kAlwaysWatched, index);
}

}  // namespace tcpx
