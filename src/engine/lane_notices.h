// Notifications on one lane: by themselves, and directly behind the data of their WRITE. In the
// exclusive section of its loop, except where marked.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "engine/lane_core.h"
#include "engine/notices_behind.h"
#include "engine/small_frames.h"

namespace tcpx {

struct Notice;
struct UnconfirmedWrites;

class LaneNotices {
 public:
  LaneNotices(LaneCore& core, SmallFrames& small) : core_(core), small_(small) {}

  // ---- out ----
  // Those that wait for a lane.
  void fill();
  void sent(TxFrame* frame);
  // Whether the notification of the transfer may go directly behind its last chunk, which the lane
  // is about to send. With the peer's lock held.
  bool may_follow(const TransferState& transfer) const;
  void send_behind(std::shared_ptr<Notice> notice, const std::shared_ptr<TransferState>& transfer,
                   uint64_t transfer_id);
  Status behind_answered(const wire::Header& header);
  bool awaits_answer() const { return !behind_.out.empty(); }

  // ---- in ----
  void head(RxChunk* chunk);
  void extend_landing(RxChunk* chunk);
  void received(RxChunk* chunk);
  // A place that was kept for one that does not come.
  void give_back(RxChunk* chunk);
  // Of a closed lane: any thread that knows that it is.
  const NoticesBrought& brought() const { return behind_.brought; }

  // ---- WRITEs that went over the lane, by transfer: what one may follow ----
  void write_sent(uint64_t transfer_id) { behind_.sent.add(transfer_id); }
  void write_failed() { behind_.sent = {}; }  // what follows is not behind it
  void write_placed(uint64_t transfer_id, bool well) {
    if (well)
      behind_.placed.add(transfer_id);
    else
      behind_.placed = {};
  }

  // The lane has ended: those without an answer.
  void give_up(UnconfirmedWrites* to);

 private:
  void queue(TxFrame* frame, std::shared_ptr<Notice> notice);
  wire::NoticeVerdict take(RxChunk* chunk);
  wire::NoticeVerdict take_behind(RxChunk* chunk);

  LaneCore& core_;
  SmallFrames& small_;
  NoticesBehind behind_;
  std::map<TxFrame*, std::shared_ptr<Notice>> out_;  // whose bytes are still read
};

}  // namespace tcpx
