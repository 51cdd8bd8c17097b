// The peer's chunks on a lane, and all payload that arrives: where it lands, and what its end
// means. Of the data of our READs only ChunksOut knows where it goes. In the exclusive section of
// the lane's loop.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/line_limit.h"
#include "engine/chunks_out.h"
#include "engine/lane_core.h"
#include "engine/lane_notices.h"
#include "engine/lane_refusals.h"
#include "engine/pool.h"
#include "engine/small_frames.h"

namespace tcpx {

class ChunksIn {
 public:
  ChunksIn(LaneCore& core, SmallFrames& small, LaneNotices& notices, LaneRefusals& refusals,
           ChunksOut& out);

  // ---- payload that arrives ----
  // As LaneSink::on_head and on_payload.
  Status head(const wire::Header& header, std::span<const wire::Piece> pieces, RxChunk** out);
  Status arrived(RxChunk* chunk, const wire::Trailer& trailer);
  // Its bytes are in place (or it was refused): tells who waits.
  void placed(RxChunk* chunk);
  // A head that found no slot waits in the lane.
  bool wants_slot() const { return wants_slot_; }
  void look_for_slot() {
    if (wants_slot_ && core_.moves.may_receive()) core_.lane->resume_reading(ReadHold::kNoSlot);
  }

  // ---- data that the peer asked for ----
  Status serve_read(const wire::Header& header, std::span<const wire::Piece> pieces);
  void filled(TxFrame* frame, const std::string& failed);  // its slot
  void sent(TxFrame* frame);

  // ---- what goes wrong with memory: the peer gets the code, here only the log can tell more ----
  tcpx_code memory_gone(const wire::Header& header, const std::string& why);
  tcpx_code copy_failed(const wire::Header& header, const std::string& why);

  // ---- fences, the end ----
  // Stops reading and writing this region for the peer. Returns how many chunks still do.
  size_t revoke(uint64_t region);
  void drop_receiving();  // the lane is down: what does not write any more
  void give_up();         // it has ended

 private:
  // Where what a peer has named goes, in a frame or a chunk.
  struct ResolvedParts {
    std::vector<iovec>* parts;
    Place* place;
    PartRegions* regions;
  };
  tcpx_code resolve(const wire::Header& header, std::span<const wire::Piece> pieces,
                    uint32_t access, ResolvedParts out);
  void write_head(RxChunk* chunk, std::span<const wire::Piece> pieces);
  void write_done(const wire::Header& header, tcpx_code code);
  void refuse_read(const wire::Header& header, tcpx_code code);
  bool land(RxChunk* chunk);
  bool stop(TxFrame* frame);
  void give_back(TxFrame* frame);
  void give_back(RxChunk* chunk);
  uint32_t serving() const { return core_.load.serving.load(std::memory_order_relaxed); }

  LaneCore& core_;
  SmallFrames& small_;
  LaneNotices& notices_;
  LaneRefusals& refusals_;
  ChunksOut& out_;
  Pool<RxChunk> chunks_;
  Pool<TxFrame> frames_;    // of data
  uint32_t writes_in_ = 0;  // not answered
  bool wants_slot_ = false;
  LineLimit unmapped_lines_{"chunks met memory that is not mapped any more"};
  LineLimit copy_lines_{"copies for the peer failed"};
};

}  // namespace tcpx
