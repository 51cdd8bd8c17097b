// What each end of a lane's comms shows the other one through them: that it holds the session's key
// (wire/net_setup.h), so that a comm made by a stranger is never used.
//
// To the comms it is a frame and a chunk like others. It goes through slots: a plugin may take
// memory of its own kind only.
#pragma once

#include "path/net/carrier_settings.h"
#include "path/net/receive_comm.h"
#include "path/net/send_comm.h"
#include "wire/net_setup.h"

namespace tcpx::net {

class CommProof final : public ReceiveComm::Events {
 public:
  explicit CommProof(const NetCarrierSettings& settings) : settings_(settings) {}

  // ---- ours ----
  // To who made this offer; to be called until it is shown.
  Status show(const wire::NetSetup& peers_offer, SendComm& comm);
  bool is_shown() const { return shown_; }
  bool is_ours(const TxFrame* frame) const { return frame == &frame_; }
  void sent() { give_slot(SlotUse::kSend, &out_); }  // or never will be

  // ---- the peer's ----
  Status expect(ReceiveComm& comm);  // posts its receive
  bool is_peers(const RxChunk* chunk) const { return chunk == &chunk_; }
  bool is_here() const { return here_; }
  // Once it is here, to be called until it is found right. Not ok: it is wrong.
  Status check(const wire::NetSetup& our_offer, bool* right);

  // ---- moves: they have memory in here ----
  size_t moving() const { return (out_.ticket != 0) + (in_.ticket != 0); }
  void look_at_moves();

 private:
  struct Move {
    wire::Digest proof{};
    iovec memory{proof.data(), proof.size()};
    uint8_t* slot = nullptr;
    uint64_t ticket = 0;
  };

  // Of the receive comm, which has nothing else to receive yet.
  Status arrived(RxChunk* chunk) override;
  tcpx_code move_failed(RxChunk*, const std::string&) override { return TCPX_COPY_FAILED; }
  Status take_slot(SlotUse use, Move* move);
  void give_slot(SlotUse use, Move* move);
  Status look(Move* move, bool* over);

  const NetCarrierSettings& settings_;
  Move out_, in_;
  TxFrame frame_;
  RxChunk chunk_;
  bool shown_ = false;  // handed to the comm
  bool here_ = false;   // in its slot
};

}  // namespace tcpx::net
