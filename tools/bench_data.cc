#include "bench_data.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <numeric>
#include <random>
#include <utility>

#include "print.h"

#include "failure.h"

namespace tcpx::tool {
namespace {

constexpr uint64_t kHugePage = 2 << 20;
constexpr uint64_t kGap = 64;      // untouched bytes after each of several pieces, at least
constexpr uint64_t kGuard = 4096;  // untouched bytes before the first and after the last one
constexpr uint64_t kStep = 0x9e3779b97f4a7c15;  // odd, so words differ at every position

// Eight words at once: written so that fill and find_error run at the speed of memory.
using Words = uint64_t __attribute__((vector_size(64)));
constexpr uint64_t kLanes = 8;

uint64_t word(uint64_t salt, uint64_t index) {
  const uint64_t x = salt + index * kStep;
  return x ^ (x >> 32);
}

uint8_t byte_at(uint64_t salt, uint64_t position) {
  return static_cast<uint8_t>(word(salt, position / 8) >> (position % 8 * 8));
}

// The words from `index` on, before their last mixing step.
void start_words(uint64_t salt, uint64_t index, Words* out) {
  for (uint64_t i = 0; i < kLanes; ++i) (*out)[i] = salt + (index + i) * kStep;
}

uint8_t poison_byte(uint64_t salt) {
  return static_cast<uint8_t>(~byte_at(salt, 0));
}

// Position of the first byte of [at, at + length) that differs, if any.
std::optional<uint64_t> first_difference(const uint8_t* at, uint64_t length, uint64_t salt,
                                         uint64_t position) {
  uint64_t i = 0;
  for (; i < length && (position + i) % 8 != 0; ++i)
    if (at[i] != byte_at(salt, position + i)) return i;
  Words raw{};
  start_words(salt, (position + i) / 8, &raw);
  while (length - i >= 4096) {
    Words difference{};
    for (uint64_t k = 0; k < 4096; k += sizeof(Words)) {
      Words have;
      std::memcpy(&have, at + i + k, sizeof have);
      difference |= have ^ raw ^ (raw >> 32);
      raw += kLanes * kStep;
    }
    uint64_t any = 0;
    for (uint64_t k = 0; k < kLanes; ++k) any |= difference[k];
    if (any != 0) break;
    i += 4096;
  }
  for (; i < length; ++i)
    if (at[i] != byte_at(salt, position + i)) return i;
  return std::nullopt;
}

void fill_bytes(uint8_t* at, uint64_t length, uint64_t salt, uint64_t position) {
  uint64_t i = 0;
  for (; i < length && (position + i) % 8 != 0; ++i) at[i] = byte_at(salt, position + i);
  Words raw{};
  start_words(salt, (position + i) / 8, &raw);
  for (; length - i >= sizeof(Words); i += sizeof(Words)) {
    const Words out = raw ^ (raw >> 32);
    std::memcpy(at + i, &out, sizeof out);
    raw += kLanes * kStep;
  }
  for (; i < length; ++i) at[i] = byte_at(salt, position + i);
}

std::string find_touched(const uint8_t* at, uint64_t length, uint8_t expected, uint64_t offset) {
  for (uint64_t i = 0; i < length; ++i)
    if (at[i] != expected)
      return strf("memory offset {} is no part of the transfer and was overwritten", offset + i);
  return {};
}

std::vector<uint32_t> shuffled(uint64_t count, uint64_t seed) {
  std::vector<uint32_t> order(count);
  std::iota(order.begin(), order.end(), 0u);
  std::mt19937_64 random(seed);
  for (uint64_t i = count; i > 1; --i) std::swap(order[i - 1], order[random() % i]);
  return order;
}

uint64_t slot_size(uint64_t bytes, uint64_t pieces) {
  const uint64_t longest = (bytes + pieces - 1) / pieces;
  return pieces == 1 ? longest : (longest + kGap - 1) / kGap * kGap + kGap;
}

}  // namespace

Memory::Memory(uint64_t size)
    : size_((std::max<uint64_t>(size, 1) + kHugePage - 1) / kHugePage * kHugePage) {
  void* at = mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) fail_errno(kExitEnvironment, strf("allocating {} bytes", size_), errno);
  data_ = static_cast<uint8_t*>(at);
  madvise(data_, size_, MADV_HUGEPAGE);  // a wish
}

Memory::Memory(Memory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

Memory& Memory::operator=(Memory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

Memory::~Memory() {
  if (data_ != nullptr) munmap(data_, size_);
}

uint64_t Layout::extent(uint64_t bytes, uint64_t pieces) {
  return kGuard + pieces * slot_size(bytes, pieces) + kGuard;
}

Layout::Layout(uint64_t bytes, uint64_t pieces)
    : bytes_(bytes), slot_(slot_size(bytes, pieces)), extent_(extent(bytes, pieces)) {
  const auto client = shuffled(pieces, 1), server = shuffled(pieces, 2);
  pieces_.reserve(pieces);
  uint64_t position = 0;
  for (uint64_t i = 0; i < pieces; ++i) {
    const uint64_t length = bytes / pieces + (i < bytes % pieces ? 1 : 0);
    pieces_.push_back({position, length, kGuard + client[i] * slot_, kGuard + server[i] * slot_});
    position += length;
  }
}

uint64_t make_salt(uint64_t seed, bool write, uint64_t bytes, uint64_t iteration) {
  uint64_t x = seed;
  for (uint64_t part : {uint64_t{write}, bytes, iteration}) {
    x = (x ^ part) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 31)) * 0x94d049bb133111eb;
    x ^= x >> 29;
  }
  return x;
}

void fill(const Memory& memory, const Layout& layout, bool client, uint64_t salt) {
  for (auto& piece : layout.pieces())
    fill_bytes(memory.data() + piece.offset(client), piece.length, salt, piece.position);
}

void poison(const Memory& memory, const Layout& layout, uint64_t salt) {
  std::memset(memory.data(), poison_byte(salt), layout.extent());
}

std::string find_error(const Memory& memory, const Layout& layout, bool client, uint64_t salt) {
  const uint8_t untouched = poison_byte(salt);
  if (auto text = find_touched(memory.data(), kGuard, untouched, 0); !text.empty()) return text;
  for (size_t i = 0; i < layout.pieces().size(); ++i) {
    const auto& piece = layout.pieces()[i];
    const uint64_t offset = piece.offset(client);
    const uint8_t* at = memory.data() + offset;
    if (const auto wrong = first_difference(at, piece.length, salt, piece.position))
      return strf("byte {} of {} (piece {}, memory offset {}) is 0x{:02x}, not 0x{:02x}",
                  piece.position + *wrong, layout.bytes(), i, offset + *wrong, at[*wrong],
                  byte_at(salt, piece.position + *wrong));
    const uint64_t rest = layout.slot() - piece.length;
    if (auto text = find_touched(at + piece.length, rest, untouched, offset + piece.length);
        !text.empty())
      return text;
  }
  const uint64_t guard = layout.extent() - kGuard;
  return find_touched(memory.data() + guard, kGuard, untouched, guard);
}

void corrupt(const Memory& memory, const Layout& layout, bool client) {
  const auto& piece = layout.pieces()[layout.pieces().size() / 2];
  memory.data()[piece.offset(client) + piece.length / 2] ^= 0x10;
}

}  // namespace tcpx::tool
