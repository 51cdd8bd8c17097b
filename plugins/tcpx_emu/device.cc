#include "device.h"

#include <sys/mman.h>

#include <atomic>

#include "emu_cuda.h"
#include "log.h"

namespace tcpx_emu {

namespace {

class HostDevice final : public Device {
 public:
  int ordinal() const override { return 0; }
  bool is_host() const override { return true; }

  Mapped allocate(size_t size) override {
    void* memory =
        ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return {};
    auto* bytes = static_cast<uint8_t*>(memory);
    return {bytes, bytes, size};
  }
  void release(const Mapped& memory) override { ::munmap(memory.host, memory.size); }

  void* make_unpack_handle(const nccl::UnpackHandle& value) override {
    return new nccl::UnpackHandle(value);
  }
  void drop_unpack_handle(void* handle) override {
    delete static_cast<nccl::UnpackHandle*>(handle);
  }

  std::unique_ptr<Copier> make_copier(int) override { return nullptr; }
};

std::atomic<bool> g_host{true};

}  // namespace

std::string choose_devices(const Settings& settings) {
  std::string why_not;
  bool cuda = settings.device != DeviceChoice::kHost && cuda_available(&why_not);
  if (settings.device == DeviceChoice::kCuda && !cuda) return "TCPX_EMU_DEVICE=cuda: " + why_not;
  g_host = !cuda;
  EMU_INFO("CUDA memory is %s%s%s", cuda ? "GPU memory" : "host memory",
           why_not.empty() ? "" : ": ", why_not.c_str());
  return {};
}

bool devices_are_host() {
  return g_host;
}

Device* current_device() {
  static HostDevice& host = *new HostDevice;
  return g_host ? &host : cuda_current_device();
}

}  // namespace tcpx_emu
