#include "path/net/unpack.h"

#include <algorithm>

#include "memory/payload_copy.h"

namespace tcpx::net {

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

uint8_t* ScatterList::contiguous(uint64_t offset, uint64_t length) {
  seek(offset);
  const iovec& part = parts_[at_];
  uint64_t inside = offset - start_;
  if (inside + length > part.iov_len) return nullptr;
  return static_cast<uint8_t*>(part.iov_base) + inside;
}

// Fragments come in order per socket and interleaved between sockets, so most follow a neighbour:
// joining runs as they come leaves few runs to sort. Total length plus "no two overlap" is the same
// as "exactly once".
bool covers_exactly(std::span<const nccl::Fragment> fragments, uint64_t bytes,
                    uint64_t pool_bytes) {
  struct Run {
    uint64_t from, to;
  };
  Run runs[nccl::kUnpackFragments];
  size_t count = 0;
  uint64_t total = 0;
  if (fragments.size() > nccl::kUnpackFragments) return false;
  for (const nccl::Fragment& fragment : fragments) {
    if (fragment.length == 0 || fragment.length > bytes) return false;
    if (fragment.destination > bytes - fragment.length) return false;
    if (pool_bytes > 0 && uint64_t{fragment.source} + fragment.length > pool_bytes) return false;
    total += fragment.length;
    if (count > 0 && runs[count - 1].to == fragment.destination)
      runs[count - 1].to += fragment.length;
    else
      runs[count++] = {fragment.destination, fragment.destination + fragment.length};
  }
  if (total != bytes) return false;
  std::sort(runs, runs + count, [](const Run& a, const Run& b) { return a.from < b.from; });
  for (size_t i = 1; i < count; ++i)
    if (runs[i].from < runs[i - 1].to) return false;
  return true;
}

void unpack(std::span<const nccl::Fragment> fragments, const uint8_t* pool, ScatterList& into,
            uint64_t offset) {
  for (const nccl::Fragment& fragment : fragments)
    into.put(offset + fragment.destination, pool + fragment.source, fragment.length);
}

}  // namespace tcpx::net
