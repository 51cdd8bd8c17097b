// Streams and events. Each stream has a thread of its own that does what is queued, from its first
// work until it is destroyed.
//
// What orders threads here is what orders them with a GPU, and nothing else: handing work over,
// seeing that a stream or an event is done, and values that were written. So a look at one stream
// says nothing of another (hence a thread each), and ThreadSanitizer finds a wait that is missing.
// No lock is taken by callers and by these threads both, but the readers' one of device_memory.h:
// only who allocates or frees has it in between.
#pragma once

#include <semaphore.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "plan.h"

namespace fake_cuda {

struct Context;
class Stream;

// A place in a stream's order.
struct Point {
  Stream* stream;
  uint64_t number;
  bool reached() const;
};

struct Op {
  OpKind kind = OpKind::kOther;
  std::function<bool()> ready;  // empty: at once
  std::function<void()> work;
  std::vector<Point> after;
  uint64_t hangs = 0;  // ticket of the plan

  // Kept by the stream.
  uint64_t number = 0;
  int64_t not_before = 0;
  std::atomic<Op*> next{nullptr};
};

// Never deleted: what was handed over may still be looked at.
class Stream {
 public:
  Stream(Context* of, bool waits_for_legacy);
  Context* const context;
  const bool blocking;  // with the legacy stream

  // Under the driver's lock.
  Point submit(std::unique_ptr<Op> op);
  Point end() { return {this, issued_}; }
  bool is_open() const { return open_; }
  void close();  // what is queued is still done

  bool done(uint64_t number) const;
  uint64_t pending() const {
    return issued_ - done_.load(std::memory_order_relaxed) -
           dropped_.load(std::memory_order_relaxed);
  }

 private:
  void run();
  Op* next_op();  // waits for it; null: there will be none
  void wait_until_ready(Op* op);
  bool is_ready(const Op* op) const;
  void finish(Op* op);

  bool open_ = true, started_ = false;
  uint64_t issued_ = 0;
  Op* tail_;
  Op* head_;  // the last one that was done; the thread's
  sem_t news_;
  std::atomic<bool> closed_{false};
  std::atomic<uint64_t> done_{0}, dropped_{0};
};

// Never deleted either.
struct Event {
  Context* context;
  bool open = true;
  uint64_t recorded = 0;  // under the driver's lock
  std::atomic<uint64_t> done{0};
  bool reached(uint64_t ticket) const;
};

// Under the driver's lock.
Stream* make_stream(Context* context, bool blocking);
Event* make_event(Context* context);
bool is_open(const Stream* stream);
bool is_open(const Event* event);
int streams_open();
int events_open();
uint64_t pending(int device);  // operations; -1: of all devices
void retire(Stream* stream);   // behind what is queued
Point submit(Stream* stream, std::unique_ptr<Op> op);
// What the legacy stream waits for, and who waits for it.
void order_with_legacy(Stream* stream, Op* op);

// In a stream's thread: whose work it does. Else null.
Context* context_at_work();

}  // namespace fake_cuda
