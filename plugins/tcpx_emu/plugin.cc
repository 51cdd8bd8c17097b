// The tables that the library exports, and what every call has in common before it gets to its
// object: arguments, a lost NIC, a planned fault, two threads at once.
#include <cstring>
#include <thread>

#include "base/mutex.h"
#include "connector.h"
#include "counters.h"
#include "device.h"
#include "listener.h"
#include "log.h"
#include "misuse.h"
#include "recv_comm.h"
#include "send_comm.h"
#include "tcpx_emu.h"

namespace tcpx_emu {
namespace {

tcpx::Mutex g_init_mutex;
tcpx::Mutex g_world_mutex;
WorldPtr& world_slot() TCPX_REQUIRES(g_world_mutex) {
  static auto& slot = *new WorldPtr;  // outlives every thread
  return slot;
}
WorldPtr current_world() {
  tcpx::MutexLock lock(g_world_mutex);
  return world_slot();
}

Result complain(const char* what) {
  EMU_WARN("%s", what);
  return nccl::kInternalError;
}

// A planned hang, exit or failure, then a lost NIC. A call that hangs is inside its comm: nobody
// else may enter.
Result enter(World& world, const char* function, int device) {
  if (!world.faults.called(function, device)) return nccl::kSystemError;
  if (!world.lost[device]) return nccl::kSuccess;
  EMU_WARN("device %d is lost", device);
  return nccl::kSystemError;
}

// ---- devices ---------------------------------------------------------------------------------

Result make_world(WorldPtr* out) {
  auto world = std::make_shared<World>();
  std::string problem = read_settings(&world->settings);
  const Settings& s = world->settings;
  if (problem.empty()) problem = world->faults.parse(s.faults);
  if (problem.empty() && !s.enabled) problem = "NCCL_GPUDIRECTTCPX_SOCKET_ENABLE=0";
  if (problem.empty()) problem = find_nics(s, &world->nics);
  if (problem.empty()) problem = choose_devices(s);
  if (problem.empty() && !s.counters_file.empty())
    problem = map_counters(s.counters_file, static_cast<int>(world->nics.size()));
  if (!problem.empty()) return complain(problem.c_str());
  *out = std::move(world);
  return nccl::kSuccess;
}

Result init(nccl::Logger logger) {
  if (logger != nullptr) set_logger(logger);
  tcpx::MutexLock lock(g_init_mutex);
  WorldPtr before = current_world(), world;
  if (Result rc = make_world(&world)) return rc;
  if (world->settings.init_once && before) return complain("gpu lib init twice");
  if (!world->faults.called("init", 0)) return nccl::kSystemError;
  Pool::forget_unused();
  for (size_t i = 0; i < world->nics.size(); ++i)
    EMU_INFO("device %zu: %s %s, %d data sockets per comm, chunk %lld%s", i,
             world->nics[i].name.c_str(), to_string(world->nics[i].data).c_str(),
             world->settings.sockets(), static_cast<long long>(world->settings.chunk_bytes),
             world->settings.strict ? ", strict" : "");
  tcpx::MutexLock world_lock(g_world_mutex);
  world_slot() = std::move(world);
  return nccl::kSuccess;
}

Result devices(int* count) {
  WorldPtr world = current_world();
  if (!world) return complain("init() has not been called");
  *count = static_cast<int>(world->nics.size());
  return nccl::kSuccess;
}

// Whoever asks keeps the strings for the life of the process.
char* keep(const std::string& text) {
  static tcpx::Mutex mutex;
  static auto& kept TCPX_GUARDED_BY(mutex) = *new std::vector<std::string*>;
  tcpx::MutexLock lock(mutex);
  for (std::string* known : kept)
    if (*known == text) return known->data();
  kept.push_back(new std::string(text));
  return kept.back()->data();
}

Result get_properties(int device, nccl::PropertiesV7* out) {
  WorldPtr world = current_world();
  if (!world || !world->has(device)) return complain("getProperties: no such device");
  const Nic& nic = world->nics[device];
  bool unpack = world->settings.unpack;
  *out = {};
  out->name = keep(nic.name);
  out->pci_path = nic.pci_path.empty() ? nullptr : keep(nic.pci_path);
  out->guid = static_cast<uint64_t>(device);
  // A plain plugin does not reach into a GPU.
  out->ptr_support = nccl::kPtrHost | (unpack || devices_are_host() ? nccl::kPtrCuda : 0);
  out->speed = nic.speed;
  out->max_comms = 65536;
  out->max_recvs = 1;
  out->device_type = unpack ? nccl::kDeviceUnpack : nccl::kDeviceHost;
  out->device_version = unpack ? nccl::kUnpackVersion : 0;
  return nccl::kSuccess;
}

// ---- connections -----------------------------------------------------------------------------

Result listen(int device, void* handle, void** listen_comm) {
  WorldPtr world = current_world();
  if (!world || !world->has(device)) return complain("listen: no such device");
  if (Result rc = enter(*world, "listen", device)) return rc;
  Handle value;
  std::unique_ptr<Listener> listener = Listener::make(world, device, &value);
  if (!listener) return nccl::kInternalError;
  std::memset(handle, 0, nccl::kHandleBytes);
  std::memcpy(handle, &value, sizeof value);
  *listen_comm = listener.release();
  return nccl::kSuccess;
}

Result connect(int device, void* handle, void** send_comm, nccl::DeviceHandle**) {
  WorldPtr world = current_world();
  *send_comm = nullptr;
  if (!world || !world->has(device)) return complain("connect: no such device");
  if (Result rc = enter(*world, "connect", device)) return rc;
  Handle value;
  std::memcpy(&value, handle, sizeof value);  // the buffer may be unaligned
  SendComm* comm = nullptr;
  Result rc = poll_connect(world, device, &value, &comm);
  std::memcpy(handle, &value, sizeof value);
  if (comm == nullptr) return rc;
  bool at_once = false;
  if (Result ready = comm->ready(&at_once)) {
    delete comm;
    return ready;
  }
  *send_comm = static_cast<Comm*>(comm);
  return rc;
}

Result accept(void* listen_comm, void** recv_comm, nccl::DeviceHandle** description) {
  auto* listener = static_cast<Listener*>(listen_comm);
  *recv_comm = nullptr;
  if (listener == nullptr) return complain("accept: no listenComm");
  if (Result rc = enter(listener->world(), "accept", listener->device)) return rc;
  RecvComm* comm = nullptr;
  Result rc = listener->accept(&comm, description);
  if (comm == nullptr) return rc;
  bool at_once = false;
  if (Result ready = comm->ready(&at_once)) {
    delete comm;
    return ready;
  }
  *recv_comm = static_cast<Comm*>(comm);
  return rc;
}

Result close_comm(void* pointer) {
  auto* comm = static_cast<Comm*>(pointer);
  if (comm == nullptr) return nccl::kSuccess;
  Result rc;
  {
    InCall call(*comm);
    if (!call.alone()) return call.refuse();
    rc = comm->world().faults.called("close", comm->device) ? comm->check_close()
                                                            : nccl::kSystemError;
  }
  delete comm;
  return rc;
}

Result close_listen(void* listen_comm) {
  delete static_cast<Listener*>(listen_comm);
  return nccl::kSuccess;
}

// ---- memory ----------------------------------------------------------------------------------

Result reg_mr(void* pointer, void* data, int size, int type, void** mhandle) {
  auto* comm = static_cast<Comm*>(pointer);
  if (comm == nullptr) return complain("regMr: no comm");
  InCall call(*comm);
  if (!call.alone()) return call.refuse();
  if (Result rc = enter(comm->world(), "regmr", comm->device)) return rc;
  Region* region = nullptr;
  if (Result rc = register_memory(comm->world(), comm->device, data, size, type, &region))
    return rc;
  if (comm->kind == Comm::Kind::kSend) {
    if (Result rc = static_cast<SendComm*>(comm)->prepare_for(*region)) {
      delete region;
      return rc;
    }
  }
  *mhandle = region;
  return nccl::kSuccess;
}

Result dereg_mr(void*, void* mhandle) {
  delete static_cast<Region*>(mhandle);
  return nccl::kSuccess;
}

Result get_device_mr(void*, void*, void**) {
  return nccl::kSuccess;
}

// ---- data path -------------------------------------------------------------------------------

// Whether a comm can take requests. With fault connect_at_once it may still be connecting: then the
// caller gets no request and tries again, or, with SPINWAIT_CONNECT, waits here.
Result wait_ready(Comm& comm, bool* yes) {
  for (;;) {
    Result rc = comm.ready(yes);
    if (rc != nccl::kSuccess || *yes || !comm.settings().spinwait_connect) return rc;
    std::this_thread::yield();
  }
}

Result isend(void* pointer, void* data, int size, int, void* mhandle, void** request) {
  auto* comm = static_cast<Comm*>(pointer);
  *request = nullptr;
  if (comm == nullptr || comm->kind != Comm::Kind::kSend) return complain("isend: no send comm");
  InCall call(*comm);
  if (!call.alone()) return call.refuse();
  if (Result rc = enter(comm->world(), "isend", comm->device)) return rc;
  bool ready;
  if (Result rc = wait_ready(*comm, &ready); rc != nccl::kSuccess || !ready) return rc;
  Request* posted = nullptr;
  Result rc =
      static_cast<SendComm*>(comm)->isend(data, size, static_cast<Region*>(mhandle), &posted);
  *request = posted;
  return rc;
}

Result irecv(void* pointer, int n, void** data, int* sizes, int*, void** mhandles, void** request) {
  auto* comm = static_cast<Comm*>(pointer);
  *request = nullptr;
  if (comm == nullptr || comm->kind != Comm::Kind::kReceive) return complain("irecv: no recv comm");
  if (n != 1) return complain("irecv: n must be 1");
  InCall call(*comm);
  if (!call.alone()) return call.refuse();
  if (Result rc = enter(comm->world(), "irecv", comm->device)) return rc;
  bool ready;
  if (Result rc = wait_ready(*comm, &ready); rc != nccl::kSuccess || !ready) return rc;
  Request* posted = nullptr;
  Result rc = static_cast<RecvComm*>(comm)->irecv(data[0], sizes[0],
                                                  static_cast<Region*>(mhandles[0]), &posted);
  *request = posted;
  return rc;
}

// Nothing to flush: what is done is visible.
Result iflush(void*, int, void**, int*, void**, void** request) {
  *request = nullptr;
  return nccl::kSuccess;
}

Result test(void* pointer, int* done, int* sizes) {
  *done = 0;
  auto* request = static_cast<Request*>(pointer);
  if (request == nullptr) return complain("test: no request");
  Comm& comm = *request->comm;
  InCall call(comm);
  if (!call.alone()) return call.refuse();
  if (Result rc = enter(comm.world(), "test", comm.device)) return rc;
  return comm.test(request, done, sizes);
}

Result irecv_consumed(void* pointer, int n, void* request) {
  auto* comm = static_cast<Comm*>(pointer);
  if (comm == nullptr || comm->kind != Comm::Kind::kReceive)
    return complain("irecvConsumed: no recv comm");
  if (n != 1) return complain("irecvConsumed: n must be 1");
  InCall call(*comm);
  if (!call.alone()) return call.refuse();
  if (Result rc = enter(comm->world(), "consume", comm->device)) return rc;
  return static_cast<RecvComm*>(comm)->consumed(static_cast<Request*>(request));
}

// ---- tcpxEmu_v1 ------------------------------------------------------------------------------

int device_is_host() {
  return devices_are_host() ? 1 : 0;
}

int read_counters(int device, tcpx_emu_counters* out) {
  WorldPtr world = current_world();
  if (!world || !world->has(device) || out == nullptr) return nccl::kInvalidArgument;
  // Field by field: other threads are counting.
  auto* from = reinterpret_cast<uint64_t*>(&counters(device));
  auto* to = reinterpret_cast<uint64_t*>(out);
  for (size_t i = 0; i < sizeof *out / sizeof *to; ++i)
    to[i] = counter(from[i]).load(std::memory_order_relaxed);
  return nccl::kSuccess;
}

const char* read_last_misuse() {
  static thread_local std::string text;
  text = last_misuse();
  return text.c_str();
}

void reset_maxima(int device) {
  WorldPtr world = current_world();
  if (!world || !world->has(device)) return;
  tcpx_emu_counters& c = counters(device);
  counter(c.requests_live_max).store(counter(c.requests_live).load());
  counter(c.max_test_gap_ns).store(0);
  counter(c.late_tests).store(0);
  counter(c.late_tests_own).store(0);
}

}  // namespace
}  // namespace tcpx_emu

extern "C" {

// NOLINTNEXTLINE(readability-identifier-naming): NCCL looks it up by name
[[gnu::visibility("default")]] extern const tcpx::nccl::TableV7 ncclNetPlugin_v7;
const tcpx::nccl::TableV7 ncclNetPlugin_v7 = {
    .name = "TCPX_EMU",
    .init = tcpx_emu::init,
    .devices = tcpx_emu::devices,
    .get_properties = tcpx_emu::get_properties,
    .listen = tcpx_emu::listen,
    .connect = tcpx_emu::connect,
    .accept = tcpx_emu::accept,
    .reg_mr = tcpx_emu::reg_mr,
    .reg_mr_dma_buf = nullptr,
    .dereg_mr = tcpx_emu::dereg_mr,
    .isend = tcpx_emu::isend,
    .irecv = tcpx_emu::irecv,
    .iflush = tcpx_emu::iflush,
    .test = tcpx_emu::test,
    .close_send = tcpx_emu::close_comm,
    .close_recv = tcpx_emu::close_comm,
    .close_listen = tcpx_emu::close_listen,
    .get_device_mr = tcpx_emu::get_device_mr,
    .irecv_consumed = tcpx_emu::irecv_consumed,
};

const tcpx_emu_v1 tcpxEmu_v1 = {
    .version = 1,
    .bytes = sizeof(tcpx_emu_v1),
    .device_is_host = tcpx_emu::device_is_host,
    .counters = tcpx_emu::read_counters,
    .last_misuse = tcpx_emu::read_last_misuse,
    .reset_maxima = tcpx_emu::reset_maxima,
};

}  // extern "C"
