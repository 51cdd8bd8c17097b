// What frames on one lane mean: chunks of our transfers out and back, the peer's chunks in and out,
// notifications, pings. Lives in the exclusive section of its loop (LaneSink) except where marked.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "base/caught.h"
#include "base/line_limit.h"
#include "engine/answer_flow.h"
#include "engine/chunk_window.h"
#include "engine/lane_load.h"
#include "engine/lane_moves.h"
#include "engine/notice_ledger.h"
#include "engine/notices_behind.h"
#include "engine/pool.h"
#include "engine/shared.h"
#include "engine/transfer.h"
#include "path/lane.h"
#include "path/lane_traits.h"
#include "wire/handshake.h"

namespace tcpx {

class Fence;
class Peer;
struct Notice;
using LanesKept = std::shared_ptr<const void>;  // see lane_set.h

class PeerLane final : public LaneSink {
 public:
  // `loop`: one of the engine's, or one that this lane alone uses.
  PeerLane(Peer& peer, uint32_t index, std::shared_ptr<Loop> loop, const LaneTraits& traits);
  ~PeerLane() override;

  // ---- setting up (service thread, before start) ----
  Status start(const LaneFactory& factory);

  // ---- any thread ----
  uint32_t index() const { return index_; }
  Loop& loop() const { return loop_; }
  // Runs f in the exclusive section. False: the lane's plugin hangs; f must own its captures.
  // So it may be with little patience, where others must not be held up.
  // What f throws is thrown here too, and ends the lane and its peer.
  bool in_loop(std::function<void()> f, Nanos patience = kNever);
  // In the exclusive section: what f throws ends the lane and its peer, and goes no further.
  template <class F>
  void or_close(F&& f) noexcept {
    try {
      f();
    } catch (...) {
      if (started()) lane_->on_failure(caught(TCPX_BLAST_PEER));
    }
  }
  // Closes the lane, or has it never start. When that has run nothing of it touches memory.
  Loop::Asked ask_shut(const Status& status, const LanesKept& kept);
  bool is_shut() const { return is_shut_.load(std::memory_order_acquire); }
  // Of a lane that is shut, or never started: ends the thread of a loop of its own. False: not yet.
  // Not from that loop.
  bool stop_loop(Nanos patience) { return !traits_.own_loop() || loop_.stop(patience); }
  // For the watchdog, which waits for nobody: one question at a time.
  void ask_if_answered(const LanesKept& kept, std::function<void()> question);
  const LaneTraits& traits() const { return traits_; }  // of its path
  const LaneLoad& load() const { return load_; }
  bool open() const { return load_.is_open(); }
  bool started() const { return started_.load(std::memory_order_acquire); }  // it has a lane
  void wake() { loop_.wake(lane_->source_index()); }
  void ask_ping() {
    pings_asked_.fetch_add(1);
    wake();
  }
  uint32_t in_flight() const { return load_.held(); }
  // Gives it a chunk for which it need not ask. With the peer's lock held, to an open lane that has
  // none.
  void deal(ChunkWork work);
  bool idle() const { return load_.idle(); }
  double rate() const { return window_.rate(); }  // bytes per ns; 0: unknown
  // Equal for lanes on the same interface.
  size_t rail() const { return rail_.load(std::memory_order_relaxed); }
  bool settled() const { return lane_->settled(); }
  Nanos audible_since = 0;  // of the engine's service thread; see PeerWatch
  // A lane that we do not read is not silent.
  Nanos last_heard() const {
    const LaneCounters& counters = lane_->counters();
    if (counters.read_holds.load(std::memory_order_relaxed) != 0) return now_ns();
    return counters.last_receive.load(std::memory_order_relaxed);
  }
  // Since when the peer has not read its answers, so that we do not read it; 0: it does.
  Nanos unread_since() const { return answers_.unread_since(); }
  uint64_t bytes_heard() const {
    return lane_->counters().bytes_in.load(std::memory_order_relaxed);
  }
  // It is not read, because the peer was refused too often.
  bool held_for_refusals() const { return held_for_refusals_.load(std::memory_order_relaxed); }
  uint64_t peer_received() const { return peer_received_.load(std::memory_order_relaxed); }

  // ---- in the exclusive section (facts of the lane: any thread, once open) ----
  Lane& lane() { return *lane_; }
  bool take_dealt(ChunkWork* out);
  // Whether the notification of the transfer may go directly behind its last chunk, which the lane
  // is about to send. With the peer's lock held.
  bool takes_notice_behind(const TransferState& transfer) const;
  // Of a closed lane: any thread that knows that it is.
  const NoticesBrought& notices_brought() const { return behind_.brought; }
  // Stops touching the memory of this post of the transfer. The answer to a WRITE that is out is
  // still due; data of a READ is dropped. Returns how many moves still touch the memory.
  size_t stop(const TransferState& transfer, uint64_t post);
  // Stops reading and writing this region for the peer. Returns how many moves still do.
  size_t revoke(uint64_t region);
  // The same for our own transfers: stops what they do with it.
  size_t stop_users_of(uint64_t region);
  // Asks until nothing is held any more, now and in every round to come.
  void add_fence(const std::shared_ptr<Fence>& fence) noexcept;
  // A fence waits for what a path cannot call back as long as that moves, until `close_at`; then
  // the lane is closed, which is the last fence there is, but for moves. How much of `held` is
  // left.
  size_t held_or_close(size_t held, Nanos close_at);
  // Moves of a lane that is closed do not come to an end.
  bool moves_hang(Nanos now) const {
    Nanos since = ending_since_.load(std::memory_order_relaxed);
    return since != 0 && now - since > kMovePatience;
  }
  void shut(const Status& status);
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
  bool awaits_answer() const override { return window_.used() > 0 || !behind_.out.empty(); }
  void on_settled(const PathRefusal& refusal) override;
  Work on_idle() override { return nothing_moves() ? Work::kNone : advance_idle(); }
  void on_down(const Status& status) noexcept override;

 private:
  static constexpr Nanos kMovePatience = 10 * kSecond;
  uint32_t serving() const { return load_.serving.load(std::memory_order_relaxed); }
  template <class Mine>
  size_t stop_if(Mine&& mine);
  void look_at_fences() noexcept;
  // Our chunks.
  uint64_t send_chunk(ChunkWork work);
  void chunk_sent(ChunkOut& entry);
  void settle(ChunkOut& entry, tcpx_code code);
  Status answer_received(const wire::Header& header);
  Status data_head(const wire::Header& header, RxChunk* chunk);
  void data_comes_later(const wire::Header& header);
  void data_placed(const RxChunk& chunk);
  // The peer's chunks.
  Status serve_read(const wire::Header& header, std::span<const wire::Piece> pieces);
  // Where what a peer has named goes, in a frame or a chunk.
  struct ResolvedParts {
    std::vector<iovec>* parts;
    Place* place;
    PartRegions* regions;
  };
  tcpx_code resolve(const wire::Header& header, std::span<const wire::Piece> pieces,
                    uint32_t access, ResolvedParts out);
  void write_head(RxChunk* chunk);
  void count_refusal(tcpx_code code);
  void end_refusal_hold();
  tcpx_code memory_gone(const wire::Header& header, bool ours, const void* at,
                        const PartRegions& regions);
  void write_done(RxChunk* chunk, tcpx_code code);
  void refuse_read(const wire::Header& header, tcpx_code code);
  // Moves.
  bool may_take_chunk() { return !moves_.enabled() || may_take_chunk_staged(); }
  bool may_take_chunk_staged();
  bool stages(const TxFrame& frame) const {
    return !frame.payload.empty() && (moves_.stages(frame.place) || !lane_->reaches(frame));
  }
  void queue_payload(TxFrame* frame);
  bool land(RxChunk* chunk);
  void look_at_moves_soon();
  void placed(RxChunk* chunk);
  bool nothing_moves() const {
    return !moves_.any() && !wants_slot_ && !wants_send_slot_ && fences_.empty() &&
           lane_->moving() == 0;
  }
  Work advance_idle();
  void advance_moves();
  size_t moves_running() const { return moves_.running() + lane_->moving(); }
  void finish_moves();
  void filled(TxFrame* frame, const std::string& failed);
  tcpx_code copy_failed(const wire::Header& header, bool ours, const std::string& why);
  void keep_alive_full();
  void ended(const Status& status) noexcept;
  // Small frames.
  void send_ping();
  void send_small(wire::Header header);
  void send_notice(std::shared_ptr<Notice> notice);
  void send_notice_behind(std::shared_ptr<Notice> notice, const ChunkOut& last_chunk);
  void queue_notice(TxFrame* frame, std::shared_ptr<Notice> notice);
  void notice_head(RxChunk* chunk);
  void notice_received(RxChunk* chunk);
  void notice_behind_received(RxChunk* chunk);
  wire::NoticeVerdict take_notice_behind(RxChunk* chunk);
  Status notice_behind_answered(const wire::Header& header);

  void drop_frame(TxFrame* frame);
  void drop_chunk(RxChunk* chunk);

  Peer& peer_;
  EngineShared& shared_;
  const uint32_t index_;
  const std::shared_ptr<Loop> loop_owner_;
  const LaneTraits traits_;
  bool shut_ = false;  // in the exclusive section
  std::atomic<bool> is_shut_{false};
  std::atomic<bool> owes_answer_{false};  // to the watchdog
  Loop& loop_;
  std::unique_ptr<Lane> lane_;
  std::atomic<size_t> rail_{0};
  std::atomic<bool> started_{false};
  std::atomic<uint64_t> pings_asked_{0};
  uint64_t ping_sent_ = 0;
  uint64_t epoch_told_ = kFirstEpoch;  // every peer knows of the first one
  bool ping_unanswered_ = false;
  std::atomic<uint64_t> peer_received_{0};
  LaneLoad load_;
  ChunkWork dealt_work_;  // the lane's while load_.dealt, else the dealer's
  bool bye_sent_ = false;
  std::atomic<bool> held_for_refusals_{false};
  bool wants_slot_ = false;       // a head that has none waits in the lane
  bool wants_send_slot_ = false;  // a chunk may wait for one in its queue

  ChunkWindow window_;                               // ours
  std::vector<ChunkWork> lost_writes_, lost_reads_;  // room for what was outstanding at the end
  uint32_t writes_in_ = 0;                           // of the peer, not answered
  AnswerFlow answers_;
  NoticesBehind behind_;
  LaneMoves moves_;
  std::vector<std::shared_ptr<Fence>> fences_;  // that wait for something of this lane
  std::atomic<Nanos> ending_since_{0};          // closed, with moves under way
  uint64_t payload_received_ = 0;

  Pool<TxFrame> chunk_frames_;  // kWrite, kRead, kData: at most two windows
  Pool<TxFrame> small_frames_;  // all others: answers, and what we are owed one for
  Pool<RxChunk> chunks_;
  std::vector<wire::Piece> scratch_;
  std::map<TxFrame*, std::shared_ptr<Notice>> notice_frames_;

  LineLimit unmapped_lines_{"chunks met memory that is not mapped any more"};
  LineLimit copy_lines_{"copies for the peer failed"};
};

}  // namespace tcpx
