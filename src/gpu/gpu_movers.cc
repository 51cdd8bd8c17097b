#include "gpu/gpu_movers.h"

#include <algorithm>

#include "base/ranges.h"
#include "base/text.h"
#include "gpu/detect_place.h"

namespace tcpx::gpu {

GpuMovers::GpuMovers(const Settings& settings, const Log& log)
    : settings_(settings), log_(log), host_(settings.stages_host), open_(settings.stages_host) {
  attach_profiler();
}

GpuMovers::~GpuMovers() {
  for (auto& gpu : gpus_) gpu->close();
}

Status GpuMovers::admit(const void* base, uint64_t length, const Place& place) {
  if (place.is_host()) return {};
  if (!settings_.enabled)
    return bad_call(TCPX_UNSUPPORTED,
                    strf("this is memory of {}, and GPU memory is switched off (option gpu_memory)",
                         place.text()));
  if (loaded_cuda_driver() == nullptr)
    return bad_call(TCPX_UNSUPPORTED,
                    strf("memory of {} in a process that has no CUDA driver loaded", place.text()));
  Place found;
  if (Status status = detect_place(base, length, &found); !status) return status;
  if (found != place)
    return bad_call(TCPX_INVALID_ARGUMENT,
                    strf("this is memory of {}, not of {}", found.text(), place.text()));
  Gpu* gpu = open_.at(place.device);
  if (gpu == nullptr)
    if (Status status = open(place.device, &gpu); !status) return status;
  if (gpu->lost()) return bad_call(TCPX_UNSUPPORTED, gpu->lost_why());
  return gpu->sync_memops(base, length);
}

Status GpuMovers::open(uint16_t device, Gpu** out) {
  const CudaDriver* driver = loaded_cuda_driver();
  if (device >= OpenGpus::kMost)
    return bad_call(TCPX_UNSUPPORTED, strf("cuda:{}: at most {} GPUs", device, OpenGpus::kMost));
  std::lock_guard lock(mu_);
  *out = open_.at(device);
  if (*out != nullptr) return {};
  gpus_.reserve(gpus_.size() + 1);  // who is open is kept, and closed
  std::shared_ptr<Gpu> gpu;
  if (Status status = Gpu::open(*driver, device, settings(), log_, &gpu); !status) return status;
  *out = gpu.get();
  open_.set(device, gpu.get());
  gpus_.push_back(std::move(gpu));
  return {};
}

// All loops that share a GPU are there before the first memory is.
GpuSettings GpuMovers::settings() const {
  GpuSettings settings = settings_.gpu;
  settings.loops = std::max(1u, loops_.load());
  return settings;
}

uint64_t GpuMovers::most_at_a_time(const Place& place) const {
  return place.is_host() ? Movers::most_at_a_time(place) : settings().cut().chunk;
}

std::unique_ptr<Mover> GpuMovers::make(MoverFor use, MoveWatcher& watcher) {
  if (use == MoverFor::kBeside || !settings_.enabled) return host_.make(use, watcher);
  loops_.fetch_add(1);
  return std::make_unique<GpuMover>(open_, watcher, settings_.stages_host);
}

std::vector<std::string> GpuMovers::describe() const {
  std::lock_guard lock(mu_);
  std::vector<std::string> lines;
  for (auto& gpu : gpus_) lines.push_back(gpu->describe());
  return lines;
}

}  // namespace tcpx::gpu
