// Gather pieces of device memory into a slot in pinned host memory, and scatter them out of one.
//
// A warp takes 4 KiB of the slot at a time, whatever pieces those are made of: so few warps keep
// PCIe busy (2 blocks of 512 threads: 29 to 38 GB/s out, 26 to 34 in, as many as 64 blocks), and
// pieces of different sizes are shared evenly. All loads of a stretch are under way before the
// first store.
#include "gpu/kernels/pieces.h"

namespace tcpx::gpu {
namespace {

constexpr uint32_t kUnit = 4096;
constexpr uint32_t kWarp = 32;

// Elements of one size, for addresses that both have its alignment. Each thread has up to
// kAtOnce loads out.
template <class T>
__device__ void copy_as(uint8_t* to, const uint8_t* from, uint32_t bytes, uint32_t thread) {
  constexpr uint32_t kAtOnce = 8;
  T* out = reinterpret_cast<T*>(to);
  const T* in = reinterpret_cast<const T*>(from);
  const uint32_t count = bytes / sizeof(T);
  for (uint32_t begin = 0; begin < count; begin += kAtOnce * kWarp) {
    T held[kAtOnce];
#pragma unroll
    for (uint32_t i = 0; i < kAtOnce; ++i) {
      const uint32_t at = begin + i * kWarp + thread;
      if (at < count) held[i] = in[at];
    }
#pragma unroll
    for (uint32_t i = 0; i < kAtOnce; ++i) {
      const uint32_t at = begin + i * kWarp + thread;
      if (at < count) out[at] = held[i];
    }
  }
}

template <class T>
__device__ void copy_aligned(uint8_t* to, const uint8_t* from, uint32_t bytes, uint32_t thread) {
  uint32_t head = static_cast<uint32_t>(-reinterpret_cast<uintptr_t>(to)) & (sizeof(T) - 1);
  if (head > bytes) head = bytes;
  if (thread < head) to[thread] = from[thread];
  const uint32_t body = (bytes - head) & ~static_cast<uint32_t>(sizeof(T) - 1);
  copy_as<T>(to + head, from + head, body, thread);
  const uint32_t tail = bytes - head - body;
  if (thread < tail) to[head + body + thread] = from[head + body + thread];
}

// By a whole warp. The widest elements for which both addresses are equally far from alignment.
__device__ void copy(uint8_t* to, const uint8_t* from, uint32_t bytes, uint32_t thread) {
  const uintptr_t apart = reinterpret_cast<uintptr_t>(to) ^ reinterpret_cast<uintptr_t>(from);
  if ((apart & 15) == 0)
    copy_aligned<uint4>(to, from, bytes, thread);
  else if ((apart & 7) == 0)
    copy_aligned<uint2>(to, from, bytes, thread);
  else if ((apart & 3) == 0)
    copy_aligned<uint32_t>(to, from, bytes, thread);
  else
    copy_as<uint8_t>(to, from, bytes, thread);
}

// The piece that holds `at`.
__device__ uint32_t piece_at(const Pieces& pieces, uint32_t at) {
  uint32_t low = 0, high = pieces.count;  // piece[low].offset <= at < piece[high].offset
  while (high - low > 1) {
    const uint32_t middle = (low + high) / 2;
    if (pieces.piece[middle].offset <= at)
      low = middle;
    else
      high = middle;
  }
  return low;
}

template <bool kGather>
__device__ void move_pieces(const Pieces& pieces) {
  const uint32_t thread = threadIdx.x % kWarp;
  const uint32_t warps = gridDim.x * blockDim.x / kWarp;
  const uint32_t first = pieces.piece[0].offset, end = pieces.bytes;
  uint8_t* const slot = reinterpret_cast<uint8_t*>(pieces.slot);
  for (uint32_t unit = first + (blockIdx.x * blockDim.x + threadIdx.x) / kWarp * kUnit; unit < end;
       unit += warps * kUnit) {
    const uint32_t until = min(unit + kUnit, end);
    uint32_t at = unit;
    for (uint32_t i = piece_at(pieces, at); at < until; ++i) {
      const Piece& piece = pieces.piece[i];
      const uint32_t within = at - piece.offset;
      const uint32_t bytes = min(piece.bytes - within, until - at);
      uint8_t* const memory = reinterpret_cast<uint8_t*>(piece.address) + within;
      if (kGather)
        copy(slot + at, memory, bytes, thread);
      else
        copy(memory, slot + at, bytes, thread);
      at += bytes;
    }
  }
}

}  // namespace

extern "C" __global__ void __launch_bounds__(kThreadsPerBlock)
    tcpx_gather(const __grid_constant__ Pieces pieces) {
  move_pieces<true>(pieces);
}

extern "C" __global__ void __launch_bounds__(kThreadsPerBlock)
    tcpx_scatter(const __grid_constant__ Pieces pieces) {
  move_pieces<false>(pieces);
}

}  // namespace tcpx::gpu
