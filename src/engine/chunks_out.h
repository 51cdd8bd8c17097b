// Our chunks on a lane: WRITEs and READs handed to it, sent, answered, settled; and where the data
// of our READs goes. In the exclusive section of its loop, except where marked.
#pragma once

#include <string>
#include <vector>

#include "engine/chunk_window.h"
#include "engine/lane_core.h"
#include "engine/lane_notices.h"
#include "engine/pool.h"
#include "engine/scheduler.h"

namespace tcpx {

class ChunksOut {
 public:
  ChunksOut(LaneCore& core, LaneNotices& notices);

  // ---- handed to the lane ----
  // A chunk for which it need not ask. With the peer's lock held, to an open lane that has none.
  void deal(ChunkWork work);
  // Not one of which the lane takes no more now.
  bool take_dealt(ChunkWork* out, const NoMoreOf& no_more = {});
  // Whether there is anything to fill with, or a slot to ask for.
  bool may_have_more() const;
  // Takes as many as it may have now, and sends them.
  void fill();
  // One may wait in its queue for a slot.
  bool wants_slot() const { return wants_slot_; }
  void look_for_slot() { wants_slot_ = wants_slot_ && core_.moves.starved() != 0; }

  // ---- sent, and answered ----
  // It had to wait for a slot, a WRITE or the data of a READ, and has one.
  void has_slot(const wire::Header& header);
  void filled(TxFrame* frame, const MoveEnd& end);  // its slot
  void sent(TxFrame* frame);
  Status answered(const wire::Header& header);
  bool awaits_answer() const { return window_.used() > 0; }
  // What goes wrong with its memory: the transfer ends and says why.
  tcpx_code fail(const wire::Header& header, tcpx_code code, const std::string& why);

  // ---- the data of a READ ----
  Status data_head(const wire::Header& header, RxChunk* chunk);
  // The lane has no place for it now: its head comes again.
  void data_comes_later(const wire::Header& header);
  // It is received where it waits for a slot.
  void data_lacks_slot(const wire::Header& header);
  // It waits for moves, its own or those before it.
  void data_moves(const wire::Header& header);
  void data_moved(const wire::Header& header, const MoveEnd& end);
  // It is where it belongs, or was dropped.
  void data_placed(const RxChunk& chunk);

  // ---- fences, the end ----
  // Stops touching the memory of this post of the transfer. The answer to a WRITE that is out is
  // still due; data of a READ is dropped. Returns how many chunks the lane cannot let go of yet.
  size_t stop(const TransferState& transfer, uint64_t post);
  size_t stop_users_of(uint64_t region);
  // The lane has ended: what had no answer.
  void give_up(std::vector<ChunkWork>* writes, std::vector<ChunkWork>* reads);
  // The oldest chunk without an answer, for the stall report; null: it is younger than `age`.
  const ChunkOut* stalled(Nanos now, Nanos age) const;

 private:
  bool take(ChunkWork* out);
  uint64_t send(ChunkWork work);
  void build(const ChunkWork& work, TxFrame* frame);
  uint64_t cannot_reach(ChunkOut& entry);
  void dealt_lacks_slot();
  void dealt_lacks_none();
  void lacks_slot(ChunkOut& entry);
  void lacks_none(ChunkOut& entry);
  void lacks_none(ChunkOut& entry, Nanos since);
  void moved(const ChunkOut& entry, const MoveEnd& end);
  void want_slots_no_more();
  void settle(ChunkOut& entry, tcpx_code code);
  template <class Mine>
  size_t stop_if(Mine&& mine);
  bool stop(ChunkOut& entry);
  void give_back(TxFrame* frame) {
    core_.moves.give_back(frame);
    frames_.give(frame);
  }

  LaneCore& core_;
  LaneNotices& notices_;
  ChunkWindow window_;
  ChunkWork dealt_;  // the lane's while LaneLoad::dealt, else the dealer's
  Pool<TxFrame> frames_;
  std::vector<wire::Piece> pieces_;
  bool wants_slot_ = false;
  PlaceMask wanted_ =
      0;  // slots of these, when chunks in the queue were last left for want of them
  bool dealt_lacks_slot_ = false;
  // It got nothing, and would get nothing now.
  struct Refused {
    Scheduler::WhyNone why = Scheduler::WhyNone::kOther;
    NoMoreOf no_more;
    uint32_t news = 0;
    uint32_t held = 0;

    bool holds(const Refused& now) const {
      if (news != now.news) return false;
      if (why == Scheduler::WhyNone::kPassedOver) return no_more == now.no_more;
      return why == Scheduler::WhyNone::kKeptBack && held == now.held;
    }
  };
  Refused refused_;
  std::vector<ChunkWork> lost_writes_, lost_reads_;  // room for give_up()
};

}  // namespace tcpx
