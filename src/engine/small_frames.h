// Frames of a lane that carry no chunk: heads alone (answers, pings, goodbyes), and notifications.
// In the exclusive section of its loop, but for unread_since().
#pragma once

#include "engine/answer_flow.h"
#include "engine/lane_core.h"
#include "engine/pool.h"

namespace tcpx {

class SmallFrames {
 public:
  explicit SmallFrames(LaneCore& core);

  // Nothing but a head.
  void send(const wire::Header& header);
  // For one with payload, which goes to the lane by itself.
  TxFrame* take() { return frames_.take(); }
  void sent(TxFrame* frame);
  // Since when the peer has not read its answers, so that we do not read it; 0: it does.
  Nanos unread_since() const { return answers_.unread_since(); }
  void drain() { frames_.drain(); }

 private:
  LaneCore& core_;
  AnswerFlow answers_;
  Pool<TxFrame> frames_;
};

}  // namespace tcpx
