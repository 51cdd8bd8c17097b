// What the bench moves: memory, how a transfer is cut into pieces, and content that shows whether
// every byte arrived where it belongs. Both processes compute the same from the same few numbers.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tcpx::tool {

// Zeroed pages, huge ones where the system gives them.
class Memory {
 public:
  Memory() = default;
  explicit Memory(uint64_t size);  // throws Failure
  Memory(Memory&& other) noexcept;
  Memory& operator=(Memory&& other) noexcept;
  ~Memory();

  uint8_t* data() const { return data_; }
  uint64_t size() const { return size_; }

 private:
  uint8_t* data_ = nullptr;
  uint64_t size_ = 0;
};

// A transfer of `bytes` bytes as a list of pieces behind a guard. One piece lies at the same offset
// on both sides. Several are of equal length (to within a byte) and lie in slots with a gap after
// each, in one
// random order on the client and in another one on the server, so that no two can be joined on
// either side.
class Layout {
 public:
  struct Piece {
    uint64_t position;  // of its first byte in the transfer
    uint64_t length;
    uint64_t client_offset;
    uint64_t server_offset;
    uint64_t offset(bool client) const { return client ? client_offset : server_offset; }
  };
  Layout() = default;
  Layout(uint64_t bytes, uint64_t pieces);

  uint64_t bytes() const { return bytes_; }
  const std::vector<Piece>& pieces() const { return pieces_; }
  uint64_t slot() const { return slot_; }      // memory per piece, gap included
  uint64_t extent() const { return extent_; }  // memory used, guards included
  static uint64_t extent(uint64_t bytes, uint64_t pieces);

 private:
  uint64_t bytes_ = 0;
  uint64_t slot_ = 0;
  uint64_t extent_ = 0;
  std::vector<Piece> pieces_;
};

// Different for every operation, size and verified iteration.
uint64_t make_salt(uint64_t seed, bool write, uint64_t bytes, uint64_t iteration);

// Source side: byte k of the transfer is byte k % 8 of word(salt, k / 8).
void fill(const Memory& memory, const Layout& layout, bool client, uint64_t salt);
// Destination side, before the transfer: nothing that is there now can pass for the right content.
void poison(const Memory& memory, const Layout& layout, uint64_t salt);
// Destination side, after it: every byte of every piece and of every gap and of the guards around
// them. Empty if right, else what is wrong where.
std::string find_error(const Memory& memory, const Layout& layout, bool client, uint64_t salt);
// Flips one bit of the data in the middle of the transfer; for the test of the check itself.
void corrupt(const Memory& memory, const Layout& layout, bool client);

}  // namespace tcpx::tool
