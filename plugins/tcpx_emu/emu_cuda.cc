#include "emu_cuda.h"

#include <dlfcn.h>

#include <cstring>
#include <map>
#include <vector>

#include "base/mutex.h"
#include "log.h"

namespace tcpx_emu {

namespace {

// ---- our own declarations of the driver's functions that are used
// --------------------------------

using CuResult = int;
constexpr CuResult kCuSuccess = 0, kCuNotReady = 600;
using CuDevice = int;
using CuContext = struct CuContextTag*;
using CuStream = struct CuStreamTag*;
using CuEvent = struct CuEventTag*;
using CuPointer = unsigned long long;
constexpr unsigned kHostAllocPortable = 1, kHostAllocMapped = 2;
constexpr unsigned kStreamNonBlocking = 1, kEventDisableTiming = 2;
constexpr int kCaptureModeRelaxed = 2;

struct Driver {
  CuResult (*init)(unsigned flags);
  CuResult (*device_count)(int* count);
  CuResult (*device_get)(CuDevice* device, int ordinal);
  CuResult (*retain_primary)(CuContext* context, CuDevice device);
  CuResult (*current_context)(CuContext* context);
  CuResult (*context_device)(CuDevice* device);
  CuResult (*push)(CuContext context);
  CuResult (*pop)(CuContext* context);
  CuResult (*host_alloc)(void** memory, size_t size, unsigned flags);
  CuResult (*host_device_pointer)(CuPointer* pointer, void* memory, unsigned flags);
  CuResult (*alloc)(CuPointer* pointer, size_t size);
  CuResult (*copy_to_device)(CuPointer to, const void* from, size_t size, CuStream stream);
  CuResult (*copy_to_host)(void* to, CuPointer from, size_t size, CuStream stream);
  CuResult (*stream_create)(CuStream* stream, unsigned flags);
  CuResult (*stream_destroy)(CuStream stream);
  CuResult (*stream_synchronize)(CuStream stream);
  CuResult (*event_create)(CuEvent* event, unsigned flags);
  CuResult (*event_destroy)(CuEvent event);
  CuResult (*event_record)(CuEvent event, CuStream stream);
  CuResult (*event_query)(CuEvent event);
  CuResult (*exchange_capture_mode)(int* mode);
  CuResult (*error_name)(CuResult result, const char** name);
};

Driver g_driver;
int g_gpus = 0;

template <class F>
bool find(void* library, const char* name, F* out, std::string* missing) {
  void* found = ::dlsym(library, name);
  std::memcpy(out, &found, sizeof found);
  if (found == nullptr) *missing = std::string("libcuda.so.1 has no ") + name;
  return found != nullptr;
}

bool load(Driver* d, std::string* why_not) {
  void* lib = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (lib == nullptr) {
    *why_not = "libcuda.so.1 cannot be loaded";
    return false;
  }
  return find(lib, "cuInit", &d->init, why_not) &&
         find(lib, "cuDeviceGetCount", &d->device_count, why_not) &&
         find(lib, "cuDeviceGet", &d->device_get, why_not) &&
         find(lib, "cuDevicePrimaryCtxRetain", &d->retain_primary, why_not) &&
         find(lib, "cuCtxGetCurrent", &d->current_context, why_not) &&
         find(lib, "cuCtxGetDevice", &d->context_device, why_not) &&
         find(lib, "cuCtxPushCurrent_v2", &d->push, why_not) &&
         find(lib, "cuCtxPopCurrent_v2", &d->pop, why_not) &&
         find(lib, "cuMemHostAlloc", &d->host_alloc, why_not) &&
         find(lib, "cuMemHostGetDevicePointer_v2", &d->host_device_pointer, why_not) &&
         find(lib, "cuMemAlloc_v2", &d->alloc, why_not) &&
         find(lib, "cuMemcpyHtoDAsync_v2", &d->copy_to_device, why_not) &&
         find(lib, "cuMemcpyDtoHAsync_v2", &d->copy_to_host, why_not) &&
         find(lib, "cuStreamCreate", &d->stream_create, why_not) &&
         find(lib, "cuStreamDestroy_v2", &d->stream_destroy, why_not) &&
         find(lib, "cuStreamSynchronize", &d->stream_synchronize, why_not) &&
         find(lib, "cuEventCreate", &d->event_create, why_not) &&
         find(lib, "cuEventDestroy_v2", &d->event_destroy, why_not) &&
         find(lib, "cuEventRecord", &d->event_record, why_not) &&
         find(lib, "cuEventQuery", &d->event_query, why_not) &&
         find(lib, "cuThreadExchangeStreamCaptureMode", &d->exchange_capture_mode, why_not) &&
         find(lib, "cuGetErrorName", &d->error_name, why_not);
}

std::string name_of(CuResult result) {
  const char* name = nullptr;
  g_driver.error_name(result, &name);
  return name != nullptr ? name : std::to_string(result);
}

bool ok(CuResult result, const char* what) {
  if (result == kCuSuccess) return true;
  EMU_WARN("CU failure in %s: %s", what, name_of(result).c_str());
  return false;
}

bool start_driver(std::string* why_not) {
  if (!load(&g_driver, why_not)) return false;
  CuResult result = g_driver.init(0);
  if (result == kCuSuccess) result = g_driver.device_count(&g_gpus);
  if (result != kCuSuccess) *why_not = "cuInit: " + name_of(result);
  if (result == kCuSuccess && g_gpus == 0) *why_not = "there is no GPU";
  return why_not->empty();
}

// A context for the calls in a scope. Somebody else's stream capture in this process must not be
// broken by them, hence the relaxed mode.
class InContext {
 public:
  explicit InContext(CuContext context) : pushed_(g_driver.push(context) == kCuSuccess) {
    g_driver.exchange_capture_mode(&mode_);
  }
  ~InContext() {
    g_driver.exchange_capture_mode(&mode_);
    CuContext popped;
    if (pushed_) g_driver.pop(&popped);
  }
  InContext(const InContext&) = delete;
  InContext& operator=(const InContext&) = delete;

 private:
  int mode_ = kCaptureModeRelaxed;
  bool pushed_;
};

// ---- copies of one comm ------------------------------------------------------------------------

class CudaCopier final : public Copier {
 public:
  // Null when CUDA has no resources.
  static std::unique_ptr<CudaCopier> make(CuContext context, int copies) {
    std::unique_ptr<CudaCopier> copier(new CudaCopier(context));
    InContext scope(context);
    if (!ok(g_driver.stream_create(&copier->stream_, kStreamNonBlocking), "cuStreamCreate"))
      return nullptr;
    for (int i = 0; i < copies; ++i) {
      CuEvent event;
      if (!ok(g_driver.event_create(&event, kEventDisableTiming), "cuEventCreate")) return nullptr;
      copier->events_.push_back(event);
    }
    return copier;
  }
  ~CudaCopier() override {
    InContext scope(context_);
    if (stream_ != nullptr) g_driver.stream_synchronize(stream_);  // the staging goes to others now
    for (CuEvent event : events_) g_driver.event_destroy(event);
    if (stream_ != nullptr) g_driver.stream_destroy(stream_);
  }

  bool start(int index, void* to, const void* from, size_t size) override {
    InContext scope(context_);
    auto source = reinterpret_cast<CuPointer>(from);
    return ok(g_driver.copy_to_host(to, source, size, stream_), "cuMemcpyDtoHAsync") &&
           ok(g_driver.event_record(events_[static_cast<size_t>(index)], stream_), "cuEventRecord");
  }
  State state(int index) override {
    InContext scope(context_);
    CuResult result = g_driver.event_query(events_[static_cast<size_t>(index)]);
    if (result == kCuNotReady) return State::kRunning;
    return ok(result, "cuEventQuery") ? State::kDone : State::kFailed;
  }

 private:
  explicit CudaCopier(CuContext context) : context_(context) {}
  CuContext context_;
  CuStream stream_ = nullptr;
  std::vector<CuEvent> events_;
};

// ---- one GPU -----------------------------------------------------------------------------------

// Memory is never given back to CUDA: freeing waits for kernels, and NCCL's kernels wait for us.
// What is released serves the next comm instead.
class CudaDevice final : public Device {
 public:
  static CudaDevice* make(int ordinal) {
    CuDevice device;
    CuContext context;
    if (!ok(g_driver.device_get(&device, ordinal), "cuDeviceGet") ||
        !ok(g_driver.retain_primary(&context, device), "cuDevicePrimaryCtxRetain"))
      return nullptr;
    return new CudaDevice(ordinal, context);
  }

  int ordinal() const override { return ordinal_; }
  bool is_host() const override { return false; }

  Mapped allocate(size_t size) override {
    Mapped memory = reuse(size);
    if (memory.host == nullptr) memory = allocate_new(size);
    if (memory.host != nullptr) std::memset(memory.host, 0, size);
    return memory;
  }
  void release(const Mapped& memory) override {
    tcpx::MutexLock lock(mutex_);
    spare_.emplace(memory.size, memory);
  }

  void* make_unpack_handle(const nccl::UnpackHandle& value) override {
    CuPointer handle = take_handle();
    if (handle == 0) return nullptr;
    InContext scope(context_);
    CuStream stream;
    if (!ok(g_driver.stream_create(&stream, kStreamNonBlocking), "cuStreamCreate")) return nullptr;
    bool written =
        ok(g_driver.copy_to_device(handle, &value, sizeof value, stream), "cuMemcpyHtoDAsync") &&
        ok(g_driver.stream_synchronize(stream), "cuStreamSynchronize");
    g_driver.stream_destroy(stream);
    return written ? reinterpret_cast<void*>(handle) : nullptr;
  }
  void drop_unpack_handle(void* handle) override {
    tcpx::MutexLock lock(mutex_);
    handles_.push_back(reinterpret_cast<CuPointer>(handle));
  }

  std::unique_ptr<Copier> make_copier(int copies) override {
    return CudaCopier::make(context_, copies);
  }

 private:
  static constexpr size_t kHandleStride = 64, kHandleBlock = 64 * 1024;

  CudaDevice(int ordinal, CuContext context) : ordinal_(ordinal), context_(context) {}

  Mapped reuse(size_t size) {
    tcpx::MutexLock lock(mutex_);
    auto found = spare_.find(size);
    if (found == spare_.end()) return {};
    Mapped memory = found->second;
    spare_.erase(found);
    return memory;
  }
  Mapped allocate_new(size_t size) {
    InContext scope(context_);
    void* host = nullptr;
    CuPointer device = 0;
    if (!ok(g_driver.host_alloc(&host, size, kHostAllocPortable | kHostAllocMapped),
            "cuMemHostAlloc") ||
        !ok(g_driver.host_device_pointer(&device, host, 0), "cuMemHostGetDevicePointer"))
      return {};
    return {static_cast<uint8_t*>(host), reinterpret_cast<uint8_t*>(device), size};
  }
  CuPointer take_handle() {
    tcpx::MutexLock lock(mutex_);
    if (handles_.empty()) {
      InContext scope(context_);
      CuPointer block;
      if (!ok(g_driver.alloc(&block, kHandleBlock), "cuMemAlloc")) return 0;
      for (size_t at = 0; at < kHandleBlock; at += kHandleStride) handles_.push_back(block + at);
    }
    CuPointer handle = handles_.back();
    handles_.pop_back();
    return handle;
  }

  const int ordinal_;
  const CuContext context_;
  tcpx::Mutex mutex_;
  std::multimap<size_t, Mapped> spare_ TCPX_GUARDED_BY(mutex_);
  std::vector<CuPointer> handles_ TCPX_GUARDED_BY(mutex_);
};

}  // namespace

bool cuda_available(std::string* why_not) {
  static tcpx::Mutex mutex;
  static bool tried TCPX_GUARDED_BY(mutex) = false;
  static auto& problem TCPX_GUARDED_BY(mutex) = *new std::string;
  tcpx::MutexLock lock(mutex);
  if (!tried) start_driver(&problem);
  tried = true;
  *why_not = problem;
  return problem.empty();
}

Device* cuda_current_device() {
  static tcpx::Mutex mutex;
  static auto& devices TCPX_GUARDED_BY(mutex) =
      *new std::map<int, CudaDevice*>;  // outlive every thread
  CuContext context = nullptr;
  CuDevice device = 0;
  if (!ok(g_driver.current_context(&context), "cuCtxGetCurrent")) return nullptr;
  if (context != nullptr && !ok(g_driver.context_device(&device), "cuCtxGetDevice")) return nullptr;
  tcpx::MutexLock lock(mutex);
  CudaDevice*& found = devices[device];
  if (found == nullptr) found = CudaDevice::make(device);
  return found;
}

}  // namespace tcpx_emu
