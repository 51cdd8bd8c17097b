// Lanes that are lost, on either side, and what has to be said about them.
//
// What a lost lane had sent may still sit in the peer's receive buffer, and land: it goes again
// only when the peer has said that its end is closed. Each side asks, and answers when it has
// closed its own end. Questions and answers go by any lane that is left, and again when that one
// is lost too. Guarded by the peer's mutex, but for may_have_news.
#pragma once

#include <atomic>
#include <map>
#include <vector>

#include "engine/lane_bits.h"
#include "engine/transfer.h"

namespace tcpx {

// What a lost lane had sent and the peer had not confirmed: it may have arrived.
struct UnconfirmedWrites {
  std::vector<ChunkWork> chunks;
  std::vector<NoticeBehind> notices;  // of the lane's, those after the first `notices_before`
  uint64_t notices_before = 0;
};

class LaneLedger {
 public:
  // ---- lanes that we have lost ----
  // Asks about it, and about all that are not confirmed yet; tells again what we have confirmed.
  void lost(uint32_t lane, UnconfirmedWrites writes);
  // The peer has closed its end. False: nobody asked, or it was said before.
  bool confirmed(uint32_t lane, UnconfirmedWrites* out);

  // ---- lanes that the peer has given up ----
  // Whether it is news, and the lane has to be closed (to_close).
  bool given_up_by_peer(uint32_t lane);
  bool is_given_up(uint32_t lane) const { return given_up_.has(lane); }
  LaneBits take_to_close();
  void closed(uint32_t lane);  // our end: the peer may be told

  // ---- what is to be said ----
  struct News {
    enum class Kind { kQuestion, kAnswer } kind;
    uint32_t lane;
  };
  // Any thread: whether next() is worth the lock.
  bool may_have_news() const { return news_.load(std::memory_order_acquire); }
  bool next(News* out);
  // Whether a session can have so much to say about lost lanes as it has by now. Any thread.
  bool heard_too_much();
  void forget_all();

 private:
  void say() { news_.store(true, std::memory_order_release); }

  std::map<uint32_t, UnconfirmedWrites> limbo_;  // by lane, until confirmed
  LaneBits to_ask_about_;
  LaneBits given_up_;  // by the peer, who waits until they are closed here
  LaneBits to_close_;  // of them
  LaneBits closed_;    // we have told the peer that they are
  LaneBits to_confirm_;
  std::atomic<bool> news_{false};
  std::atomic<uint32_t> heard_{0};  // questions and answers
};

}  // namespace tcpx
