#include "path/tcp/send_queue.h"

#include <sys/mman.h>

#include <algorithm>

namespace tcpx {

namespace {

constexpr size_t kZeroBytes = 1u << 20;

// Source of the zeros that fill an abandoned frame. Never written, so it costs no memory.
uint8_t* zeros() {
  static uint8_t* const page = static_cast<uint8_t*>(
      mmap(nullptr, kZeroBytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  return page;
}

}  // namespace

void SendQueue::push(TxFrame* frame) {
  frame->next = nullptr;
  frame->started = false;
  if (last_ != nullptr)
    last_->next = frame;
  else
    first_ = frame;
  last_ = frame;
  if (frame->has_tail()) ++payload_frames_;
}

bool SendQueue::take_back(TxFrame* frame) {
  if (frame->started) return false;
  TxFrame** link = &first_;
  TxFrame* previous = nullptr;
  while (*link != nullptr && *link != frame) {
    previous = *link;
    link = &previous->next;
  }
  if (*link == nullptr) return false;
  *link = frame->next;
  if (last_ == frame) last_ = previous;
  if (frame->has_tail()) --payload_frames_;
  return true;
}

TxFrame* SendQueue::drop() {
  TxFrame* frame = first_;
  if (frame == nullptr) return nullptr;
  first_ = frame->next;
  if (first_ == nullptr) last_ = nullptr;
  if (frame->has_tail()) --payload_frames_;
  return frame;
}

void SendQueue::begin(TxFrame* frame) {
  frame->started = true;
  frame->header.sequence = next_sequence_++;
  wire::encode_header(frame->header, frame->head);
  frame->left = wire::kHeaderBytes + frame->table.size();
  frame->next_payload = 0;
  if (frame->has_tail()) {
    wire::encode_trailer({frame->trailer_status, frame->header.sequence}, frame->tail);
    frame->left += frame->header.payload_bytes + wire::kTrailerBytes;
  }
}

// What is left of a frame is a suffix of head, table, payload, tail.
size_t SendQueue::gather_frame(TxFrame* frame, iovec* iov, size_t room, size_t* bytes) {
  size_t count = 0;
  auto add = [&](const void* base, size_t length) {
    iov[count++] = {const_cast<void*>(base), length};
    *bytes += length;
  };
  uint64_t tail = frame->has_tail() ? wire::kTrailerBytes : 0;
  uint64_t payload = frame->has_tail() ? frame->header.payload_bytes : 0;
  uint64_t left = frame->left;
  if (left > tail + payload + frame->table.size()) {
    size_t rest = left - tail - payload - frame->table.size();
    add(frame->head + wire::kHeaderBytes - rest, rest);
    left -= rest;
  }
  if (left > tail + payload) {
    size_t rest = left - tail - payload;
    add(frame->table.data() + frame->table.size() - rest, rest);
    left -= rest;
  }
  for (size_t i = frame->next_payload; payload > 0 && i < frame->payload.size() && count + 1 < room;
       ++i) {
    add(frame->payload[i].iov_base, frame->payload[i].iov_len);
    left -= frame->payload[i].iov_len;
  }
  if (left > 0 && left <= tail) add(frame->tail + tail - left, left);
  return count;
}

size_t SendQueue::gather(iovec* iov, size_t room, uint64_t enough, size_t* bytes) {
  size_t count = 0;
  for (TxFrame* frame = first_; frame != nullptr && count + 4 < room; frame = frame->next) {
    if (!frame->started) begin(frame);
    size_t before = *bytes;
    count += gather_frame(frame, iov + count, room - count, bytes);
    if (*bytes - before < frame->left) break;  // did not fit whole
    if (*bytes >= enough) break;
  }
  return count;
}

void SendQueue::advance_payload(TxFrame* frame, uint64_t moved) {
  while (moved > 0) {
    iovec& part = frame->payload[frame->next_payload];
    size_t length = std::min<uint64_t>(moved, part.iov_len);
    part.iov_base = static_cast<uint8_t*>(part.iov_base) + length;
    part.iov_len -= length;
    moved -= length;
    if (part.iov_len == 0) ++frame->next_payload;
  }
}

TxFrame* SendQueue::advance(size_t* bytes) {
  while (*bytes > 0) {
    TxFrame* frame = first_;
    const uint64_t tail = frame->has_tail() ? wire::kTrailerBytes : 0;
    const uint64_t payload = frame->has_tail() ? frame->header.payload_bytes : 0;
    const size_t step = std::min<uint64_t>(*bytes, frame->left);
    // The part of this step that lies in the payload moves the payload cursor.
    const uint64_t before = std::min(frame->left, tail + payload);
    frame->left -= step;
    *bytes -= step;
    advance_payload(frame, before - std::min(before, std::max(frame->left, tail)));
    if (frame->left == 0) return drop();
  }
  return nullptr;
}

void SendQueue::abandon(TxFrame* frame, tcpx_code reason) {
  uint64_t left = 0;
  for (size_t i = frame->next_payload; i < frame->payload.size(); ++i)
    left += frame->payload[i].iov_len;
  if (left == 0) return;  // all payload is with the kernel
  frame->payload.clear();
  frame->next_payload = 0;
  for (; left > 0; left -= frame->payload.back().iov_len)
    frame->payload.push_back({zeros(), std::min<uint64_t>(left, kZeroBytes)});
  frame->trailer_status = static_cast<uint16_t>(reason);
  wire::encode_trailer({frame->trailer_status, frame->header.sequence}, frame->tail);
}

}  // namespace tcpx
