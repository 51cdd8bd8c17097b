// What an engine moves memory with, its own and that of GPUs. A GPU is opened when the first memory
// of it is registered: no context is made on one that nobody asked for.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "base/log.h"
#include "gpu/gpu_mover.h"

namespace tcpx::gpu {

class GpuMovers final : public Movers {
 public:
  struct Settings {
    bool enabled = true;
    bool stages_host = false;
    GpuSettings gpu;
  };
  GpuMovers(const Settings& settings, const Log& log);
  ~GpuMovers() override;

  Status admit(const void* base, uint64_t length, const Place& place) override;
  uint64_t most_at_a_time(const Place& place) const override;
  std::unique_ptr<Mover> make(MoverFor use, MoveWatcher& watcher) override;
  std::vector<std::string> describe() const;  // a line per GPU

 private:
  Status open(uint16_t device, Gpu** out);
  GpuSettings settings() const;

  const Settings settings_;
  const Log log_;
  HostMovers host_;
  OpenGpus open_;
  std::atomic<uint32_t> loops_{0};
  mutable std::mutex mu_;  // of opening
  std::vector<std::shared_ptr<Gpu>> gpus_;
};

}  // namespace tcpx::gpu
