// Addresses that the driver knows, and where the CPU sees what lies there. A device address is
// reserved and never mapped: the CPU faults there. The same bytes are in a view elsewhere.
#pragma once

#include <cstddef>
#include <cstdint>
#include <shared_mutex>
#include <vector>

namespace fake_cuda {

struct Context;
struct Physical;  // memory of VMM, that may be mapped

enum class Kind { kDevice, kPool, kManaged, kPinned, kRegistered, kMapped, kName };

struct Range {
  uint64_t start = 0;
  size_t size = 0;
  Kind kind = Kind::kDevice;
  int device = 0;
  Context* context = nullptr;
  uint8_t* view = nullptr;  // null: the address is only a name
  uint64_t id = 0;          // never the same again
  bool sync_memops = false;
  bool device_may_touch = true, may_write = true;
  Physical* physical = nullptr;

  uint64_t end() const { return start + size; }
  bool on_host() const { return kind == Kind::kPinned || kind == Kind::kRegistered; }
  bool of_device() const { return !on_host(); }
};

// Readers do not order each other, so a device's thread hands nothing on to callers by looking.
class MemoryReader {
 public:
  MemoryReader();
  ~MemoryReader();
  MemoryReader(const MemoryReader&) = delete;
};

enum class Touch { kRead, kWrite };
inline constexpr int kAnyDevice = -1;

// One range by any address in it.
bool find_range(uint64_t address, Range* out);
// The same as the driver tells it: with its neighbours, if the plan says so.
bool told_range(uint64_t address, Range* out);
// What an address of mapped memory tells by attributes: its reservation, mapped there or not (as a
// driver 580 does), or what told_range says, as the plan has it.
bool attribute_range(uint64_t address, Range* out, bool* mapped);
// All of [address, address + size), which may be in several mappings that follow each other; null:
// some of it is not known, or not to be touched by the device (kAnyDevice: a copy engine).
uint8_t* view_of(uint64_t address, size_t size, int device, Touch touch);

uint64_t allocate_range(Kind kind, size_t size, int device, Context* context);  // 0: no memory
bool add_range(const Range& range);  // false: something is there already
// The range that begins there, which is none of a reservation; false: there is none of that kind.
bool remove_range(uint64_t start, bool host, Range* out);
void unmap_range(const Range& range);
void forget_ranges_of(const Context* context);
void set_sync_memops(uint64_t address, bool on);

uint64_t device_bytes(int device);
uint64_t host_bytes();

// ---- VMM ----
inline constexpr size_t kGranularity = 2 << 20;
uint64_t reserve(size_t size, size_t alignment);
int free_reservation(uint64_t start, size_t size);
Physical* make_physical(size_t size, int device);
int release_physical(Physical* physical);
int map_physical(uint64_t at, size_t size, size_t offset, Physical* physical);
int unmap_physical(uint64_t at, size_t size);
int set_access(uint64_t at, size_t size, int device, int flags);
// Taken again by an address in it, with one more release to come; null: none there.
Physical* retain_physical(uint64_t address);
int device_of(const Physical& physical);

}  // namespace fake_cuda
