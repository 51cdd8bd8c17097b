// The sending end: requests are cut into pieces of a chunk, pieces go round the data sockets, and
// each is announced on the control socket.
#pragma once

#include <vector>

#include "comm.h"
#include "device.h"
#include "ring.h"

namespace tcpx_emu {

class SendComm final : public Comm {
 public:
  SendComm(WorldPtr world, int device, std::unique_ptr<Setup> setup);
  ~SendComm() override;

  Result isend(void* data, int size, const Region* region, Request** out);
  // Memory in a GPU is sent through mapped host memory, made ready here and not in the data path.
  Result prepare_for(const Region& region);

 private:
  static constexpr size_t kQueue = 16;  // pieces per socket
  static constexpr int kStagings = 8;

  struct Piece {
    Request* request;
    const uint8_t* data;
    uint32_t size;
    uint32_t sent;
    int staging;  // -1: sent from where it is
  };
  struct DataSocket {
    Fd fd;
    Ring<Piece, kQueue> queue;
    Nanos slow_since = 0;  // fault slow_socket
    uint64_t slow_sent = 0;
  };

  void connected(Connection connection) override;
  void progress() override;
  bool complete(const Request& request) const override;
  void reported(Request& request, int* sizes) override;

  void schedule();
  bool schedule_piece(Request& request);
  void announce(Request& request, const ControlMessage& message);
  void flush_control();
  void read_words();
  bool sendable(const Piece& piece);
  size_t gather(DataSocket& socket, iovec* iov, size_t room, size_t most);
  size_t send_some(DataSocket& socket, size_t most);
  size_t slow_limit(DataSocket& socket, size_t most);
  Result check(const void* data, int size, const Region* region);

  std::vector<DataSocket> sockets_;
  size_t next_socket_ = 0;  // for the next piece
  size_t turn_ = 0;         // where the next turn of sending begins
  uint64_t scheduled_ = 0;  // requests whose pieces are all scheduled
  uint32_t idle_turns_ = 0;
  int64_t slow_rate_ = 0;  // bytes per second; 0: not slowed

  std::vector<uint8_t> control_out_;  // not yet taken by the kernel
  uint64_t control_queued_ = 0, control_sent_ = 0;
  uint32_t word_ = 0;  // partly read
  size_t word_got_ = 0;
  bool wait_for_credit_ = false, wait_for_ack_ = false;
  uint64_t credits_ = 0, acks_ = 0;

  // Staging of device memory.
  std::unique_ptr<Copier> copier_;
  Device* staging_device_ = nullptr;
  Mapped staging_;
  uint64_t staging_bytes_ = 0;  // of one
  uint32_t staging_free_ = 0;   // bit per staging
};

}  // namespace tcpx_emu
