// Streams, events, and the one thread of each device that does what is queued.
//
// What orders threads here is what orders them with a GPU, and nothing else: handing work over,
// seeing that a stream or an event is done, and values that were written. So a look at one stream
// says nothing of another, and ThreadSanitizer finds a wait that is missing. Hence no lock that
// both callers and a device's thread take, but the readers' one of device_memory.h.
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
struct Stream;

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
  bool begun = false;
  int64_t not_before = 0;
  std::atomic<Op*> next{nullptr};
};

// Never deleted: what was handed over may still be looked at.
struct Stream {
  explicit Stream(Context* of, bool waits_for_legacy);
  Context* const context;
  const bool blocking;  // with the legacy stream
  bool open = true;
  uint64_t issued = 0;  // like `tail`: under the driver's lock
  Op* tail;
  Op* head;  // the last one that was done; the device's thread's
  std::atomic<uint64_t> done{0}, dropped{0};
  std::atomic<bool> retired{false};
  Stream* next_new = nullptr;

  Point end() { return {this, issued}; }
  uint64_t pending() const {
    return issued - done.load(std::memory_order_relaxed) - dropped.load(std::memory_order_relaxed);
  }
};

// Never deleted either.
struct Event {
  Context* context;
  bool open = true;
  uint64_t recorded = 0;  // under the driver's lock
  std::atomic<uint64_t> done{0};
  bool reached(uint64_t ticket) const;
};

class Worker {
 public:
  Worker();
  void adopt(Stream* stream);  // starts the thread with the first
  void wake();

 private:
  void run();
  void take_new_streams();
  // Whether it did something; else, when to look again at the latest.
  bool step(Stream* stream, int64_t* look_at);
  bool is_ready(Op* op, int64_t* look_at) const;

  bool started_ = false;
  sem_t news_;
  std::atomic<Stream*> new_streams_{nullptr};
  std::vector<Stream*> streams_;
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

// In a device's thread: whose work it does. Else null.
Context* context_at_work();

}  // namespace fake_cuda
