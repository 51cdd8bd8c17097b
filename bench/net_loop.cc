// The net path against a plain loop that drives the same plugin directly: isend and irecv with the
// same window and request size, the fragments copied into place, one small answer per transfer.
// Both take turns in one run, in the same two processes.
//
//   tcpx_net_loop PLUGIN [BYTES] [ROUNDS]
#include <dlfcn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <vector>

#include <tcpx/tcpx.hpp>

#include "base/clock.h"
#include "content.h"
#include "memory/pages.h"
#include "path/net/nccl_net_abi.h"
#include "path/net/plugin.h"
#include "path/net/plugin_log.h"
#include "path/net/ring.h"
#include "tcpx_emu.h"
#include "wire/net_setup.h"

namespace {

using namespace tcpx;
using namespace tcpx::net;
using bench::Order;

constexpr uint64_t kRequest = 512 << 10;
constexpr size_t kSendWindow = 12, kReceiveWindow = 16;

[[noreturn]] void fail(const std::string& what) {
  throw std::runtime_error(what);
}
void check(nccl::Result result, const char* call) {
  if (result != nccl::kSuccess) fail(std::string(call) + ": " + result_name(result));
}

// What the sender tells the receiver to do.
enum class Word : char { kReceive, kReceiveOne, kContent, kReadClock, kTellGaps, kEnd };

// The other process.
struct Wire {
  int fd;
  void put(const void* data, size_t size) const {
    if (write(fd, data, size) != static_cast<ssize_t>(size)) fail("the other process is gone");
  }
  void get(void* data, size_t size) const {
    for (size_t got = 0; got < size;) {
      ssize_t n = read(fd, static_cast<char*>(data) + got, size - got);
      if (n <= 0) fail("the other process is gone");
      got += static_cast<size_t>(n);
    }
  }
  void put(Word word) const { put(&word, 1); }
  Word get_word() const {
    Word word;
    get(&word, 1);
    return word;
  }
  void signal() const { put("x", 1); }
  void await() const {
    char c;
    get(&c, 1);
  }
};

// ---- the plain loop ------------------------------------------------------------------------

struct PlainSender {
  PluginCalls& calls;
  void* comm = nullptr;
  void* mhandle = nullptr;

  PlainSender(Plugin& plugin, const Wire& wire, Pages& memory, int type) : calls(plugin.calls()) {
    wire::NetHandle handle;
    wire.get(handle.data(), handle.size());
    while (comm == nullptr) check(calls.connect(0, handle.data(), &comm), "connect");
    check(calls.reg_mr(comm, memory.data(), memory.size(), type, &mhandle), "regMr");
  }
  void send(Pages& memory, uint64_t bytes) {
    Ring<void*, nccl::kMaxRequests> live;
    for (uint64_t at = 0; at < bytes || !live.empty();) {
      while (at < bytes && live.size() < kSendWindow) {
        void* request = nullptr;
        uint64_t n = std::min(kRequest, bytes - at);
        check(calls.isend(comm, memory.data() + at, n, 0, mhandle, &request), "isend");
        if (request == nullptr) break;
        live.push(request);
        at += n;
      }
      int done = 0;
      if (!live.empty()) check(calls.test(live.front(), &done, nullptr), "test");
      if (done) live.pop();
    }
  }
};

struct PlainReceiver {
  PluginCalls& calls;
  void* comm = nullptr;
  void* mhandle = nullptr;
  nccl::DeviceHandle device{};
  nccl::UnpackHandle queue{};
  uint64_t ordinal = 0;

  PlainReceiver(Plugin& plugin, const Wire& wire, Pages& memory, int type) : calls(plugin.calls()) {
    wire::NetHandle handle{};
    void* listen = nullptr;
    check(calls.listen(0, handle.data(), &listen), "listen");
    wire.put(handle.data(), handle.size());
    nccl::DeviceHandle* where = &device;
    while (comm == nullptr) check(calls.accept(listen, &comm, &where), "accept");
    calls.close_listen(listen);
    check(calls.reg_mr(comm, memory.data(), memory.size(), type, &mhandle), "regMr");
    if (device.type == nccl::kDeviceUnpack) memcpy(&queue, device.handle, sizeof queue);
  }
  void receive(Pages& memory, uint64_t bytes) {
    struct Live {
      void* request;
      uint64_t at;
      uint64_t slot;
    };
    Ring<Live, nccl::kMaxRequests> live;
    for (uint64_t at = 0; at < bytes || !live.empty();) {
      while (at < bytes && live.size() < kReceiveWindow) {
        void* request = nullptr;
        uint64_t n = std::min(kRequest, bytes - at);
        check(calls.irecv(comm, memory.data() + at, n, 0, mhandle, &request), "irecv");
        if (request == nullptr) break;
        live.push({request, at, ordinal++ % nccl::kUnpackSlots});
        at += n;
      }
      int done = 0;
      if (!live.empty()) check(calls.test(live.front().request, &done, nullptr), "test");
      if (!done) continue;
      if (queue.meta != nullptr) {
        for (uint64_t i = 0; i < queue.meta->count[live.front().slot]; ++i) {
          const nccl::Fragment& f = queue.meta->fragments[live.front().slot][i];
          memcpy(memory.data() + live.front().at + f.destination,
                 static_cast<uint8_t*>(queue.bounce) + f.source, f.length);
        }
        check(calls.consumed(comm, live.front().request), "irecvConsumed");
      }
      live.pop();
    }
  }
};

// ---- the engine ----------------------------------------------------------------------------

Options engine_options(const std::string& plugin, int lanes) {
  return {{"net_plugin", plugin},
          {"require_path", "net"},
          {"interfaces", "127.0.0.1"},
          {"lanes", std::to_string(lanes)}};
}
Engine make_engine(const Options& options) {
  Engine engine;
  Result result = Engine::create(options, &engine);
  if (!result) fail(result.text());
  return engine;
}
void put_bytes(const Wire& wire, const Bytes& bytes) {
  uint64_t size = bytes.size();
  wire.put(&size, sizeof size);
  wire.put(bytes.data(), size);
}
Bytes get_bytes(const Wire& wire) {
  uint64_t size = 0;
  wire.get(&size, sizeof size);
  Bytes bytes(size);
  wire.get(bytes.data(), size);
  return bytes;
}

struct Target {
  Engine engine;
  Target(const Wire& wire, const std::string& plugin, int lanes, Pages& memory)
      : engine(make_engine(engine_options(plugin, lanes))) {
    tcpx_region region = 0;
    Result result = engine.register_memory(memory.data(), memory.size(),
                                           TCPX_REMOTE_READ | TCPX_REMOTE_WRITE, &region);
    Bytes description;
    if (result) result = engine.export_region(region, &description);
    if (!result) fail(result.text());
    put_bytes(wire, engine.connection_info());
    put_bytes(wire, description);
  }
};

struct Initiator {
  Engine engine;
  tcpx_peer peer = 0;
  tcpx_region region = 0;
  tcpx_remote_region remote{};
  Transfer write, read;

  Initiator(const Wire& wire, const std::string& plugin, int lanes, Pages& memory, uint64_t bytes)
      : engine(make_engine(engine_options(plugin, lanes))) {
    Bytes info = get_bytes(wire);
    Bytes description = get_bytes(wire);
    Result result = engine.connect(info, &peer);
    if (result) result = engine.peer_wait(peer, std::chrono::seconds(20));
    if (result) result = engine.register_memory(memory.data(), memory.size(), 0, &region);
    if (result) result = Engine::import_region(description, &remote);
    for (auto [op, transfer] : {std::pair{TCPX_WRITE, &write}, {TCPX_READ, &read}})
      if (result)
        result = engine.prepare(peer, op, {{region, 0, bytes}}, {{&remote, 0, bytes}}, transfer);
    if (!result) fail(result.text());
  }
  void run(Transfer& transfer) {
    Result result = transfer.post();
    if (result) result = transfer.wait(std::chrono::seconds(60));
    if (!result) fail(result.text() + " " + transfer.error());
  }
};

// ---- the run -------------------------------------------------------------------------------

// How long comms with requests under way were out of test(), in this process. Nothing for plugins
// other than the emulator.
struct Gaps {
  uint64_t longest_ns = 0, late = 0;
  uint64_t late_own = 0;  // of which the thread had the core for that long; measured on request
  void add(const Gaps& other) {
    longest_ns = std::max(longest_ns, other.longest_ns);
    late += other.late;
    late_own += other.late_own;
  }
};
class GapMeter {
 public:
  explicit GapMeter(const std::string& plugin)
      : library_(dlopen(plugin.c_str(), RTLD_NOW | RTLD_NOLOAD)),
        table_(library_ == nullptr
                   ? nullptr
                   : static_cast<const tcpx_emu_v1*>(dlsym(library_, "tcpxEmu_v1"))) {}
  // Since the last time.
  Gaps take() const {
    tcpx_emu_counters seen{};
    if (table_ == nullptr || table_->counters(0, &seen) != 0) return {};
    table_->reset_maxima(0);
    return {seen.max_test_gap_ns, seen.late_tests, seen.late_tests_own};
  }
  bool works() const { return table_ != nullptr; }

 private:
  void* library_;
  const tcpx_emu_v1* table_;
};

// What the machine does to a thread that only reads the clock: nobody can test more often than
// that.
constexpr Nanos kClockTime = kSecond;
Gaps read_clock() {
  Gaps gaps;
  Nanos from = now_ns(), last = from;
  for (Nanos now = from; now - from < kClockTime; last = now) {
    now = now_ns();
    gaps.add({static_cast<uint64_t>(now - last), now - last > 100 * kMicro, 0});
  }
  return gaps;
}

struct Case {
  const char* name;
  std::vector<double> rates;  // GB/s
  Gaps gaps;
  Nanos time = 0;
  double median() {
    std::sort(rates.begin(), rates.end());
    return rates[rates.size() / 2];
  }
};

// Of both processes, since the last time.
Gaps take_gaps(const Wire& wire, const GapMeter& meter) {
  Gaps gaps = meter.take(), theirs;
  wire.put(Word::kTellGaps);
  wire.get(&theirs, sizeof theirs);
  gaps.add(theirs);
  return gaps;
}

template <class F>
void timed(Case& into, uint64_t bytes, int repeat, const Wire& wire, const GapMeter& meter, F&& f) {
  Nanos from = now_ns();
  for (int i = 0; i < repeat; ++i) f();
  Nanos time = now_ns() - from;
  into.rates.push_back(static_cast<double>(bytes) * repeat / static_cast<double>(time));
  into.time += time;
  into.gaps.add(take_gaps(wire, meter));
}

struct ContentOrder {
  Order order;
  uint64_t transfer;
};

// One transfer more, not timed, whose content is checked. `to_them`: it goes from here to the other
// process.
class Verifier {
 public:
  Verifier(const Wire& wire, Pages& memory, uint64_t bytes)
      : wire_(wire), memory_(memory), bytes_(bytes) {}

  template <class F>
  void operator()(const char* name, bool to_them, F&& move) {
    ++transfers_;
    do_there(to_them ? Order::kPoison : Order::kFill);
    do_here(to_them ? Order::kFill : Order::kPoison);
    move();
    int64_t wrong = to_them ? do_there(Order::kCheck) : do_here(Order::kCheck);
    if (wrong >= 0)
      fail(std::string(name) + ": the content is wrong from byte " + std::to_string(wrong));
  }
  uint64_t transfers() const { return transfers_; }

 private:
  int64_t do_here(Order order) { return bench::obey(order, transfers_, memory_.data(), bytes_); }
  int64_t do_there(Order order) {
    ContentOrder told{order, transfers_};
    wire_.put(Word::kContent);
    wire_.put(&told, sizeof told);
    int64_t wrong = 0;
    wire_.get(&wrong, sizeof wrong);
    return wrong;
  }
  const Wire& wire_;
  Pages& memory_;
  uint64_t bytes_;
  uint64_t transfers_ = 0;
};

int repeats(uint64_t bytes) {
  return static_cast<int>(std::max<uint64_t>(1, (256u << 20) / bytes));
}

void receive_side(const Wire& wire, const std::string& file, uint64_t bytes) {
  std::shared_ptr<Plugin> plugin;
  if (Status status = Plugin::load({file, {}}, &plugin); !status) fail(status.text());
  Pages memory;
  memory.allocate(bytes);
  memset(memory.data(), 1, memory.size());
  int type = plugin->device_memory_is_host() ? nccl::kPtrCuda : nccl::kPtrHost;
  PlainReceiver plain(*plugin, wire, memory, type);
  Target one(wire, file, 1, memory), four(wire, file, 4, memory);
  GapMeter meter(file);
  for (Word word; (word = wire.get_word()) != Word::kEnd;) {
    if (word == Word::kTellGaps) {
      Gaps gaps = meter.take();
      wire.put(&gaps, sizeof gaps);
      continue;
    }
    if (word == Word::kReadClock) {
      Gaps gaps = read_clock();
      wire.put(&gaps, sizeof gaps);
      continue;
    }
    if (word == Word::kContent) {
      ContentOrder told;
      wire.get(&told, sizeof told);
      int64_t wrong = bench::obey(told.order, told.transfer, memory.data(), bytes);
      wire.put(&wrong, sizeof wrong);
      continue;
    }
    int times = word == Word::kReceiveOne ? 1 : repeats(bytes);
    for (int i = 0; i < times; ++i) {  // it polls, so only when its turn has come
      plain.receive(memory, bytes);
      wire.signal();
    }
  }
}

double per_second(uint64_t count, Nanos time) {
  return static_cast<double>(count) * kSecond / static_cast<double>(time);
}

void print_table(const std::string& file, uint64_t bytes, int rounds,
                 const std::vector<Case*>& cases, const Gaps* clock) {
  printf("%s, %llu bytes per transfer, %d rounds, GB = 10^9 bytes\n", file.c_str(),
         static_cast<unsigned long long>(bytes), rounds);
  printf("%-16s %8s %14s %10s %18s %18s\n", "", "GB/s", "x plain loop", "x 1 lane",
         "longest untested", "> 100 us, per s");
  double base = cases[0]->median();
  for (size_t i = 0; i < cases.size(); ++i) {
    Case& c = *cases[i];
    printf("%-16s %8.3f %14.2f", c.name, c.median(), c.median() / base);
    if (i >= 3)  // behind the one-lane cases
      printf(" %10.2f", c.median() / cases[i - 2]->median());
    else
      printf(" %10s", "");
    if (clock != nullptr)
      printf(" %15.1f us %18.1f", static_cast<double>(c.gaps.longest_ns) / kMicro,
             per_second(c.gaps.late, c.time));
    printf("\n");
  }
  if (clock != nullptr)
    printf("%-16s %8s %14s %10s %15.1f us %18.1f\n", "only the clock", "", "", "",
           static_cast<double>(clock->longest_ns) / kMicro, per_second(clock->late, kClockTime));
}

// Whether it was the thread that did not test, or the machine that did not run it.
void print_own_gaps(const std::vector<Case*>& cases) {
  printf("again, with the CPU time of the thread read in every test():\n");
  printf("%-16s %18s %32s\n", "", "> 100 us, per s", "> 100 us of its own, per s");
  for (Case* c : cases)
    printf("%-16s %18.1f %32.1f\n", c->name, per_second(c->gaps.late, c->time),
           per_second(c->gaps.late_own, c->time));
}

void send_side(const Wire& wire, const std::string& file, uint64_t bytes, int rounds,
               bool own_time) {
  std::shared_ptr<Plugin> plugin;
  if (Status status = Plugin::load({file, {}}, &plugin); !status) fail(status.text());
  Pages memory;
  memory.allocate(bytes);
  memset(memory.data(), 2, memory.size());
  int type = plugin->device_memory_is_host() ? nccl::kPtrCuda : nccl::kPtrHost;
  PlainSender plain(*plugin, wire, memory, type);
  Initiator one(wire, file, 1, memory, bytes), four(wire, file, 4, memory, bytes);
  Case direct{"plain loop", {}, {}}, write1{"WRITE, 1 lane", {}, {}}, read1{"READ, 1 lane", {}, {}},
      write4{"WRITE, 4 lanes", {}, {}}, read4{"READ, 4 lanes", {}, {}};
  Case warm{"", {}, {}};
  GapMeter meter(file);
  wire.put(Word::kReadClock);
  Gaps clock = read_clock(), theirs;
  wire.get(&theirs, sizeof theirs);
  clock.add(theirs);
  int n = repeats(bytes);
  Verifier verify(wire, memory, bytes);
  for (int round = 0; round < rounds + 1; ++round) {
    bool cold = round == 0;
    auto measure = [&](Case& into, auto&& f) {
      timed(cold ? warm : into, bytes, n, wire, meter, f);
    };
    wire.put(Word::kReceive);
    measure(direct, [&] {
      plain.send(memory, bytes);
      wire.await();
    });
    measure(write1, [&] { one.run(one.write); });
    measure(read1, [&] { one.run(one.read); });
    measure(write4, [&] { four.run(four.write); });
    measure(read4, [&] { four.run(four.read); });
    verify(direct.name, true, [&] {
      wire.put(Word::kReceiveOne);
      plain.send(memory, bytes);
      wire.await();
    });
    verify(write1.name, true, [&] { one.run(one.write); });
    verify(read1.name, false, [&] { one.run(one.read); });
    verify(write4.name, true, [&] { four.run(four.write); });
    verify(read4.name, false, [&] { four.run(four.read); });
    (void)take_gaps(wire, meter);  // those are nobody's
  }
  std::vector<Case*> cases{&direct, &write1, &read1, &write4, &read4};
  if (own_time)
    print_own_gaps(cases);
  else
    print_table(file, bytes, rounds, cases, meter.works() ? &clock : nullptr);
  printf("content checked in %llu more transfers\n",
         static_cast<unsigned long long>(verify.transfers()));
  fflush(stdout);
  wire.put(Word::kEnd);
}

// Both ends in processes of their own: the plugin is set up by the environment.
int measure(const char* file, uint64_t bytes, int rounds, bool own_time) {
  fflush(stdout);
  pid_t parent = fork();
  if (parent != 0) {
    int status = 0;
    waitpid(parent, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
  }
  if (own_time) setenv("TCPX_EMU_TEST_CPU", "1", 1);
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) _exit(1);
  pid_t child = fork();
  try {
    if (child == 0) {
      close(ends[1]);
      receive_side({ends[0]}, file, bytes);
      _exit(0);
    }
    close(ends[0]);
    send_side({ends[1]}, file, bytes, rounds, own_time);
  } catch (const std::exception& error) {
    fprintf(stderr, "%s: %s\n", child == 0 ? "receiver" : "sender", error.what());
    _exit(1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    fprintf(stderr, "usage: %s PLUGIN [BYTES] [ROUNDS]\n", argv[0]);
    return 2;
  }
  uint64_t bytes = argc > 2 ? strtoull(argv[2], nullptr, 0) : 64u << 20;
  int rounds = argc > 3 ? atoi(argv[3]) : 7;
  setenv("NCCL_DYNAMIC_CHUNK_SIZE", "524288", 0);
  setenv("NCCL_GPUDIRECTTCPX_SOCKET_IFNAME", "lo", 0);
  int failed = measure(argv[1], bytes, rounds, false);
  return failed != 0 ? failed : measure(argv[1], bytes, (rounds + 1) / 2, true);
}
