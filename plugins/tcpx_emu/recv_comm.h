// The receiving end: control messages say what comes on which data socket; bytes for CUDA memory
// land in pages of the bounce pool and are described in the unpack queue, bytes for host memory go
// straight where they belong.
#pragma once

#include <sys/uio.h>

#include <memory>
#include <vector>

#include "comm.h"
#include "pool.h"
#include "ring.h"
#include "unpack_queue.h"

namespace tcpx_emu {

class RecvComm final : public Comm {
 public:
  // `queue` and `pool` are null in a plain plugin (TCPX_EMU_TYPE=host).
  RecvComm(WorldPtr world, int device, std::unique_ptr<Setup> setup,
           std::unique_ptr<UnpackQueue> queue, std::shared_ptr<Pool> pool);
  ~RecvComm() override;

  Result irecv(void* data, int size, const Region* region, Request** out);
  Result consumed(Request* request);
  Result check_close() override;

 private:
  static constexpr size_t kQueue = 32;  // pieces per socket
  static constexpr size_t kMaxIov = 512;

  // Bytes that come on one socket, for one request.
  struct Piece {
    Request* request;
    uint8_t* straight;  // next byte's place; null: into fragments
    uint32_t fragment;  // being filled, of the request's slot
    uint32_t filled;    // of it
    uint32_t left;      // of the piece
  };
  struct DataSocket {
    Fd fd;
    Ring<Piece, kQueue> queue;
    bool ended = false;  // nothing more comes
  };

  void connected(Connection connection) override;
  void progress() override;
  bool complete(const Request& request) const override;
  void reported(Request& request, int* sizes) override;

  bool straight(const Request& request) const;
  bool never_completes();
  bool read_control();
  bool next_message(ControlMessage* message);
  bool begin_piece(const ControlMessage& message);
  bool check_message(Request& request, const ControlMessage& message);
  bool plan_fragments(Request& request, const ControlMessage& message);
  void strike(Request& request);
  void flush_words();

  size_t gather(DataSocket& socket, size_t most);
  bool gather_piece(const Piece& piece, size_t* used, size_t* most);
  size_t receive_some(DataSocket& socket, size_t most);
  void landed(DataSocket& socket, size_t bytes);
  void fill_fragments(Piece& piece, uint32_t bytes);
  void arrived(Request& request);
  void shuffle(Request& request);
  Nanos late_consume() const;

  std::unique_ptr<UnpackQueue> queue_;
  std::shared_ptr<Pool> pool_;
  std::vector<uint32_t> pages_;  // kUnpackFragments per slot
  uint32_t* pages_of(const Request& request) {
    return &pages_[request.ordinal % nccl::kUnpackSlots * nccl::kUnpackFragments];
  }

  std::vector<DataSocket> sockets_;
  size_t turn_ = 0;
  size_t pieces_open_ = 0;
  uint64_t matched_ = 0;  // receives that know all of their pieces
  std::vector<uint8_t> control_in_;
  size_t control_at_ = 0;
  std::vector<uint32_t> words_;  // to send
  size_t words_sent_ = 0;        // bytes of them
  bool peer_closed_ = false;     // and its last control message read
  bool wants_acks_ = false, says_posted_ = false;
  uint64_t posted_said_ = 0, acked_ = 0;
  std::vector<iovec> iov_;
};

}  // namespace tcpx_emu
