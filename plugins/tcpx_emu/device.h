// Where "CUDA" memory is: in a GPU, or, without one, in the host. One object per GPU for the life
// of the process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "abi.h"
#include "settings.h"

namespace tcpx_emu {

// Host memory that the device reads and writes too.
struct Mapped {
  uint8_t* host = nullptr;
  uint8_t* device = nullptr;
  size_t size = 0;
};

// Copies of one comm from device memory into mapped memory, each identified by a small number.
class Copier {
 public:
  enum class State { kRunning, kDone, kFailed };
  virtual ~Copier() = default;
  virtual bool start(int index, void* to, const void* from, size_t size) = 0;
  virtual State state(int index) = 0;
};

class Device {
 public:
  virtual ~Device() = default;
  virtual int ordinal() const = 0;
  virtual bool is_host() const = 0;

  // Zeroed, page-aligned. `host` is null when there is none. Not for the data path.
  virtual Mapped allocate(size_t size) = 0;
  virtual void release(const Mapped& memory) = 0;

  // The 24 bytes that NCCL's kernels find; null when there is no memory.
  virtual void* make_unpack_handle(const nccl::UnpackHandle& value) = 0;
  virtual void drop_unpack_handle(void* handle) = 0;

  // `copies` of them at a time. Null: the CPU reads the memory itself, or there are no resources.
  virtual std::unique_ptr<Copier> make_copier(int copies) = 0;
};

// Chooses between GPU and host for the process. "" or why the choice cannot be.
std::string choose_devices(const Settings& settings);
bool devices_are_host();
// The device of the calling thread. Null when CUDA fails.
Device* current_device();

}  // namespace tcpx_emu
