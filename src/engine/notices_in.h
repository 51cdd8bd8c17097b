// Notifications from a peer: each is delivered to the application once, whatever lanes are lost on
// the way. Called from the loops of all its lanes.
#pragma once

#include <memory>

#include "base/mutex.h"
#include "engine/notice_queue.h"
#include "engine/notices_seen.h"
#include "engine/shared.h"
#include "wire/frame.h"

namespace tcpx {

class NoticesIn {
 public:
  NoticesIn(EngineShared& shared, uint64_t peer)
      : shared_(shared), share_(std::make_shared<InboxShare>(peer)) {}

  bool fits(uint64_t bytes) const;     // ever
  bool reserve(uint64_t bytes);        // room in the inbox for one that is arriving
  void does_not_come(uint64_t bytes);  // although it was reserved
  // With an id: may have come before, on a lane that was lost.
  wire::NoticeVerdict arrived(uint64_t id, MessageBytes&& bytes, bool reserved);
  // Directly behind its data: sent once, on one lane, so it needs no id.
  wire::NoticeVerdict arrived_behind(MessageBytes&& bytes, bool reserved);

 private:
  wire::NoticeVerdict push(MessageBytes&& bytes, bool reserved);

  EngineShared& shared_;
  const std::shared_ptr<InboxShare> share_;
  Mutex mu_;
  NoticesSeen seen_ TCPX_GUARDED_BY(mu_);
};

}  // namespace tcpx
