#include "device_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <mutex>

#include "cuda_abi.h"
#include "plan.h"

namespace fake_cuda {

struct Physical {
  int fd;
  size_t size;
  int device;
  int holders = 1;  // its handle, and each mapping
};

namespace {

struct Reservation {
  size_t size;
  uint8_t* view;
};

struct Memory {
  std::shared_mutex mutex;
  std::map<uint64_t, Range> ranges;
  std::map<uint64_t, Reservation> reservations;
  std::map<Physical*, bool> physical;  // whether its handle is held
  uint64_t next_id = 1;
};
Memory& memory() {
  static auto& all = *new Memory;
  return all;
}
thread_local int t_readers = 0;

size_t pages(size_t size) {
  return (size + 4095) / 4096 * 4096;
}

void* map(size_t size, int protection) {
  void* at = ::mmap(nullptr, size, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return at == MAP_FAILED ? nullptr : at;
}

const Range* range_at(uint64_t address) {
  auto& ranges = memory().ranges;
  auto found = ranges.upper_bound(address);
  if (found == ranges.begin()) return nullptr;
  --found;
  return address < found->second.end() ? &found->second : nullptr;
}

bool touchable(const Range& range, int device, Touch touch) {
  if (range.view == nullptr || !range.device_may_touch) return false;
  if (touch == Touch::kWrite && !range.may_write) return false;
  return device == kAnyDevice || range.on_host() || range.kind == Kind::kManaged ||
         range.device == device;
}

bool is_free(uint64_t start, size_t size) {
  auto& ranges = memory().ranges;
  auto next = ranges.lower_bound(start);
  return range_at(start) == nullptr && (next == ranges.end() || next->first >= start + size);
}

uint64_t bytes_where(bool device_memory, int device) {
  uint64_t all = 0;
  for (auto& [start, range] : memory().ranges) {
    if (range.kind == Kind::kName || range.kind == Kind::kMapped) continue;
    if (range.of_device() == device_memory && (!device_memory || range.device == device))
      all += range.size;
  }
  if (device_memory)
    for (auto& [physical, held] : memory().physical)
      if (physical->device == device) all += physical->size;
  return all;
}

// Where both sides are: the device's addresses are another place than the view, but for memory that
// the CPU touches at the same address.
void give_addresses(Range* range) {
  const size_t size = pages(range->size);
  range->view = static_cast<uint8_t*>(map(size, PROT_READ | PROT_WRITE));
  void* device = range->view;
  // A page behind it that is nobody's, so that no two allocations follow each other.
  if (range->kind == Kind::kDevice || range->kind == Kind::kPool)
    device = map(size + 4096, PROT_NONE);
  range->start = reinterpret_cast<uint64_t>(device);
}

void drop(Physical* physical) {
  if (--physical->holders > 0) return;
  memory().physical.erase(physical);
  ::close(physical->fd);
  delete physical;
}

// The reservation that holds all of it.
const Reservation* reservation_of(uint64_t at, size_t size, uint64_t* start) {
  auto& all = memory().reservations;
  auto found = all.upper_bound(at);
  if (found == all.begin()) return nullptr;
  --found;
  *start = found->first;
  return at + size <= found->first + found->second.size ? &found->second : nullptr;
}

// The mappings that [at, at + size) is made of; none: it is not whole ones.
std::vector<Range*> mappings(uint64_t at, size_t size) {
  std::vector<Range*> all;
  const uint64_t end = at + size;
  while (at < end) {
    auto found = memory().ranges.find(at);
    if (found == memory().ranges.end() || found->second.kind != Kind::kMapped ||
        found->second.end() > end)
      return {};
    all.push_back(&found->second);
    at = found->second.end();
  }
  return all;
}

}  // namespace

MemoryReader::MemoryReader() {
  if (t_readers++ == 0) memory().mutex.lock_shared();
}
MemoryReader::~MemoryReader() {
  if (--t_readers == 0) memory().mutex.unlock_shared();
}

bool find_range(uint64_t address, Range* out) {
  MemoryReader reader;
  const Range* found = range_at(address);
  if (found != nullptr) *out = *found;
  return found != nullptr;
}

// All that is mapped in a row, whoever made it.
bool told_range(uint64_t address, Range* out) {
  MemoryReader reader;
  const Range* found = range_at(address);
  if (found == nullptr) return false;
  *out = *found;
  if (found->kind != Kind::kMapped || !neighbours_are_one()) return true;
  const auto mapped = [](const Range* range) {
    return range != nullptr && range->kind == Kind::kMapped;
  };
  uint64_t start = found->start, end = found->end();
  for (const Range* at; mapped(at = range_at(start - 1));) start = at->start;
  for (const Range* at; mapped(at = range_at(end));) end = at->end();
  out->start = start;
  out->size = end - start;
  return true;
}

bool attribute_range(uint64_t address, Range* out, bool* mapped) {
  MemoryReader reader;
  *mapped = told_range(address, out);
  if (!ranges_are_reservations() || (*mapped && out->kind != Kind::kMapped)) return *mapped;
  uint64_t start = 0;
  const Reservation* reservation = reservation_of(address, 1, &start);
  if (reservation == nullptr) return *mapped;
  if (!*mapped) *out = {.kind = Kind::kMapped};
  out->start = start;
  out->size = reservation->size;
  return true;
}

uint8_t* view_of(uint64_t address, size_t size, int device, Touch touch) {
  MemoryReader reader;
  const Range* first = range_at(address);
  if (first == nullptr || size > UINT64_MAX - address) return nullptr;
  uint8_t* const view = first->view + (address - first->start);
  const Range* range = first;
  while (touchable(*range, device, touch) &&
         range->view - view == static_cast<int64_t>(range->start - address)) {
    if (range->end() >= address + size) return view;
    // Only the mappings of one reservation follow each other for the device.
    const Range* next = range_at(range->end());
    if (next == nullptr || range->kind != Kind::kMapped || next->kind != Kind::kMapped)
      return nullptr;
    range = next;
  }
  return nullptr;
}

uint64_t allocate_range(Kind kind, size_t size, int device, Context* context) {
  Range range{.size = size, .kind = kind, .device = device, .context = context};
  std::unique_lock lock(memory().mutex);
  if (!has_room(range.of_device(), bytes_where(range.of_device(), device) + size)) return 0;
  give_addresses(&range);
  if (range.view == nullptr || range.start == 0) return 0;
  range.id = memory().next_id++;
  memory().ranges[range.start] = range;
  return range.start;
}

bool add_range(const Range& range) {
  std::unique_lock lock(memory().mutex);
  if (!is_free(range.start, range.size)) {
    // Names are given anew by those who made them up.
    auto at = memory().ranges.find(range.start);
    if (range.kind != Kind::kName || at == memory().ranges.end()) return false;
  }
  Range& added = memory().ranges[range.start] = range;
  added.id = memory().next_id++;
  return true;
}

bool remove_range(uint64_t start, bool host, Range* out) {
  std::unique_lock lock(memory().mutex);
  auto found = memory().ranges.find(start);
  if (found == memory().ranges.end() || found->second.kind == Kind::kMapped ||
      found->second.on_host() != host)
    return false;
  *out = found->second;
  memory().ranges.erase(found);
  return true;
}

void unmap_range(const Range& range) {
  if (range.view == nullptr || range.kind == Kind::kRegistered) return;
  ::munmap(range.view, pages(range.size));
  if (range.kind == Kind::kDevice || range.kind == Kind::kPool)
    ::munmap(reinterpret_cast<void*>(range.start), pages(range.size) + 4096);
}

void forget_ranges_of(const Context* context) {
  std::vector<Range> gone;
  {
    std::unique_lock lock(memory().mutex);
    for (auto& [start, range] : memory().ranges)
      if (range.context == context) gone.push_back(range);
    for (const Range& range : gone) memory().ranges.erase(range.start);
  }
  for (const Range& range : gone) unmap_range(range);
}

void set_sync_memops(uint64_t address, bool on) {
  std::unique_lock lock(memory().mutex);
  if (const Range* found = range_at(address)) memory().ranges[found->start].sync_memops = on;
}

uint64_t device_bytes(int device) {
  MemoryReader reader;
  return bytes_where(true, device);
}
uint64_t host_bytes() {
  MemoryReader reader;
  return bytes_where(false, 0);
}

uint64_t reserve(size_t size, size_t alignment) {
  if (size == 0 || size % kGranularity != 0) return 0;
  alignment = std::max(alignment, kGranularity);
  void* device = map(size + alignment, PROT_NONE);
  void* view = map(size, PROT_NONE);
  if (device == nullptr || view == nullptr) return 0;
  const uint64_t at = reinterpret_cast<uint64_t>(device);
  const uint64_t start = (at + alignment - 1) / alignment * alignment;
  if (start > at) ::munmap(device, start - at);
  if (start < at + alignment)
    ::munmap(reinterpret_cast<void*>(start + size), at + alignment - start);
  std::unique_lock lock(memory().mutex);
  memory().reservations[start] = {size, static_cast<uint8_t*>(view)};
  return start;
}

int free_reservation(uint64_t start, size_t size) {
  std::unique_lock lock(memory().mutex);
  auto found = memory().reservations.find(start);
  if (found == memory().reservations.end() || found->second.size != size || !is_free(start, size))
    return kInvalidValue;
  ::munmap(found->second.view, size);
  ::munmap(reinterpret_cast<void*>(start), size);
  memory().reservations.erase(found);
  return kSuccess;
}

Physical* make_physical(size_t size, int device) {
  std::unique_lock lock(memory().mutex);
  if (!has_room(true, bytes_where(true, device) + size)) return nullptr;
  const int fd = ::memfd_create("fake device memory", MFD_CLOEXEC);
  if (fd < 0 || ::ftruncate(fd, static_cast<off_t>(size)) != 0) return nullptr;
  auto* physical = new Physical{fd, size, device};
  memory().physical[physical] = true;
  return physical;
}

int release_physical(Physical* physical) {
  std::unique_lock lock(memory().mutex);
  auto found = memory().physical.find(physical);
  if (found == memory().physical.end() || !found->second) return kInvalidValue;
  found->second = false;
  drop(physical);
  return kSuccess;
}

int map_physical(uint64_t at, size_t size, size_t offset, Physical* physical) {
  std::unique_lock lock(memory().mutex);
  uint64_t start = 0;
  const Reservation* in = reservation_of(at, size, &start);
  auto held = memory().physical.find(physical);
  if (in == nullptr || held == memory().physical.end() || !held->second || offset != 0 ||
      size != physical->size || at % kGranularity != 0 || !is_free(at, size))
    return kInvalidValue;
  uint8_t* view = in->view + (at - start);
  if (::mmap(view, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, physical->fd, 0) ==
      MAP_FAILED)
    return kOutOfMemory;
  ++physical->holders;
  memory().ranges[at] = {.start = at,
                         .size = size,
                         .kind = Kind::kMapped,
                         .device = physical->device,
                         .view = view,
                         .id = memory().next_id++,
                         .device_may_touch = false,
                         .physical = physical};
  return kSuccess;
}

int unmap_physical(uint64_t at, size_t size) {
  std::unique_lock lock(memory().mutex);
  std::vector<Range*> all = mappings(at, size);
  if (all.empty()) return kInvalidValue;
  for (Range* range : all) {
    (void)::mmap(range->view, range->size, PROT_NONE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    drop(range->physical);
    memory().ranges.erase(range->start);
  }
  return kSuccess;
}

int set_access(uint64_t at, size_t size, int device, int flags) {
  std::unique_lock lock(memory().mutex);
  std::vector<Range*> all = mappings(at, size);
  if (all.empty()) return kInvalidValue;
  for (Range* range : all) {
    if (range->device != device) continue;  // no GPU here touches another's memory
    range->device_may_touch = flags != 0;
    range->may_write = flags == 3;
  }
  return kSuccess;
}

Physical* retain_physical(uint64_t address) {
  std::unique_lock lock(memory().mutex);
  const Range* found = range_at(address);
  if (found == nullptr || found->physical == nullptr) return nullptr;
  auto& held = memory().physical[found->physical];
  if (!held) ++found->physical->holders;
  held = true;
  return found->physical;
}

int device_of(const Physical& physical) {
  return physical.device;
}

}  // namespace fake_cuda
