#include "path/net/registrations.h"

#include <algorithm>

#include "base/text.h"
#include "path/net/plugin_log.h"

namespace tcpx::net {
namespace {

constexpr uint64_t kPage = 4096;
// Sizes and offsets within a registration are ints in real plugins.
constexpr uint64_t kLargestSlice = 1u << 30;

}  // namespace

Status Registrations::add(void* base, uint64_t length, Slice** out) {
  void* mhandle = nullptr;
  nccl::Result result = calls_.reg_mr(comm_, base, length, type_, &mhandle);
  if (result != nccl::kSuccess)
    return lane_error(
        TCPX_PATH_UNAVAILABLE,
        strf("the net plugin cannot register {} bytes at {}: {}; its last warning: {}", length,
             base, result_name(result), last_plugin_warning()));
  auto slice = std::make_unique<Slice>();
  *slice = {static_cast<uint8_t*>(base), length, mhandle, 0, false};
  if (out != nullptr) *out = slice.get();
  auto place = std::lower_bound(slices_.begin(), slices_.end(), slice->base,
                                [](auto& entry, uint8_t* key) { return entry->base < key; });
  slices_.insert(place, std::move(slice));
  return {};
}

Registrations::Slice* Registrations::lookup(const uint8_t* base, uint64_t length) {
  auto covers = [&](const Slice& slice) {
    return !slice.retired && slice.base <= base && base + length <= slice.base + slice.length;
  };
  if (last_ != nullptr && covers(*last_)) return last_;
  // Slices of overlapping regions may overlap; the nearest one below is tried, then its neighbours.
  auto after = std::upper_bound(slices_.begin(), slices_.end(), base,
                                [](const uint8_t* key, auto& entry) { return key < entry->base; });
  while (after != slices_.begin()) {
    --after;
    if (covers(**after)) return last_ = after->get();
  }
  return nullptr;
}

bool Registrations::register_around(const uint8_t* base, uint64_t length) {
  RegionView region;
  if (!regions_.find_extent(base, length, &region)) return false;
  uintptr_t from = reinterpret_cast<uintptr_t>(region.base);
  uintptr_t to = from + region.length;
  if (type_ != nccl::kPtrHost) {
    from = (from + kPage - 1) / kPage * kPage;
    to = to / kPage * kPage;
  }
  uintptr_t wanted = reinterpret_cast<uintptr_t>(base);
  if (wanted < from || wanted + length > to) return false;
  // Slices overlap by the largest request, so that one which crosses a border still fits in one.
  uint64_t step = kLargestSlice - wire::kMaxChunkBytes;
  uintptr_t start = from + (wanted - from) / step * step;
  uint64_t size = std::min<uint64_t>(to - start, kLargestSlice);
  return add(reinterpret_cast<void*>(start), size, nullptr).ok();
}

Registrations::Slice* Registrations::find(const uint8_t* base, uint64_t length) {
  Slice* slice = lookup(base, length);
  if (slice == nullptr && register_around(base, length)) slice = lookup(base, length);
  if (slice != nullptr) ++slice->uses;
  return slice;
}

void Registrations::drop(size_t index) {
  if (last_ == slices_[index].get()) last_ = nullptr;
  calls_.dereg_mr(comm_, slices_[index]->mhandle);
  slices_.erase(slices_.begin() + static_cast<ptrdiff_t>(index));
}

void Registrations::release(Slice* slice) {
  if (--slice->uses > 0 || !slice->retired) return;
  for (size_t i = 0; i < slices_.size(); ++i)
    if (slices_[i].get() == slice) return drop(i);
}

void Registrations::forget(const void* base, uint64_t length) {
  auto* from = static_cast<const uint8_t*>(base);
  for (size_t i = slices_.size(); i-- > 0;) {
    Slice& slice = *slices_[i];
    if (slice.base >= from + length || slice.base + slice.length <= from) continue;
    slice.retired = true;
    if (slice.uses == 0) drop(i);
  }
}

void Registrations::close() {
  while (!slices_.empty()) drop(slices_.size() - 1);
}

}  // namespace tcpx::net
