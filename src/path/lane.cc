#include "path/lane.h"

namespace tcpx {

void TxFrame::reset() {
  next = nullptr;
  header = {};
  table.clear();
  payload.clear();
  pieces.clear();
  trailer_status = TCPX_OK;
  beside = started = false;
  left = 0;
  next_payload = 0;
}

void RxChunk::reset() {
  header = {};
  pieces.clear();
  destination.clear();
  landing.clear();
  discard = false;
  refusal = TCPX_OK;
  staging = nullptr;
  ticket = 0;
  message.clear();
}

}  // namespace tcpx
