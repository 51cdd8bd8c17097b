// Streams, events, and values that are written and waited for in a stream's order.
#include "call.h"
#include "device_memory.h"

using namespace fake_cuda;

namespace {

int create(Call& call, Stream** out, unsigned flags) {
  if (flags > kStreamNonBlocking) return kInvalidValue;
  *out = make_stream(call.context, (flags & kStreamNonBlocking) == 0);
  return kSuccess;
}

bool satisfied(uint32_t now, uint32_t value, unsigned how) {
  switch (how & 3) {
    case kWaitGeq: return static_cast<int32_t>(now - value) >= 0;
    case kWaitEq: return now == value;
    case kWaitAnd: return (now & value) != 0;
    default: return ~(now | value) != 0;
  }
}

// A word of memory, while it cannot be unmapped.
template <class F>
void with_word(uint64_t address, F use) {
  MemoryReader reader;
  Context* context = context_at_work();
  uint8_t* view = view_of(address, 4, kAnyDevice, Touch::kWrite);
  if (view != nullptr)
    use(std::atomic_ref(*reinterpret_cast<uint32_t*>(view)));
  else if (context != nullptr)
    context->lose(kIllegalAddress);
}

bool is_word(uint64_t address) {
  return address % 4 == 0 && view_of(address, 4, kAnyDevice, Touch::kWrite) != nullptr;
}

}  // namespace

FAKE_CUDA_API cuStreamCreate(Stream** stream, unsigned flags) {
  FAKE_CUDA_CALL(kContext);
  return create(call, stream, flags);
}
FAKE_CUDA_API cuStreamCreateWithPriority(Stream** stream, unsigned flags, int) {
  FAKE_CUDA_CALL(kContext);
  return create(call, stream, flags);
}
FAKE_CUDA_API cuStreamDestroy_v2(Stream* stream) {
  FAKE_CUDA_CALL(kInit);
  if (!is_open(stream) || stream->context->is_own(stream)) return kInvalidHandle;
  return stream->close(), kSuccess;
}
FAKE_CUDA_API cuStreamGetCtx(void* handle, Context** context) {
  FAKE_CUDA_CALL(kContext);
  Stream* stream = stream_of(call, handle);
  if (stream == nullptr) return kInvalidHandle;
  return *context = stream->context, kSuccess;
}
FAKE_CUDA_API cuStreamQuery(void* handle) {
  FAKE_CUDA_CALL(kContext);
  Stream* stream = stream_of(call, handle);
  if (stream == nullptr) return kInvalidHandle;
  if (int lost = stream->context->code()) return lost;
  return stream->end().reached() ? kSuccess : kNotReady;
}
FAKE_CUDA_API cuStreamSynchronize(void* handle) {
  FAKE_CUDA_CALL(kContext);
  Stream* stream = stream_of(call, handle);
  return stream == nullptr ? static_cast<int>(kInvalidHandle) : call.wait(stream->end());
}
FAKE_CUDA_API cuStreamWaitEvent(void* handle, Event* event, unsigned) {
  FAKE_CUDA_CALL(kContext);
  Stream* stream = stream_of(call, handle);
  if (stream == nullptr || !is_open(event)) return kInvalidHandle;
  auto op = std::make_unique<Op>();
  op->ready = [event, ticket = event->recorded] {
    return event->reached(ticket) || event->context->code() != 0;
  };
  stream->submit(std::move(op));
  return kSuccess;
}
FAKE_CUDA_API cuStreamWriteValue32_v2(void* handle, uint64_t address, uint32_t value,
                                      unsigned flags) {
  FAKE_CUDA_CALL(kContext);
  Stream* stream = stream_of(call, handle);
  if (stream == nullptr) return kInvalidHandle;
  if (flags > 1 || !is_word(address)) return kInvalidValue;
  auto op = std::make_unique<Op>();
  op->kind = OpKind::kWrite;
  op->work = [address, value] {
    with_word(address, [value](auto word) { word.store(value, std::memory_order_release); });
  };
  stream->submit(std::move(op));
  return kSuccess;
}
FAKE_CUDA_API cuStreamWaitValue32_v2(void* handle, uint64_t address, uint32_t value,
                                     unsigned flags) {
  FAKE_CUDA_CALL(kContext);
  Stream* stream = stream_of(call, handle);
  if (stream == nullptr) return kInvalidHandle;
  if (!is_word(address)) return kInvalidValue;
  auto op = std::make_unique<Op>();
  op->ready = [address, value, flags] {
    uint32_t now = 0;
    with_word(address, [&now](auto word) { now = word.load(std::memory_order_acquire); });
    return satisfied(now, value, flags);
  };
  stream->submit(std::move(op));
  return kSuccess;
}

FAKE_CUDA_API cuEventCreate(Event** event, unsigned) {
  FAKE_CUDA_CALL(kContext);
  return *event = make_event(call.context), kSuccess;
}
FAKE_CUDA_API cuEventDestroy_v2(Event* event) {
  FAKE_CUDA_CALL(kInit);
  if (!is_open(event)) return kInvalidHandle;
  return event->open = false, kSuccess;
}
FAKE_CUDA_API cuEventRecord(Event* event, void* handle) {
  FAKE_CUDA_CALL(kContext);
  Stream* stream = stream_of(call, handle);
  if (stream == nullptr || !is_open(event) || event->context != stream->context)
    return kInvalidHandle;
  auto op = std::make_unique<Op>();
  op->work = [event, ticket = ++event->recorded] {
    if (event->done.load(std::memory_order_relaxed) < ticket)
      event->done.store(ticket, std::memory_order_release);
  };
  stream->submit(std::move(op));
  return kSuccess;
}
FAKE_CUDA_API cuEventQuery(Event* event) {
  FAKE_CUDA_CALL(kContext);
  if (!is_open(event)) return kInvalidHandle;
  if (int lost = event->context->code()) return lost;
  return event->reached(event->recorded) ? kSuccess : kNotReady;
}
FAKE_CUDA_API cuEventSynchronize(Event* event) {
  FAKE_CUDA_CALL(kContext);
  if (!is_open(event)) return kInvalidHandle;
  const uint64_t ticket = event->recorded;
  return call.wait_until(event->context, [event, ticket] { return event->reached(ticket); });
}
