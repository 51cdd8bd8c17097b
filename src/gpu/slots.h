// The slots of one way: which are taken, and what for. Pure.
//
// A chunk may take several, neighbours within a group of as many as the largest chunk has: so what
// is shorter leaves no gaps into which a whole one does not fit.
//
// What is still arriving keeps its slots for as long as its peer likes. It never gets into the last
// group that it is not in yet, so a whole chunk that has arrived finds room in the GPU's time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tcpx::gpu {

enum class SlotHolder : uint8_t { kArrives, kIsThere };

class Slots {
 public:
  static constexpr uint32_t kNone = UINT32_MAX;

  Slots() = default;
  // In groups of `of_a_chunk`; what is left of `count` is not used.
  Slots(uint32_t count, uint32_t of_a_chunk);

  // For how many chunks there is room, however long they are.
  size_t room(SlotHolder holder) const;
  // The first of `need` neighbours. More than a group: of whole ones.
  uint32_t take(uint32_t need, SlotHolder holder);
  void has_arrived(uint32_t first);  // all of it
  void give(uint32_t first);
  size_t chunks() const { return chunks_; }  // that have slots

 private:
  struct Chunk {
    uint32_t slots = 0;  // 0: none begins here
    bool arrives = false;
  };
  struct Group {
    uint32_t taken = 0, arriving = 0;  // slots
  };
  uint32_t free_run(uint32_t group, uint32_t need) const;
  uint32_t find(uint32_t need, SlotHolder holder) const;
  uint32_t find_groups(uint32_t count) const;
  void count(uint32_t first, bool taken, bool arriving, int by);

  uint32_t of_a_chunk_ = 1;
  std::vector<Chunk> chunk_at_;  // by the first of its slots
  std::vector<bool> busy_;
  std::vector<Group> groups_;
  size_t free_ = 0, quiet_ = 0;  // groups; quiet: nothing arrives in it
  size_t chunks_ = 0;
};

}  // namespace tcpx::gpu
