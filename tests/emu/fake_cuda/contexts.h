// Devices and their contexts; which one is current.
#pragma once

#include <atomic>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "streams.h"

namespace fake_cuda {

struct Device;

// Never deleted: its streams and memory name it.
struct Context {
  explicit Context(Device* on) : device(on) {}
  Device* const device;
  unsigned flags = 0;
  std::vector<Stream*> streams;  // that are open; under the driver's lock, as are these
  Stream* legacy = nullptr;
  Stream* per_thread = nullptr;

  // Not 0: every call has this code. The first one stays.
  int code() const { return code_.load(std::memory_order_relaxed); }
  void lose(int code) {
    int none = 0;
    code_.compare_exchange_strong(none, code, std::memory_order_relaxed);
  }
  bool is_own(const Stream* stream) const { return stream == legacy || stream == per_thread; }

 private:
  std::atomic<int> code_{0};
};

struct Device {
  int ordinal = 0;
  std::map<int, int> attributes;
  Context* primary = nullptr;
  unsigned retained = 0, primary_flags = 0;
  int contexts_made = 0;
};

// Held by every call, as the driver's is.
std::mutex& driver_lock();

int device_count();
Device* device_at(int ordinal);  // null: there is none
std::string pci_of(int ordinal);
std::string name_of_device(int ordinal);
inline constexpr size_t kDeviceBytes = size_t{80} << 30;

// The calling thread's.
std::vector<Context*>& context_stack();
Context* current_context();

Context* make_context(Device* device);
void destroy_context(Context* context);
bool is_context(const Context* context);
Context* retain_primary(Device* device);

}  // namespace fake_cuda
