#include "raw_tcp.h"

#include <linux/futex.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <string>
#include <utility>

#include "failure.h"

namespace tcpx::tool {
namespace {

// The small messages: a READ's request, a WRITE's answer, the server's "go".
constexpr uint64_t kSmall = 8;
// Blocking calls return this often to look at the deadline and at the other threads.
constexpr Nanos kRawSlice = 200 * kMilli;
// Spinning loops look at the clock once in so many empty calls (a few tens of microseconds).
constexpr unsigned kSpinsPerCheck = 256;
// Bytes per call. 64 MiB on one connection, 2 cores, busy machine (GB/s blocking, spinning):
// unlimited 1.9, 2.6; 1 MiB 2.5, 3.0; 256 KiB 2.0, 2.4 to 4.9 and a third less at 1 MiB transfers.
constexpr uint64_t kCallBytes = 1 << 20;

void set_call_timeouts(int fd) {
  timeval slice{0, kRawSlice / kMicro};
  for (int name : {SO_RCVTIMEO, SO_SNDTIMEO})
    if (setsockopt(fd, SOL_SOCKET, name, &slice, sizeof slice) != 0)
      fail_errno(kExitEnvironment, "raw: setsockopt(SO_RCVTIMEO)", errno);
}

long futex(const std::atomic<uint32_t>& word, int op, uint32_t value, const timespec* timeout) {
  static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t));
  return syscall(SYS_futex, &word, op | FUTEX_PRIVATE_FLAG, value, timeout, nullptr, 0);
}

}  // namespace

const char* raw_loop_name(RawLoop loop) {
  return loop == RawLoop::kBlocking ? "blocking" : "spinning";
}

Crew::Crew(size_t size) {
  for (size_t i = 0; i < size; ++i) threads_.emplace_back([this, i] { loop(i); });
}

Crew::~Crew() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  for (auto& thread : threads_) thread.join();
}

void Crew::start(std::function<void(size_t)> work) {
  {
    std::lock_guard lock(mutex_);
    work_ = std::move(work);
    running_ = threads_.size();
    ++batch_;
  }
  wake_.notify_all();
}

void Crew::finish() {
  std::unique_lock lock(mutex_);
  idle_.wait(lock, [this] { return running_ == 0; });
}

void Crew::loop(size_t index) {
  uint64_t seen = 0;
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [&] { return stop_ || batch_ != seen; });
    if (stop_) return;
    seen = batch_;
    auto work = work_;
    lock.unlock();
    work(index);
    lock.lock();
    if (--running_ == 0) idle_.notify_all();
  }
}

RawLink::RawLink(std::vector<Fd> sockets, uint8_t* memory, uint64_t memory_size)
    : sockets_(std::move(sockets)),
      memory_(memory),
      memory_size_(memory_size),
      crew_(sockets_.empty() ? 0 : sockets_.size() - 1) {
  if (sockets_.empty()) throw Failure(kExitUsage, "raw: no connections");
  for (auto& socket : sockets_) set_call_timeouts(socket.get());
}

RawLink::Share RawLink::share(size_t connection) const {
  const uint64_t part = task_.bytes / active_, more = task_.bytes % active_;
  return {connection * part + std::min<uint64_t>(connection, more),
          part + (connection < more ? 1 : 0)};
}

void RawLink::begin(const RawTask& task) {
  if (task.bytes > memory_size_) throw Failure(kExitFailed, "raw: more bytes than memory");
  if (task.transfers > UINT32_MAX / sockets_.size())
    throw Failure(kExitUsage, "raw: too many transfers in one batch");
  task_ = task;
  active_ = std::max<uint64_t>(1, std::min<uint64_t>(sockets_.size(), task.bytes));
  turn_ = 0;
  finished_ = 0;
  ready_ = 0;
  missing_ = static_cast<uint32_t>(active_);
}

void RawLink::end() {
  crew_.finish();
  std::lock_guard lock(error_mutex_);
  if (error_) std::rethrow_exception(error_);
}

void RawLink::guarded(const std::function<void()>& work) {
  try {
    work();
  } catch (...) {
    {
      std::lock_guard lock(error_mutex_);
      if (!error_) error_ = std::current_exception();
    }
    stop_ = true;
    for (auto& socket : sockets_) shutdown(socket.get(), SHUT_RDWR);
  }
}

void RawLink::serve(const RawTask& task) {
  begin(task);
  crew_.start([this](size_t i) { guarded([&] { serve_connection(i + 1); }); });
  guarded([this] {
    await(ready_, static_cast<uint32_t>(active_ - 1));
    const uint64_t go = 0;
    send_all(0, &go, kSmall);
    serve_connection(0);
  });
  end();
}

void RawLink::run(const RawTask& task, std::vector<Nanos>* times) {
  begin(task);
  times->reserve(times->size() + task.transfers);
  crew_.start([this](size_t i) { guarded([&] { run_connection(i + 1); }); });
  guarded([&] {
    uint64_t go;
    recv_all(0, &go, kSmall);
    run_first(times);
  });
  end();
}

void RawLink::serve_connection(size_t connection) {
  if (connection >= active_) return;
  if (connection > 0) {
    ready_.fetch_add(1, std::memory_order_acq_rel);
    wake(ready_);
  }
  const Share part = share(connection);
  uint64_t small = 0;
  for (uint64_t i = 0; i < task_.transfers; ++i) {
    if (!task_.write) {
      recv_all(connection, &small, kSmall);
      send_all(connection, memory_ + part.offset, part.length);
      continue;
    }
    recv_all(connection, memory_ + part.offset, part.length);
    if (missing_.fetch_sub(1, std::memory_order_acq_rel) != 1) continue;
    // Nobody counts down again before the client has this answer.
    missing_.store(static_cast<uint32_t>(active_), std::memory_order_relaxed);
    send_all(0, &small, kSmall);
  }
}

// A connection other than the first, client end.
void RawLink::run_connection(size_t connection) {
  if (connection >= active_) return;
  const Share part = share(connection);
  for (uint64_t i = 0; i < task_.transfers; ++i) {
    if (task_.write) {
      await(turn_, static_cast<uint32_t>(i + 1));
      send_all(connection, memory_ + part.offset, part.length);
    } else {
      recv_all(connection, memory_ + part.offset, part.length);
      finished_.fetch_add(1, std::memory_order_acq_rel);
      wake(finished_);
    }
  }
}

void RawLink::run_first(std::vector<Nanos>* times) {
  const Share part = share(0);
  const auto others = static_cast<uint32_t>(active_ - 1);
  uint64_t small = 0;
  for (uint64_t i = 0; i < task_.transfers; ++i) {
    const Nanos start = now_ns();
    if (task_.write) {
      if (others > 0) {
        turn_.store(static_cast<uint32_t>(i + 1), std::memory_order_release);
        wake(turn_);
      }
      send_all(0, memory_ + part.offset, part.length);
      recv_all(0, &small, kSmall);
    } else {
      for (size_t c = 0; c < active_; ++c) send_all(c, &small, kSmall);
      recv_all(0, memory_ + part.offset, part.length);
      if (others > 0) await(finished_, static_cast<uint32_t>((i + 1) * others));
    }
    times->push_back(now_ns() - start);
  }
}

void RawLink::check(Nanos deadline, const char* doing) const {
  if (stop_) throw Failure(kExitFailed, "raw: stopped");
  if (now_ns() >= deadline)
    throw Failure(kExitFailed, std::string("raw: the other side did not ") + doing + " in time");
}

void RawLink::send_all(size_t connection, const void* data, uint64_t length) {
  const int fd = sockets_[connection].get();
  const bool spin = task_.loop == RawLoop::kSpinning;
  const int flags = MSG_NOSIGNAL | (spin ? MSG_DONTWAIT : 0);
  auto* at = static_cast<const uint8_t*>(data);
  Nanos deadline = 0;
  for (unsigned spins = 0; length > 0;) {
    const ssize_t n = send(fd, at, std::min(length, kCallBytes), flags);
    if (n > 0) {
      at += n;
      length -= n;
      continue;
    }
    if (n < 0 && errno != EAGAIN && errno != EINTR) fail_errno(kExitFailed, "raw: send", errno);
    if (spin && ++spins % kSpinsPerCheck != 0) continue;
    if (deadline == 0) deadline = deadline_after(now_ns(), task_.timeout);
    check(deadline, "read");
  }
}

void RawLink::recv_all(size_t connection, void* data, uint64_t length) {
  const int fd = sockets_[connection].get();
  const bool spin = task_.loop == RawLoop::kSpinning;
  const int flags = spin ? MSG_DONTWAIT : 0;
  auto* at = static_cast<uint8_t*>(data);
  Nanos deadline = 0;
  for (unsigned spins = 0; length > 0;) {
    const ssize_t n = recv(fd, at, std::min(length, kCallBytes), flags);
    if (n > 0) {
      at += n;
      length -= n;
      continue;
    }
    if (n == 0) throw Failure(kExitFailed, "raw: the other side closed its connection");
    if (errno != EAGAIN && errno != EINTR) fail_errno(kExitFailed, "raw: recv", errno);
    if (spin && ++spins % kSpinsPerCheck != 0) continue;
    if (deadline == 0) deadline = deadline_after(now_ns(), task_.timeout);
    check(deadline, "send");
  }
}

// Waits until `word` has reached `value` (words only grow while a task runs).
void RawLink::await(const std::atomic<uint32_t>& word, uint32_t value) const {
  const Nanos deadline = deadline_after(now_ns(), task_.timeout);
  for (unsigned spins = 0;;) {
    const uint32_t seen = word.load(std::memory_order_acquire);
    if (seen >= value) return;
    if (task_.loop == RawLoop::kSpinning) {
      pause_cpu();
      if (++spins % kSpinsPerCheck != 0) continue;
    } else {
      const timespec slice{0, kRawSlice};
      futex(word, FUTEX_WAIT, seen, &slice);
    }
    check(deadline, "finish");
  }
}

void RawLink::wake(const std::atomic<uint32_t>& word) const {
  if (task_.loop == RawLoop::kBlocking) futex(word, FUTEX_WAKE, INT_MAX, nullptr);
}

}  // namespace tcpx::tool
