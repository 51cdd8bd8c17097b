// Which region memory lies in, said beside the memory itself: whoever registers memory with
// something else (a net plugin) does it by region, and looks nothing up for it.
#pragma once

#include <cstdint>
#include <vector>

namespace tcpx {

struct RegionExtent {
  uint64_t id = 0;  // with its generation: never the same for other memory
  uint8_t* base = nullptr;
  uint64_t length = 0;

  bool contains(const void* at) const {
    auto* byte = static_cast<const uint8_t*>(at);
    return byte >= base && byte < base + length;
  }
};

// The regions of a list of parts, in order. Most lists lie in one.
struct PartRegions {
  struct From {
    size_t part;  // the first one that lies in it
    RegionExtent region;
  };
  std::vector<From> list;

  // Parts are added one by one, or from one to the next region.
  void add(size_t part, const RegionExtent& region) {
    if (list.empty() || list.back().region.id != region.id) list.push_back({part, region});
  }
  void assign(const RegionExtent& of_all) { list.assign(1, {0, of_all}); }
  // Into list; 0 if the list is empty.
  size_t index_of(size_t part) const {
    size_t low = 0, high = list.size();
    while (low + 1 < high) {
      size_t middle = (low + high) / 2;
      (list[middle].part <= part ? low : high) = middle;
    }
    return low;
  }
  // nullptr: in none.
  const RegionExtent* of(size_t part) const {
    return list.empty() ? nullptr : &list[index_of(part)].region;
  }
  const RegionExtent* around(const void* at) const {
    for (const From& from : list)
      if (from.region.contains(at)) return &from.region;
    return nullptr;
  }
};

}  // namespace tcpx
