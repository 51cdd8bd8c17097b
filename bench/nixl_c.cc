// Transfers through stock NIXL from a program without an interpreter: by the C functions that the
// wheel brings (libnixl_capi.so), two processes, one descriptor. What the backend costs above the
// library shows here; Python adds two calls of a third of a microsecond. `./run bench nixl library`
// runs it, NIXL_PLUGIN_DIR names the backend's folder.
//
//   tcpx_nixl_c LIBNIXL_CAPI BACKEND OPS SIZES SECONDS [PARAMETER=VALUE]...
//   tcpx_nixl_c .../libnixl_capi.so TCPX WRITE,READ 4096,1048576 0.4 require_path=tcp
//
// Prints a line "WRITE 4096 9.31" (median, us) per operation and size, in that order.
#include <dlfcn.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

constexpr int kOk = 0, kInProgress = 1;
constexpr int kDram = 0, kRead = 0, kWrite = 1;
constexpr auto kLongest = std::chrono::seconds(60);  // one transfer
constexpr int kWarmUp = 2;
constexpr uint8_t kPoison = 0xEE;

[[noreturn]] void die(const std::string& what) {
  fprintf(stderr, "tcpx_nixl_c: %s\n", what.c_str());
  _exit(1);
}

// NIXL's C functions, as far as they are used here. Handles are pointers nobody looks into.
struct Nixl {
  void* library;
  template <class... Args>
  void call(const char* name, Args... args) const {
    auto* f = reinterpret_cast<int (*)(Args...)>(find(name));
    if (int code = f(args...); code != kOk)
      die(std::string(name) + " gives " + std::to_string(code));
  }
  void* find(const char* name) const {
    void* symbol = dlsym(library, name);
    if (symbol == nullptr) die(std::string("no ") + name + " in this libnixl_capi.so");
    return symbol;
  }
};

struct Arguments {
  std::string library, backend;
  std::vector<std::string> ops;
  std::vector<uint64_t> sizes;
  double seconds = 0;
  std::vector<std::pair<std::string, std::string>> params;
};

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> out;
  std::istringstream stream(text);
  for (std::string each; std::getline(stream, each, ',');) out.push_back(each);
  return out;
}

Arguments parse(int argc, char** argv) {
  if (argc < 6)
    die("usage: tcpx_nixl_c LIBNIXL_CAPI BACKEND OPS SIZES SECONDS [PARAMETER=VALUE]...");
  Arguments out{argv[1], argv[2], split(argv[3]), {}, std::atof(argv[5]), {}};
  for (auto& size : split(argv[4])) out.sizes.push_back(std::strtoull(size.c_str(), nullptr, 10));
  for (int i = 6; i < argc; ++i) {
    std::string item = argv[i];
    size_t equals = item.find('=');
    if (equals == std::string::npos) die("\"" + item + "\" is no PARAMETER=VALUE");
    out.params.emplace_back(item.substr(0, equals), item.substr(equals + 1));
  }
  for (auto& op : out.ops)
    if (op != "WRITE" && op != "READ") die("\"" + op + "\" is neither WRITE nor READ");
  if (out.sizes.empty() || *std::min_element(out.sizes.begin(), out.sizes.end()) == 0)
    die("sizes are positive numbers");
  return out;
}

// An agent with one registered buffer.
struct Side {
  Side(const Nixl& with, const Arguments& arguments, const char* name) : nixl(with) {
    bytes = *std::max_element(arguments.sizes.begin(), arguments.sizes.end());
    size_t whole = (bytes + (2u << 20) - 1) / (2u << 20) * (2u << 20);
    void* at = mmap(nullptr, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) die("no memory");
    madvise(at, whole, MADV_HUGEPAGE);
    memory = static_cast<uint8_t*>(at);
    std::fill(memory, memory + bytes, kPoison);
    void *params = nullptr, *list = nullptr;
    nixl.call("nixl_capi_create_agent", name, &agent);
    nixl.call("nixl_capi_create_params", &params);
    for (auto& [key, value] : arguments.params)
      nixl.call("nixl_capi_params_add", params, key.c_str(), value.c_str());
    nixl.call("nixl_capi_create_backend", agent, arguments.backend.c_str(), params, &backend);
    nixl.call("nixl_capi_create_opt_args", &options);
    nixl.call("nixl_capi_opt_args_add_backend", options, backend);
    nixl.call("nixl_capi_create_reg_dlist", kDram, &list);
    nixl.call("nixl_capi_reg_dlist_add_desc", list, reinterpret_cast<uintptr_t>(memory), bytes,
              uint64_t{0}, static_cast<const void*>(nullptr), size_t{0});
    nixl.call("nixl_capi_register_mem", agent, list, options);
  }
  void* one_piece(uintptr_t address, uint64_t size) const {
    void* list = nullptr;
    nixl.call("nixl_capi_create_xfer_dlist", kDram, &list);
    nixl.call("nixl_capi_xfer_dlist_add_desc", list, address, static_cast<size_t>(size),
              uint64_t{0});
    return list;
  }
  // Words that differ from all others of the pattern and from those of another seed.
  static uint8_t byte_at(uint64_t seed, uint64_t at) {
    return static_cast<uint8_t>(((at / 8 + 1) * 0x9E3779B97F4A7C15 + seed * 0xBF58476D1CE4E5B9) >>
                                (at % 8 * 8));
  }
  void fill(uint64_t seed, uint64_t size) {
    for (uint64_t i = 0; i < size; ++i) memory[i] = byte_at(seed, i);
  }
  bool holds(uint64_t seed, uint64_t size) const {
    for (uint64_t i = 0; i < size; ++i)
      if (memory[i] != byte_at(seed, i)) return false;
    return true;
  }

  const Nixl& nixl;
  void *agent = nullptr, *backend = nullptr, *options = nullptr;
  uint8_t* memory = nullptr;
  size_t bytes = 0;
};

void put(int fd, const void* data, size_t size) {
  if (write(fd, data, size) != static_cast<ssize_t>(size)) die("the other process is gone");
}
void get(int fd, void* data, size_t size) {
  if (recv(fd, data, size, MSG_WAITALL) != static_cast<ssize_t>(size))
    die("the other process is gone");
}

struct Order {
  enum What : uint64_t { kFill, kPoisonAll, kCheck, kEnd } what;
  uint64_t seed, size;
};

[[noreturn]] void serve(const Nixl& nixl, const Arguments& arguments, int fd) {
  Side side(nixl, arguments, "target");
  void* blob = nullptr;
  size_t length = 0;
  nixl.call("nixl_capi_get_local_md", side.agent, &blob, &length);
  uint64_t head[2] = {reinterpret_cast<uint64_t>(side.memory), length};
  put(fd, head, sizeof head);
  put(fd, blob, length);
  for (;;) {
    Order order{};
    get(fd, &order, sizeof order);
    uint64_t answer = 1;
    if (order.what == Order::kFill) side.fill(order.seed, order.size);
    if (order.what == Order::kPoisonAll) std::fill(side.memory, side.memory + order.size, kPoison);
    if (order.what == Order::kCheck) answer = side.holds(order.seed, order.size) ? 1 : 0;
    put(fd, &answer, sizeof answer);
    if (order.what == Order::kEnd) _exit(0);
  }
}

class Initiator {
 public:
  Initiator(const Nixl& nixl, const Arguments& arguments, int fd)
      : nixl_(nixl), side_(nixl, arguments, "initiator"), fd_(fd) {
    uint64_t head[2];
    get(fd, head, sizeof head);
    there_ = head[0];
    std::vector<uint8_t> blob(head[1]);
    get(fd, blob.data(), blob.size());
    char* name = nullptr;
    nixl.call("nixl_capi_load_remote_md", side_.agent, static_cast<const void*>(blob.data()),
              blob.size(), &name);
    post_ = reinterpret_cast<Post>(nixl.find("nixl_capi_post_xfer_req"));
    poll_ = reinterpret_cast<Poll>(nixl.find("nixl_capi_get_xfer_status"));
  }
  // Median microseconds of one transfer; the first one with content that is checked.
  double measure(int op, uint64_t size, double seconds) {
    void* request = nullptr;
    nixl_.call("nixl_capi_create_xfer_req", side_.agent, op,
               side_.one_piece(reinterpret_cast<uintptr_t>(side_.memory), size),
               side_.one_piece(static_cast<uintptr_t>(there_), size), "target", &request,
               side_.options);
    verify(op, size, request);
    for (int i = 0; i < kWarmUp; ++i) one(request);
    std::vector<double> times;
    for (auto ends = Clock::now() + std::chrono::duration<double>(seconds);
         times.size() < 5 || (Clock::now() < ends && times.size() < 20'000);)
      times.push_back(one(request));
    nixl_.call("nixl_capi_release_xfer_req", side_.agent, request);
    auto middle = times.begin() + static_cast<ptrdiff_t>(times.size() / 2);
    std::nth_element(times.begin(), middle, times.end());
    return *middle;
  }
  uint64_t ask(Order::What what, uint64_t seed = 0, uint64_t size = 0) {
    Order order{what, seed, size};
    put(fd_, &order, sizeof order);
    uint64_t answer = 0;
    get(fd_, &answer, sizeof answer);
    return answer;
  }

 private:
  using Post = int (*)(void*, void*, void*);
  using Poll = int (*)(void*, void*);

  double one(void* request) {
    auto began = Clock::now();
    int state = post_(side_.agent, request, side_.options);
    while (state == kInProgress) {
      state = poll_(side_.agent, request);
      if (state == kInProgress && Clock::now() - began > kLongest) die("a transfer does not end");
    }
    if (state != kOk) die("a transfer ends with " + std::to_string(state));
    return std::chrono::duration<double, std::micro>(Clock::now() - began).count();
  }
  void verify(int op, uint64_t size, void* request) {
    uint64_t seed = size * 2 + static_cast<uint64_t>(op);
    if (op == kWrite) {
      side_.fill(seed, size);
      ask(Order::kPoisonAll, 0, size);
    } else {
      ask(Order::kFill, seed, size);
      std::fill(side_.memory, side_.memory + size, kPoison);
    }
    one(request);
    if (op == kWrite ? ask(Order::kCheck, seed, size) == 0 : !side_.holds(seed, size))
      die("wrong bytes");
  }

  const Nixl& nixl_;
  Side side_;
  int fd_;
  uint64_t there_ = 0;
  Post post_ = nullptr;
  Poll poll_ = nullptr;
};

}  // namespace

int main(int argc, char** argv) {
  signal(SIGPIPE, SIG_IGN);  // the other process may be gone: put() says so
  Arguments arguments = parse(argc, argv);
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0) die("socketpair");
  pid_t child = fork();  // before NIXL and its threads exist
  if (child < 0) die("fork");
  Nixl nixl{dlopen(arguments.library.c_str(), RTLD_NOW | RTLD_LOCAL)};
  if (nixl.library == nullptr) die(dlerror());
  close(pair[child == 0 ? 0 : 1]);
  if (child == 0) serve(nixl, arguments, pair[1]);
  Initiator initiator(nixl, arguments, pair[0]);
  for (auto& op : arguments.ops)
    for (uint64_t size : arguments.sizes)
      printf("%s %llu %.3f\n", op.c_str(), static_cast<unsigned long long>(size),
             initiator.measure(op == "WRITE" ? kWrite : kRead, size, arguments.seconds));
  initiator.ask(Order::kEnd);
  fflush(stdout);
  _exit(0);  // the target is gone: nothing to say goodbye to
}
