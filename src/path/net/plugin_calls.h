// One interface over all versions of the plugin ABI: the same calls with the widest arguments, the
// same properties. A shim per version (plugin_calls.cc) narrows what has to be narrowed.
#pragma once

#include <memory>
#include <string>

#include "path/net/nccl_net_abi.h"

namespace tcpx::net {

struct DeviceProperties {
  std::string name;
  std::string pci_path;  // empty for virtual NICs
  int ptr_support = 0;
  int speed_mbit = 0;
  int max_comms = 0;
  int device_type = nccl::kDeviceHost;
  int device_version = 0;
  uint64_t max_request = 0;  // largest isend/irecv the ABI can express

  bool unpacks() const { return device_type == nccl::kDeviceUnpack; }
};

class PluginCalls {
 public:
  virtual ~PluginCalls() = default;

  virtual int version() const = 0;
  virtual std::string name() const = 0;
  virtual bool consumes() const = 0;  // has irecvConsumed

  virtual nccl::Result init(nccl::Logger log) = 0;
  virtual nccl::Result devices(int* count) = 0;
  virtual nccl::Result properties(int device, DeviceProperties* out) = 0;
  virtual nccl::Result listen(int device, void* handle, void** listen_comm) = 0;
  virtual nccl::Result connect(int device, void* handle, void** send_comm) = 0;
  virtual nccl::Result accept(void* listen_comm, void** recv_comm, nccl::DeviceHandle** device) = 0;
  virtual nccl::Result reg_mr(void* comm, void* data, size_t size, int type, void** mhandle) = 0;
  virtual nccl::Result dereg_mr(void* comm, void* mhandle) = 0;
  // *request == nullptr with success: try again later.
  virtual nccl::Result isend(void* comm, void* data, size_t size, int tag, void* mhandle,
                             void** request) = 0;
  virtual nccl::Result irecv(void* comm, void* data, size_t size, int tag, void* mhandle,
                             void** request) = 0;
  virtual nccl::Result test(void* request, int* done, int* size) = 0;
  virtual nccl::Result consumed(void* recv_comm, void* request) = 0;
  virtual nccl::Result close_send(void* comm) = 0;
  virtual nccl::Result close_recv(void* comm) = 0;
  virtual nccl::Result close_listen(void* comm) = 0;
};

// `table`: what the symbol ncclNetPlugin_v<version> names. Null: a version we do not speak, or a
// table without a function that we need; *why says which.
std::unique_ptr<PluginCalls> bind_table(int version, void* table, std::string* why);

const char* result_name(nccl::Result result);

}  // namespace tcpx::net
