// The ABI of NCCL net plugins, versions 7 to 12, and of the unpack queue of GPUDirect-TCPX: our own
// declarations of facts that others fixed. Nothing else in the tree repeats a layout or an order.
//
// A plugin exports `ncclNetPlugin_v<N>`, a table of function pointers. What changed from version to
// version is the width of some arguments, a few added arguments and the properties; the position of
// each function in the table is the same in all of them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tcpx::nccl {

inline constexpr int kOldestVersion = 7;
inline constexpr int kNewestVersion = 12;

// Results: int-sized on the wire of the ABI, whatever the plugin returns.
using Result = int;
inline constexpr Result kSuccess = 0;
inline constexpr Result kUnhandledCudaError = 1;
inline constexpr Result kSystemError = 2;    // a socket failed; the peer closed
inline constexpr Result kInternalError = 3;  // misuse, or set-up failed
inline constexpr Result kInvalidArgument = 4;
inline constexpr Result kInvalidUsage = 5;
inline constexpr Result kRemoteError = 6;
inline constexpr Result kInProgress = 7;

// Kinds of memory: bits of `ptrSupport`, and the `type` of a registration.
inline constexpr int kPtrHost = 1;
inline constexpr int kPtrCuda = 2;
inline constexpr int kPtrDmaBuf = 4;

// Kinds of device: how received bytes get to where they belong.
inline constexpr int kDeviceHost = 0;    // the plugin puts them there
inline constexpr int kDeviceUnpack = 1;  // they lie scattered in a bounce pool; see UnpackMeta
inline constexpr int kUnpackVersion = 7;

inline constexpr int kHandleBytes = 128;
inline constexpr int kMaxRequests = 16;  // per comm; a receive counts until it is consumed

enum LogLevel : int { kLogNone = 0, kLogVersion, kLogWarn, kLogInfo, kLogAbort, kLogTrace };
inline constexpr unsigned long kLogInit = 0x1, kLogNet = 0x10, kLogEnv = 0x80, kLogAll = ~0ul;
// Called from any thread. `file` may be a function's name; %s arguments may be null; no newline.
using Logger = void (*)(int level, unsigned long flags, const char* file, int line,
                        const char* format, ...);
using ProfilerCallback = Result (*)(void** handle, int type, void* parent, int64_t plugin,
                                    void* data);

// What a receiver's comm has for the GPU; the caller of accept() owns the storage.
struct DeviceHandle {
  int type;      // kDeviceHost or kDeviceUnpack
  int version;   // kUnpackVersion
  void* handle;  // device address of an UnpackHandle
  size_t size;   // sizeof(UnpackHandle)
  int needs_proxy_progress;
};
static_assert(sizeof(DeviceHandle) == 32);
static_assert(offsetof(DeviceHandle, version) == 4 && offsetof(DeviceHandle, handle) == 8 &&
              offsetof(DeviceHandle, size) == 16 &&
              offsetof(DeviceHandle, needs_proxy_progress) == 24);

// ---- the unpack queue ----------------------------------------------------------------------
// The k-th irecv of a comm (from 0, every one counts) has slot k % kUnpackSlots. When test() says
// done, count[slot] fragments in fragments[slot] say which bytes of the bounce pool go where.

inline constexpr int kUnpackSlots = 16;
inline constexpr int kUnpackFragments = 2048;

struct alignas(16) Fragment {
  uint32_t source;  // offset from the bounce pool's base
  uint32_t length;
  uint64_t destination;  // offset from the start of the receive
};
struct UnpackMeta {
  Fragment fragments[kUnpackSlots][kUnpackFragments];
  uint64_t count[kUnpackSlots];
};
struct UnpackHandle {
  UnpackMeta* meta;  // device address of mapped host memory
  void* bounce;      // device address; the same for every comm of a GPU
  uint64_t head;     // state of NCCL's kernels, starts at ~0; nobody else touches it
};
static_assert(sizeof(Fragment) == 16 && offsetof(Fragment, length) == 4 &&
              offsetof(Fragment, destination) == 8);
static_assert(sizeof(UnpackMeta) == 524416 && offsetof(UnpackMeta, count) == 524288);
static_assert(sizeof(UnpackHandle) == 24 && offsetof(UnpackHandle, bounce) == 8 &&
              offsetof(UnpackHandle, head) == 16);

// ---- properties ----------------------------------------------------------------------------

struct PropertiesV7 {
  char* name;
  char* pci_path;  // null for virtual NICs
  uint64_t guid;
  int ptr_support;
  int speed;  // Mbit/s
  int port;
  float latency;
  int max_comms;
  int max_recvs;
  int device_type;
  int device_version;
};
static_assert(sizeof(PropertiesV7) == 56 && offsetof(PropertiesV7, speed) == 28 &&
              offsetof(PropertiesV7, max_comms) == 40 && offsetof(PropertiesV7, max_recvs) == 44 &&
              offsetof(PropertiesV7, device_type) == 48 &&
              offsetof(PropertiesV7, device_version) == 52);

struct PropertiesV8 {
  char* name;
  char* pci_path;
  uint64_t guid;
  int ptr_support;
  int reg_is_global;
  int speed;
  int port;
  float latency;
  int max_comms;
  int max_recvs;
  int device_type;
  int device_version;
};
static_assert(sizeof(PropertiesV8) == 64 && offsetof(PropertiesV8, speed) == 32 &&
              offsetof(PropertiesV8, max_recvs) == 48 &&
              offsetof(PropertiesV8, device_type) == 52 &&
              offsetof(PropertiesV8, device_version) == 56);

template <int kDevices>
struct VirtualDevices {
  int count;
  int devices[kDevices];
};

struct PropertiesV9 {  // and V10
  char* name;
  char* pci_path;
  uint64_t guid;
  int ptr_support;
  int reg_is_global;
  int force_flush;
  int speed;
  int port;
  float latency;
  int max_comms;
  int max_recvs;
  int device_type;
  int device_version;
  VirtualDevices<4> virtual_devices;
  size_t max_p2p_bytes;
  size_t max_coll_bytes;
};
using PropertiesV10 = PropertiesV9;
static_assert(sizeof(PropertiesV9) == 104 && offsetof(PropertiesV9, speed) == 36 &&
              offsetof(PropertiesV9, max_recvs) == 52 &&
              offsetof(PropertiesV9, device_type) == 56 &&
              offsetof(PropertiesV9, device_version) == 60 &&
              offsetof(PropertiesV9, virtual_devices) == 64 &&
              offsetof(PropertiesV9, max_p2p_bytes) == 88 &&
              offsetof(PropertiesV9, max_coll_bytes) == 96);

struct PropertiesV11 {
  char* name;
  char* pci_path;
  uint64_t guid;
  int ptr_support;
  int reg_is_global;
  int force_flush;
  int speed;
  int port;
  float latency;
  int max_comms;
  int max_recvs;
  int device_type;
  int device_version;
  VirtualDevices<4> virtual_devices;
  size_t max_p2p_bytes;
  size_t max_coll_bytes;
  int max_multi_request_size;
};
static_assert(sizeof(PropertiesV11) == 112 && offsetof(PropertiesV11, max_p2p_bytes) == 88 &&
              offsetof(PropertiesV11, max_multi_request_size) == 104);

struct PropertiesV12 {
  char* name;
  char* pci_path;
  uint64_t guid;
  int ptr_support;
  int reg_is_global;
  int force_flush;
  int speed;
  int port;
  float latency;
  int max_comms;
  int max_recvs;
  int device_type;
  int device_version;
  VirtualDevices<8> virtual_devices;
  size_t max_p2p_bytes;
  size_t max_coll_bytes;
  int max_multi_request_size;
  int16_t rail_id;
  int16_t plane_id;
};
static_assert(sizeof(PropertiesV12) == 128 && offsetof(PropertiesV12, device_type) == 56 &&
              offsetof(PropertiesV12, max_p2p_bytes) == 104 &&
              offsetof(PropertiesV12, max_coll_bytes) == 112 &&
              offsetof(PropertiesV12, max_multi_request_size) == 120 &&
              offsetof(PropertiesV12, rail_id) == 124 && offsetof(PropertiesV12, plane_id) == 126);

struct CommConfig {  // v10 connect(), v11 and v12 init()
  int traffic_class;
};

// ---- the tables ----------------------------------------------------------------------------
// Functions that every version has in the same form.

using Devices = Result (*)(int* count);
using Accept = Result (*)(void* listen_comm, void** recv_comm, DeviceHandle** device);
using RegMrDmaBuf = Result (*)(void* comm, void* data, size_t size, int type, uint64_t offset,
                               int fd, void** mhandle);
using DeregMr = Result (*)(void* comm, void* mhandle);
using Iflush = Result (*)(void* recv_comm, int n, void** data, int* sizes, void** mhandles,
                          void** request);
using Test = Result (*)(void* request, int* done, int* sizes);
using Close = Result (*)(void* comm);
using GetDeviceMr = Result (*)(void* comm, void* mhandle, void** device_mhandle);
using IrecvConsumed = Result (*)(void* recv_comm, int n, void* request);

using InitV7 = Result (*)(Logger log);
using InitV10 = Result (*)(Logger log, ProfilerCallback profiler);
using InitV11 = Result (*)(void** context, uint64_t comm_id, CommConfig* config, Logger log,
                           ProfilerCallback profiler);
using ListenV7 = Result (*)(int device, void* handle, void** listen_comm);
using ListenV11 = Result (*)(void* context, int device, void* handle, void** listen_comm);
using ConnectV7 = Result (*)(int device, void* handle, void** send_comm,
                             DeviceHandle** send_device);
using ConnectV10 = Result (*)(int device, CommConfig* config, void* handle, void** send_comm,
                              DeviceHandle** send_device);
using ConnectV11 = Result (*)(void* context, int device, void* handle, void** send_comm,
                              DeviceHandle** send_device);
using RegMrV7 = Result (*)(void* comm, void* data, int size, int type, void** mhandle);
using RegMrV8 = Result (*)(void* comm, void* data, size_t size, int type, void** mhandle);
using IsendV7 = Result (*)(void* send_comm, void* data, int size, int tag, void* mhandle,
                           void** request);
using IsendV9 = Result (*)(void* send_comm, void* data, size_t size, int tag, void* mhandle,
                           void** request);
using IsendV10 = Result (*)(void* send_comm, void* data, size_t size, int tag, void* mhandle,
                            void* profiler_handle, void** request);
using IrecvV7 = Result (*)(void* recv_comm, int n, void** data, int* sizes, int* tags,
                           void** mhandles, void** request);
using IrecvV9 = Result (*)(void* recv_comm, int n, void** data, size_t* sizes, int* tags,
                           void** mhandles, void** request);
using IrecvV10 = Result (*)(void* recv_comm, int n, void** data, size_t* sizes, int* tags,
                            void** mhandles, void** profiler_handles, void** request);
using MakeVDevice = Result (*)(int* device, void* properties);
using Finalize = Result (*)(void* context);
using SetNetAttr = Result (*)(void* context, void* attributes);

// The part of a table that all versions share, in order.
template <class Init, class Properties, class Listen, class Connect, class RegMr, class Isend,
          class Irecv>
struct TableBase {
  const char* name;
  Init init;
  Devices devices;
  Result (*get_properties)(int device, Properties* properties);
  Listen listen;
  Connect connect;
  Accept accept;
  RegMr reg_mr;
  RegMrDmaBuf reg_mr_dma_buf;
  DeregMr dereg_mr;
  Isend isend;
  Irecv irecv;
  Iflush iflush;
  Test test;
  Close close_send;
  Close close_recv;
  Close close_listen;
  GetDeviceMr get_device_mr;
  IrecvConsumed irecv_consumed;
};

using TableV7 = TableBase<InitV7, PropertiesV7, ListenV7, ConnectV7, RegMrV7, IsendV7, IrecvV7>;
using TableV8 = TableBase<InitV7, PropertiesV8, ListenV7, ConnectV7, RegMrV8, IsendV7, IrecvV7>;
struct TableV9 : TableBase<InitV7, PropertiesV9, ListenV7, ConnectV7, RegMrV8, IsendV9, IrecvV9> {
  MakeVDevice make_vdevice;
};
struct TableV10
    : TableBase<InitV10, PropertiesV10, ListenV7, ConnectV10, RegMrV8, IsendV10, IrecvV10> {
  MakeVDevice make_vdevice;
};
struct TableV11
    : TableBase<InitV11, PropertiesV11, ListenV11, ConnectV11, RegMrV8, IsendV10, IrecvV10> {
  MakeVDevice make_vdevice;
  Finalize finalize;
  SetNetAttr set_net_attr;
};
struct TableV12
    : TableBase<InitV11, PropertiesV12, ListenV11, ConnectV11, RegMrV8, IsendV10, IrecvV10> {
  MakeVDevice make_vdevice;
  Finalize finalize;
  SetNetAttr set_net_attr;
};

static_assert(sizeof(TableV7) == 152 && sizeof(TableV8) == 152 && sizeof(TableV9) == 160 &&
              sizeof(TableV10) == 160 && sizeof(TableV11) == 176 && sizeof(TableV12) == 176);
static_assert(offsetof(TableV7, init) == 8 && offsetof(TableV7, devices) == 16 &&
              offsetof(TableV7, get_properties) == 24 && offsetof(TableV7, listen) == 32 &&
              offsetof(TableV7, connect) == 40 && offsetof(TableV7, accept) == 48 &&
              offsetof(TableV7, reg_mr) == 56 && offsetof(TableV7, reg_mr_dma_buf) == 64 &&
              offsetof(TableV7, dereg_mr) == 72 && offsetof(TableV7, isend) == 80 &&
              offsetof(TableV7, irecv) == 88 && offsetof(TableV7, iflush) == 96 &&
              offsetof(TableV7, test) == 104 && offsetof(TableV7, close_send) == 112 &&
              offsetof(TableV7, close_recv) == 120 && offsetof(TableV7, close_listen) == 128 &&
              offsetof(TableV7, get_device_mr) == 136 && offsetof(TableV7, irecv_consumed) == 144);

}  // namespace tcpx::nccl
