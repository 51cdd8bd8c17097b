#include "path/lane.h"

namespace tcpx {

namespace {

// Frames and chunks are used over and over. What a peer has made long once is not kept with them:
// lists of 1000 pieces take 64 KiB, and chunks of up to this many are all that speed needs.
constexpr size_t kKeptBytes = 4096;

template <class T>
void clear(std::vector<T>& list) {
  if (list.capacity() * sizeof(T) > kKeptBytes)
    list = {};
  else
    list.clear();
}

}  // namespace

void TxFrame::reset() {
  next = nullptr;
  header = {};
  clear(table);
  clear(payload);
  clear(memory);
  clear(pieces);
  clear(regions.list);
  place = {};
  slot = nullptr;
  move = 0;
  copied = 0;
  trailer_status = TCPX_OK;
  beside = started = false;
  left = 0;
  next_payload = 0;
}

void RxChunk::reset() {
  if (!(state == State::kFree)) state.step(State::kFree);
  header = {};
  clear(pieces);
  clear(destination);
  clear(landing);
  clear(regions.list);
  place = {};
  refusal = TCPX_OK;
  slot = nullptr;
  spare = false;
  move = 0;
  copied = 0;
  message = {};
  reserved = false;
}

}  // namespace tcpx
