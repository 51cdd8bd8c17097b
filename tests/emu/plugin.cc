#include "plugin.h"

#include <dlfcn.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <thread>

namespace tcpx::test {

namespace {

std::mutex g_log_mutex;
std::string g_log;

void log_callback(int level, unsigned long, const char*, int, const char* format, ...) {
  if (level > nccl::kLogWarn) return;
  char text[2048];
  va_list args;
  va_start(args, format);
  std::vsnprintf(text, sizeof text, format, args);
  va_end(args);
  std::lock_guard lock(g_log_mutex);
  g_log += std::string(text) + "\n";
}

void* symbol(const char* name) {
  static void* library = ::dlopen(TCPX_TEST_EMU_PATH, RTLD_NOW | RTLD_LOCAL);
  void* found = library == nullptr ? nullptr : ::dlsym(library, name);
  if (found == nullptr) {
    std::fprintf(stderr, "%s\n", ::dlerror());
    std::abort();
  }
  return found;
}

}  // namespace

const nccl::TableV7& plugin() {
  return *static_cast<const nccl::TableV7*>(symbol("ncclNetPlugin_v7"));
}
const tcpx_emu_v1& extras() {
  return *static_cast<const tcpx_emu_v1*>(symbol("tcpxEmu_v1"));
}

std::string PluginLog::all() {
  std::lock_guard lock(g_log_mutex);
  return g_log;
}
void PluginLog::clear() {
  std::lock_guard lock(g_log_mutex);
  g_log.clear();
}

Environment::Environment(Variables variables) {
  set("NCCL_GPUDIRECTTCPX_SOCKET_IFNAME", "lo");
  set("NCCL_DYNAMIC_CHUNK_SIZE", "524288");
  set("NCCL_GPUDIRECTTCPX_PROGRAM_FLOW_STEERING_WAIT_MICROS", "1");
  set("TCPX_EMU_DEVICE", "host");
  for (const auto& [name, value] : variables) set(name, value);
  PluginLog::clear();
  init_result = plugin().init(log_callback);
}

Environment::~Environment() {
  for (const std::string& name : names_) ::unsetenv(name.c_str());
}

void Environment::set(const char* name, const std::string& value) {
  ::setenv(name, value.c_str(), 1);
  names_.push_back(name);
}

Pages::Pages(size_t size) : size_((size + 4095) / 4096 * 4096) {
  void* memory = ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) std::abort();
  data_ = static_cast<uint8_t*>(memory);
  poison();
}
Pages::~Pages() {
  ::munmap(data_, size_);
}
void Pages::poison() {
  std::memset(data_, 0xCD, size_);
}

Pair::Pair(int device, bool expect_success) {
  alignas(8) char handle[nccl::kHandleBytes];
  void* listener = nullptr;
  receive_result = plugin().listen(device, handle, &listener);
  if (receive_result != 0) {
    if (expect_success) ADD_FAILURE() << "listen: " << PluginLog::all();
    return;
  }
  nccl::DeviceHandle* storage = &description;
  bool both = eventually(
      [&] {
        if (send == nullptr && send_result == 0)
          send_result = plugin().connect(device, handle, &send, nullptr);
        if (receive == nullptr && receive_result == 0)
          receive_result = plugin().accept(listener, &receive, &storage);
        return (send != nullptr || send_result != 0) && (receive != nullptr || receive_result != 0);
      },
      kLong, Ms{0});
  if (expect_success) {
    EXPECT_TRUE(both && send != nullptr && receive != nullptr)
        << send_result << " " << receive_result << "\n"
        << PluginLog::all();
  }
  EXPECT_EQ(plugin().close_listen(listener), 0);
}

int Pair::close_send() {
  return send ? plugin().close_send(std::exchange(send, nullptr)) : 0;
}
int Pair::close_receive() {
  return receive ? plugin().close_recv(std::exchange(receive, nullptr)) : 0;
}
void Pair::close() {
  close_send();
  close_receive();
}

Registered::Registered(void* comm, void* data, size_t size, int type) : comm_(comm) {
  EXPECT_EQ(plugin().reg_mr(comm, data, static_cast<int>(size), type, &handle_), 0)
      << PluginLog::all();
}
Registered::~Registered() {
  EXPECT_EQ(plugin().dereg_mr(comm_, handle_), 0);
}

void* isend(const Pair& pair, void* data, int size, const Registered& region, int* rc) {
  void* request = nullptr;
  int result = plugin().isend(pair.send, data, size, 0, region.get(), &request);
  if (rc != nullptr)
    *rc = result;
  else
    EXPECT_EQ(result, 0) << PluginLog::all();
  return request;
}

void* irecv(const Pair& pair, void* data, int size, const Registered& region, int* rc) {
  void* request = nullptr;
  void* mhandle = region.get();
  int tag = 0;
  int result = plugin().irecv(pair.receive, 1, &data, &size, &tag, &mhandle, &request);
  if (rc != nullptr)
    *rc = result;
  else
    EXPECT_EQ(result, 0) << PluginLog::all();
  return request;
}

int finish(void* request, Ms limit) {
  int done = 0, rc = 0;
  bool ended = eventually(
      [&] {
        rc = plugin().test(request, &done, nullptr);
        return rc != 0 || done != 0;
      },
      limit, Ms{0});
  return ended ? rc : -1;
}

void finish_both(void* first, void* second) {
  bool ended = eventually(
      [&] {
        for (void** request : {&first, &second}) {
          int done = 0;
          if (*request == nullptr) continue;
          EXPECT_EQ(plugin().test(*request, &done, nullptr), 0) << PluginLog::all();
          if (done) *request = nullptr;
        }
        return (first == nullptr && second == nullptr) || ::testing::Test::HasFailure();
      },
      kLong, Ms{0});
  EXPECT_TRUE(ended) << PluginLog::all();
}

int consume(const Pair& pair, void* request) {
  return plugin().irecv_consumed(pair.receive, 1, request);
}

int in_child(const std::function<int()>& body, Ms limit) {
  pid_t child = ::fork();
  if (child == 0) ::_exit(body());
  int status = 0;
  if (!eventually([&] { return ::waitpid(child, &status, WNOHANG) == child; }, limit)) {
    ::kill(child, SIGKILL);
    ::waitpid(child, &status, 0);
    return -1;
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : -2;
}

uint64_t unpack(const Pair& pair, uint64_t ordinal, uint8_t* destination) {
  const auto* bounce = static_cast<const uint8_t*>(pair.unpack()->bounce);
  size_t slot = ordinal % nccl::kUnpackSlots;
  uint64_t bytes = 0;
  for (uint64_t i = 0; i < pair.meta().count[slot]; ++i) {
    const nccl::Fragment& f = pair.meta().fragments[slot][i];
    std::memcpy(destination + f.destination, bounce + f.source, f.length);
    bytes += f.length;
  }
  return bytes;
}

}  // namespace tcpx::test
