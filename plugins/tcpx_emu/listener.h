// listen() and accept(): one listener takes one connection.
#pragma once

#include <memory>

#include "abi.h"
#include "recv_comm.h"
#include "setup.h"
#include "world.h"

namespace tcpx_emu {

class Listener {
 public:
  // Null when there is no socket. Fills `handle`.
  static std::unique_ptr<Listener> make(const WorldPtr& world, int device, Handle* handle);

  // *out stays null until the connection is there. `description` and what it points to may be null.
  Result accept(RecvComm** out, nccl::DeviceHandle** description);

  const int device;
  World& world() const { return *world_; }

 private:
  Listener(WorldPtr world, int dev) : device(dev), world_(std::move(world)) {}
  void start();
  Result finish(RecvComm** out, nccl::DeviceHandle** description);

  const WorldPtr world_;
  Handle handle_{};
  struct Sockets {
    Fd control, data;
  };
  std::shared_ptr<Sockets> sockets_;  // the set-up may outlive the listener
  std::unique_ptr<Setup> setup_;
  bool accepted_ = false;
};

}  // namespace tcpx_emu
