#include "gpu/gpu.h"

#include <pthread.h>

#include <algorithm>
#include <cctype>
#include <cstring>

#include "base/text.h"
#include "base/thread.h"
#include "base/wait.h"
#include "gpu/kernels/image.h"
#include "topo/cpus.h"
#include "topo/pci_map.h"
#include "topo/thread_cpus.h"

namespace tcpx::gpu {

namespace {

// A context that does not exist yet takes CUDA up to a few seconds; somebody else's first use of
// the same driver comes before ours.
constexpr Nanos kLongestOpen = 60 * kSecond;
// What does not end meanwhile hangs. Lanes have waited for their moves before.
constexpr Nanos kLongestClose = 2 * kSecond;
constexpr uint32_t kMostLoops = 64;

Status refused(std::string text) {
  return bad_call(TCPX_UNSUPPORTED, std::move(text));
}
Status refused(cu::Result result, std::string text) {
  return bad_call(result == cu::kOutOfMemory ? TCPX_NO_MEMORY : TCPX_UNSUPPORTED, std::move(text));
}

}  // namespace

Gpu::Gpu(const CudaDriver& driver, int device, const GpuSettings& settings, const Log& log)
    : cuda_(driver), device_(device), settings_(settings), cut_(settings.cut()), log_(log) {}

Gpu::~Gpu() {
  if (thread_.joinable()) thread_.detach();  // it keeps us, so it has ended, or is this one
}

Status Gpu::open(const CudaDriver& driver, int device, const GpuSettings& settings, const Log& log,
                 std::shared_ptr<Gpu>* out) {
  if (!driver.can_move)
    return refused(
        strf("this CUDA driver has no {}: GPU memory needs driver 515 or later", driver.missing));
  auto gpu = std::make_shared<Gpu>(driver, device, settings, log);
  gpu->queues_.reserve(settings.loops);
  gpu->served_.reserve(settings.loops);
  if (Status status = start_thread(&gpu->thread_, "the thread of a GPU", [gpu] { gpu->run(); });
      !status)
    return status;
  std::unique_lock lock(gpu->mu_);
  if (!wait_until(gpu->changed_, lock, deadline_after(now_ns(), kLongestOpen),
                  [&] { return gpu->opened_; })) {
    gpu->closing_ = true;
    return Status(
        TCPX_DEADLINE, TCPX_BLAST_NOTHING,
        strf("CUDA has not made cuda:{} ready within {} s", device, kLongestOpen / kSecond));
  }
  if (gpu->opening_.ok()) *out = gpu;
  return gpu->opening_;
}

void Gpu::close() {
  std::unique_lock lock(mu_);
  closing_ = true;
  wake();
  bool ended = wait_until(changed_, lock, deadline_after(now_ns(), 2 * kLongestClose),
                          [&] { return ended_; });
  lock.unlock();
  if (ended && thread_.joinable() && thread_.get_id() != std::this_thread::get_id()) thread_.join();
}

Gpu::Part Gpu::take_part(MoveWatcher& watcher) {
  std::lock_guard lock(mu_);
  if (parts_ == settings_.loops) return {};
  Part part;
  part.of_each = cut_.slots_of_each;
  part.slots = staging_ + uint64_t{2} * parts_ * cut_.slots_of_each * cut_.slot;
  part.queue = std::make_shared<MoveQueue>(&marks_[parts_], watcher, parts_);
  queues_.push_back(part.queue);  // there is room: a part that was taken is one less for ever
  ++parts_;
  queues_changed_.fetch_add(1, std::memory_order_seq_cst);
  wake();
  return part;
}

std::string Gpu::lost_why() const {
  return lost() ? lost_why_ : std::string();
}

Status Gpu::sync_memops(const void* base, uint64_t length) {
  const auto from = reinterpret_cast<cu::Pointer>(base);
  cu::Context before = nullptr;
  if (cu::Result result = cuda_.ctx_push_current(context_); result != cu::kSuccess)
    return refused(result, strf("cuda:{}: {}", device_, cuda_.text_of(result)));
  for (cu::Pointer at = from; at < from + length;) {
    const unsigned on = 1;
    // Memory that CUDA's virtual memory management made does not take it: its context has to.
    if (cuda_.pointer_set_attribute(&on, cu::kSyncMemops, at) != cu::kSuccess)
      std::call_once(synced_context_, [this] { sync_context(); });
    cu::Pointer start = 0;
    size_t size = 0;
    cu::PointerAttribute attributes[] = {cu::kRangeStart, cu::kRangeSize};
    void* values[] = {&start, &size};
    if (cuda_.pointer_get_attributes(2, attributes, values, at) != cu::kSuccess ||
        start + size <= at)
      break;
    at = start + size;
  }
  (void)cuda_.ctx_pop_current(&before);
  return {};
}

// All of the context, which is the one that the application uses as well.
void Gpu::sync_context() {
  unsigned flags = 0;
  cu::Result result = cu::kSuccess;
  const bool known = cuda_.ctx_get_flags != nullptr && cuda_.ctx_set_flags != nullptr;
  if (known) result = cuda_.ctx_get_flags(&flags);
  if (known && result == cu::kSuccess && (flags & cu::kContextSyncMemops) == 0)
    result = cuda_.ctx_set_flags(flags | cu::kContextSyncMemops);
  if (known && result == cu::kSuccess) return;
  log_.warn(
      "cuda:{}: copies of the application into memory of CUDA's virtual memory management may be "
      "under way when they have returned ({}): synchronize their stream before a transfer",
      device_, known ? cuda_.text_of(result) : "the driver is older than CUDA 12.1");
}

// ---- the thread: making ready, and the end -----------------------------------------------------

void Gpu::run() {
  auto keep = shared_from_this();
  pthread_setname_np(pthread_self(), strf("tcpx-cuda{}", device_).substr(0, 15).c_str());
  Status status;
  try {
    status = set_up();
  } catch (...) {
    status = caught(TCPX_BLAST_NOTHING);
  }
  {
    std::lock_guard lock(mu_);
    opening_ = status;
    opened_ = true;
    changed_.notify_all();
  }
  if (status) serve();
  tear_down();
  std::lock_guard lock(mu_);
  ended_ = true;
  changed_.notify_all();
}

Status Gpu::set_up() {
  auto failed = [this](const char* what, cu::Result result) {
    return refused(result,
                   strf("cuda:{} cannot be used: {}: {}", device_, what, cuda_.text_of(result)));
  };
  if (cu::Result r = cuda_.device_get(&handle_, device_); r != cu::kSuccess)
    return failed("cuDeviceGet", r);
  int can = 0;
  (void)cuda_.device_get_attribute(&can, cu::kCanUseStreamMemOps, handle_);
  int version = 0;
  (void)cuda_.driver_get_version(&version);
  if (can == 0 && version < 12000)
    return refused(
        strf("cuda:{}: the driver (CUDA {}.{}) writes no values in streams: GPU memory "
             "needs CUDA 12 there",
             device_, version / 1000, version % 1000 / 10));
  bind_near();
  // Another thread's capture of a graph must not fail what we do here, nor what we do the capture.
  int mode = cu::kCaptureRelaxed;
  if (cuda_.exchange_capture_mode != nullptr) (void)cuda_.exchange_capture_mode(&mode);
  if (cu::Result r = cuda_.primary_ctx_retain(&context_, handle_); r != cu::kSuccess)
    return failed("cuDevicePrimaryCtxRetain", r);
  if (cu::Result r = cuda_.ctx_push_current(context_); r != cu::kSuccess)
    return failed("cuCtxPushCurrent", r);
  for (auto& kind : streams_) {
    for (cu::Stream& stream : kind) {
      // The highest priority there is: copies of ours are short, and somebody waits for them.
      if (cu::Result r = cuda_.stream_create_with_priority(&stream, cu::kStreamNonBlocking, -5);
          r != cu::kSuccess)
        return failed("cuStreamCreateWithPriority", r);
    }
  }
  const uint64_t bytes = 2 * cut_.slots_of_each * cut_.slot * settings_.loops;
  const unsigned flags = cu::kHostAllocPortable | cu::kHostAllocMapped;
  if (cu::Result r = cuda_.mem_host_alloc(reinterpret_cast<void**>(&staging_), bytes, flags);
      r != cu::kSuccess)
    return failed(strf("{} bytes of pinned memory (option gpu_staging)", bytes).c_str(), r);
  if (cu::Result r = cuda_.mem_host_alloc(reinterpret_cast<void**>(&marks_),
                                          kMostLoops * sizeof(Marks), flags);
      r != cu::kSuccess)
    return failed("pinned memory", r);
  std::memset(static_cast<void*>(marks_), 0, kMostLoops * sizeof(Marks));
  set_up_kernels();
  char name[96] = "";
  (void)cuda_.device_get_name(name, sizeof name - 1, handle_);
  description_ = strf(
      "cuda:{} ({}): {} MiB of pinned staging, {} slots of {} KiB each way for each of {} loops, "
      "chunks of up to {} KiB; {}",
      device_, name, bytes >> 20, cut_.slots_of_each, cut_.slot >> 10, settings_.loops,
      cut_.chunk >> 10,
      no_kernels_.empty() ? strf("kernels with {} blocks", settings_.blocks)
                          : "copy engine only: " + no_kernels_);
  log_.info("{}", description_);
  return {};
}

// Without them the copy engine does everything.
void Gpu::set_up_kernels() {
  const char* image = kernel_image();
  if (image == nullptr) {
    no_kernels_ = "built without nvcc";
    return;
  }
  auto failed = [this](const char* what, cu::Result result) {
    no_kernels_ = strf("{}: {}", what, cuda_.text_of(result));
    gather_ = scatter_ = nullptr;
  };
  if (cu::Result r = cuda_.module_load_data(&module_, image); r != cu::kSuccess)
    return failed("this driver or GPU does not take the kernels", r);
  if (cu::Result r = cuda_.module_get_function(&gather_, module_, "tcpx_gather"); r != cu::kSuccess)
    return failed("tcpx_gather", r);
  if (cu::Result r = cuda_.module_get_function(&scatter_, module_, "tcpx_scatter");
      r != cu::kSuccess)
    failed("tcpx_scatter", r);
}

// Near the GPU, so that the pinned pages are, too: the kernel takes them where they are first asked
// for.
void Gpu::bind_near() {
  char id[32] = "";
  if (cuda_.device_get_pci_bus_id(id, sizeof id, handle_) != cu::kSuccess) return;
  std::string address = id;
  for (char& c : address) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  topo::Sysfs sysfs;
  std::string node = sysfs.line("bus/pci/devices/" + address + "/numa_node");
  topo::MachineCpus cpus = topo::read_cpus(sysfs);
  if (cpus.node.size() < 2 || node.empty() || node[0] == '-') return;
  auto found = cpus.node.find(std::stoi(node));
  if (found != cpus.node.end()) (void)topo::bind_this_thread(found->second);
}

void Gpu::tear_down() {
  if (context_ == nullptr) return;
  const Nanos give_up = now_ns() + kLongestClose;
  while (!streams_are_empty() && now_ns() < give_up) relax(20 * kMicro);
  if (!streams_are_empty()) {
    log_.error("cuda:{}: copies have not ended within {} s; their memory is left as it is", device_,
               kLongestClose / kSecond);
    return;
  }
  if (module_ != nullptr) (void)cuda_.module_unload(module_);
  for (auto& kind : streams_)
    for (cu::Stream stream : kind)
      if (stream != nullptr) (void)cuda_.stream_destroy(stream);
  if (staging_ != nullptr) (void)cuda_.mem_free_host(staging_);
  if (marks_ != nullptr) (void)cuda_.mem_free_host(marks_);
  cu::Context popped = nullptr;
  (void)cuda_.ctx_pop_current(&popped);
  (void)cuda_.primary_ctx_release(handle_);
}

}  // namespace tcpx::gpu
