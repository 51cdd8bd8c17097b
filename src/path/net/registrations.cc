#include "path/net/registrations.h"

#include <algorithm>

#include "base/text.h"
#include "memory/scatter_list.h"
#include "path/net/plugin_log.h"
#include "wire/frame.h"

namespace tcpx::net {
namespace {

constexpr uint64_t kPage = 4096;
// Sizes and offsets within a registration are ints in real plugins.
constexpr uint64_t kLargestSlice = 1u << 30;
// Slices overlap by the largest request, so that one which crosses a border still fits in one.
constexpr uint64_t kSliceStep = kLargestSlice - wire::kMaxChunkBytes;

}  // namespace

Registrations::Slices::iterator Registrations::place_of(uint64_t region, uint64_t number) {
  return std::lower_bound(slices_.begin(), slices_.end(), std::pair(region, number),
                          [](const std::unique_ptr<Slice>& slice, const auto& key) {
                            return std::pair(slice->region, slice->number) < key;
                          });
}

// A refusal is remembered: real plugins leave something behind each time.
Registrations::Slice* Registrations::add(Slice slice) {
  nccl::Result result = calls_.reg_mr(comm_, slice.base, slice.length, type_, &slice.mhandle);
  slice.refused = result != nccl::kSuccess;
  if (slice.refused)
    refusal_ = strf("the net plugin cannot register {} bytes at {}: {}; its last warning: {}",
                    slice.length, static_cast<void*>(slice.base), result_name(result),
                    last_plugin_warning());
  return slices_.insert(place_of(slice.region, slice.number), std::make_unique<Slice>(slice))
      ->get();
}

Registrations::Slice* Registrations::find(const RegionExtent& region, const uint8_t* data,
                                          uint64_t length) {
  uintptr_t from = reinterpret_cast<uintptr_t>(region.base), to = from + region.length;
  if (type_ != nccl::kPtrHost) {
    from = (from + kPage - 1) / kPage * kPage;
    to = to / kPage * kPage;
  }
  const uintptr_t wanted = reinterpret_cast<uintptr_t>(data);
  if (wanted < from || wanted + length > to) return nullptr;
  const uint64_t number = (wanted - from) / kSliceStep;
  if (last_ == nullptr || last_->region != region.id || last_->number != number) {
    auto place = place_of(region.id, number);
    if (place != slices_.end() && (*place)->region == region.id && (*place)->number == number) {
      last_ = place->get();
    } else {
      uintptr_t base = from + number * kSliceStep;
      Slice slice;
      slice.region = region.id;
      slice.number = number;
      slice.base = reinterpret_cast<uint8_t*>(base);
      slice.length = std::min<uint64_t>(to - base, kLargestSlice);
      last_ = add(slice);
    }
  }
  return last_->refused ? nullptr : last_;
}

Registrations::Slice* Registrations::find(const Range& range, uint8_t** data) {
  size_t part = 0;
  *data = ScatterList(range.parts).contiguous(range.offset, range.length, &part);
  const RegionExtent* region = *data == nullptr ? nullptr : range.regions.of(part);
  return region == nullptr ? nullptr : find(*region, *data, range.length);
}

bool Registrations::cover(std::span<const iovec> parts, const PartRegions& regions, uint64_t bytes,
                          uint64_t step) {
  uint8_t* data = nullptr;
  for (uint64_t at = 0; at < bytes; at += step)
    if (find({parts, regions, at, std::min(step, bytes - at)}, &data) == nullptr) return false;
  return true;
}

void Registrations::release(Slice* slice) {
  if (--slice->uses > 0 || !slice->retired) return;
  calls_.dereg_mr(comm_, slice->mhandle);
  std::erase_if(retired_, [slice](auto& each) { return each.get() == slice; });
}

void Registrations::forget(uint64_t region) {
  last_ = nullptr;
  auto first = place_of(region, 0), end = place_of(region, UINT64_MAX);
  for (auto slice = first; slice != end; ++slice) {
    if ((*slice)->uses > 0) {
      (*slice)->retired = true;
      retired_.push_back(std::move(*slice));
    } else if (!(*slice)->refused) {
      calls_.dereg_mr(comm_, (*slice)->mhandle);
    }
  }
  slices_.erase(first, end);
}

void Registrations::close() {
  last_ = nullptr;
  for (Slices* list : {&slices_, &retired_}) {
    for (auto& slice : *list)
      if (!slice->refused) calls_.dereg_mr(comm_, slice->mhandle);
    list->clear();
  }
}

}  // namespace tcpx::net
