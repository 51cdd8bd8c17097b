// Every version of the plugin ABI through the one interface: a table of each version whose
// functions write down what they were given.
#include <gtest/gtest.h>

#include <climits>
#include <cstring>

#include "path/net/plugin_calls.h"

namespace tcpx::net {
namespace {

using namespace nccl;

struct Seen {
  std::string call;
  int device = -1;
  void* context = nullptr;
  void* comm = nullptr;
  void* data = nullptr;
  size_t size = 0;
  int tag = 0;
  void* mhandle = nullptr;
  int n = 0;
} seen;

char context_memory, comm_memory, mhandle_memory, request_memory, data_memory;

Result note(const char* call) {
  seen.call = call;
  return kSuccess;
}
Result give(void** out, void* what) {
  *out = what;
  return kSuccess;
}

// What all versions have in common.
template <class Table>
void fill_common(Table& t) {
  t.name = "recorder";
  t.devices = [](int* count) {
    *count = 2;
    return note("devices");
  };
  t.accept = [](void* listen, void** comm, DeviceHandle** device) {
    seen.comm = listen;
    (*device)->version = 99;
    note("accept");
    return give(comm, &comm_memory);
  };
  t.reg_mr_dma_buf = nullptr;
  t.dereg_mr = [](void* comm, void* mhandle) {
    seen.comm = comm;
    seen.mhandle = mhandle;
    return note("deregMr");
  };
  t.iflush = nullptr;
  t.test = [](void* request, int* done, int* size) {
    seen.data = request;
    *done = 1;
    if (size != nullptr) *size = 17;
    return note("test");
  };
  t.close_send = [](void* comm) {
    seen.comm = comm;
    return note("closeSend");
  };
  t.close_recv = [](void* comm) {
    seen.comm = comm;
    return note("closeRecv");
  };
  t.close_listen = [](void* comm) {
    seen.comm = comm;
    return note("closeListen");
  };
  t.get_device_mr = nullptr;
  t.irecv_consumed = [](void* comm, int n, void* request) {
    seen = {"irecvConsumed", -1, nullptr, comm, request, 0, 0, nullptr, n};
    return kSuccess;
  };
}

template <class Properties>
Result describe(int device, Properties* p) {
  seen.device = device;
  static char name[] = "eth1", path[] = "/sys/pci";
  memset(static_cast<void*>(p), 0xEE, sizeof *p);
  p->name = name;
  p->pci_path = path;
  p->ptr_support = 3;
  p->speed = 100000;
  p->max_comms = 65536;
  p->device_type = kDeviceUnpack;
  p->device_version = 7;
  if constexpr (requires { p->max_p2p_bytes; }) p->max_p2p_bytes = 1 << 22;
  return kSuccess;
}

Result record_isend(void* comm, void* data, size_t size, int tag, void* mhandle, void** request) {
  seen = {"isend", -1, nullptr, comm, data, size, tag, mhandle, 1};
  return give(request, &request_memory);
}
Result record_irecv(void* comm, int n, void** data, size_t size, int* tags, void** mhandles,
                    void** request) {
  seen = {"irecv", -1, nullptr, comm, data[0], size, tags[0], mhandles[0], n};
  return give(request, &request_memory);
}
Result record_reg(void* comm, void* data, size_t size, int type, void** mhandle) {
  seen = {"regMr", -1, nullptr, comm, data, size, type, nullptr, 1};
  return give(mhandle, &mhandle_memory);
}

TableV7 table7() {
  TableV7 t{};
  fill_common(t);
  t.init = [](Logger) { return note("init"); };
  t.get_properties = [](int d, PropertiesV7* p) { return describe(d, p); };
  t.listen = [](int d, void*, void** c) {
    seen.device = d;
    note("listen");
    return give(c, &comm_memory);
  };
  t.connect = [](int d, void*, void** c, DeviceHandle**) {
    seen.device = d;
    note("connect");
    return give(c, &comm_memory);
  };
  t.reg_mr = [](void* c, void* d, int s, int ty, void** m) {
    return record_reg(c, d, static_cast<size_t>(s), ty, m);
  };
  t.isend = [](void* c, void* d, int s, int tag, void* m, void** r) {
    return record_isend(c, d, static_cast<size_t>(s), tag, m, r);
  };
  t.irecv = [](void* c, int n, void** d, int* s, int* tags, void** m, void** r) {
    return record_irecv(c, n, d, static_cast<size_t>(s[0]), tags, m, r);
  };
  return t;
}
TableV8 table8() {
  TableV7 old = table7();
  TableV8 t{};
  fill_common(t);
  t.init = old.init;
  t.get_properties = [](int d, PropertiesV8* p) { return describe(d, p); };
  t.listen = old.listen;
  t.connect = old.connect;
  t.reg_mr = record_reg;
  t.isend = old.isend;
  t.irecv = old.irecv;
  return t;
}
TableV9 table9() {
  TableV8 old = table8();
  TableV9 t{};
  fill_common(t);
  t.init = old.init;
  t.get_properties = [](int d, PropertiesV9* p) { return describe(d, p); };
  t.listen = old.listen;
  t.connect = old.connect;
  t.reg_mr = record_reg;
  t.isend = record_isend;
  t.irecv = [](void* c, int n, void** d, size_t* s, int* tags, void** m, void** r) {
    return record_irecv(c, n, d, s[0], tags, m, r);
  };
  return t;
}
TableV10 table10() {
  TableV10 t{};
  fill_common(t);
  t.init = [](Logger, ProfilerCallback) { return note("init"); };
  t.get_properties = [](int d, PropertiesV10* p) { return describe(d, p); };
  t.listen = table7().listen;
  t.connect = [](int d, CommConfig* config, void*, void** c, DeviceHandle**) {
    seen.device = config == nullptr ? -2 : d;
    note("connect");
    return give(c, &comm_memory);
  };
  t.reg_mr = record_reg;
  t.isend = [](void* c, void* d, size_t s, int tag, void* m, void*, void** r) {
    return record_isend(c, d, s, tag, m, r);
  };
  t.irecv = [](void* c, int n, void** d, size_t* s, int* tags, void** m, void** profilers,
               void** r) {
    if (profilers == nullptr) return kInvalidArgument;
    return record_irecv(c, n, d, s[0], tags, m, r);
  };
  return t;
}
template <class Table, class Properties>
Table table11() {
  Table t{};
  fill_common(t);
  t.init = [](void** context, uint64_t, CommConfig* config, Logger, ProfilerCallback) {
    *context = &context_memory;
    return config == nullptr ? kInvalidArgument : note("init");
  };
  t.get_properties = [](int d, Properties* p) { return describe(d, p); };
  t.listen = [](void* context, int d, void*, void** c) {
    seen.context = context;
    seen.device = d;
    note("listen");
    return give(c, &comm_memory);
  };
  t.connect = [](void* context, int d, void*, void** c, DeviceHandle**) {
    seen.context = context;
    seen.device = d;
    note("connect");
    return give(c, &comm_memory);
  };
  t.reg_mr = record_reg;
  t.isend = table10().isend;
  t.irecv = table10().irecv;
  return t;
}

void* table_of(int version) {
  static TableV7 v7 = table7();
  static TableV8 v8 = table8();
  static TableV9 v9 = table9();
  static TableV10 v10 = table10();
  static TableV11 v11 = table11<TableV11, PropertiesV11>();
  static TableV12 v12 = table11<TableV12, PropertiesV12>();
  void* const all[] = {&v7, &v8, &v9, &v10, &v11, &v12};
  return all[version - kOldestVersion];
}

class PluginVersions : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    std::string why;
    calls = bind_table(GetParam(), table_of(GetParam()), &why);
    ASSERT_NE(calls, nullptr) << why;
    ASSERT_EQ(calls->init(nullptr), kSuccess);
    seen = {};
  }
  std::unique_ptr<PluginCalls> calls;
};

TEST_P(PluginVersions, PropertiesAreReadFromTheirOwnLayout) {
  EXPECT_EQ(calls->version(), GetParam());
  EXPECT_EQ(calls->name(), "recorder");
  DeviceProperties p;
  ASSERT_EQ(calls->properties(1, &p), kSuccess);
  EXPECT_EQ(seen.device, 1);
  EXPECT_EQ(p.name, "eth1");
  EXPECT_EQ(p.pci_path, "/sys/pci");
  EXPECT_EQ(p.ptr_support, 3);
  EXPECT_EQ(p.speed_mbit, 100000);
  EXPECT_EQ(p.max_comms, 65536);
  EXPECT_TRUE(p.unpacks());
  EXPECT_EQ(p.device_version, 7);
  EXPECT_EQ(p.max_request, GetParam() >= 9 ? 1u << 22 : 1u << 30);
}

TEST_P(PluginVersions, CallsArriveWithTheirArguments) {
  void* comm = nullptr;
  char handle[kHandleBytes] = {};
  ASSERT_EQ(calls->listen(1, handle, &comm), kSuccess);
  EXPECT_EQ(seen.call, "listen");
  EXPECT_EQ(seen.device, 1);
  EXPECT_EQ(seen.context, GetParam() >= 11 ? &context_memory : nullptr);
  ASSERT_EQ(calls->connect(1, handle, &comm), kSuccess);
  EXPECT_EQ(seen.call, "connect");
  EXPECT_EQ(seen.device, 1);
  EXPECT_EQ(comm, &comm_memory);
  DeviceHandle device{};
  DeviceHandle* device_pointer = &device;
  ASSERT_EQ(calls->accept(&data_memory, &comm, &device_pointer), kSuccess);
  EXPECT_EQ(device.version, 99);

  void* mhandle = nullptr;
  ASSERT_EQ(calls->reg_mr(comm, &data_memory, 8192, kPtrCuda, &mhandle), kSuccess);
  EXPECT_EQ(seen.size, 8192u);
  EXPECT_EQ(seen.tag, kPtrCuda);
  EXPECT_EQ(mhandle, &mhandle_memory);
  for (bool sending : {true, false}) {
    void* request = nullptr;
    auto call = sending ? &PluginCalls::isend : &PluginCalls::irecv;
    ASSERT_EQ((calls.get()->*call)(comm, &data_memory, 524288, 5, mhandle, &request), kSuccess);
    EXPECT_EQ(seen.call, sending ? "isend" : "irecv");
    EXPECT_EQ(seen.comm, comm);
    EXPECT_EQ(seen.data, &data_memory);
    EXPECT_EQ(seen.size, 524288u);
    EXPECT_EQ(seen.tag, 5);
    EXPECT_EQ(seen.mhandle, mhandle);
    EXPECT_EQ(seen.n, 1);
    EXPECT_EQ(request, &request_memory);
  }
  int done = 0, size = 0;
  ASSERT_EQ(calls->test(&request_memory, &done, &size), kSuccess);
  EXPECT_EQ(done, 1);
  EXPECT_EQ(size, 17);
  ASSERT_EQ(calls->consumed(comm, &request_memory), kSuccess);
  EXPECT_EQ(seen.call, "irecvConsumed");
  EXPECT_EQ(seen.n, 1);
}

TEST_P(PluginVersions, SizesThatTheVersionCannotExpressAreRefusedAndNotCut) {
  void* out = nullptr;
  size_t huge = size_t{INT_MAX} + 1;
  Result narrow = GetParam() >= 9 ? kSuccess : kInvalidArgument;
  EXPECT_EQ(calls->isend(&comm_memory, &data_memory, huge, 0, nullptr, &out), narrow);
  EXPECT_EQ(calls->irecv(&comm_memory, &data_memory, huge, 0, nullptr, &out), narrow);
  Result registering = GetParam() >= 8 ? kSuccess : kInvalidArgument;
  EXPECT_EQ(calls->reg_mr(&comm_memory, &data_memory, huge, kPtrHost, &out), registering);
  if (registering == kSuccess) {
    EXPECT_EQ(seen.size, huge);
  }
}

INSTANTIATE_TEST_SUITE_P(All, PluginVersions, ::testing::Range(kOldestVersion, kNewestVersion + 1),
                         [](const auto& each) { return "v" + std::to_string(each.param); });

TEST(PluginTables, ATableWithoutAFunctionOrOfAnUnknownVersionIsRefused) {
  std::string why;
  TableV7 broken = table7();
  broken.irecv = nullptr;
  EXPECT_EQ(bind_table(7, &broken, &why), nullptr);
  EXPECT_NE(why.find("irecv"), std::string::npos) << why;
  EXPECT_EQ(bind_table(6, &broken, &why), nullptr);
  EXPECT_EQ(bind_table(13, &broken, &why), nullptr);
}

}  // namespace
}  // namespace tcpx::net
