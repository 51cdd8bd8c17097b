// The ceiling for GPU memory over TCP: a plain loop that anybody would write first. Two processes,
// plain TCP connections, a thread and a ring of pinned chunks for each at either end: copy a chunk
// out of the GPU, poll its event, send it; receive one, copy it into the GPU, poll when the chunk
// is needed again. VRAM -> VRAM on one GPU; content is checked once for each kind of run.
//
//   tcpx_gpu_ring [--lanes 1,4,8] [--sizes 64M,1G] [--chunks 512K,4M] [--seconds 0.5] [--device 0]
//
// A JSON document per line of the result.
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <barrier>
#include <csignal>
#include <cstdio>
#include <functional>
#include <memory>
#include <set>
#include <thread>
#include <tuple>
#include <vector>

#include "base/clock.h"
#include "base/units.h"
#include "content.h"
#include "cuda_driver.h"

namespace {

using namespace tcpx;
using bench::Cuda;
using bench::Order;

constexpr size_t kRing = 4;  // pinned chunks per connection and end
constexpr time_t kPatience = 30;

[[noreturn]] void fail(const std::string& what) {
  throw std::runtime_error(what);
}

void send_all(int fd, const void* data, uint64_t length) {
  for (auto* at = static_cast<const char*>(data); length > 0;) {
    const ssize_t n = send(fd, at, length, MSG_NOSIGNAL);
    if (n <= 0) fail("send: the other process is gone");
    at += n;
    length -= static_cast<uint64_t>(n);
  }
}

void receive_all(int fd, void* data, uint64_t length) {
  for (auto* at = static_cast<char*>(data); length > 0;) {
    const ssize_t n = recv(fd, at, length, MSG_WAITALL);
    if (n <= 0) fail("recv: the other process is gone, or silent");
    at += n;
    length -= static_cast<uint64_t>(n);
  }
}

double cpu_seconds() {
  rusage use{};
  getrusage(RUSAGE_SELF, &use);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
  };
  return seconds(use.ru_utime) + seconds(use.ru_stime);
}

// What both processes do next.
struct Task {
  enum What : uint64_t { kTransfer, kContent, kEnd } what = kTransfer;
  uint64_t write = 1;  // from the client to the server
  uint64_t bytes = 0, chunk = 0, lanes = 0, transfers = 0;
  Order order = Order::kFill;
  uint64_t pattern = 0;
};

struct Answer {
  double cpu_s = 0;
  int64_t wrong_at = -1;
};

// A connection with its pinned chunks; used by one thread at a time.
class Lane {
 public:
  Lane(const Cuda& cuda, int fd, uint64_t chunk) : cuda_(cuda), fd_(fd), chunk_(chunk) {
    cuda_.check(cuda_.stream_create(&stream_, Cuda::kNonBlocking), "cuStreamCreate");
    for (Slot& slot : slots_) {
      cuda_.check(cuda_.mem_host_alloc(&slot.memory, chunk, Cuda::kPortable), "cuMemHostAlloc");
      cuda_.check(cuda_.event_create(&slot.event, Cuda::kDisableTiming), "cuEventCreate");
    }
  }
  ~Lane() {
    (void)cuda_.stream_synchronize(stream_);
    for (Slot& slot : slots_) {
      (void)cuda_.event_destroy(slot.event);
      (void)cuda_.mem_free_host(slot.memory);
    }
    (void)cuda_.stream_destroy(stream_);
  }
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  int fd() const { return fd_; }

  void send(Cuda::Pointer from, uint64_t length) {
    const uint64_t chunks = (length + chunk_ - 1) / chunk_;
    const auto begin = [&](uint64_t i) {
      Slot& slot = slots_[i % kRing];
      cuda_.check(
          cuda_.copy_to_host_async(slot.memory, from + i * chunk_, size_of(i, length), stream_),
          "cuMemcpyDtoHAsync");
      cuda_.check(cuda_.event_record(slot.event, stream_), "cuEventRecord");
    };
    for (uint64_t i = 0; i < std::min<uint64_t>(kRing, chunks); ++i) begin(i);
    for (uint64_t i = 0; i < chunks; ++i) {
      Slot& slot = slots_[i % kRing];
      cuda_.await(slot.event);
      send_all(fd_, slot.memory, size_of(i, length));
      if (i + kRing < chunks) begin(i + kRing);
    }
  }

  void receive(Cuda::Pointer to, uint64_t length) {
    const uint64_t chunks = (length + chunk_ - 1) / chunk_;
    for (uint64_t i = 0; i < chunks; ++i) {
      Slot& slot = slots_[i % kRing];
      if (i >= kRing) cuda_.await(slot.event);
      receive_all(fd_, slot.memory, size_of(i, length));
      cuda_.check(
          cuda_.copy_to_device_async(to + i * chunk_, slot.memory, size_of(i, length), stream_),
          "cuMemcpyHtoDAsync");
      cuda_.check(cuda_.event_record(slot.event, stream_), "cuEventRecord");
    }
    for (uint64_t i = chunks - std::min<uint64_t>(kRing, chunks); i < chunks; ++i)
      cuda_.await(slots_[i % kRing].event);
  }

 private:
  struct Slot {
    void* memory = nullptr;
    Cuda::Event event = nullptr;
  };
  uint64_t size_of(uint64_t i, uint64_t length) const {
    return std::min(chunk_, length - i * chunk_);
  }

  const Cuda& cuda_;
  const int fd_;
  const uint64_t chunk_;
  Cuda::Stream stream_ = nullptr;
  Slot slots_[kRing];
};

// One process: its memory and its ends of the connections.
class End {
 public:
  End(bool client, int device, uint64_t most, std::vector<int> sockets)
      : client_(client), cuda_(device), sockets_(std::move(sockets)) {
    cuda_.check(cuda_.mem_alloc(&memory_, most), "cuMemAlloc");
  }

  // Times of the transfers, at the client.
  std::vector<Nanos> transfer(const Task& task) {
    prepare(task);
    std::vector<Nanos> times;
    Nanos started = 0;
    std::barrier together(static_cast<ptrdiff_t>(task.lanes));
    each_lane(task.lanes, [&](size_t i) {
      for (uint64_t n = 0; n < task.transfers; ++n) {
        if (client_) together.arrive_and_wait();
        if (client_ && i == 0) started = now_ns();
        move(task, i);
        if (client_) together.arrive_and_wait();
        if (client_ && i == 0) times.push_back(now_ns() - started);
      }
    });
    return times;
  }

  int64_t content(const Task& task) {
    std::vector<uint8_t> image(task.bytes);
    const bool check = task.order == Order::kCheck;
    if (check) cuda_.check(cuda_.copy_to_host(image.data(), memory_, task.bytes), "cuMemcpyDtoH");
    const int64_t wrong = bench::obey(task.order, task.pattern, image.data(), task.bytes);
    if (!check)
      cuda_.check(cuda_.copy_to_device(memory_, image.data(), task.bytes), "cuMemcpyHtoD");
    return wrong;
  }

 private:
  void prepare(const Task& task) {
    if (lanes_.size() == task.lanes && chunk_ == task.chunk) return;
    lanes_.clear();
    chunk_ = task.chunk;
    for (size_t i = 0; i < task.lanes; ++i)
      lanes_.push_back(std::make_unique<Lane>(cuda_, sockets_.at(i), task.chunk));
  }

  void each_lane(size_t lanes, const std::function<void(size_t)>& work) {
    std::vector<std::thread> threads;
    for (size_t i = 0; i < lanes; ++i)
      threads.emplace_back([&, i] {
        try {
          cuda_.enter();
          work(i);
        } catch (const std::exception& what) {
          // Others wait for this one at their barrier: there is nothing to go back to.
          std::fprintf(stderr, "tcpx_gpu_ring: %s\n", what.what());
          _exit(1);
        }
      });
    for (auto& thread : threads) thread.join();
  }

  void move(const Task& task, size_t i) {
    const uint64_t part = task.bytes / task.lanes;
    const uint64_t length = i + 1 == task.lanes ? task.bytes - i * part : part;
    const Cuda::Pointer at = memory_ + i * part;
    char word = 0;
    Lane& lane = *lanes_[i];
    if (client_ && task.write) {
      lane.send(at, length);
      receive_all(lane.fd(), &word, 1);
    } else if (client_) {
      send_all(lane.fd(), &word, 1);
      lane.receive(at, length);
    } else if (task.write) {
      lane.receive(at, length);
      send_all(lane.fd(), &word, 1);
    } else {
      receive_all(lane.fd(), &word, 1);
      lane.send(at, length);
    }
  }

  const bool client_;
  Cuda cuda_;
  Cuda::Pointer memory_ = 0;
  std::vector<int> sockets_;
  uint64_t chunk_ = 0;
  std::vector<std::unique_ptr<Lane>> lanes_;
};

// ---- the two processes ---------------------------------------------------------------------

// No pacing on one host, as lanes have it: bbr stops a sender that had to wait for a copy.
void set_up_connection(int fd) {
  const timeval limit{kPatience, 0};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  const int one = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "reno", 4);
}

void serve(int control, int device, uint64_t most, std::vector<int> sockets) {
  End end(false, device, most, std::move(sockets));
  while (true) {
    Task task;
    receive_all(control, &task, sizeof task);
    if (task.what == Task::kEnd) return;
    Answer answer;
    const double before = cpu_seconds();
    if (task.what == Task::kTransfer) end.transfer(task);
    if (task.what == Task::kContent) answer.wrong_at = end.content(task);
    answer.cpu_s = cpu_seconds() - before;
    send_all(control, &answer, sizeof answer);
  }
}

struct Settings {
  std::vector<uint64_t> lanes{1, 4, 8}, sizes{64 << 20, 1 << 30}, chunks{512 << 10, 4 << 20};
  double seconds = 0.5;
  int device = 0;
};

class Client {
 public:
  Client(int control, const Settings& settings, uint64_t most, std::vector<int> sockets)
      : control_(control),
        settings_(settings),
        end_(true, settings.device, most, std::move(sockets)) {}

  void measure(bool write, uint64_t bytes, uint64_t lanes, uint64_t chunk) {
    Task task{.write = write, .bytes = bytes, .chunk = chunk, .lanes = lanes, .transfers = 2};
    const Run warm = run(task);
    const double each = static_cast<double>(warm.times.back()) * 1e-9;
    task.transfers =
        std::clamp<uint64_t>(static_cast<uint64_t>(settings_.seconds / each), 3, 10000);
    Run timed = run(task);
    if (checked_.insert({write, lanes, chunk}).second) check_content(task);
    std::sort(timed.times.begin(), timed.times.end());
    const double median = static_cast<double>(timed.times[timed.times.size() / 2]) * 1e-9;
    const double gb = static_cast<double>(bytes) / 1e9;
    std::printf(
        "{\"op\": \"%s\", \"bytes\": %lu, \"lanes\": %lu, \"chunk\": %lu, \"gb_per_s\": %.4f, "
        "\"cpu_s_per_gb\": %.4f, \"iters\": %lu, \"verified\": true}\n",
        write ? "write" : "read", bytes, lanes, chunk, gb / median,
        timed.cpu_s / gb / static_cast<double>(task.transfers), task.transfers);
    std::fflush(stdout);
  }
  void finish() { tell(Task{.what = Task::kEnd}); }

 private:
  struct Run {
    std::vector<Nanos> times;
    double cpu_s;
  };
  void tell(const Task& task) const { send_all(control_, &task, sizeof task); }
  Answer await() const {
    Answer answer;
    receive_all(control_, &answer, sizeof answer);
    return answer;
  }
  Run run(const Task& task) {
    tell(task);
    const double before = cpu_seconds();
    std::vector<Nanos> times = end_.transfer(task);
    const double own = cpu_seconds() - before;
    return {std::move(times), own + await().cpu_s};
  }
  int64_t content(const Task& task, bool client) {
    if (client) return end_.content(task);
    tell(task);
    return await().wrong_at;
  }
  void check_content(Task task) {
    const bool from_client = task.write;
    task.what = Task::kContent;
    task.pattern = ++pattern_;
    task.order = Order::kFill;
    content(task, from_client);
    task.order = Order::kPoison;
    content(task, !from_client);
    task.what = Task::kTransfer;
    task.transfers = 1;
    run(task);
    task.what = Task::kContent;
    task.order = Order::kCheck;
    const int64_t wrong = content(task, !from_client);
    if (wrong >= 0) fail("byte " + std::to_string(wrong) + " is wrong");
  }

  int control_;
  const Settings& settings_;
  End end_;
  uint64_t pattern_ = 0;
  std::set<std::tuple<bool, uint64_t, uint64_t>> checked_;  // direction, lanes, chunk
};

uint16_t listen_somewhere(int* listener) {
  *listener = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof at;
  if (bind(*listener, reinterpret_cast<sockaddr*>(&at), sizeof at) != 0 ||
      listen(*listener, 64) != 0 ||
      getsockname(*listener, reinterpret_cast<sockaddr*>(&at), &length) != 0)
    fail("cannot listen on loopback");
  return ntohs(at.sin_port);
}

std::vector<int> make_connections(bool client, int listener, uint16_t port, uint64_t count) {
  std::vector<int> out;
  for (uint64_t i = 0; i < count; ++i) {
    int fd = -1;
    if (client) {
      sockaddr_in to{};
      to.sin_family = AF_INET;
      to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      to.sin_port = htons(port);
      fd = socket(AF_INET, SOCK_STREAM, 0);
      if (connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof to) != 0) fail("cannot connect");
      send_all(fd, &i, sizeof i);  // so that both ends number them alike
    } else {
      fd = accept(listener, nullptr, nullptr);
      if (fd < 0) fail("cannot accept");
      receive_all(fd, &i, sizeof i);
    }
    set_up_connection(fd);
    out.push_back(fd);
  }
  return out;
}

void run_client(int control, const Settings& settings, uint64_t most, std::vector<int> sockets) {
  Client client(control, settings, most, std::move(sockets));
  for (uint64_t bytes : settings.sizes)
    for (uint64_t lanes : settings.lanes)
      for (uint64_t chunk : settings.chunks)
        for (bool write : {true, false}) client.measure(write, bytes, lanes, chunk);
  client.finish();
}

int run_both(const Settings& settings) {
  const uint64_t most = *std::max_element(settings.sizes.begin(), settings.sizes.end());
  const uint64_t count = *std::max_element(settings.lanes.begin(), settings.lanes.end());
  int control[2], listener = -1;
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, control) != 0) fail("socketpair");
  const uint16_t port = listen_somewhere(&listener);
  const pid_t server = fork();
  const bool client = server != 0;
  close(control[client ? 1 : 0]);
  const int mine = control[client ? 0 : 1];
  try {
    if (!client) prctl(PR_SET_PDEATHSIG, SIGKILL);
    std::vector<int> sockets = make_connections(client, listener, port, count);
    if (!client) {
      serve(mine, settings.device, most, std::move(sockets));
      _exit(0);
    }
    set_up_connection(mine);
    run_client(mine, settings, most, std::move(sockets));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "tcpx_gpu_ring: %s: %s\n", client ? "client" : "server", error.what());
    if (!client) _exit(1);
    kill(server, SIGKILL);
    waitpid(server, nullptr, 0);
    return 1;
  }
  int status = 0;
  waitpid(server, &status, 0);
  return status == 0 ? 0 : 1;
}

std::vector<uint64_t> parse_list(const std::string& text) {
  std::vector<uint64_t> out;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    uint64_t value = 0;
    if (Status s = parse_size(text.substr(at, end - at), &value); !s || value == 0)
      fail("not a list of sizes: " + text);
    out.push_back(value);
    at = end + 1;
  }
  return out;
}

Settings parse(int argc, char** argv) {
  Settings out;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i], value = argv[i + 1];
    if (name == "--lanes")
      out.lanes = parse_list(value);
    else if (name == "--sizes")
      out.sizes = parse_list(value);
    else if (name == "--chunks")
      out.chunks = parse_list(value);
    else if (name == "--seconds")
      out.seconds = std::stod(value);
    else if (name == "--device")
      out.device = std::stoi(value);
    else
      fail("unknown argument " + name);
  }
  if (argc % 2 == 0) fail("an argument without a value");
  return out;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run_both(parse(argc, argv));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "tcpx_gpu_ring: %s\n", error.what());
    return 1;
  }
}
