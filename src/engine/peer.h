// A peer: an authenticated remote engine, the session with it, its lanes, and the transfers and
// notifications under way.
//
// Threads: `mu` guards everything marked so. It is taken inside loops' exclusive sections, so code
// that holds it must never enter one. Nothing here is shared between peers.
#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/brief_mutex.h"
#include "base/caught.h"
#include "base/line_limit.h"
#include "engine/lane_answers.h"
#include "engine/lane_bits.h"
#include "engine/lane_report.h"
#include "engine/lane_set.h"
#include "engine/notice_queue.h"
#include "engine/notices_seen.h"
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
  uint64_t outbox_bytes = 0;   // what it takes of the outbox
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

class Peer : public std::enable_shared_from_this<Peer> {
 public:
  enum class State { kConnecting, kUp, kEnded };

  // What a path has begun and cannot call back is waited for while it moves, but no longer.
  static constexpr Nanos kLongestHold = kSecond;

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
  // Ends the session: has its lanes closed; when they are, ends every transfer and notification
  // with `status`. Idempotent. Not from a loop. Waits for nobody: await_end does, for those to whom
  // it matters that nothing of the peer touches memory any more.
  void end(const Status& status) noexcept;
  void await_end();
  // Both, however often it takes for want of memory. Of an engine whose service has ended.
  void end_for_good(const Status& status) noexcept;
  // The same from anywhere, and with no memory to be had: the service thread ends it, as soon as
  // that can be done.
  void fail(tcpx_code code) noexcept;
  // What f throws ends the peer.
  template <class F>
  void or_fail(F&& f) noexcept {
    try {
      f();
    } catch (...) {
      fail(caught(TCPX_BLAST_PEER).code());
    }
  }
  bool ended_wholly();
  // Of a session that has ended wholly: gives its lanes and their threads back, and keeps what is
  // told of them. False: not within `patience`, or a plugin hangs; ask again.
  bool dismantle(Nanos patience);
  bool dismantled();
  // Tells the peer, waits shortly until it has closed too, then ends. Not from a loop. In steps, so
  // that no peer has to wait for the silence of another.
  void say_goodbye(const Status& status, Nanos patience);
  void end_transfers(const Status& status);
  void say_last_words(Nanos deadline);
  void send_byes();
  void await_their_close(Nanos deadline);
  // A thread of this peer hangs in a plugin's call, and may use memory until that comes back.
  bool hangs(Nanos now);
  size_t lanes_not_shut();
  Status wait_connected(Nanos deadline);
  void tick(Nanos now);  // deadlines and watchdogs; service thread

  // ---- transfers (any thread but a loop's) ----
  Status post(const std::shared_ptr<TransferState>& transfer, std::shared_ptr<Notice> notice,
              Nanos deadline);
  void poll(TransferState& transfer);
  void wait(TransferState& transfer, Nanos deadline);
  Status cancel(const std::shared_ptr<TransferState>& transfer, Nanos deadline);
  void release(const std::shared_ptr<TransferState>& transfer) noexcept;
  // Ends transfers that use this local region. What a path cannot call back is held until it is
  // through; lanes that still hold some at `close_at` are closed.
  void end_users_of(uint64_t region, Nanos close_at);
  bool has_users_of(uint64_t region);
  // Stops lanes from reading or writing the region for the peer; asks what they hold of it, also
  // for our own transfers if `ours`.
  Answers ask_revoke(uint64_t region, Nanos close_at, bool ours = false);
  // Tells the peer of our epoch, and waits until it has heard of this one or a later one, unless
  // an answer of that kind is due since earlier.
  void tell_epoch();
  void await_epoch_heard(uint64_t epoch, Nanos deadline);
  // Nothing uses the memory any more and it is about to be freed.
  Answers ask_forget(const void* base, uint64_t length);
  Status notify(std::shared_ptr<Notice> notice, Nanos deadline);

  // ---- from lanes (in their loop's exclusive section) ----
  bool next_chunk(PeerLane& lane, ChunkWork* out);
  std::shared_ptr<Notice> next_notice(PeerLane& lane);
  bool next_control(wire::Header* out);
  void settle(const ChunkWork& work, uint32_t lane, tcpx_code code, const char* who);
  // This post of the transfer ends with that status when nothing of it is under way any more.
  void fail_transfer(const std::shared_ptr<TransferState>& transfer, uint64_t post,
                     const Status& status);
  void notice_confirmed(uint64_t id, tcpx_code code);
  bool notice_fits(uint64_t bytes) const;     // ever
  bool reserve_notice(uint64_t bytes);        // room in our inbox for one that is arriving
  void notice_does_not_come(uint64_t bytes);  // although it was reserved
  tcpx_code notice_arrived(uint64_t id, MessageBytes&& bytes, bool reserved);
  Status notice_behind_confirmed(const NoticeBehind& notice, tcpx_code code);
  tcpx_code notice_behind_arrived(MessageBytes&& bytes, bool reserved);
  void hear_epoch(uint64_t of_peer);
  void epoch_was_heard(uint64_t ours);
  Status hear_about_lane(const wire::Header& header);
  void lane_lost(PeerLane& lane, const Status& status, UnconfirmedWrites writes,
                 std::vector<ChunkWork> reads);
  void lane_settled(PeerLane& lane, const Status& status);
  void lane_shut();
  void peer_said_bye(PeerLane& lane);
  void ask_end(const Status& status) noexcept;  // from a loop: the service thread ends it

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
  std::vector<LaneReport> lane_reports();  // also of lanes that are gone

  BriefMutex mu;
  const bool inbound;

 private:
  // How much of a transfer tcpx_post sends on the caller's thread before it leaves the rest to the
  // loop: enough for everything small, and well below a millisecond.
  static constexpr uint64_t kPostBudget = 1u << 20;
  bool end_failed();
  void start(PeerLane& first, const LaneList& others, bool is_long);
  LaneList lanes_locked() const;
  bool stays_on_one_lane_locked(const TransferState& transfer, const PeerLane& first) const;
  void nudge_drivers_locked(const TransferState& transfer) const;
  void sleep_until_ended(TransferState& transfer, Nanos until);
  void deal_locked(const std::shared_ptr<TransferState>& transfer, const LaneList& lanes);
  ChunkWork hand_out_locked(const std::shared_ptr<TransferState>& transfer, uint32_t lane);
  void enqueue_locked(const std::shared_ptr<TransferState>& transfer);
  void progress_locked(const std::shared_ptr<TransferState>& transfer);
  void finish_locked(TransferState& transfer, tcpx_code code);
  void fail_locked(const std::shared_ptr<TransferState>& transfer, const Status& status);
  void send_again_locked(const std::vector<ChunkWork>& works);
  void queue_notice_locked(const std::shared_ptr<Notice>& notice);
  bool outbox_takes_locked(uint64_t bytes) const;
  void notice_back_locked(Notice& notice);
  void send_notice_again_locked(const std::shared_ptr<Notice>& notice);
  void notice_held_back_locked(const std::shared_ptr<Notice>& notice);
  void forget_notice_locked(const std::shared_ptr<Notice>& notice);
  void withdraw_notice_locked(const std::shared_ptr<Notice>& notice);
  void end_notice_pause(Nanos now);
  bool push_notice_locked(MessageBytes&& bytes, bool reserved);
  void notice_behind_ended_locked(const std::shared_ptr<TransferState>& transfer, tcpx_code code);
  static void settle_by_notice_locked(TransferState& transfer, std::vector<ChunkWork>* chunks);
  size_t lone_notices_locked() const;
  // How a fence for local memory ended.
  enum class Fence { kHolds, kNotYet, kPluginHangs };
  Fence stop(const std::shared_ptr<TransferState>& transfer, uint64_t post, Nanos close_at,
             Nanos deadline);
  Answers ask_lanes(const std::function<size_t(PeerLane&)>& question);
  Answers ask_stop(const std::shared_ptr<TransferState>& transfer, uint64_t post, Nanos close_at);
  void take_back_locked(const ChunkWork& work, uint32_t lane);
  void loose_one_known_locked(TransferState& transfer);
  Status await_loose(TransferState& transfer, uint64_t post, Nanos deadline);
  void cancel_live_or_leave(const std::shared_ptr<TransferState>& transfer, uint64_t id,
                            Nanos deadline);
  void cancel_live(const std::shared_ptr<TransferState>& transfer, uint64_t id, Nanos deadline);
  void look_again(const std::shared_ptr<TransferState>& transfer, uint64_t id, Nanos deadline);
  void begin_end_locked(const std::shared_ptr<TransferState>& transfer, const Status& status,
                        Nanos close_at);
  void finish_stopped_locked(TransferState& transfer, bool held);
  void end_now(const std::shared_ptr<TransferState>& transfer, const Status& status,
               uint64_t post = 0);
  void expire_deadlines(Nanos now);
  void advance_ends();
  bool advance_end(Nanos now);
  void watch_lanes(Nanos now);
  void watch_carrier(PeerLane& lane, const LanesKept& kept, Nanos now);
  bool end_hung(Nanos now);
  bool in_a_call(Nanos now);
  bool end_refused(Nanos now);
  bool end_left(Nanos now);
  bool heard_every_bye_locked() const;
  void close_given_up_lanes();
  void given_up_lane_closed(uint32_t index);
  void lane_down_asked(uint32_t index);
  void lane_down_confirmed(uint32_t index, const NoticesBrought& brought);
  void ask_about_lane_locked(uint32_t index);
  void confirm_lane_locked(uint32_t index);
  static Status peer_left();
  static Status let_go_locked(const TransferState& transfer, uint64_t post);
  void report_stalls(Nanos now);
  void go_on_after_refusals(Nanos now);
  PeerLane* lane_for_small_locked();
  Loop* join_drivers_locked(TransferState& transfer) const;
  uint32_t live_lanes_locked() const;
  bool became_up_locked();
  void take_refusal_locked(const PeerLane& lane);
  bool refusal_stands_locked(Nanos now) const;
  void withdraw_refusal_locked(const PeerLane& lost);
  bool left_to_others_locked(const PeerLane& asking);
  bool is_turn_of_locked(const PeerLane& asking);
  void pass_turn_locked();
  bool take_turn_locked(const PeerLane& lane);

  EngineShared& shared_;
  const uint64_t id_;
  const std::shared_ptr<InboxShare> inbox_share_;
  std::atomic<tcpx_code> failure_{TCPX_OK};            // to be ended with it by the service thread
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
  uint64_t epoch_due_ = 0;                      // one of ours it did not answer in time
  bool end_done_ = false;                       // of state_ kEnded: lanes closed, transfers ended
  std::atomic<bool> end_asked_{false};          // the service thread knows
  std::atomic<uint32_t> heard_about_lanes_{0};  // questions and answers, any loop
  LaneBits given_up_lanes_;                     // by the peer, who waits until they are closed here
  LaneBits to_close_;                           // of them
  LaneBits confirmed_lanes_;                    // we have told the peer that they are
  std::string connect_note_;                    // why lanes are missing
  std::string path_note_;
  Status refusal_;                   // a lane has not the required path: the end is on its way
  bool refusal_is_certain_ = false;  // not just the first sign of the peer's death, or the lane's
  uint32_t refusal_lane_ = 0;
  Nanos refused_at_ = 0;
  bool connecting_done_ = false;
  std::function<void()> on_up_;
  std::condition_variable changed_;
  LaneSet lanes_;
  std::vector<LaneReport> past_lanes_;  // once it is dismantled
  bool dismantled_ = false;
  std::vector<std::shared_ptr<TransferState>> run_queue_;  // served in turn, not in order
  size_t turn_ = 0;
  std::vector<std::shared_ptr<TransferState>> live_;
  const TransferState* last_polled_ = nullptr;  // only compared
  uint64_t next_transfer_id_ = 1;
  uint32_t next_round_robin_ = 0;
  uint32_t expected_lanes_ = 0;

  std::map<uint64_t, std::shared_ptr<Notice>> notices_;  // to send, by id
  // Lanes ask in every turn, and mostly there is nothing: they need not take the lock for that. Set
  // with the lock held before a lane is woken, taken back by who finds nothing.
  std::atomic<bool> control_waiting_{false};
  std::atomic<bool> notices_waiting_{false};
  std::atomic<bool> chunks_waiting_{false};
  std::map<uint64_t, std::shared_ptr<Notice>> pending_notices_;  // not confirmed
  size_t notices_out_ = 0;                                       // of them: on a lane
  uint64_t notice_bytes_out_ = 0;
  uint64_t outbox_held_ = 0;        // by those without a transfer
  Nanos notice_pause_ = 0;          // the peer had no room at last, and is asked this rarely
  Nanos notices_paused_until_ = 0;  // 0: they are not
  uint64_t next_notice_id_ = 1;
  NoticesSeen notices_seen_;

  LaneBits to_ask_about_, to_confirm_;           // lanes, on any lane
  std::map<uint32_t, UnconfirmedWrites> limbo_;  // by lost lane
  uint32_t lanes_lost_ = 0;
  std::atomic<Nanos> last_stall_report_{0};
  Nanos quiet_until_ = 0;  // of all lanes at once
  Nanos last_watch_ = 0;
  RefusalBudget refusals_;
  LineLimit refusal_lines_{"lanes were held because of refusals"};  // service thread
};

}  // namespace tcpx
