// Copies and memory that is set.
#include <cstring>
#include <memory>
#include <vector>

#include "call.h"
#include "device_memory.h"

using namespace fake_cuda;

namespace {

enum class Side { kHost, kDevice, kAny };

// One end of a copy. Memory of the host that the driver does not know is pageable.
struct End {
  uint64_t address;
  bool known = false, on_host = false, sync_memops = false;
  std::shared_ptr<std::vector<uint8_t>> staged{};  // what a pageable source held at the call
};

bool look_up(uint64_t address, size_t size, Side side, Touch touch, End* out) {
  Range range;
  *out = {address};
  out->known = find_range(address, &range);
  out->on_host = !out->known || range.on_host() || range.kind == Kind::kManaged;
  out->sync_memops = out->known && range.sync_memops;
  if (side == Side::kHost && !out->on_host) return false;
  if (side == Side::kDevice && !out->known) return false;
  return !out->known || view_of(address, size, kAnyDevice, touch) != nullptr;
}

uint8_t* bytes_of(const End& end, size_t size, Touch touch) {
  if (end.staged != nullptr) return end.staged->data();
  if (!end.known) return reinterpret_cast<uint8_t*>(end.address);
  uint8_t* view = view_of(end.address, size, kAnyDevice, touch);
  if (view == nullptr) context_at_work()->lose(kIllegalAddress);
  return view;
}

Point submit_work(Stream* stream, bool asynchronous, std::function<void()> work) {
  auto op = std::make_unique<Op>();
  op->kind = OpKind::kCopy;
  if (asynchronous && !is_aside()) op->hangs = planned_hang();
  op->work = std::move(work);
  return stream->submit(std::move(op));
}

Point submit_copy(Stream* stream, bool asynchronous, const End& to, const End& from, size_t size) {
  return submit_work(stream, asynchronous, [to, from, size] {
    MemoryReader reader;
    const uint8_t* source = bytes_of(from, size, Touch::kRead);
    uint8_t* target = bytes_of(to, size, Touch::kWrite);
    if (source != nullptr && target != nullptr) std::memcpy(target, source, size);
  });
}

struct Copy {
  uint64_t to, from;
  size_t size;
  Side to_side, from_side;
};

// What is read from pageable memory is read before the call returns; what is written there is there
// when it returns.
int copy_later(Call& call, const Copy& copy, void* handle) {
  Stream* stream = stream_of(call, handle);
  if (stream == nullptr) return kInvalidHandle;
  if (copy.size == 0) return kSuccess;
  End to, from;
  if (!look_up(copy.to, copy.size, copy.to_side, Touch::kWrite, &to) ||
      !look_up(copy.from, copy.size, copy.from_side, Touch::kRead, &from))
    return kInvalidValue;
  if (!from.known) {
    const auto* bytes = reinterpret_cast<const uint8_t*>(from.address);
    from.staged = std::make_shared<std::vector<uint8_t>>(bytes, bytes + copy.size);
  }
  const Point point = submit_copy(stream, true, to, from, copy.size);
  if (to.known) return kSuccess;
  count_pageable_wait();
  return call.wait(point);
}

// Synchronous calls are so only where the caller's memory makes it necessary: a small pageable
// source is staged, and copies within a device are not waited for. SYNC_MEMOPS is what makes them
// wait.
int copy_now(Call& call, const Copy& copy) {
  constexpr size_t kStaged = 64 << 10;
  End to, from;
  if (copy.size == 0) return kSuccess;
  if (!look_up(copy.to, copy.size, copy.to_side, Touch::kWrite, &to) ||
      !look_up(copy.from, copy.size, copy.from_side, Touch::kRead, &from))
    return kInvalidValue;
  bool wait = to.on_host || to.sync_memops || from.sync_memops ||
              (call.context->flags & kCtxSyncMemops) != 0;
  if (!from.known && copy.size <= kStaged) {
    const auto* bytes = reinterpret_cast<const uint8_t*>(from.address);
    from.staged = std::make_shared<std::vector<uint8_t>>(bytes, bytes + copy.size);
  } else if (from.on_host) {
    wait = true;
  }
  const Point point = submit_copy(legacy_of(call.context), false, to, from, copy.size);
  return wait ? call.wait(point) : static_cast<int>(kSuccess);
}

int set_bytes(Call& call, uint64_t at, unsigned char byte, size_t size, Stream* stream,
              bool asynchronous) {
  End to;
  if (size == 0) return kSuccess;
  if (!look_up(at, size, Side::kDevice, Touch::kWrite, &to)) return kInvalidValue;
  const Point point = submit_work(stream, asynchronous, [to, byte, size] {
    MemoryReader reader;
    if (uint8_t* target = bytes_of(to, size, Touch::kWrite)) std::memset(target, byte, size);
  });
  const bool wait =
      !asynchronous && (to.sync_memops || (call.context->flags & kCtxSyncMemops) != 0);
  return wait ? call.wait(point) : static_cast<int>(kSuccess);
}

Copy to_device(uint64_t to, const void* from, size_t size) {
  return {to, reinterpret_cast<uint64_t>(from), size, Side::kDevice, Side::kHost};
}
Copy to_host(void* to, uint64_t from, size_t size) {
  return {reinterpret_cast<uint64_t>(to), from, size, Side::kHost, Side::kDevice};
}
Copy on_device(uint64_t to, uint64_t from, size_t size) {
  return {to, from, size, Side::kDevice, Side::kDevice};
}
Copy anywhere(uint64_t to, uint64_t from, size_t size) {
  return {to, from, size, Side::kAny, Side::kAny};
}

}  // namespace

FAKE_CUDA_API cuMemcpyHtoD_v2(uint64_t to, const void* from, size_t size) {
  FAKE_CUDA_CALL(kContext);
  return copy_now(call, to_device(to, from, size));
}
FAKE_CUDA_API cuMemcpyDtoH_v2(void* to, uint64_t from, size_t size) {
  FAKE_CUDA_CALL(kContext);
  return copy_now(call, to_host(to, from, size));
}
FAKE_CUDA_API cuMemcpyDtoD_v2(uint64_t to, uint64_t from, size_t size) {
  FAKE_CUDA_CALL(kContext);
  return copy_now(call, on_device(to, from, size));
}
FAKE_CUDA_API cuMemcpy(uint64_t to, uint64_t from, size_t size) {
  FAKE_CUDA_CALL(kContext);
  return copy_now(call, anywhere(to, from, size));
}
FAKE_CUDA_API cuMemcpyHtoDAsync_v2(uint64_t to, const void* from, size_t size, void* stream) {
  FAKE_CUDA_CALL(kContext);
  return copy_later(call, to_device(to, from, size), stream);
}
FAKE_CUDA_API cuMemcpyDtoHAsync_v2(void* to, uint64_t from, size_t size, void* stream) {
  FAKE_CUDA_CALL(kContext);
  return copy_later(call, to_host(to, from, size), stream);
}
FAKE_CUDA_API cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t size, void* stream) {
  FAKE_CUDA_CALL(kContext);
  return copy_later(call, on_device(to, from, size), stream);
}
FAKE_CUDA_API cuMemcpyAsync(uint64_t to, uint64_t from, size_t size, void* stream) {
  FAKE_CUDA_CALL(kContext);
  return copy_later(call, anywhere(to, from, size), stream);
}
FAKE_CUDA_API cuMemsetD8_v2(uint64_t at, unsigned char byte, size_t size) {
  FAKE_CUDA_CALL(kContext);
  return set_bytes(call, at, byte, size, legacy_of(call.context), false);
}
FAKE_CUDA_API cuMemsetD8Async(uint64_t at, unsigned char byte, size_t size, void* handle) {
  FAKE_CUDA_CALL(kContext);
  Stream* stream = stream_of(call, handle);
  return stream == nullptr ? static_cast<int>(kInvalidHandle)
                           : set_bytes(call, at, byte, size, stream, true);
}
