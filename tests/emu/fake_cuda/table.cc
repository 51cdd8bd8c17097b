// What tests see of the fake beside the driver's functions.
#include "call.h"
#include "cuda_counts.h"
#include "device_memory.h"
#include "fake_cuda.h"
#include "kernels.h"
#include "plan.h"

namespace fake_cuda {

namespace {

int count_of(const char* name) {
  return static_cast<int>(calls_since_load(name));
}

uint64_t allocate(size_t size) {
  initialize();
  std::lock_guard lock(driver_lock());
  Context* context = current_context();
  if (context == nullptr) context = retain_primary(device_at(0));
  return allocate_range(Kind::kDevice, size, context->device->ordinal, context);
}

uint8_t* host_view(uint64_t address) {
  Range range;
  if (!find_range(address, &range) || range.view == nullptr) return nullptr;
  return range.view + (address - range.start);
}

template <class T>
T with_lock(T (*look)()) {
  std::lock_guard lock(driver_lock());
  return look();
}

void set_current(int device) {
  initialize();
  std::lock_guard lock(driver_lock());
  context_stack().clear();
  if (device < 0) return;
  Device* on = device_at(device);
  context_stack().push_back(on->primary != nullptr ? on->primary : retain_primary(on));
}

void add_name(uint64_t start, size_t size, int device, bool managed) {
  initialize();
  add_range({.start = start,
             .size = size,
             .kind = managed ? Kind::kManaged : Kind::kName,
             .device = device});
}

void set_device_attribute(int device, int attribute, int value) {
  std::lock_guard lock(driver_lock());
  device_at(device)->attributes[attribute] = value;
}

void allow_concurrent_managed_access(bool allow) {
  constexpr int kConcurrentManagedAccess = 89;
  for (int i = 0; i < device_count(); ++i) set_device_attribute(i, kConcurrentManagedAccess, allow);
}

void register_function(const char* name, void (*function)(void**, unsigned, unsigned),
                       const size_t* sizes, unsigned params) {
  register_kernel(name, {function, std::vector(sizes, sizes + params)});
}

void lose_context(int device, int code) {
  std::lock_guard lock(driver_lock());
  Context* primary = device_at(device)->primary;
  if (primary == nullptr) return;
  primary->lose(code);
}

int contexts_made(int device) {
  std::lock_guard lock(driver_lock());
  return device_at(device)->contexts_made;
}

}  // namespace

}  // namespace fake_cuda

using namespace fake_cuda;

extern "C" {

const FakeCuda fakeCuda = {
    allocate,
    host_view,
    [] { return count_of("cuMemcpyDtoHAsync_v2"); },
    [] { return with_lock(streams_open); },
    [] { return with_lock(events_open); },
    [] { return count_of("cuMemHostAlloc"); },
    set_current,
    add_name,
    allow_concurrent_managed_access,
    set_device_attribute,
    register_function,
    kernel_view,
    kernel_copy,
    add_to_plan,
    clear_plan,
    release_plan,
    hold_driver_lock,
    lose_context,
    calls_without_context,
    [](int device) {
      std::lock_guard lock(driver_lock());
      return pending(device);
    },
    device_bytes,
    host_bytes,
};

const CudaCounts cudaCounts = {
    set_aside,           reset_counters, calls,   calls_by_other_threads_than,
    legacy_stream_calls, use_of,         threads, describe,
    contexts_made,
};
}
