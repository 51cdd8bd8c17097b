// Notifications to a peer, from queued to confirmed. One is on one lane at a time, and goes again
// when that lane is lost or the peer has no room; the receiver drops repeats by their ids. Guarded
// by the peer's mutex, but for may_have_work.
#pragma once

#include <atomic>
#include <condition_variable>
#include <map>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "base/steps.h"
#include "engine/transfer.h"
#include "wire/frame.h"

namespace tcpx {

struct NoticeRules {
  enum class State : uint8_t {
    kHeld,    // with its transfer, whose data is not in place yet, or goes right before it
    kQueued,  // to be sent by any lane
    kOut,     // on a lane, without an answer
    kEnded
  };
  static constexpr const char* kWhat = "a notification";
  using enum State;
  static constexpr std::array kStates = {
      Step{kHeld, "held", {kQueued}},
      Step{kQueued, "queued", {kOut, kEnded}},
      Step{kOut, "out", {kQueued, kEnded}},
      Step{kEnded, "ended", {}},
  };
};

struct Notice {
  using State = NoticeRules::State;
  Stepped<NoticeRules> state;
  uint64_t id = 0;  // unique in the session
  std::vector<uint8_t> bytes;
  std::shared_ptr<TransferState> transfer;  // the one it belongs to, if any
  bool left_alone = false;                  // whoever sent it waits no longer
  Status status;
  uint32_t lane = kNoLane;    // kOut: which
  uint64_t outbox_bytes = 0;  // what it takes of the outbox
  std::condition_variable ended;

  // Nobody else will hear how it ended.
  bool is_lone() const { return left_alone && transfer == nullptr; }
};

class NoticeLedger {
 public:
  // Notifications by themselves without an answer, of all lanes to a peer.
  static constexpr size_t kMostOut = 128;

  void queue(const std::shared_ptr<Notice>& notice);  // gets its id
  bool empty() const { return pending_.empty(); }

  // Those that nobody's transfer waits for must not heap up while the peer's application does not
  // read: `limit` bytes, unless it is a single one.
  bool outbox_takes(uint64_t bytes, uint64_t limit) const {
    return outbox_held_ == 0 || outbox_held_ + bytes <= limit;
  }
  uint64_t outbox_held() const { return outbox_held_; }
  void take_outbox(Notice& notice);

  // ---- from lanes ----
  // Any thread: whether next() is worth the lock.
  bool may_have_work() const { return waiting_.load(std::memory_order_acquire); }
  // The oldest one that may go out now, on this lane; null: none.
  std::shared_ptr<Notice> next(uint32_t lane);
  struct Answered {
    std::shared_ptr<Notice> ended;  // the notification, if that is its end
    bool held_back = false;         // it goes again, later
  };
  Answered answered(uint64_t id, wire::NoticeVerdict verdict, Nanos now);
  // What was on it goes by another.
  void lane_lost(uint32_t lane);

  // The pause of a peer that had no room is over. False: there is none, or it lasts.
  bool end_pause(Nanos now);
  // Its transfer has failed: it is not sent if it has not been.
  void withdraw(const std::shared_ptr<Notice>& notice);
  size_t count_lone() const;
  // All that have no end yet; whoever waits for one is told.
  void end_all(const Status& status);

 private:
  void off_lane(Notice& notice);
  void send_again(const std::shared_ptr<Notice>& notice);
  bool hold_back(const std::shared_ptr<Notice>& notice, Nanos now);
  void forget(const std::shared_ptr<Notice>& notice);

  std::map<uint64_t, std::shared_ptr<Notice>> pending_;  // queued or out, by id
  std::map<uint64_t, std::shared_ptr<Notice>> queued_;
  std::atomic<bool> waiting_{false};
  size_t out_ = 0;
  uint64_t bytes_out_ = 0;
  uint64_t outbox_held_ = 0;
  Nanos pause_ = 0;         // the peer had no room at last, and is asked this rarely
  Nanos paused_until_ = 0;  // 0: they are not
  uint64_t next_id_ = 1;
};

}  // namespace tcpx
