// One READ or WRITE: its plan, where it stands, and how it ended.
//
// Everything but `code` and `drivers` is guarded by the peer's mutex. `code` is what users see:
// TCPX_IN_PROGRESS until the transfer has ended, then its final code, written once per post.
//
// More than 30 members: all facts of one transfer, which begin, change and end together under one
// lock, and are forgotten together by its next post.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/steps.h"

#include "engine/lane_bits.h"
#include "engine/plan.h"
#include "engine/staging.h"

namespace tcpx {

class Fence;
class Loop;
class Peer;
struct Notice;
struct TransferState;

// A chunk on its way to a lane and back.
struct ChunkWork {
  std::shared_ptr<TransferState> transfer;
  uint64_t transfer_id = 0;
  uint32_t chunk = 0;
  uint64_t epoch = 0;
  bool shared = false;               // other lanes carry parts of the transfer too
  std::shared_ptr<Notice> notice{};  // goes directly behind it
  uint64_t copied = 0;               // on its way back: bytes that were copied once more here
};

// A notification that went directly behind the last chunk of its transfer.
struct NoticeBehind {
  std::shared_ptr<TransferState> transfer;
  uint64_t transfer_id = 0;
};

inline constexpr int kNotPosted = -1;

struct LaneShare {
  uint64_t bytes = 0;
  uint64_t chunks = 0;
};

struct TransferRules {
  enum class State : uint8_t {
    kIdle,        // never posted
    kMoving,      // chunks to hand out, or to be answered
    kNotifying,   // the data is in place, the notification is on its way
    kCancelling,  // nothing more is handed out; whoever cancels ends it
    kFailing,     // the same; ends with `status` when nothing of it is under way any more
    kEnded        // has its code; may be posted again
  };
  static constexpr const char* kWhat = "a transfer";
  using enum State;
  static constexpr std::array kStates = {
      Step{kIdle, "idle", {kMoving}},
      Step{kMoving, "moving", {kNotifying, kCancelling, kFailing, kEnded}},
      Step{kNotifying, "notifying", {kCancelling, kFailing, kEnded}},
      Step{kCancelling, "cancelling", {kFailing, kEnded}},
      Step{kFailing, "failing", {kEnded}},
      Step{kEnded, "ended", {kMoving}},
  };
};

struct TransferState : std::enable_shared_from_this<TransferState> {
  using Stage = TransferRules::State;
  Plan plan;
  std::shared_ptr<Peer> peer;

  std::atomic<int> code{kNotPosted};
  std::atomic<int> drivers{0};  // callers that wait for it in a loop; raised with the mutex held

  // ---- guarded by the peer's mutex ----
  Stepped<TransferRules> stage;
  // The loop in which a driver may sleep: nudged at the end. Loops outlive transfers. Drivers may
  // be in different ones (after a lost lane, or from one post to the next): then all are nudged.
  Loop* driving = nullptr;
  bool driven_apart = false;
  uint64_t id = 0;          // of this post, unique in the session
  uint64_t epoch = 0;       // of the peer, as it was known at the post
  LaneBits lanes;           // that may carry it
  uint32_t next_chunk = 0;  // first chunk not yet handed to a lane
  uint32_t in_flight = 0;   // chunks at lanes or waiting for a lost lane's fence
  uint32_t settled = 0;     // chunks confirmed
  // Of posts that have ended: chunks, and notifications behind them, that may still land at the
  // peer. They leave when they are answered, or when the peer has closed the lane that was lost.
  uint32_t loose = 0;
  std::vector<uint32_t> again;   // chunks to send again (lane lost)
  bool queued = false;           // with the scheduler
  size_t live_at = 0;            // where in the peer's list of live transfers
  bool released = false;         // nobody posts it or waits for it any more
  bool held = false;             // a plugin that hangs may still use the local memory
  Nanos close_at = kNever;       // of one that fails: by then lanes have to let go of its memory
  std::shared_ptr<Fence> fence;  // by the service thread, for that
  Status status;                 // how it failed
  Nanos deadline = kNever;
  std::shared_ptr<Notice> notice;  // to send when the data is settled
  bool notice_behind = false;      // it is on its way already, behind the data
  int waiters = 0;
  std::condition_variable ended;

  // What happened, for the receipt.
  Nanos posted_at = 0, first_out = 0, last_settled = 0, notice_out = 0, ended_at = 0;
  uint64_t retries = 0;
  uint64_t staging_bytes = 0;
  uint32_t lanes_lost = 0;
  Staging staging;
  std::vector<LaneShare> shares;  // by lane index

  bool live() const { return stage != Stage::kIdle && stage != Stage::kEnded; }
  bool is_live_post(uint64_t post) const { return live() && id == post; }
  bool moving() const { return stage == Stage::kMoving; }
  // Posted, and neither failing nor cancelled.
  bool well() const { return stage == Stage::kMoving || stage == Stage::kNotifying; }
  uint32_t first_left() const { return again.empty() ? next_chunk : again.back(); }
  uint32_t chunks_left() const {
    return static_cast<uint32_t>(again.size() + plan.chunks.size()) - next_chunk;
  }
  bool has_work() const { return moving() && chunks_left() > 0; }
  bool all_settled() const { return settled == plan.chunks.size(); }
  // Sequentially consistent, as is the store at the end: a waiter says that it sleeps and then
  // looks here, who ends the transfer stores and then looks whether somebody sleeps.
  bool in_progress() const { return code.load() == TCPX_IN_PROGRESS; }
};

}  // namespace tcpx
