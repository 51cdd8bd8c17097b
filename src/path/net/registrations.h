// What is registered with the plugin for one comm: the engine's regions, on first use, in slices
// that the plugin can take. Registration is per comm; an engine's region is only a record until a
// comm needs it.
//
// Device memory has to be registered in whole pages, so the partial pages at the ends of a region
// are not covered, and a request that touches them takes the staged way.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "memory/region_table.h"
#include "path/net/plugin.h"

namespace tcpx::net {

class Registrations {
 public:
  struct Slice {
    uint8_t* base = nullptr;
    uint64_t length = 0;
    void* mhandle = nullptr;
    uint32_t uses = 0;     // requests under way
    bool retired = false;  // goes when the last use ends
  };

  // `type`: nccl::kPtrHost or kPtrCuda.
  Registrations(PluginCalls& calls, const RegionTable& regions, int type)
      : calls_(calls), regions_(regions), type_(type) {}

  void attach(void* comm) { comm_ = comm; }
  // Memory of our own. Whole pages for device memory.
  Status add(void* base, uint64_t length, Slice** out);
  // The slice that covers the range, registered now if need be; nullptr: stage it.
  Slice* find(const uint8_t* base, uint64_t length);
  void release(Slice* slice);
  void forget(const void* base, uint64_t length);
  void close();  // before the comm is closed

 private:
  Slice* lookup(const uint8_t* base, uint64_t length);
  bool register_around(const uint8_t* base, uint64_t length);
  void drop(size_t index);

  PluginCalls& calls_;
  const RegionTable& regions_;
  const int type_;
  void* comm_ = nullptr;
  std::vector<std::unique_ptr<Slice>> slices_;  // by base
  Slice* last_ = nullptr;
};

}  // namespace tcpx::net
