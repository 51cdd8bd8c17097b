#include "listener.h"

#include <cerrno>
#include <cstring>

#include "log.h"
#include "misuse.h"

namespace tcpx_emu {

// Nothing is mapped there.
constexpr uint64_t kWildPointer = 0x10;

std::unique_ptr<Listener> Listener::make(const WorldPtr& world, int device, Handle* handle) {
  const Nic& nic = world->nics[device];
  std::unique_ptr<Listener> listener(new Listener(world, device));
  Handle& mine = listener->handle_;
  auto sockets = std::make_shared<Sockets>();
  sockets->data = listen_on(nic.data, &mine.data);
  sockets->control = listen_on(nic.control, &mine.control);
  if (!sockets->data || !sockets->control) {
    EMU_WARN("listen on %s: %s", nic.name.c_str(), std::strerror(errno));
    return nullptr;
  }
  listener->sockets_ = std::move(sockets);
  mine.magic = kHandleMagic;
  mine.nonce = random_word();
  mine.sockets = static_cast<uint32_t>(world->settings.sockets());
  mine.flags = flags_of(world->settings);
  *handle = mine;
  if (world->faults.always(Fault::kBadHandle, device) != nullptr) handle->connect_id = kWildPointer;
  return listener;
}

void Listener::start() {
  setup_ = std::make_unique<Setup>([world = world_, device = device, handle = handle_,
                                    sockets = sockets_](const Wait& wait, Connection* out) {
    return accept_sockets(*world, device, handle, sockets->control.get(), sockets->data.get(), wait,
                          out);
  });
}

Result Listener::accept(RecvComm** out, nccl::DeviceHandle** description) {
  if (accepted_)
    return refuse(*world_, device, rule::kAcceptOnce, "accept called again on a listenComm");
  if (!setup_) start();
  bool at_once = world_->faults.always(Fault::kConnectAtOnce, device) != nullptr;
  switch (setup_->state()) {
    case Setup::State::kRunning: return at_once ? finish(out, description) : nccl::kSuccess;
    case Setup::State::kReady: return finish(out, description);
    case Setup::State::kFailed: break;
  }
  EMU_WARN("accept: %s", setup_->error().c_str());
  return nccl::kInternalError;
}

Result Listener::finish(RecvComm** out, nccl::DeviceHandle** description) {
  std::unique_ptr<UnpackQueue> queue;
  std::shared_ptr<Pool> pool;
  if (world_->settings.unpack) {
    Device* gpu = current_device();
    if (gpu == nullptr) return nccl::kUnhandledCudaError;
    pool = Pool::of(*gpu, world_->settings);
    if (!pool) return nccl::kInternalError;
    queue = UnpackQueue::make(*gpu, pool->device_base());
    if (!queue) return nccl::kInternalError;
    pool->show_in(device);
    if (description != nullptr && *description != nullptr) queue->describe(*description);
  }
  accepted_ = true;
  *out = new RecvComm(world_, device, std::move(setup_), std::move(queue), std::move(pool));
  return nccl::kSuccess;
}

}  // namespace tcpx_emu
