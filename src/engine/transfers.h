// The transfers under way with a peer: posted, cut out chunk by chunk by the lanes that have room,
// settled, ended. What it works on is the peer's (peer_state.h).
//
// More than 40 functions: three ideas, a file each (transfers.cc: posted, settled, ended;
// transfers_fences.cc: ends that are asked for; transfers_waiting.cc: callers that wait), that are
// steps of one state machine. Cut apart, each would call the others' private steps.
#pragma once

#include <memory>
#include <vector>

#include "engine/fence.h"
#include "engine/peer_state.h"

namespace tcpx {

class Transfers {
 public:
  Transfers(Peer& peer, PeerState& state) : peer_(peer), state_(state), shared_(state.shared) {}

  // ---- any thread but a loop's ----
  Status post(const std::shared_ptr<TransferState>& transfer, std::shared_ptr<Notice> notice,
              Nanos deadline);
  void poll(TransferState& transfer);
  void wait(TransferState& transfer, Nanos deadline);
  // When it returns ok nobody touches the memory of the transfer any more, on either side.
  Status cancel(const std::shared_ptr<TransferState>& transfer, Nanos deadline);
  // The same here, and it has no way to say that it failed. Those who wait for the transfer or for
  // the peer's answers stop doing so, and nobody posts it any more.
  void release(const std::shared_ptr<TransferState>& transfer) noexcept;
  Status status_of(const TransferState& transfer);
  void end_all_now(const Status& status);
  // A local region is being deregistered: its users are to end, and have their ends when every lane
  // has let go of it. What a path cannot call back is waited for until `close_at`.
  void end_users_of(uint64_t region, Nanos close_at);
  void finish_users_of(uint64_t region);

  // ---- from lanes, in their loops ----
  bool may_have_chunks() const { return state_.may_have_chunks(); }
  bool may_have_gpu_chunks() const { return state_.may_have_gpu_chunks(); }
  // Another number whenever there may be another chunk to get.
  uint32_t chunk_news() const { return state_.chunk_news(); }
  // `notices`: of that lane. `no_more`: what it does not take. `why`: told where it gets nothing.
  bool next_chunk(uint32_t lane, const NoMoreOf& no_more, const LaneNotices& notices,
                  ChunkWork* out, Scheduler::WhyNone* why);
  // For receipts: what this lane did not get for want of slots, it would not take now either.
  void slots_not_wanted(uint32_t lane);
  // A chunk of this post that a lane has waits for a slot; has one; was moved out of it or into it.
  void chunk_without_slot(TransferState& transfer, uint64_t post);
  void chunk_has_slot(TransferState& transfer, uint64_t post, Nanos since);
  void chunk_moved(TransferState& transfer, uint64_t post, const MoveEnd& move, uint64_t bytes);
  void settle(const ChunkWork& work, tcpx_code code, const char* who);
  // This post of the transfer ends with that status when nothing of it is under way any more.
  void fail(const std::shared_ptr<TransferState>& transfer, uint64_t post, const Status& status);
  Status notice_behind_answered(const NoticeBehind& notice, wire::NoticeVerdict verdict);

  // ---- service thread ----
  void expire_deadlines(Nanos now);
  // Those whose end was begun and that nobody may be waiting for.
  void advance_ends();

  // ---- with the lock ----
  void session_came_up(PeerLock& lock, uint64_t epoch);
  // What it carried goes again, if it may; what was dealt to it never left.
  void lane_lost(PeerLock& lock, PeerLane& lane);
  void send_again(PeerLock& lock, const std::vector<ChunkWork>& works);
  void take_back(PeerLock& lock, const ChunkWork& work, uint32_t lane);
  // The peer has closed its end of a lost lane, and says which notifications it had delivered.
  void lost_lane_closed(PeerLock& lock, UnconfirmedWrites writes, const NoticesBrought& brought);
  void notice_ended(PeerLock& lock, const std::shared_ptr<TransferState>& transfer,
                    const Notice& notice);
  // `held`: a plugin hangs, and may still use their memory.
  void end_all(PeerLock& lock, bool held);

 private:
  // Posting.
  Status check_post(PeerLock& lock, const TransferState& transfer) const;
  void begin(PeerLock& lock, const std::shared_ptr<TransferState>& transfer,
             std::shared_ptr<Notice> notice, Nanos deadline);
  bool stays_on_one_lane(PeerLock& lock, const TransferState& transfer,
                         const PeerLane& first) const;
  void deal(PeerLock& lock, const std::shared_ptr<TransferState>& transfer);
  void send_here(PeerLane& first, const LaneList& others, bool is_long);
  // Ending.
  void progress(PeerLock& lock, const std::shared_ptr<TransferState>& transfer);
  void begin_end(PeerLock& lock, TransferState& transfer, const Status& status, Nanos close_at);
  void finish(PeerLock& lock, TransferState& transfer, tcpx_code code);
  void notice_behind_ended(PeerLock& lock, const std::shared_ptr<TransferState>& transfer,
                           wire::NoticeVerdict verdict);
  void loose_one_known(PeerLock& lock, TransferState& transfer) const;
  // Fences.
  std::shared_ptr<Fence> stop_fence(const std::shared_ptr<TransferState>& transfer, uint64_t post,
                                    Nanos close_at);
  Fence::Result stop(const std::shared_ptr<TransferState>& transfer, uint64_t post, Nanos close_at,
                     Nanos deadline);
  void end_now(const std::shared_ptr<TransferState>& transfer, const Status& status, uint64_t post);
  struct Ending {
    std::shared_ptr<TransferState> transfer;
    uint64_t post;
    Nanos close_at = kNever;
    std::shared_ptr<Fence> fence = nullptr;
  };
  void await_ends(std::vector<Ending>& endings);
  void cancel_live(const std::shared_ptr<TransferState>& transfer, uint64_t post, Nanos deadline);
  void look_again(const std::shared_ptr<TransferState>& transfer, uint64_t post, Nanos deadline);
  Status await_loose(TransferState& transfer, uint64_t post, Nanos deadline);
  // Waiting.
  Loop* loop_to_drive(PeerLock& lock, TransferState& transfer) const;
  void nudge_drivers(const TransferState& transfer) const;
  void sleep_until_ended(TransferState& transfer, Nanos until);

  Peer& peer_;
  PeerState& state_;
  EngineShared& shared_;
  std::atomic<Nanos> polled_at_{0};             // when the last poll of a transfer returned
  const TransferState* last_polled_ = nullptr;  // only compared; guarded by the peer's lock
};

}  // namespace tcpx
