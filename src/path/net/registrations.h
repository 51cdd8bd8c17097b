// What is registered with the plugin for one comm: regions and slots, on first use, in slices that
// the plugin can take. Registration is per comm; an engine's region is only a record until a comm
// needs it. Whoever asks says which region it means: nothing is looked up for that, and nothing is
// shared with other lanes.
//
// Device memory has to be registered in whole pages, so the partial pages at the ends of a region
// are not covered, and what touches them goes through a slot.
#pragma once

#include <sys/uio.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "memory/region_extent.h"
#include "path/net/plugin.h"

namespace tcpx::net {

class Registrations {
 public:
  struct Slice {
    uint64_t region = 0;
    uint64_t number = 0;  // within the region
    uint8_t* base = nullptr;
    uint64_t length = 0;
    void* mhandle = nullptr;
    bool refused = false;  // by the plugin
    uint32_t uses = 0;     // requests under way
    bool retired = false;  // goes when the last use ends
  };
  // A part of a list of memory.
  struct Range {
    std::span<const iovec> parts;
    const PartRegions& regions;
    uint64_t offset, length;
  };

  // `type`: nccl::kPtrHost or kPtrCuda.
  Registrations(PluginCalls& calls, int type) : calls_(calls), type_(type) {}

  void attach(void* comm) { comm_ = comm; }
  // Whether every request of `step` bytes of the list lies in one part and in one slice.
  bool cover(std::span<const iovec> parts, const PartRegions& regions, uint64_t bytes,
             uint64_t step);
  // The slice around the range, registered now if need be, and its memory. nullptr: it does not lie
  // in one part, or in whole pages of a region, or the plugin does not take it.
  Slice* find(const Range& range, uint8_t** data);
  Slice* find(const RegionExtent& region, const uint8_t* data, uint64_t length);
  // Why memory that should be covered is not: the plugin's last refusal.
  const std::string& refusal() const { return refusal_; }
  void release(Slice* slice);
  void forget(uint64_t region);
  void close();  // before the comm is closed

 private:
  using Slices = std::vector<std::unique_ptr<Slice>>;
  Slices::iterator place_of(uint64_t region, uint64_t number);
  Slice* add(Slice slice);

  PluginCalls& calls_;
  const int type_;
  void* comm_ = nullptr;
  Slices slices_;   // by region and number
  Slices retired_;  // in use
  Slice* last_ = nullptr;
  std::string refusal_;
};

}  // namespace tcpx::net
