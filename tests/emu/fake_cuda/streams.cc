#include "streams.h"

#include <algorithm>
#include <chrono>
#include <mutex>
#include <set>
#include <thread>

#include "contexts.h"

namespace fake_cuda {

namespace {

struct Handles {
  std::vector<Stream*> all_streams;
  std::vector<Event*> all_events;
  std::set<const void*> streams_made, events_made;  // so that a handle can be anything
};
Handles& handles() {
  static auto& all = *new Handles;
  return all;
}
thread_local Context* t_at_work = nullptr;

constexpr int64_t kPollNs = 20'000, kLongestNs = 1'000'000;

}  // namespace

// Acquired only if it is so: who sees "not yet" learns nothing of the work before.
bool Stream::done(uint64_t number) const {
  return done_.load(std::memory_order_relaxed) >= number &&
         done_.load(std::memory_order_acquire) >= number;
}
bool Point::reached() const {
  return stream->done(number);
}
bool Event::reached(uint64_t ticket) const {
  return done.load(std::memory_order_relaxed) >= ticket &&
         done.load(std::memory_order_acquire) >= ticket;
}

Stream::Stream(Context* of, bool waits_for_legacy)
    : context(of), blocking(waits_for_legacy), tail_(new Op), head_(tail_) {
  ::sem_init(&news_, 0, 0);
}

// The legacy stream waits for those that are not non-blocking, and they for it.
Point Stream::submit(std::unique_ptr<Op> op) {
  if (this == context->legacy) {
    for (Stream* other : context->streams)
      if (other->blocking && other != this) op->after.push_back(other->end());
  } else if (blocking && context->legacy != nullptr) {
    op->after.push_back(context->legacy->end());
  }
  op->number = ++issued_;
  Op* queued = op.release();
  tail_->next.store(queued, std::memory_order_release);
  tail_ = queued;
  if (!started_) std::thread([this] { run(); }).detach();
  started_ = true;
  ::sem_post(&news_);
  return end();
}

void Stream::close() {
  open_ = false;
  std::erase(context->streams, this);
  closed_.store(true, std::memory_order_release);
  ::sem_post(&news_);
}

Op* Stream::next_op() {
  for (;;) {
    const bool last = closed_.load(std::memory_order_acquire);
    Op* op = head_->next.load(std::memory_order_acquire);
    if (op != nullptr || last) return op;
    ::sem_wait(&news_);
  }
}

bool Stream::is_ready(const Op* op) const {
  return hang_is_over(op->hangs) && !(op->kind == OpKind::kKernel && kernels_are_held()) &&
         std::ranges::all_of(op->after, &Point::reached) && (!op->ready || op->ready());
}

// Looks again soon, also because its context may be lost meanwhile.
void Stream::wait_until_ready(Op* op) {
  if (const int64_t takes = planned_ns(op->kind); takes != 0) op->not_before = now_ns() + takes;
  while (context->code() == 0) {
    const int64_t left = op->not_before == 0 ? 0 : op->not_before - now_ns();
    if (left <= 0 && is_ready(op)) return;
    std::this_thread::sleep_for(
        std::chrono::nanoseconds(left <= 0 ? kPollNs : std::min(left, kLongestNs)));
  }
}

// What a lost context has is dropped; so is the work that broke it.
void Stream::finish(Op* op) {
  if (context->code() == 0 && op->work) {
    static auto& one = *new std::mutex;
    std::unique_lock<std::mutex> lock;
    if (is_one_by_one()) lock = std::unique_lock(one);
    op->work();
  }
  op->work = nullptr, op->ready = nullptr, op->after.clear();
  delete head_;
  head_ = op;
  if (context->code() != 0)
    dropped_.fetch_add(1, std::memory_order_relaxed);
  else
    done_.store(op->number, std::memory_order_release);
}

void Stream::run() {
  t_at_work = context;
  while (Op* op = next_op()) {
    wait_until_ready(op);
    finish(op);
  }
}

Stream* make_stream(Context* context, bool blocking) {
  auto* stream = new Stream(context, blocking);
  handles().all_streams.push_back(stream);
  handles().streams_made.insert(stream);
  context->streams.push_back(stream);
  return stream;
}

Event* make_event(Context* context) {
  auto* event = new Event{context};
  handles().all_events.push_back(event);
  handles().events_made.insert(event);
  return event;
}

bool is_open(const Stream* stream) {
  return handles().streams_made.contains(stream) && stream->is_open();
}
bool is_open(const Event* event) {
  return handles().events_made.contains(event) && event->open;
}

int streams_open() {
  return static_cast<int>(std::ranges::count_if(
      handles().all_streams, [](Stream* s) { return s->is_open() && !s->context->is_own(s); }));
}
int events_open() {
  return static_cast<int>(
      std::ranges::count_if(handles().all_events, [](Event* e) { return e->open; }));
}

uint64_t pending(int device) {
  uint64_t all = 0;
  for (const Stream* stream : handles().all_streams)
    if (device < 0 || stream->context->device->ordinal == device) all += stream->pending();
  return all;
}

Context* context_at_work() {
  return t_at_work;
}

}  // namespace fake_cuda
