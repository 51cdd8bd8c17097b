// Notifications on one lane: by themselves, and directly behind the data of their WRITE.
#include <algorithm>
#include <utility>

#include "base/text.h"
#include "engine/peer.h"
#include "engine/peer_lane.h"

namespace tcpx {

namespace {

// Of a notification that has been announced; then as much again as has come.
constexpr uint64_t kFirstMessageBytes = 64u << 10;

// Of one that was refused by its head.
wire::NoticeVerdict verdict_of(tcpx_code refusal) {
  return refusal == TCPX_LIMIT ? wire::NoticeVerdict::kNever : wire::NoticeVerdict::kNotNow;
}

}  // namespace

void PeerLane::send_notice(std::shared_ptr<Notice> notice) {
  TxFrame* frame = small_frames_.take();
  frame->header.type = wire::FrameType::kNotify;
  frame->header.transfer = notice->id;
  queue_notice(frame, std::move(notice));
}

void PeerLane::queue_notice(TxFrame* frame, std::shared_ptr<Notice> notice) {
  frame->header.payload_bytes = notice->bytes.size();
  if (!notice->bytes.empty())
    frame->payload.push_back({notice->bytes.data(), notice->bytes.size()});
  notice_frames_[frame] = std::move(notice);
  lane_->queue(frame);
}

// Where a notification goes. A long one has its place in the inbox before it arrives, so that all
// lanes together hold no more than the inbox has room for.
void PeerLane::notice_head(RxChunk* chunk) {
  uint64_t bytes = chunk->header.payload_bytes;
  if (!peer_.notices_in().fits(bytes)) {
    chunk->refusal = TCPX_LIMIT;  // for ever
  } else if (bytes > kFirstMessageBytes) {
    chunk->reserved = peer_.notices_in().reserve(bytes);
    if (!chunk->reserved) chunk->refusal = TCPX_BUSY;  // for now
  }
  chunk->discard = chunk->refusal != TCPX_OK;
  if (!chunk->discard && bytes > 0) extend_landing(chunk);
}

void PeerLane::extend_landing(RxChunk* chunk) {
  MessageBytes& message = chunk->message;
  size_t have = message.size();
  size_t bytes = std::min<uint64_t>(chunk->header.payload_bytes,
                                    std::max<uint64_t>(2 * have, kFirstMessageBytes));
  message.reserve(bytes);
  message.resize(bytes);
  chunk->landing.assign(1, {message.data() + have, bytes - have});
}

void PeerLane::notice_received(RxChunk* chunk) {
  if (chunk->header.type == wire::FrameType::kNotifyBehind) return notice_behind_received(chunk);
  if (!bye_sent_) {  // what is taken must be confirmed, which no longer happens behind a goodbye
    wire::Header ack;
    ack.type = wire::FrameType::kNotifyAck;
    ack.transfer = chunk->header.transfer;
    ack.status = static_cast<uint16_t>(
        chunk->discard
            ? verdict_of(chunk->refusal)
            : peer_.notices_in().arrived(chunk->header.transfer, std::move(chunk->message),
                                         std::exchange(chunk->reserved, false)));
    send_small(ack);
  }
  drop_chunk(chunk);
}

// ---- notifications directly behind their data -----------------------------------------------

// Sent when the data is confirmed, a notification costs a round trip more: under NIXL 4 KiB took 19
// us, now 12, 64 KiB 29 and 21.
bool PeerLane::takes_notice_behind(const TransferState& transfer) const {
  if (!traits_.keeps_stream_order || transfer.plan.op != TCPX_WRITE) return false;
  if (moves_.stages(transfer.plan.chunks.back().local)) return false;  // it would overtake the data
  return behind_.may_follow(transfer, transfer.notice->bytes.size());
}

void PeerLane::send_notice_behind(std::shared_ptr<Notice> notice, const ChunkOut& last_chunk) {
  TxFrame* frame = small_frames_.take();
  frame->header.type = wire::FrameType::kNotifyBehind;
  frame->header.transfer = last_chunk.transfer_id;
  frame->header.chunk = behind_.sent.chunks;
  behind_.out.push_back({last_chunk.transfer, last_chunk.transfer_id});
  queue_notice(frame, std::move(notice));
}

void PeerLane::notice_behind_received(RxChunk* chunk) {
  wire::Header ack;
  ack.type = wire::FrameType::kNotifyBehindAck;
  ack.transfer = chunk->header.transfer;
  const wire::NoticeVerdict verdict = take_notice_behind(chunk);
  ack.status = static_cast<uint16_t>(verdict);
  behind_.brought.add(verdict == wire::NoticeVerdict::kDelivered);
  behind_.placed = {};  // once only
  send_small(ack);
  drop_chunk(chunk);
}

wire::NoticeVerdict PeerLane::take_notice_behind(RxChunk* chunk) {
  if (!moves_.none_placing() || bye_sent_) return wire::NoticeVerdict::kNotNow;
  if (chunk->discard) return verdict_of(chunk->refusal);
  if (!behind_.placed.are(chunk->header.transfer, chunk->header.chunk))
    return wire::NoticeVerdict::kNotNow;
  return peer_.notices_in().arrived_behind(std::move(chunk->message),
                                           std::exchange(chunk->reserved, false));
}

Status PeerLane::notice_behind_answered(const wire::Header& header) {
  if (behind_.out.empty() || behind_.out.front().transfer_id != header.transfer)
    return peer_error(
        TCPX_PROTOCOL_ERROR,
        strf("answer for a notification behind transfer {}, which is not the next one",
             header.transfer));
  NoticeBehind notice = std::move(behind_.out.front());
  behind_.out.erase(behind_.out.begin());
  ++behind_.answered;
  return peer_.transfers().notice_behind_answered(notice, header.verdict());
}

}  // namespace tcpx
