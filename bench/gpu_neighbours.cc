// GPU memory beside what else goes on: a user's kernel on every SM, a thread that allocates all the
// time, a user's matrix products, transfers the other way, a peer that is stopped, CUDA in a
// process that moves host memory. Every row has its ceiling from the same run; content is checked
// after each.
//
//   tcpx_gpu_neighbours [--bytes 64M] [--seconds 1] [--lanes 4] [--device 0] [--cublas FILE]
//   [NAME...]
//
// NAMEs: held allocator gemm both_ways stopped loaded; default all. A JSON document per row.
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <map>
#include <memory>
#include <thread>
#include <vector>

#include <nlohmann/json.hpp>
#include <tcpx/tcpx.hpp>

#include "base/clock.h"
#include "base/units.h"
#include "cuda_driver.h"
#include "emu/fake_cuda/fake_cuda.h"
#include "memory/pages.h"
#include "support/pattern.h"

namespace {

using namespace tcpx;
using bench::Cuda;
using Json = nlohmann::ordered_json;

constexpr uint64_t kPiece = 16 << 10;
constexpr int kScenarioPatience = 120;  // seconds
constexpr uint64_t kSlots = 4;          // buffers per kind of memory, for transfers at once

struct Settings {
  uint64_t bytes = 64 << 20;  // of a transfer
  double seconds = 1;         // of one measurement
  std::string lanes = "4";
  int device = 0;
  std::string cublas;
};

[[noreturn]] void fail(const std::string& what) {
  throw std::runtime_error(what);
}
void check(const Result& result, const char* what) {
  if (!result) fail(std::string(what) + ": " + result.name() + ": " + result.text());
}

// ---- rows ----------------------------------------------------------------------------------

void print_row(Json row) {
  std::printf("%s\n", row.dump().c_str());
  std::fflush(stdout);
}

// `seen` against a ceiling of the same run.
void compare(const std::string& name, double seen, const std::string& ceiling_name, double ceiling,
             double least, const std::string& note = "") {
  const double ratio = ceiling > 0 ? seen / ceiling : 0;
  print_row({{"name", name},
             {"seen", seen},
             {"ceiling_name", ceiling_name},
             {"ceiling", ceiling},
             {"ratio", ratio},
             {"least", least},
             {"ok", ratio >= least},
             {"note", note}});
}
void state(const std::string& name, bool ok, const std::string& note) {
  print_row({{"name", name}, {"ok", ok}, {"note", note}});
}
void skip(const std::string& name, const std::string& why) {
  print_row({{"name", name}, {"skipped", why}});
}

// ---- content -------------------------------------------------------------------------------

// How a transfer is cut: whole, or into pieces that lie in another order at the server.
struct Cut {
  uint64_t bytes = 0;
  bool scattered = false;

  uint64_t pieces() const { return scattered ? bytes / kPiece : 1; }
  uint64_t length() const { return bytes / pieces(); }
  uint64_t place(uint64_t piece, bool client) const {
    return (client ? piece : piece * 40503 % pieces()) * length();
  }
};

enum class Do : uint32_t { kFill, kPoison, kCheck, kLoadCuda, kEnd };

struct Order {
  Do what = Do::kFill;
  bool cuda = false;
  bool scattered = false;
  uint64_t slot = 0;
  uint64_t pattern = 0;
};

// A process's memory of both kinds.
class Buffers {
 public:
  explicit Buffers(const Settings& settings) : settings_(settings) {
    if (!host_.allocate(kSlots * settings.bytes)) fail("not enough memory");
    std::memset(host_.data(), 1, host_.size());
  }

  const Cuda& load_cuda() {
    if (cuda_ != nullptr) return *cuda_;
    cuda_ = std::make_unique<Cuda>(settings_.device);
    cuda_->check(cuda_->mem_alloc(&device_, kSlots * settings_.bytes), "cuMemAlloc");
    return *cuda_;
  }
  const Cuda& cuda() const { return *cuda_; }
  void* address(bool cuda) const {
    return cuda ? reinterpret_cast<void*>(device_) : static_cast<void*>(host_.data());
  }
  uint64_t size() const { return kSlots * settings_.bytes; }

  // Where a byte is wrong, or -1.
  int64_t obey(const Order& order, bool client) {
    std::vector<uint8_t> image;
    uint8_t* at = host_.data() + order.slot * settings_.bytes;
    const Cuda::Pointer device = device_ + order.slot * settings_.bytes;
    if (order.cuda) {
      image.resize(settings_.bytes);
      at = image.data();
      if (order.what == Do::kCheck)
        cuda_->check(cuda_->copy_to_host(at, device, settings_.bytes), "cuMemcpyDtoH");
    }
    const int64_t wrong = apply(order, at, client);
    if (order.cuda && order.what != Do::kCheck)
      cuda_->check(cuda_->copy_to_device(device, at, settings_.bytes), "cuMemcpyHtoD");
    return wrong;
  }

 private:
  int64_t apply(const Order& order, uint8_t* at, bool client) const {
    const Cut cut{settings_.bytes, order.scattered};
    const test::Pattern pattern(0x6e1b, order.pattern);
    if (order.what == Do::kPoison) std::memset(at, 0xcd, settings_.bytes);
    if (order.what == Do::kPoison) return -1;
    for (uint64_t i = 0; i < cut.pieces(); ++i) {
      uint8_t* piece = at + cut.place(i, client);
      if (order.what == Do::kFill) pattern.fill(piece, cut.length(), i * cut.length());
      if (order.what != Do::kCheck) continue;
      const int64_t wrong = pattern.mismatch(piece, cut.length(), i * cut.length());
      if (wrong >= 0) return static_cast<int64_t>(cut.place(i, client)) + wrong;
    }
    return -1;
  }

  const Settings& settings_;
  Pages host_;
  Cuda::Pointer device_ = 0;
  std::unique_ptr<Cuda> cuda_;
};

// ---- the servers ---------------------------------------------------------------------------

void put(int fd, const void* data, size_t size) {
  if (send(fd, data, size, MSG_NOSIGNAL) != static_cast<ssize_t>(size))
    fail("the other process is gone");
}
void get(int fd, void* data, size_t size) {
  if (recv(fd, data, size, MSG_WAITALL) != static_cast<ssize_t>(size))
    fail("the other process is gone, or silent");
}
void put_bytes(int fd, const Bytes& bytes) {
  const uint64_t size = bytes.size();
  put(fd, &size, sizeof size);
  put(fd, bytes.data(), size);
}
Bytes get_bytes(int fd) {
  uint64_t size = 0;
  get(fd, &size, sizeof size);
  Bytes bytes(size);
  get(fd, bytes.data(), size);
  return bytes;
}

Options engine_options(const Settings& settings) {
  return {{"interfaces", "127.0.0.1"}, {"lanes", settings.lanes}};
}

Engine make_engine(const Settings& settings) {
  Engine engine;
  check(Engine::create(engine_options(settings), &engine,
                       [](tcpx_log_level level, const char* line) {
                         if (level <= TCPX_LOG_WARN) std::fprintf(stderr, "%s\n", line);
                       }),
        "engine");
  return engine;
}

tcpx_region register_kind(Engine& engine, const Buffers& buffers, bool cuda, uint32_t access) {
  tcpx_region region = 0;
  check(engine.register_memory(buffers.address(cuda), buffers.size(), access, &region), "register");
  return region;
}

void tell_region(int fd, Engine& engine, const Buffers& buffers, bool cuda) {
  Bytes description;
  check(
      engine.export_region(
          register_kind(engine, buffers, cuda, TCPX_REMOTE_READ | TCPX_REMOTE_WRITE), &description),
      "export");
  put_bytes(fd, description);
}

// The passive side.
void serve(int fd, const Settings& settings, bool cuda) {
  Buffers buffers(settings);
  if (cuda) buffers.load_cuda();
  Engine engine = make_engine(settings);
  put_bytes(fd, engine.connection_info());
  tell_region(fd, engine, buffers, false);
  if (cuda) tell_region(fd, engine, buffers, true);
  while (true) {
    Order order;
    get(fd, &order, sizeof order);
    if (order.what == Do::kEnd) return;
    if (order.what == Do::kLoadCuda) {
      buffers.load_cuda();
      tell_region(fd, engine, buffers, true);
      continue;
    }
    const int64_t wrong = buffers.obey(order, false);
    put(fd, &wrong, sizeof wrong);
  }
}

struct Server {
  pid_t pid = -1;
  int fd = -1;
  tcpx_remote_region region[2] = {};  // host, cuda
  tcpx_peer peer = 0;
};

// ---- the client ----------------------------------------------------------------------------

struct Job {
  size_t server = 0;
  tcpx_op op = TCPX_WRITE;
  bool local_cuda = true, remote_cuda = true;
  bool scattered = false;
  uint64_t slot = 0;
};

// Servers and a client of them in this process. Servers are forked before anything else exists.
class Rig {
 public:
  Rig(const Settings& settings, size_t servers, bool servers_cuda) : settings_(settings) {
    for (size_t i = 0; i < servers; ++i) servers_.push_back(start_server(servers_cuda));
    buffers_ = std::make_unique<Buffers>(settings);
    engine_ = make_engine(settings);
    for (Server& server : servers_) {
      const Bytes info = get_bytes(server.fd);
      learn_region(server, false);
      if (servers_cuda) learn_region(server, true);
      check(engine_.connect(info, &server.peer), "connect");
      check(engine_.peer_wait(server.peer, Millis{20000}), "connect");
    }
    region_[0] = register_kind(engine_, *buffers_, false, 0);
  }
  ~Rig() {
    engine_.destroy();  // before the servers, or it would say what it lost
    for (const Server& server : servers_) kill(server.pid, SIGKILL);
    for (const Server& server : servers_) waitpid(server.pid, nullptr, 0);
  }
  Rig(const Rig&) = delete;
  Rig& operator=(const Rig&) = delete;

  const Cuda& load_cuda() {
    const Cuda& cuda = buffers_->load_cuda();
    region_[1] = register_kind(engine_, *buffers_, true, 0);
    return cuda;
  }
  void load_cuda_at_servers() {
    for (Server& server : servers_) {
      const Order order{.what = Do::kLoadCuda};
      put(server.fd, &order, sizeof order);
      learn_region(server, true);
    }
  }
  const Server& server(size_t i) const { return servers_[i]; }
  Engine& engine() { return engine_; }

  Transfer prepare(const Job& job) {
    const Cut cut{settings_.bytes, job.scattered};
    const uint64_t base = job.slot * settings_.bytes;
    std::vector<tcpx_local_piece> local;
    std::vector<tcpx_remote_piece> remote;
    for (uint64_t i = 0; i < cut.pieces(); ++i) {
      local.push_back({region_[job.local_cuda], base + cut.place(i, true), cut.length()});
      remote.push_back({&servers_[job.server].region[job.remote_cuda], base + cut.place(i, false),
                        cut.length()});
    }
    Transfer out;
    check(engine_.prepare(servers_[job.server].peer, job.op, local, remote, &out), "prepare");
    return out;
  }

  // Source filled, destination poisoned.
  void arm(const Job& job) {
    patterns_[{job.server, job.slot}] = ++last_pattern_;
    order(job, Do::kFill, job.op == TCPX_WRITE);
    order(job, Do::kPoison, job.op != TCPX_WRITE);
  }
  // Where the destination is wrong, or -1.
  int64_t wrong(const Job& job) { return order(job, Do::kCheck, job.op != TCPX_WRITE); }
  std::string content(const Job& job) {
    const int64_t at = wrong(job);
    return at < 0 ? "content right" : "byte " + std::to_string(at) + " is WRONG";
  }
  // Armed, moved once, looked at.
  bool right_once(const Job& job) {
    arm(job);
    Transfer transfer = prepare(job);
    run(transfer);
    return wrong(job) < 0;
  }

  void run(Transfer& transfer) {
    check(transfer.post(Millis{30000}), "post");
    const Result done = transfer.wait(Millis{40000});
    if (!done) fail("transfer: " + std::string(done.name()) + ": " + transfer.error());
    lanes_lost_ += transfer.receipt().lanes_lost;
  }

  // GB/s, over and over for that long.
  double rate(const Job& job, double seconds, std::string* receipt = nullptr) {
    Transfer transfer = prepare(job);
    run(transfer);  // warm
    uint64_t count = 0;
    const Nanos start = now_ns(), end = start + static_cast<Nanos>(seconds * 1e9);
    Nanos now = start;
    while (now < end) {
      run(transfer);
      ++count;
      now = now_ns();
    }
    if (receipt != nullptr) *receipt = transfer.receipt_json();
    return static_cast<double>(count * settings_.bytes) / static_cast<double>(now - start);
  }
  // Several at once.
  std::vector<double> rates(const std::vector<Job>& jobs, double seconds) {
    std::vector<double> out(jobs.size());
    std::vector<std::thread> threads;
    for (size_t i = 0; i < jobs.size(); ++i)
      threads.emplace_back([&, i] {
        try {
          out[i] = rate(jobs[i], seconds);
        } catch (const std::exception& error) {
          std::fprintf(stderr, "tcpx_gpu_neighbours: %s\n", error.what());
          out[i] = 0;
        }
      });
    for (auto& thread : threads) thread.join();
    return out;
  }
  uint64_t lanes_lost() const { return lanes_lost_; }

 private:
  Server start_server(bool cuda) {
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) fail("socketpair");
    Server server;
    server.pid = fork();
    if (server.pid == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      close(pair[0]);
      try {
        serve(pair[1], settings_, cuda);
      } catch (const std::exception& error) {
        std::fprintf(stderr, "tcpx_gpu_neighbours: server: %s\n", error.what());
        _exit(1);
      }
      _exit(0);
    }
    close(pair[1]);
    server.fd = pair[0];
    const timeval limit{60, 0};
    setsockopt(server.fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    return server;
  }
  void learn_region(Server& server, bool cuda) {
    check(Engine::import_region(get_bytes(server.fd), &server.region[cuda]), "import");
  }
  int64_t order(const Job& job, Do what, bool client) {
    const Order order{.what = what,
                      .cuda = client ? job.local_cuda : job.remote_cuda,
                      .scattered = job.scattered,
                      .slot = job.slot,
                      .pattern = patterns_.at({job.server, job.slot})};
    if (client) return buffers_->obey(order, true);
    put(servers_[job.server].fd, &order, sizeof order);
    int64_t wrong = 0;
    get(servers_[job.server].fd, &wrong, sizeof wrong);
    return wrong;
  }

  const Settings& settings_;
  std::vector<Server> servers_;
  std::unique_ptr<Buffers> buffers_;
  Engine engine_;
  tcpx_region region_[2] = {};
  uint64_t last_pattern_ = 0;
  std::map<std::pair<size_t, uint64_t>, uint64_t> patterns_;  // by server and slot
  std::atomic<uint64_t> lanes_lost_{0};
};

// ---- a user's kernel on every SM -----------------------------------------------------------

constexpr const char* kHoldPtx = R"(.version 7.0
.target sm_80
.address_size 64
.visible .entry hold(.param .u64 nanoseconds)
{
  .reg .u64 %start, %now, %want, %spent;
  .reg .pred %more;
  ld.param.u64 %want, [nanoseconds];
  mov.u64 %start, %globaltimer;
again:
  nanosleep.u32 2000;
  mov.u64 %now, %globaltimer;
  sub.u64 %spent, %now, %start;
  setp.lt.u64 %more, %spent, %want;
  @%more bra again;
  ret;
}
)";

// As many threads as the SMs have room for, so that no other block starts.
class Holder {
 public:
  explicit Holder(const Cuda& cuda) : cuda_(cuda) {
    fake_ = static_cast<const FakeCuda*>(dlsym(RTLD_DEFAULT, "fakeCuda"));
    if (fake_ != nullptr) return;
    constexpr int kMultiprocessors = 16, kThreadsPerMultiprocessor = 39;
    int sms = 0, threads = 0;
    cuda_.check(cuda_.device_get_attribute(&sms, kMultiprocessors, cuda_.device), "attribute");
    cuda_.check(cuda_.device_get_attribute(&threads, kThreadsPerMultiprocessor, cuda_.device),
                "attribute");
    blocks_ = static_cast<unsigned>(sms * (threads / 1024));
    Cuda::Module module = nullptr;
    cuda_.check(cuda_.module_load(&module, kHoldPtx), "cuModuleLoadData");
    cuda_.check(cuda_.module_get_function(&hold_, module, "hold"), "cuModuleGetFunction");
    cuda_.check(cuda_.stream_create(&stream_, Cuda::kNonBlocking), "cuStreamCreate");
  }
  void start(uint64_t milliseconds) {
    if (fake_ != nullptr) {
      until_ = now_ns() + static_cast<Nanos>(milliseconds) * kMilli;
      fake_->plan(("hold_kernels:" + std::to_string(milliseconds)).c_str());
      return;
    }
    uint64_t nanoseconds = milliseconds * 1'000'000;
    void* parameters[] = {&nanoseconds};
    cuda_.check(cuda_.launch(hold_, blocks_, 1, 1, 1024, 1, 1, 0, stream_, parameters, nullptr),
                "cuLaunchKernel");
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  bool holds() const {
    return fake_ != nullptr ? now_ns() < until_ : cuda_.stream_query(stream_) == Cuda::kNotReady;
  }
  void await() const {
    while (holds()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }

 private:
  const Cuda& cuda_;
  const FakeCuda* fake_ = nullptr;  // the tests' driver has no such kernel, but holds all
  Nanos until_ = 0;
  unsigned blocks_ = 0;
  Cuda::Function hold_ = nullptr;
  Cuda::Stream stream_ = nullptr;
};

void scenario_held(const Settings& settings) {
  Rig rig(settings, 1, true);
  const Cuda& cuda = rig.load_cuda();
  Holder holder(cuda);
  const auto hold_ms = static_cast<uint64_t>(settings.seconds * 2000);
  for (tcpx_op op : {TCPX_WRITE, TCPX_READ}) {
    const char* name = op == TCPX_WRITE ? "WRITE" : "READ";
    const Job whole{.op = op};
    const double idle = rig.rate(whole, settings.seconds);
    rig.arm(whole);
    holder.start(hold_ms);
    const double held = rig.rate(whole, settings.seconds);
    const bool still = holder.holds();
    holder.await();
    compare(std::string("every SM held, contiguous ") + name, held, "idle GPU", idle, 0.9,
            rig.content(whole) + (still ? "" : "; the kernel ENDED EARLY, not a measurement"));
    if (rig.wrong(whole) >= 0 || !still) state("every SM held: valid", false, "see above");

    const Job pieces{.op = op, .scattered = true};
    Transfer transfer = rig.prepare(pieces);
    rig.run(transfer);
    rig.arm(pieces);
    holder.start(hold_ms);
    const Nanos start = now_ns();
    rig.run(transfer);
    const double ms = static_cast<double>(now_ns() - start) * 1e-6;
    const bool during = holder.holds();
    holder.await();
    const bool right = rig.wrong(pieces) < 0;
    char note[160];
    std::snprintf(note, sizeof note, "%s, %.0f ms, ended %s the kernel, %lu lanes lost",
                  right ? "content right" : "content WRONG", ms, during ? "beside" : "after",
                  static_cast<unsigned long>(rig.lanes_lost()));
    state(std::string("every SM held, scattered ") + name, right && rig.lanes_lost() == 0, note);
  }
}

// ---- a thread that allocates all the time --------------------------------------------------

class Allocator {
 public:
  explicit Allocator(const Cuda& cuda) : cuda_(cuda), thread_([this] { run(); }) {}
  ~Allocator() { end(); }
  uint64_t end() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
    return count_;
  }

 private:
  void run() {
    cuda_.enter();
    while (!stop_) {
      Cuda::Pointer memory = 0;
      if (cuda_.mem_alloc(&memory, 64 << 20) != 0) continue;
      (void)cuda_.mem_free(memory);
      ++count_;
    }
  }
  const Cuda& cuda_;
  std::atomic<bool> stop_{false};
  uint64_t count_ = 0;
  std::thread thread_;
};

void scenario_allocator(const Settings& settings) {
  Rig rig(settings, 2, true);
  const Cuda& cuda = rig.load_cuda();
  const Job host{.server = 0, .local_cuda = false, .remote_cuda = false};
  const Job vram{.server = 1};
  const double alone = rig.rate(host, settings.seconds);
  const std::vector<double> quiet = rig.rates({host, vram}, settings.seconds);
  rig.arm(host);
  rig.arm(vram);
  auto allocator = std::make_unique<Allocator>(cuda);
  const double beside = rig.rate(host, settings.seconds);
  const std::vector<double> busy = rig.rates({host, vram}, settings.seconds);
  std::string receipt;
  const double vram_alone = rig.rate(vram, settings.seconds, &receipt);
  const uint64_t count = allocator->end();
  const bool right = rig.wrong(host) < 0 && rig.wrong(vram) < 0;
  compare("host peer, another thread in cuMemAlloc/Free", beside, "quiet process", alone, 0.9,
          std::to_string(count) + " allocations meanwhile");
  compare("host peer beside a VRAM peer, the same", busy[0], "both, quiet process", quiet[0], 0.9);
  state("VRAM peer, the same", busy[1] > 0 && vram_alone > 0 && right && rig.lanes_lost() == 0,
        std::string(right ? "ends right" : "content WRONG") + ", " + std::to_string(busy[1]) +
            " GB/s (quiet " + std::to_string(quiet[1]) + "), " + std::to_string(rig.lanes_lost()) +
            " lanes lost");
  print_row(
      {{"name", "receipt names the wait"}, {"receipt", Json::parse(receipt, nullptr, false)}});
}

// ---- a user's matrix products --------------------------------------------------------------

// bf16 products by cuBLAS, in a stream of the user's.
class Gemm {
 public:
  Gemm(const Cuda& cuda, const std::string& file) : cuda_(cuda) {
    // What it needs lies beside it, and not always where it looks.
    std::string beside = file;
    if (const size_t at = beside.rfind("libcublas"); at != std::string::npos)
      (void)dlopen(beside.insert(at + 9, "Lt").c_str(), RTLD_NOW | RTLD_GLOBAL);
    void* library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) fail(dlerror());
    const auto find = [&](const char* name, auto* out) {
      void* found = dlsym(library, name);
      if (found == nullptr) fail(std::string("cuBLAS has no ") + name);
      std::memcpy(out, &found, sizeof *out);
    };
    int (*create)(void**);
    int (*set_stream)(void*, Cuda::Stream);
    find("cublasCreate_v2", &create);
    find("cublasSetStream_v2", &set_stream);
    find("cublasGemmEx", &gemm_);
    if (create(&handle_) != 0) fail("cublasCreate");
    cuda_.check(cuda_.stream_create(&stream_, Cuda::kNonBlocking), "cuStreamCreate");
    if (set_stream(handle_, stream_) != 0) fail("cublasSetStream");
    for (Cuda::Pointer& matrix : matrices_) {
      cuda_.check(cuda_.mem_alloc(&matrix, kSide * kSide * 2), "cuMemAlloc");
      cuda_.check(cuda_.memset(matrix, 0x3c, kSide * kSide * 2), "cuMemset");
    }
    run(0.3);
  }
  // Products per second.
  double run(double seconds) const {
    cuda_.enter();
    uint64_t count = 0;
    const Nanos start = now_ns(), end = start + static_cast<Nanos>(seconds * 1e9);
    Nanos now = start;
    for (; now < end; now = now_ns()) {
      for (int i = 0; i < 16; ++i) one();
      count += 16;
      cuda_.check(cuda_.stream_synchronize(stream_), "cuStreamSynchronize");
    }
    return static_cast<double>(count) / (static_cast<double>(now - start) * 1e-9);
  }

 private:
  static constexpr int kSide = 8192;
  void one() const {
    const float alpha = 1, beta = 0;
    constexpr int kBf16 = 14, kCompute32f = 68, kDefault = -1;
    if (gemm_(handle_, 0, 0, kSide, kSide, kSide, &alpha, matrices_[0], kBf16, kSide, matrices_[1],
              kBf16, kSide, &beta, matrices_[2], kBf16, kSide, kCompute32f, kDefault) != 0)
      fail("cublasGemmEx");
  }
  const Cuda& cuda_;
  void* handle_ = nullptr;
  Cuda::Stream stream_ = nullptr;
  Cuda::Pointer matrices_[3] = {};
  int (*gemm_)(void*, int, int, int, int, int, const void*, Cuda::Pointer, int, int, Cuda::Pointer,
               int, int, const void*, Cuda::Pointer, int, int, int, int) = nullptr;
};

// The peer's memory is the host's: kernels of another process would take turns with this one's.
void scenario_gemm(const Settings& settings) {
  if (settings.cublas.empty()) return skip("a user's matrix products", "no cuBLAS (--cublas FILE)");
  if (std::getenv("TCPX_TEST_CUDA_LIBRARY") != nullptr)
    return skip("a user's matrix products", "the tests' driver has no kernels of cuBLAS");
  Rig rig(settings, 1, false);
  const Cuda& cuda = rig.load_cuda();
  const Gemm gemm(cuda, settings.cublas);
  for (bool scattered : {false, true}) {
    for (tcpx_op op : {TCPX_WRITE, TCPX_READ}) {
      const Job job{.op = op, .remote_cuda = false, .scattered = scattered};
      rig.arm(job);
      const double before = gemm.run(settings.seconds);
      std::atomic<bool> started{false};
      double moved = 0;
      std::thread mover([&] {
        started = true;
        moved = rig.rates({job}, settings.seconds * 1.2).front();
      });
      while (!started) std::this_thread::yield();
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      const double beside = gemm.run(settings.seconds);
      mover.join();
      const double after = gemm.run(settings.seconds);
      char note[96];
      std::snprintf(note, sizeof note, "transfers %.1f GB/s; %s", moved, rig.content(job).c_str());
      compare(std::string("user's GEMM beside ") + (scattered ? "scattered" : "contiguous") +
                  (op == TCPX_WRITE ? " WRITE" : " READ"),
              beside, "alone, products/s", (before + after) / 2, scattered ? 0.96 : 0.98, note);
      if (rig.wrong(job) >= 0 || moved == 0) state("user's GEMM: transfers", false, "see above");
    }
  }
}

// ---- both directions, a stopped peer, CUDA in the process ----------------------------------

double sum(const std::vector<double>& values) {
  double out = 0;
  for (double value : values) out += value;
  return out;
}

void scenario_both_ways(const Settings& settings) {
  Rig rig(settings, 1, true);
  rig.load_cuda();
  const Job out{.op = TCPX_WRITE, .slot = 0}, in{.op = TCPX_READ, .slot = 1};
  const double one_way = std::max(rig.rate(out, settings.seconds), rig.rate(in, settings.seconds));
  rig.arm(out);
  rig.arm(in);
  const std::vector<double> both = rig.rates({out, in}, settings.seconds);
  const bool right = rig.wrong(out) < 0 && rig.wrong(in) < 0;
  char note[96];
  std::snprintf(note, sizeof note, "WRITE %.1f + READ %.1f GB/s; %s", both[0], both[1],
                right ? "content right" : "content WRONG");
  compare("both directions at once, sum", sum(both), "one direction", one_way, 0.9, note);
  if (!right) state("both directions at once: content", false, "wrong");
}

void scenario_stopped(const Settings& settings) {
  Rig rig(settings, 4, true);
  rig.load_cuda();
  std::vector<Job> jobs;
  for (size_t i = 0; i < 4; ++i)
    jobs.push_back({.server = i, .op = i % 2 == 0 ? TCPX_WRITE : TCPX_READ, .slot = i});
  const std::vector<Job> others(jobs.begin() + 1, jobs.end());
  const std::vector<double> together = rig.rates(others, settings.seconds);
  for (const Job& job : others) rig.arm(job);
  Transfer caught = rig.prepare(jobs[0]);
  kill(rig.server(0).pid, SIGSTOP);
  check(caught.post(Millis{30000}), "post");
  const std::vector<double> beside = rig.rates(others, settings.seconds);
  kill(rig.server(0).pid, SIGCONT);
  const Result ended = caught.wait(Millis{40000});
  bool right = true;
  for (const Job& job : others) right = rig.wrong(job) < 0 && right;
  compare("4 VRAM peers, one stopped: the others' sum", sum(beside), "before it was stopped",
          sum(together), 0.9,
          std::string(right ? "content right" : "content WRONG") +
              "; its own transfer: " + ended.name());
  for (size_t i = 0; i < others.size(); ++i)
    if (beside[i] < 0.5 * together[i])
      state("one of the others lost half", false, "peer " + std::to_string(i + 1));
  if (!right) state("4 VRAM peers, one stopped: content", false, "wrong");
}

void scenario_loaded(const Settings& settings) {
  Rig rig(settings, 1, false);
  const Job host{.local_cuda = false, .remote_cuda = false};
  for (tcpx_op op : {TCPX_WRITE, TCPX_READ}) {
    Job job = host;
    job.op = op;
    rig.rate(job, settings.seconds / 4);
  }
  Job write = host, read = host;
  read.op = TCPX_READ;
  const double write_before = rig.rate(write, settings.seconds);
  const double read_before = rig.rate(read, settings.seconds);
  rig.load_cuda();
  rig.load_cuda_at_servers();
  const bool vram = rig.right_once({});
  const double write_after = rig.rate(write, settings.seconds);
  const double read_after = rig.rate(read, settings.seconds);
  compare("host WRITE, CUDA loaded and VRAM registered", write_after, "before that", write_before,
          0.95, vram ? "content right" : "content WRONG");
  compare("host READ, the same", read_after, "before that", read_before, 0.95);
  if (!vram) state("CUDA loaded: content of VRAM", false, "wrong");
}

// ---- main ----------------------------------------------------------------------------------

struct Scenario {
  const char* name;
  void (*run)(const Settings&);
};
constexpr Scenario kScenarios[] = {
    {"held", scenario_held},       {"allocator", scenario_allocator},
    {"gemm", scenario_gemm},       {"both_ways", scenario_both_ways},
    {"stopped", scenario_stopped}, {"loaded", scenario_loaded},
};

// In a process of its own, which ends in time.
bool run_scenario(const Scenario& scenario, const Settings& settings) {
  std::fflush(stdout);
  const pid_t pid = fork();
  if (pid == 0) {
    alarm(kScenarioPatience);
    try {
      scenario.run(settings);
    } catch (const std::exception& error) {
      state(scenario.name, false, error.what());
      _exit(1);
    }
    std::fflush(stdout);
    _exit(0);
  }
  int status = 0;
  waitpid(pid, &status, 0);
  if (WIFSIGNALED(status))
    state(scenario.name, false, "was killed by signal " + std::to_string(WTERMSIG(status)));
  return status == 0;
}

Settings parse(int argc, char** argv, std::vector<std::string>* names) {
  Settings out;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (!name.starts_with("--")) {
      names->push_back(name);
      continue;
    }
    if (i + 1 == argc) fail(name + " without a value");
    const std::string value = argv[++i];
    if (name == "--bytes") {
      if (Status s = parse_size(value, &out.bytes); !s) fail(s.text());
    } else if (name == "--seconds") {
      out.seconds = std::stod(value);
    } else if (name == "--lanes") {
      out.lanes = value;
    } else if (name == "--device") {
      out.device = std::stoi(value);
    } else if (name == "--cublas") {
      out.cublas = value;
    } else {
      fail("unknown argument " + name);
    }
  }
  if (out.bytes % (2 * kPiece) != 0 || (out.bytes & (out.bytes - 1)) != 0)
    fail("--bytes: a power of two, 32K at least");
  return out;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    std::vector<std::string> names;
    const Settings settings = parse(argc, argv, &names);
    bool ok = true;
    for (const Scenario& scenario : kScenarios)
      if (names.empty() || std::find(names.begin(), names.end(), scenario.name) != names.end())
        ok = run_scenario(scenario, settings) && ok;
    return ok ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "tcpx_gpu_neighbours: %s\n", error.what());
    return 1;
  }
}
