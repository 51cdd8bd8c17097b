#include "fake_cuda.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <mutex>

namespace {

constexpr int kSuccess = 0, kInvalid = 1, kNotReady = 600;
constexpr int kDevices = 2, kLooks = 3;

struct Context {
  int device;
};
Context g_contexts[kDevices] = {{0}, {1}};
thread_local std::deque<Context*> g_stack;

// A stream does what is queued only when an event behind it is asked about often enough.
struct Stream {
  std::deque<std::function<void()>> queue;
};
struct Event {
  Stream* stream = nullptr;
  int looks = 0;
};

std::mutex g_mutex;
struct Block {
  uint8_t* view;  // null: the address is only a name
  size_t size;
  int device = 0;
  bool managed = false;
};
std::map<uint64_t, Block>& blocks() {
  static auto& all = *new std::map<uint64_t, Block>;
  return all;
}
bool g_concurrent_managed = false;
int g_copies = 0, g_streams = 0, g_events = 0, g_host_allocations = 0;

void run(Stream* stream) {
  for (auto& work : stream->queue) work();
  stream->queue.clear();
}

uint64_t allocate(size_t size) {
  std::lock_guard lock(g_mutex);
  size = (size + 4095) / 4096 * 4096;
  int fd = ::memfd_create("fake device memory", MFD_CLOEXEC);
  if (fd < 0 || ::ftruncate(fd, static_cast<off_t>(size)) != 0) std::abort();
  void* device = ::mmap(nullptr, size, PROT_NONE, MAP_SHARED, fd, 0);
  void* view = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  ::close(fd);
  auto address = reinterpret_cast<uint64_t>(device);
  const int owner = g_stack.empty() ? 0 : g_stack.back()->device;
  blocks()[address] = {static_cast<uint8_t*>(view), size, owner};
  return address;
}

// The block that holds the address, with where it begins; null: the driver does not know it.
const Block* block_at(uint64_t address, uint64_t* start) {
  auto found = blocks().upper_bound(address);
  if (found == blocks().begin()) return nullptr;
  --found;
  *start = found->first;
  return address - found->first < found->second.size ? &found->second : nullptr;
}

// One attribute of a pointer, by its number in the driver's ABI.
void attribute_of(int attribute, const Block* block, uint64_t start, void* out) {
  switch (attribute) {
    case 2: *static_cast<unsigned*>(out) = block != nullptr ? 2 : 0; break;
    case 8: *static_cast<unsigned*>(out) = block != nullptr && block->managed; break;
    case 9: *static_cast<int*>(out) = block != nullptr ? block->device : -2; break;
    case 11: *static_cast<uint64_t*>(out) = block != nullptr ? start : 0; break;
    case 12: *static_cast<size_t*>(out) = block != nullptr ? block->size : 0; break;
    default: break;
  }
}

uint8_t* host_view(uint64_t address) {
  std::lock_guard lock(g_mutex);
  uint64_t start = 0;
  const Block* block = block_at(address, &start);
  return block != nullptr && block->view != nullptr ? block->view + (address - start) : nullptr;
}

template <class T>
T with_lock(T& value) {
  std::lock_guard lock(g_mutex);
  return value;
}

}  // namespace

#define FAKE __attribute__((visibility("default")))

extern "C" {

FAKE int cuInit(unsigned) {
  return kSuccess;
}
FAKE int cuDeviceGetCount(int* count) {
  return *count = kDevices, kSuccess;
}
FAKE int cuDeviceGet(int* device, int ordinal) {
  return *device = ordinal, kSuccess;
}
FAKE int cuDevicePrimaryCtxRetain(Context** context, int device) {
  return *context = &g_contexts[device], kSuccess;
}
FAKE int cuCtxGetCurrent(Context** context) {
  *context = g_stack.empty() ? nullptr : g_stack.back();
  return kSuccess;
}
FAKE int cuCtxGetDevice(int* device) {
  if (g_stack.empty()) return kInvalid;
  *device = g_stack.back()->device;
  return kSuccess;
}
FAKE int cuCtxPushCurrent_v2(Context* context) {
  g_stack.push_back(context);
  return kSuccess;
}
FAKE int cuCtxPopCurrent_v2(Context** context) {
  if (g_stack.empty()) return kInvalid;
  *context = g_stack.back();
  g_stack.pop_back();
  return kSuccess;
}
FAKE int cuMemHostAlloc(void** memory, size_t size, unsigned flags) {
  if (g_stack.empty() || flags != 3) return kInvalid;  // portable and mapped
  std::lock_guard lock(g_mutex);
  ++g_host_allocations;
  *memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return *memory == MAP_FAILED ? 2 : kSuccess;
}
FAKE int cuMemHostGetDevicePointer_v2(unsigned long long* device, void* memory, unsigned) {
  *device = reinterpret_cast<unsigned long long>(memory);  // one address space for both
  return kSuccess;
}
FAKE int cuMemAlloc_v2(unsigned long long* device, size_t size) {
  if (g_stack.empty()) return kInvalid;
  *device = allocate(size);
  return kSuccess;
}
FAKE int cuMemcpyHtoDAsync_v2(unsigned long long to, const void* from, size_t size,
                              Stream* stream) {
  uint8_t* view = host_view(to);
  if (view == nullptr || stream == nullptr) return kInvalid;
  stream->queue.emplace_back([=] { std::memcpy(view, from, size); });
  return kSuccess;
}
FAKE int cuMemcpyDtoHAsync_v2(void* to, unsigned long long from, size_t size, Stream* stream) {
  uint8_t* view = host_view(from);
  if (view == nullptr || stream == nullptr || g_stack.empty()) return kInvalid;
  stream->queue.emplace_back([=] { std::memcpy(to, view, size); });
  std::lock_guard lock(g_mutex);
  ++g_copies;
  return kSuccess;
}
FAKE int cuStreamCreate(Stream** stream, unsigned flags) {
  if (flags != 1) return kInvalid;  // non-blocking
  std::lock_guard lock(g_mutex);
  ++g_streams;
  *stream = new Stream;
  return kSuccess;
}
FAKE int cuStreamDestroy_v2(Stream* stream) {
  std::lock_guard lock(g_mutex);
  --g_streams;
  delete stream;
  return kSuccess;
}
FAKE int cuStreamSynchronize(Stream* stream) {
  run(stream);
  return kSuccess;
}
FAKE int cuEventCreate(Event** event, unsigned) {
  std::lock_guard lock(g_mutex);
  ++g_events;
  *event = new Event;
  return kSuccess;
}
FAKE int cuEventDestroy_v2(Event* event) {
  std::lock_guard lock(g_mutex);
  --g_events;
  delete event;
  return kSuccess;
}
FAKE int cuEventRecord(Event* event, Stream* stream) {
  event->stream = stream;
  event->looks = 0;
  return kSuccess;
}
FAKE int cuEventQuery(Event* event) {
  if (++event->looks < kLooks) return kNotReady;
  run(event->stream);
  return kSuccess;
}
FAKE int cuThreadExchangeStreamCaptureMode(int* mode) {
  static thread_local int now = 0;
  std::swap(now, *mode);
  return kSuccess;
}
FAKE int cuPointerGetAttributes(unsigned count, int* attributes, void** values,
                                unsigned long long pointer) {
  std::lock_guard lock(g_mutex);
  uint64_t start = 0;
  const Block* block = block_at(pointer, &start);
  for (unsigned i = 0; i < count; ++i) attribute_of(attributes[i], block, start, values[i]);
  return kSuccess;
}
FAKE int cuDeviceGetAttribute(int* value, int attribute, int device) {
  constexpr int kConcurrentManagedAccess = 89;
  if (attribute != kConcurrentManagedAccess || device < 0 || device >= kDevices) return kInvalid;
  return *value = g_concurrent_managed, kSuccess;
}
FAKE int cuGetErrorString(int, const char** text) {
  return *text = "a fake error", kSuccess;
}
FAKE int cuGetErrorName(int, const char** name) {
  return *name = "CUDA_ERROR_FAKE", kSuccess;
}

const FakeCuda fakeCuda = {
    allocate,
    host_view,
    [] { return with_lock(g_copies); },
    [] { return with_lock(g_streams); },
    [] { return with_lock(g_events); },
    [] { return with_lock(g_host_allocations); },
    [](int device) {
      g_stack.clear();
      if (device >= 0) g_stack.push_back(&g_contexts[device]);
    },
    [](uint64_t start, size_t size, int device, bool managed) {
      std::lock_guard lock(g_mutex);
      blocks()[start] = {nullptr, size, device, managed};
    },
    [](bool allow) { g_concurrent_managed = allow; },
};

}  // extern "C"
