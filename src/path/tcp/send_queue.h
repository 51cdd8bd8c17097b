// Frames that wait for a stream to take them, and how much of the first one it has taken. Knows no
// socket: says where the next bytes lie, and is told how many are gone.
#pragma once

#include <sys/uio.h>

#include <cstdint>

#include "path/lane.h"

namespace tcpx {

class SendQueue {
 public:
  bool empty() const { return first_ == nullptr; }
  TxFrame* first() { return first_; }
  // Those whose payload goes through the stream.
  uint32_t payload_frames() const { return payload_frames_; }

  void push(TxFrame* frame);
  // Takes back one that has not started; false if it has, or is not here.
  bool take_back(TxFrame* frame);
  // The first one, whatever is left of it; null: there is none.
  TxFrame* drop();

  // The next bytes, of several frames if they are short: about `enough` at most.
  size_t gather(iovec* iov, size_t room, uint64_t enough, size_t* bytes);
  // So many of them are gone: the next frame that is out with them, to be asked until there is none
  // and *bytes are 0.
  TxFrame* advance(size_t* bytes);

  // Zeros fill the place of what is left of the payload of a frame that has started, and its
  // trailer says why.
  static void abandon(TxFrame* frame, tcpx_code reason);

 private:
  void begin(TxFrame* frame);
  static size_t gather_frame(TxFrame* frame, iovec* iov, size_t room, size_t* bytes);
  static void advance_payload(TxFrame* frame, uint64_t moved);

  TxFrame* first_ = nullptr;
  TxFrame* last_ = nullptr;
  uint32_t payload_frames_ = 0;
  uint32_t next_sequence_ = 0;
};

}  // namespace tcpx
