// A lane of a peer: what arrives on it, and what its path tells, is handed to the part whose idea
// it is. The parts: LaneLife (its loop, its start, its end), ChunksOut (our chunks), ChunksIn (the
// peer's), LaneNotices, LanePings, LaneRefusals, LaneFences; what they share is in LaneCore.
//
// In the exclusive section of its loop, except where marked.
#pragma once

#include <span>
#include <string>

#include "engine/chunks_in.h"
#include "engine/chunks_out.h"
#include "engine/lane_fences.h"
#include "engine/lane_life.h"
#include "engine/lane_notices.h"
#include "engine/lane_pings.h"
#include "engine/lane_refusals.h"
#include "engine/small_frames.h"

namespace tcpx {

class PeerLane final : public LaneLife, public LaneSink {
 public:
  PeerLane(Peer& peer, uint32_t index, std::shared_ptr<Loop> loop, const LaneTraits& traits);
  ~PeerLane() override;

  Status start(const LaneFactory& factory) { return LaneLife::start(factory, *this); }

  // ---- parts; what of them any thread may call is said there ----
  ChunksOut& out() { return out_; }
  const LaneNotices& notices() const { return notices_; }
  LanePings& pings() { return pings_; }
  const LaneRefusals& refusals() const { return refusals_; }
  LaneFences& fences() { return fences_; }
  Nanos unread_since() const { return small_.unread_since(); }  // any thread

  // ---- what is asked of a lane ----
  // As ChunksOut and ChunksIn say; moves that are over count no more.
  size_t stop(const TransferState& transfer, uint64_t post);
  size_t let_go_of(uint64_t region);  // of our transfers and of the peer's
  size_t revoke(uint64_t region);
  void send_bye();
  // The oldest chunk without an answer, for the stall report; empty if younger than `age`.
  std::string describe_stall(Nanos now, Nanos age) const;

  // ---- LaneSink ----
  Status on_frame(const wire::Header& header, std::span<const wire::Piece> pieces) override;
  Status on_head(const wire::Header& header, std::span<const wire::Piece> pieces,
                 RxChunk** chunk) override;
  void extend_landing(RxChunk* chunk) override;
  Status on_payload(RxChunk* chunk, const wire::Trailer& trailer) override;
  tcpx_code on_unmapped(TxFrame* frame, const void* at) override;
  tcpx_code on_unmapped(RxChunk* chunk, const void* at) override;
  tcpx_code on_move_failed(RxChunk* chunk, const std::string& why) override;
  void on_sent(TxFrame* frame) override;
  void fill() override;
  bool awaits_answer() const override;
  void on_settled(const PathRefusal& refusal) override;
  Work on_idle() override;
  void on_down(const Status& status) noexcept override;

 private:
  // Moves and slots: what this lane asks for when nothing announces it.
  bool nothing_moves() const {
    return !core_.moves.any() && !in_.wants_slot() && !out_.wants_slot() && fences_.empty() &&
           core_.lane->moving() == 0;
  }
  void send_news();
  Work advance_idle();
  void advance_moves();
  void finish_moves();
  void ended(const Status& status) noexcept;

  SmallFrames small_{core_};
  LanePings pings_{core_, small_};
  LaneRefusals refusals_{core_};
  LaneNotices notices_{core_, small_};
  ChunksOut out_{core_, notices_};
  ChunksIn in_{core_, small_, notices_, refusals_, out_};
  LaneFences fences_{*this, core_};
};

}  // namespace tcpx
