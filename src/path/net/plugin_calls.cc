#include "path/net/plugin_calls.h"

#include <climits>
#include <utility>

namespace tcpx::net {
namespace {

using namespace nccl;

// NCCL itself never asks more than this of a plugin whose sizes are ints.
constexpr uint64_t kLargestIntRequest = 1u << 30;

template <int kVersion>
struct TableOf;
template <>
struct TableOf<7> {
  using Table = TableV7;
  using Properties = PropertiesV7;
};
template <>
struct TableOf<8> {
  using Table = TableV8;
  using Properties = PropertiesV8;
};
template <>
struct TableOf<9> {
  using Table = TableV9;
  using Properties = PropertiesV9;
};
template <>
struct TableOf<10> {
  using Table = TableV10;
  using Properties = PropertiesV10;
};
template <>
struct TableOf<11> {
  using Table = TableV11;
  using Properties = PropertiesV11;
};
template <>
struct TableOf<12> {
  using Table = TableV12;
  using Properties = PropertiesV12;
};

template <int kVersion>
class Shim final : public PluginCalls {
 public:
  using Table = typename TableOf<kVersion>::Table;
  using Properties = typename TableOf<kVersion>::Properties;

  explicit Shim(const Table* table) : table_(*table) {}

  int version() const override { return kVersion; }
  std::string name() const override { return table_.name == nullptr ? "" : table_.name; }
  bool consumes() const override { return table_.irecv_consumed != nullptr; }

  Result init(Logger log) override {
    if constexpr (kVersion >= 11)
      return table_.init(&context_, 0, &config_, log, nullptr);
    else if constexpr (kVersion == 10)
      return table_.init(log, nullptr);
    else
      return table_.init(log);
  }
  Result devices(int* count) override { return table_.devices(count); }
  Result properties(int device, DeviceProperties* out) override {
    Properties raw{};
    Result result = table_.get_properties(device, &raw);
    if (result != kSuccess) return result;
    out->name = raw.name == nullptr ? "" : raw.name;
    out->pci_path = raw.pci_path == nullptr ? "" : raw.pci_path;
    out->ptr_support = raw.ptr_support;
    out->speed_mbit = raw.speed;
    out->max_comms = raw.max_comms;
    out->device_type = raw.device_type;
    out->device_version = raw.device_version;
    out->max_request = kLargestIntRequest;
    if constexpr (kVersion >= 9)
      if (raw.max_p2p_bytes > 0) out->max_request = raw.max_p2p_bytes;
    return kSuccess;
  }
  Result listen(int device, void* handle, void** comm) override {
    if constexpr (kVersion >= 11)
      return table_.listen(context_, device, handle, comm);
    else
      return table_.listen(device, handle, comm);
  }
  Result connect(int device, void* handle, void** comm) override {
    DeviceHandle* none = nullptr;
    if constexpr (kVersion >= 11)
      return table_.connect(context_, device, handle, comm, &none);
    else if constexpr (kVersion == 10)
      return table_.connect(device, &config_, handle, comm, &none);
    else
      return table_.connect(device, handle, comm, &none);
  }
  Result accept(void* listen_comm, void** comm, DeviceHandle** device) override {
    return table_.accept(listen_comm, comm, device);
  }
  Result reg_mr(void* comm, void* data, size_t size, int type, void** mhandle) override {
    if constexpr (kVersion == 7) {
      if (size > INT_MAX) return kInvalidArgument;
      return table_.reg_mr(comm, data, static_cast<int>(size), type, mhandle);
    } else {
      return table_.reg_mr(comm, data, size, type, mhandle);
    }
  }
  Result dereg_mr(void* comm, void* mhandle) override { return table_.dereg_mr(comm, mhandle); }
  Result isend(void* comm, void* data, size_t size, int tag, void* mhandle,
               void** request) override {
    if constexpr (kVersion >= 10)
      return table_.isend(comm, data, size, tag, mhandle, nullptr, request);
    else if constexpr (kVersion == 9)
      return table_.isend(comm, data, size, tag, mhandle, request);
    else if (size > INT_MAX)
      return kInvalidArgument;
    else
      return table_.isend(comm, data, static_cast<int>(size), tag, mhandle, request);
  }
  Result irecv(void* comm, void* data, size_t size, int tag, void* mhandle,
               void** request) override {
    if constexpr (kVersion >= 10) {
      void* no_profiler = nullptr;
      return table_.irecv(comm, 1, &data, &size, &tag, &mhandle, &no_profiler, request);
    } else if constexpr (kVersion == 9) {
      return table_.irecv(comm, 1, &data, &size, &tag, &mhandle, request);
    } else {
      if (size > INT_MAX) return kInvalidArgument;
      int narrow = static_cast<int>(size);
      return table_.irecv(comm, 1, &data, &narrow, &tag, &mhandle, request);
    }
  }
  Result test(void* request, int* done, int* size) override {
    return table_.test(request, done, size);
  }
  Result consumed(void* comm, void* request) override {
    return table_.irecv_consumed == nullptr ? kSuccess : table_.irecv_consumed(comm, 1, request);
  }
  Result close_send(void* comm) override { return table_.close_send(comm); }
  Result close_recv(void* comm) override { return table_.close_recv(comm); }
  Result close_listen(void* comm) override { return table_.close_listen(comm); }

  static const char* missing(const Table& t) {
    const std::pair<bool, const char*> needs[] = {{t.init != nullptr, "init"},
                                                  {t.devices != nullptr, "devices"},
                                                  {t.get_properties != nullptr, "getProperties"},
                                                  {t.listen != nullptr, "listen"},
                                                  {t.connect != nullptr, "connect"},
                                                  {t.accept != nullptr, "accept"},
                                                  {t.reg_mr != nullptr, "regMr"},
                                                  {t.dereg_mr != nullptr, "deregMr"},
                                                  {t.isend != nullptr, "isend"},
                                                  {t.irecv != nullptr, "irecv"},
                                                  {t.test != nullptr, "test"},
                                                  {t.close_send != nullptr, "closeSend"},
                                                  {t.close_recv != nullptr, "closeRecv"},
                                                  {t.close_listen != nullptr, "closeListen"}};
    for (auto& [there, name] : needs)
      if (!there) return name;
    return nullptr;
  }

 private:
  const Table table_;  // a copy: the plugin's may be declared volatile
  void* context_ = nullptr;
  CommConfig config_{-1};
};

template <int kVersion>
std::unique_ptr<PluginCalls> bind(void* raw, std::string* why) {
  using Table = typename TableOf<kVersion>::Table;
  auto* table = static_cast<const Table*>(raw);
  if (const char* name = Shim<kVersion>::missing(*table)) {
    *why = std::string("its table has no ") + name;
    return nullptr;
  }
  return std::make_unique<Shim<kVersion>>(table);
}

}  // namespace

std::unique_ptr<PluginCalls> bind_table(int version, void* table, std::string* why) {
  switch (version) {
    case 7: return bind<7>(table, why);
    case 8: return bind<8>(table, why);
    case 9: return bind<9>(table, why);
    case 10: return bind<10>(table, why);
    case 11: return bind<11>(table, why);
    case 12: return bind<12>(table, why);
  }
  *why = "version " + std::to_string(version) + " is not spoken here";
  return nullptr;
}

const char* result_name(nccl::Result result) {
  switch (result) {
    case kSuccess: return "success";
    case kUnhandledCudaError: return "unhandled CUDA error (1)";
    case kSystemError: return "system error (2)";
    case kInternalError: return "internal error (3)";
    case kInvalidArgument: return "invalid argument (4)";
    case kInvalidUsage: return "invalid usage (5)";
    case kRemoteError: return "remote error (6)";
    case kInProgress: return "in progress (7)";
  }
  return "unknown result";
}

}  // namespace tcpx::net
