#include "engine/lane_notices.h"

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "engine/peer.h"

namespace tcpx {

namespace {

// Of a notification that has been announced; then as much again as has come.
constexpr uint64_t kFirstMessageBytes = 64u << 10;

// Of one that was refused by its head.
wire::NoticeVerdict verdict_of(tcpx_code refusal) {
  return refusal == TCPX_LIMIT ? wire::NoticeVerdict::kNever : wire::NoticeVerdict::kNotNow;
}

}  // namespace

// ---- out -------------------------------------------------------------------------------------

void LaneNotices::fill() {
  while (std::shared_ptr<Notice> notice = core_.peer.notices().next(core_.index)) {
    TxFrame* frame = small_.take();
    frame->header.type = wire::FrameType::kNotify;
    frame->header.transfer = notice->id;
    queue(frame, std::move(notice));
  }
}

void LaneNotices::queue(TxFrame* frame, std::shared_ptr<Notice> notice) {
  frame->header.payload_bytes = notice->bytes.size();
  if (!notice->bytes.empty())
    frame->payload.push_back({notice->bytes.data(), notice->bytes.size()});
  out_[frame] = std::move(notice);
  core_.lane->queue(frame);
}

void LaneNotices::sent(TxFrame* frame) {
  out_.erase(frame);
  small_.sent(frame);
}

// Sent when the data is confirmed, a notification costs a round trip more: under NIXL 4 KiB took 19
// us, now 12, 64 KiB 29 and 21.
bool LaneNotices::may_follow(const TransferState& transfer) const {
  core_.assert_inside();
  if (!core_.traits.keeps_stream_order || transfer.plan.op != TCPX_WRITE) return false;
  // It would overtake the data.
  if (core_.moves.stages(transfer.plan.chunks.back().local)) return false;
  return behind_.may_follow(transfer, transfer.notice->bytes.size());
}

void LaneNotices::send_behind(std::shared_ptr<Notice> notice,
                              const std::shared_ptr<TransferState>& transfer,
                              uint64_t transfer_id) {
  TxFrame* frame = small_.take();
  frame->header.type = wire::FrameType::kNotifyBehind;
  frame->header.transfer = transfer_id;
  frame->header.chunk = behind_.sent.chunks;
  behind_.out.push_back({transfer, transfer_id});
  queue(frame, std::move(notice));
}

Status LaneNotices::behind_answered(const wire::Header& header) {
  if (behind_.out.empty() || behind_.out.front().transfer_id != header.transfer)
    return peer_error(
        TCPX_PROTOCOL_ERROR,
        strf("answer for a notification behind transfer {}, which is not the next one",
             header.transfer));
  NoticeBehind notice = std::move(behind_.out.front());
  behind_.out.erase(behind_.out.begin());
  ++behind_.answered;
  return core_.peer.transfers().notice_behind_answered(notice, header.verdict());
}

void LaneNotices::give_up(UnconfirmedWrites* to) {
  out_.clear();
  to->notices = std::move(behind_.out);
  to->notices_before = behind_.answered;
}

// ---- in --------------------------------------------------------------------------------------

// Where a notification goes. A long one has its place in the inbox before it arrives, so that all
// lanes together hold no more than the inbox has room for.
void LaneNotices::head(RxChunk* chunk) {
  const uint64_t bytes = chunk->header.payload_bytes;
  NoticesIn& inbox = core_.peer.notices_in();
  if (!inbox.fits(bytes)) return chunk->drop(TCPX_LIMIT);  // for ever
  if (bytes > kFirstMessageBytes) {
    chunk->reserved = inbox.reserve(bytes);
    if (!chunk->reserved) return chunk->drop(TCPX_BUSY);  // for now
  }
  chunk->state.step(RxChunk::State::kLanding);
  if (bytes > 0) extend_landing(chunk);
}

void LaneNotices::extend_landing(RxChunk* chunk) {
  MessageBytes& message = chunk->message;
  size_t have = message.size();
  size_t bytes = std::min<uint64_t>(chunk->header.payload_bytes,
                                    std::max<uint64_t>(2 * have, kFirstMessageBytes));
  message.reserve(bytes);
  message.resize(bytes);
  chunk->landing.assign(1, {message.data() + have, bytes - have});
}

// What is taken must be confirmed, which no longer happens behind a goodbye.
void LaneNotices::received(RxChunk* chunk) {
  chunk->state.step(RxChunk::State::kArrived);
  const bool behind = chunk->header.type == wire::FrameType::kNotifyBehind;
  if (!behind && core_.said_bye) return;
  wire::Header ack;
  ack.type = behind ? wire::FrameType::kNotifyBehindAck : wire::FrameType::kNotifyAck;
  ack.transfer = chunk->header.transfer;
  ack.status = static_cast<uint16_t>(behind ? take_behind(chunk) : take(chunk));
  small_.send(ack);
}

wire::NoticeVerdict LaneNotices::take(RxChunk* chunk) {
  if (chunk->refusal != TCPX_OK) return verdict_of(chunk->refusal);
  return core_.peer.notices_in().arrived(chunk->header.transfer, std::move(chunk->message),
                                         std::exchange(chunk->reserved, false));
}

wire::NoticeVerdict LaneNotices::take_behind(RxChunk* chunk) {
  const ChunksInARow placed = std::exchange(behind_.placed, {});  // once only
  auto verdict = wire::NoticeVerdict::kNotNow;
  if (core_.moves.none_placing() && !core_.said_bye) {
    if (chunk->refusal != TCPX_OK)
      verdict = verdict_of(chunk->refusal);
    else if (placed.are(chunk->header.transfer, chunk->header.chunk))
      verdict = core_.peer.notices_in().arrived_behind(std::move(chunk->message),
                                                       std::exchange(chunk->reserved, false));
  }
  behind_.brought.add(verdict == wire::NoticeVerdict::kDelivered);
  return verdict;
}

void LaneNotices::give_back(RxChunk* chunk) {
  if (chunk->reserved) core_.peer.notices_in().does_not_come(chunk->header.payload_bytes);
}

}  // namespace tcpx
