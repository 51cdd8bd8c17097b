// A peer: an authenticated remote engine, the session with it, its lanes, and the transfers and
// notifications under way.
//
// Threads: `mu` guards everything marked so. It is taken inside loops' exclusive sections, so code
// that holds it must never enter one. Nothing here is shared between peers.
#pragma once

#include <array>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "base/brief_mutex.h"
#include "base/line_limit.h"
#include "engine/peer_lane.h"
#include "engine/refusal_budget.h"
#include "engine/shared.h"
#include "engine/transfer.h"
#include "session/auth.h"
#include "wire/handshake.h"

namespace tcpx {

// A notification on its way out; kept until the peer has confirmed it.
struct Notice {
  uint64_t id = 0;  // unique in the session; the receiver drops repeats
  std::vector<uint8_t> bytes;
  std::shared_ptr<TransferState> transfer;  // the one it belongs to, if any
  bool confirmed = false;
  bool left_alone = false;  // whoever sent it waits no longer
  Status status;
  uint32_t lane = UINT32_MAX;  // carries it now; none: queued
  std::condition_variable ended;

  // Nobody else will hear how it ended.
  bool is_lone() const { return left_alone && transfer == nullptr; }
};

// What a lost lane had sent and the peer had not confirmed: it may have arrived.
struct UnconfirmedWrites {
  std::vector<ChunkWork> chunks;
  std::vector<NoticeBehind> notices;  // of the lane's, those after the first `notices_before`
  uint64_t notices_before = 0;
};

// Lanes without an allocation.
class LaneList {
 public:
  void add(PeerLane* lane) { lanes_[size_++] = lane; }
  size_t size() const { return size_; }
  PeerLane* const* begin() const { return lanes_.data(); }
  PeerLane* const* end() const { return lanes_.data() + size_; }

 private:
  std::array<PeerLane*, wire::kMaxLanes> lanes_{};
  size_t size_ = 0;
};

class Peer : public std::enable_shared_from_this<Peer> {
 public:
  enum class State { kConnecting, kUp, kEnded };

  Peer(EngineShared& shared, uint64_t id, bool came_to_us);
  ~Peer();

  // ---- session ----
  void established(const wire::Uid& uid, std::string name, uint64_t session, uint64_t chunk_bytes,
                   uint32_t window, const auth::Key& session_key);
  // What the handshake has told either side, before there is a lane. See peer_epochs.cc.
  void start_epochs(uint64_t of_peer, uint64_t ours);
  // Takes over an authenticated socket as lane `index`. Any thread but a loop's.
  Status add_lane(uint32_t index, const LaneFactory& factory, bool own_loop);
  // Inbound: how many lanes the client announced; it may bring each of them once.
  void expect_lanes(uint32_t lanes);
  bool may_join(uint32_t index);
  // Connecting is over: lanes are what they are. The peer is up when they have settled; then
  // `on_up` runs, at once or on the service thread.
  void connected(std::function<void()> on_up);
  // Ends the session: closes lanes, then ends every transfer and notification with `status`.
  // Idempotent. Not from a loop. Who comes second does not wait for the first: await_end does, for
  // those to whom it matters that nothing of the peer touches memory any more.
  void end(const Status& status);
  void await_end();
  bool ended_wholly();
  // Tells the peer, waits shortly until it has closed too, then ends. Not from a loop. In steps, so
  // that no peer has to wait for the silence of another.
  void say_goodbye(const Status& status, Nanos patience);
  void end_transfers(const Status& status);
  void say_last_words(Nanos deadline);
  void send_byes();
  void await_their_close(Nanos deadline);
  // A thread of this peer hangs in a plugin and may use memory for ever.
  bool holds_memory_for_ever();
  Status wait_connected(Nanos deadline);
  void tick(Nanos now);  // deadlines and watchdogs; service thread

  // ---- transfers (any thread but a loop's) ----
  Status post(const std::shared_ptr<TransferState>& transfer, std::shared_ptr<Notice> notice,
              Nanos deadline);
  void poll(TransferState& transfer);
  void wait(TransferState& transfer, Nanos deadline);
  Status cancel(const std::shared_ptr<TransferState>& transfer, Nanos deadline);
  void release(const std::shared_ptr<TransferState>& transfer);
  // Ends transfers that use this local region; nothing reads or writes it when this returns.
  void revoke_local(uint64_t region);
  // Stops lanes from reading or writing this region for the peer. Whether they still touch it.
  enum class Hold { kNone, kMoving, kForEver };
  Hold revoke_remote(uint64_t region);
  // Tells the peer of our epoch, and waits until it has heard of this one or a later one, unless
  // an answer of that kind is due since earlier.
  void tell_epoch();
  void await_epoch_heard(uint64_t epoch, Nanos deadline);
  // Nothing uses the memory any more and it is about to be freed.
  void forget_memory(const void* base, uint64_t length);
  Status notify(std::shared_ptr<Notice> notice, Nanos deadline);

  // ---- from lanes (in their loop's exclusive section) ----
  bool next_chunk(PeerLane& lane, ChunkWork* out);
  std::shared_ptr<Notice> next_notice(PeerLane& lane);
  bool next_control(wire::Header* out);
  void settle(const ChunkWork& work, uint32_t lane, tcpx_code code, const char* who);
  void notice_confirmed(uint64_t id, tcpx_code code);
  tcpx_code notice_arrived(uint64_t id, std::vector<uint8_t>&& bytes);
  Status notice_behind_confirmed(const NoticeBehind& notice, tcpx_code code);
  tcpx_code notice_behind_arrived(std::vector<uint8_t>&& bytes);
  void hear_epoch(uint64_t of_peer);
  void epoch_was_heard(uint64_t ours);
  void lane_down_asked(uint32_t index);
  void lane_down_confirmed(uint32_t index, const NoticesBrought& brought);
  void lane_lost(PeerLane& lane, const Status& status, UnconfirmedWrites writes,
                 const std::vector<ChunkWork>& reads);
  void lane_settled(PeerLane& lane, const Status& status);
  void peer_said_bye(PeerLane& lane);
  void ask_end(const Status& status);  // from a loop: the service thread ends it

  // ---- facts ----
  uint64_t id() const { return id_; }
  EngineShared& shared() { return shared_; }
  State state();
  Status end_status();
  uint64_t session() const { return session_.load(); }  // 0: not established
  RefusalBudget& refusals() { return refusals_; }
  uint64_t epoch_answered() const { return epoch_answered_.load(std::memory_order_relaxed); }
  uint64_t chunk_bytes() const { return chunk_bytes_; }
  uint32_t window() const { return window_; }
  const wire::Uid& uid() const { return uid_; }
  bool uid_known() const { return uid_known_.load(); }
  std::string name();
  const auth::Key& session_key() const { return session_key_; }
  LaneList lanes();  // all that ever started
  uint32_t live_lanes();
  std::string interfaces();
  void set_connect_note(std::string note) {
    std::lock_guard lock(mu);
    connect_note_ = std::move(note);
  }
  std::string connect_note() {
    std::lock_guard lock(mu);
    return connect_note_;
  }
  // Why payload does not travel as it was meant to, or "".
  std::string path_note() {
    std::lock_guard lock(mu);
    return path_note_;
  }
  std::string path();

  BriefMutex mu;
  const bool inbound;

 private:
  // How much of a transfer tcpx_post sends on the caller's thread before it leaves the rest to the
  // loop: enough for everything small, and well below a millisecond.
  static constexpr uint64_t kPostBudget = 1u << 20;
  // How long the service thread waits for a lane's thread, which may be in a plugin's call.
  static constexpr Nanos kServicePatience = 100 * kMilli;

  void start(PeerLane& first, const LaneList& others, bool is_long);
  LaneList lanes_locked() const;
  enum class Outlook { kUnknown, kEndsNow, kWorthSleeping, kNotOurs };
  Outlook outlook_locked(const TransferState& transfer, const PeerLane& lane, Nanos now) const;
  bool stays_on_one_lane_locked(const TransferState& transfer, const PeerLane& first) const;
  bool crowded_locked(const PeerLane& lane) const;
  void sleep_until_ended(TransferState& transfer, Nanos until);
  void deal_locked(const std::shared_ptr<TransferState>& transfer, const LaneList& lanes);
  ChunkWork hand_out_locked(const std::shared_ptr<TransferState>& transfer, uint32_t lane);
  void enqueue_locked(const std::shared_ptr<TransferState>& transfer);
  void progress_locked(const std::shared_ptr<TransferState>& transfer);
  void finish_locked(TransferState& transfer, tcpx_code code);
  void fail_locked(const std::shared_ptr<TransferState>& transfer, const Status& status);
  void send_again_locked(const std::vector<ChunkWork>& works);
  void queue_notice_locked(const std::shared_ptr<Notice>& notice);
  bool push_notice_locked(std::vector<uint8_t>&& bytes);
  void notice_behind_ended_locked(const std::shared_ptr<TransferState>& transfer, tcpx_code code);
  static void settle_by_notice_locked(TransferState& transfer, std::vector<ChunkWork>* chunks);
  size_t lone_notices_locked() const;
  bool stop(const std::shared_ptr<TransferState>& transfer, uint64_t post);
  void take_back_locked(const ChunkWork& work, uint32_t lane);
  void loose_one_known_locked(TransferState& transfer);
  Status await_loose(TransferState& transfer, uint64_t post, Nanos deadline);
  void cancel_live(const std::shared_ptr<TransferState>& transfer, uint64_t id, Nanos deadline);
  void end_now(const std::shared_ptr<TransferState>& transfer, const Status& status,
               uint64_t post = 0);
  void expire_deadlines(Nanos now);
  void watch_lanes(Nanos now);
  void watch_carrier(PeerLane& lane, Nanos now);
  bool held_up(Nanos now);
  bool end_refused(Nanos now);
  bool end_left(Nanos now);
  bool heard_every_bye_locked() const;
  void close_given_up_lanes();
  void ask_about_lane_locked(uint32_t index);
  void confirm_lane_locked(uint32_t index);
  void queue_control_locked(const wire::Header& header);
  static Status peer_left();
  static Status let_go_locked(const TransferState& transfer);
  Hold held_by(PeerLane& lane, uint64_t region);
  void report_stalls(Nanos now);
  void go_on_after_refusals(Nanos now);
  PeerLane* lane_for_small_locked();
  PeerLane* lane_to_drive_locked(const TransferState& transfer) const;
  uint32_t live_lanes_locked() const;
  bool became_up_locked();
  void take_refusal_locked(const PeerLane& lane);
  void withdraw_refusal_locked(const PeerLane& lost);
  bool left_to_others_locked(const PeerLane& asking);
  bool is_turn_of_locked(const PeerLane& asking);
  void pass_turn_locked();
  bool take_turn_locked(const PeerLane& lane);

  EngineShared& shared_;
  const uint64_t id_;
  std::atomic<Nanos> polled_at_{0};                    // when the last poll of a transfer returned
  std::atomic<uint64_t> epoch_of_peer_{kFirstEpoch};   // the latest it told us
  std::atomic<uint64_t> epoch_answered_{kFirstEpoch};  // the latest of ours it has heard of

  // Set once in established(), before any lane exists and before uid_known_.
  wire::Uid uid_{};
  std::atomic<bool> uid_known_{false};
  std::string name_;  // guarded by mu: shown while connecting
  std::atomic<uint64_t> session_{0};
  uint64_t chunk_bytes_ = 0;
  uint32_t window_ = 0;
  auth::Key session_key_;

  // ---- guarded by mu ----
  State state_ = State::kConnecting;
  Status end_status_;
  bool leaving_ = false;  // one side said goodbye: lanes that close now are not lost
  bool left_ = false;     // the peer's goodbye has come, on one lane at least
  uint32_t left_ticks_ = 0, quiet_ticks_ = 0;  // since then; and without a byte on the other lanes
  uint64_t heard_leaving_ = 0;
  Nanos last_left_tick_ = 0;
  uint64_t epoch_due_ = 0;                // one of ours it did not answer in time
  bool end_done_ = false;                 // of state_ kEnded: lanes closed, transfers ended
  std::vector<uint32_t> given_up_lanes_;  // by the peer, who waits until they are closed here
  std::set<uint32_t> confirmed_lanes_;    // we have told the peer that they are
  std::string connect_note_;              // why lanes are missing
  std::string path_note_;
  Status refusal_;                   // a lane has not the required path: the end is on its way
  bool refusal_is_certain_ = false;  // not just the first sign of the peer's death, or the lane's
  uint32_t refusal_lane_ = 0;
  Nanos refused_at_ = 0;
  bool connecting_done_ = false;
  std::function<void()> on_up_;
  std::condition_variable changed_;
  std::vector<std::unique_ptr<PeerLane>> lanes_;
  std::vector<std::shared_ptr<TransferState>> run_queue_;  // served in turn, not in order
  size_t turn_ = 0;
  std::vector<std::shared_ptr<TransferState>> live_;
  const TransferState* last_polled_ = nullptr;  // only compared
  uint64_t next_transfer_id_ = 1;
  uint32_t next_round_robin_ = 0;
  uint32_t expected_lanes_ = 0;

  std::deque<std::shared_ptr<Notice>> notices_;  // to send
  // Lanes ask in every turn, and mostly there is nothing: they need not take the lock for that. Set
  // with the lock held before a lane is woken, taken back by who finds nothing.
  std::atomic<bool> control_waiting_{false};
  std::atomic<bool> notices_waiting_{false};
  std::atomic<bool> chunks_waiting_{false};
  std::map<uint64_t, std::shared_ptr<Notice>> pending_notices_;  // not confirmed
  uint64_t next_notice_id_ = 1;
  uint64_t notices_seen_below_ = 1;  // all smaller ids arrived
  std::set<uint64_t> notices_seen_;  // larger ones

  std::deque<wire::Header> control_;
  std::map<uint32_t, UnconfirmedWrites> limbo_;  // by lost lane
  uint32_t lanes_lost_ = 0;
  Nanos last_stall_report_ = 0;
  Nanos quiet_until_ = 0;  // of all lanes at once
  Nanos last_watch_ = 0;
  RefusalBudget refusals_;
  LineLimit refusal_lines_{"lanes were held because of refusals"};  // service thread
};

}  // namespace tcpx
