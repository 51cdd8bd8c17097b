#include "streams.h"

#include <time.h>

#include <algorithm>
#include <set>
#include <thread>

#include "contexts.h"

namespace fake_cuda {

namespace {

// All that are open, in the order of their making where that matters.
struct Handles {
  std::vector<Stream*> all_streams;
  std::vector<Event*> all_events;
  std::set<const void*> open_streams, open_events;
};
Handles& handles() {
  static auto& all = *new Handles;
  return all;
}
thread_local Context* t_at_work = nullptr;

constexpr int64_t kPollNs = 50'000, kNever = INT64_MAX;

}  // namespace

// Acquired only if it is so: who sees "not yet" learns nothing of the work before.
bool Point::reached() const {
  return stream->done.load(std::memory_order_relaxed) >= number &&
         stream->done.load(std::memory_order_acquire) >= number;
}
bool Event::reached(uint64_t ticket) const {
  return done.load(std::memory_order_relaxed) >= ticket &&
         done.load(std::memory_order_acquire) >= ticket;
}

Stream::Stream(Context* of, bool waits_for_legacy)
    : context(of), blocking(waits_for_legacy), tail(new Op), head(tail) {}

Worker::Worker() {
  ::sem_init(&news_, 0, 0);
}

void Worker::wake() {
  ::sem_post(&news_);
}

void Worker::adopt(Stream* stream) {
  stream->next_new = new_streams_.load(std::memory_order_relaxed);
  while (!new_streams_.compare_exchange_weak(stream->next_new, stream, std::memory_order_release,
                                             std::memory_order_relaxed)) {
  }
  if (!started_) std::thread([this] { run(); }).detach();
  started_ = true;
}

void Worker::take_new_streams() {
  if (new_streams_.load(std::memory_order_relaxed) == nullptr) return;
  Stream* stream = new_streams_.exchange(nullptr, std::memory_order_acquire);
  for (; stream != nullptr; stream = stream->next_new) streams_.push_back(stream);
}

bool Worker::is_ready(Op* op, int64_t* look_at) const {
  const int64_t now = now_ns();
  if (!op->begun) {
    op->begun = true;
    const int64_t takes = planned_ns(op->kind);
    op->not_before = takes == 0 ? 0 : now + takes;
  }
  if (now < op->not_before) return *look_at = std::min(*look_at, op->not_before), false;
  if (hang_is_over(op->hangs) && !(op->kind == OpKind::kKernel && kernels_are_held()) &&
      std::ranges::all_of(op->after, &Point::reached) && (!op->ready || op->ready()))
    return true;
  return *look_at = std::min(*look_at, now + kPollNs), false;
}

bool Worker::step(Stream* stream, int64_t* look_at) {
  Op* op = stream->head->next.load(std::memory_order_acquire);
  if (op == nullptr) return false;
  Context* context = stream->context;
  const bool drop = context->code() != 0;
  if (!drop) {
    if (!is_ready(op, look_at)) return false;
    t_at_work = context;
    if (op->work) op->work();
    t_at_work = nullptr;
  }
  op->work = nullptr, op->ready = nullptr, op->after.clear();
  delete stream->head;
  stream->head = op;
  // A context that was broken by this very work has not done it.
  if (drop || context->code() != 0)
    stream->dropped.fetch_add(1, std::memory_order_relaxed);
  else
    stream->done.store(op->number, std::memory_order_release);
  return true;
}

void Worker::run() {
  for (;;) {
    take_new_streams();
    int64_t look_at = kNever;
    bool moved = false;
    // One of each stream in turn.
    for (Stream* stream : streams_) moved |= step(stream, &look_at);
    if (moved) {
      std::erase_if(streams_, [](Stream* s) { return s->retired.load(std::memory_order_relaxed); });
      continue;
    }
    if (look_at == kNever) {
      while (::sem_wait(&news_) != 0) {
      }
    } else {
      const int64_t ns = std::clamp<int64_t>(look_at - now_ns(), 0, 1'000'000);
      timespec until;
      ::clock_gettime(CLOCK_REALTIME, &until);
      until.tv_nsec += ns;
      if (until.tv_nsec >= 1'000'000'000) ++until.tv_sec, until.tv_nsec -= 1'000'000'000;
      ::sem_timedwait(&news_, &until);
    }
  }
}

Stream* make_stream(Context* context, bool blocking) {
  auto* stream = new Stream(context, blocking);
  handles().all_streams.push_back(stream);
  handles().open_streams.insert(stream);
  context->streams.push_back(stream);
  context->device->worker.adopt(stream);
  return stream;
}

Event* make_event(Context* context) {
  auto* event = new Event{context};
  handles().all_events.push_back(event);
  handles().open_events.insert(event);
  return event;
}

bool is_open(const Stream* stream) {
  return handles().open_streams.contains(stream) && stream->open;
}
bool is_open(const Event* event) {
  return handles().open_events.contains(event) && event->open;
}

int streams_open() {
  return static_cast<int>(std::ranges::count_if(
      handles().all_streams, [](Stream* s) { return s->open && !s->context->is_own(s); }));
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

void retire(Stream* stream) {
  stream->open = false;
  std::erase(stream->context->streams, stream);
  auto op = std::make_unique<Op>();
  op->work = [stream] { stream->retired.store(true, std::memory_order_relaxed); };
  submit(stream, std::move(op));
}

void order_with_legacy(Stream* stream, Op* op) {
  Context* context = stream->context;
  if (stream == context->legacy) {
    for (Stream* other : context->streams)
      if (other->blocking && other != stream) op->after.push_back(other->end());
  } else if (stream->blocking && context->legacy != nullptr) {
    op->after.push_back(context->legacy->end());
  }
}

Point submit(Stream* stream, std::unique_ptr<Op> op) {
  order_with_legacy(stream, op.get());
  op->number = ++stream->issued;
  Op* queued = op.release();
  stream->tail->next.store(queued, std::memory_order_release);
  stream->tail = queued;
  stream->context->device->worker.wake();
  return stream->end();
}

Context* context_at_work() {
  return t_at_work;
}

}  // namespace fake_cuda
