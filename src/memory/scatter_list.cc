#include "memory/scatter_list.h"

#include <algorithm>

#include "memory/payload_copy.h"

namespace tcpx {

void ScatterList::seek(uint64_t offset) {
  while (offset < start_) start_ -= parts_[--at_].iov_len;
  while (at_ + 1 < parts_.size() && offset >= start_ + parts_[at_].iov_len)
    start_ += parts_[at_++].iov_len;
}

template <class F>
void ScatterList::each_part(uint64_t offset, uint64_t length, F&& f) {
  while (length > 0) {
    seek(offset);
    const iovec& part = parts_[at_];
    uint64_t inside = offset - start_;
    uint64_t step = std::min<uint64_t>(length, part.iov_len - inside);
    f(static_cast<uint8_t*>(part.iov_base) + inside, step);
    offset += step;
    length -= step;
  }
}

void ScatterList::put(uint64_t offset, const uint8_t* from, uint64_t length) {
  each_part(offset, length, [&](uint8_t* to, uint64_t step) {
    copy_payload(to, from, step);
    from += step;
  });
}

void ScatterList::get(uint64_t offset, uint8_t* to, uint64_t length) {
  each_part(offset, length, [&](const uint8_t* from, uint64_t step) {
    copy_payload(to, from, step);
    to += step;
  });
}

uint8_t* ScatterList::contiguous(uint64_t offset, uint64_t length, size_t* part) {
  if (parts_.empty()) return nullptr;
  seek(offset);
  uint64_t inside = offset - start_;
  if (inside + length > parts_[at_].iov_len) return nullptr;
  *part = at_;
  return static_cast<uint8_t*>(parts_[at_].iov_base) + inside;
}

}  // namespace tcpx
