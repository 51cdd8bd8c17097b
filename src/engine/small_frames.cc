#include "engine/small_frames.h"

#include "engine/notice_ledger.h"
#include "engine/notices_behind.h"
#include "wire/handshake.h"

namespace tcpx {

namespace {

// Answers that wait to be sent at most. A peer that follows the protocol never has so many
// questions without an answer on a lane: its window, notifications by themselves and behind data,
// a ping and lanes that it lost. So two of them that ask each other as much as they can never
// stop reading each other.
size_t most_answers(uint32_t window) {
  return window + NoticeLedger::kMostOut + NoticesBehind::kMostOut + wire::kMaxLanes + 16;
}

}  // namespace

// What a lane needs at once in ordinary use; more is added when it is first needed, and kept.
SmallFrames::SmallFrames(LaneCore& core) : core_(core), answers_(most_answers(core.window)) {
  frames_.fill(2 * core.window);
}

void SmallFrames::send(const wire::Header& header) {
  if (!core_.open() || core_.lane->silent()) return;
  TxFrame* frame = frames_.take();
  frame->header = header;
  if (header.is_answer() && answers_.queued()) core_.lane->hold_reading(ReadHold::kUnreadAnswers);
  core_.lane->queue(frame);
}

void SmallFrames::sent(TxFrame* frame) {
  if (frame->header.is_answer() && answers_.sent())
    core_.lane->resume_reading(ReadHold::kUnreadAnswers);
  frames_.give(frame);
}

}  // namespace tcpx
