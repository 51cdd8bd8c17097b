// The same NICs, driven by one process with an engine for each, or by a process for each with one
// engine (S16): the rate per NIC must be the same. WRITEs over the emulator's pretended NICs, all
// at the same time; the layouts take turns in one run. ./run bench layouts
//
//   tcpx_net_layouts PLUGIN [NICS] [SECONDS]
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include <tcpx/tcpx.hpp>

#include "content.h"

namespace {

using tcpx::bench::Order;

constexpr uint64_t kBytes = 32u << 20;
constexpr int kRounds = 3;

void check(const tcpx::Result& result, const char* what) {
  if (result) return;
  fprintf(stderr, "%s: %s: %s\n", what, result.name(), result.text().c_str());
  _exit(1);
}

void put(int fd, const void* data, size_t size) {
  if (write(fd, data, size) != static_cast<ssize_t>(size)) _exit(1);
}
void get(int fd, void* data, size_t size) {
  if (recv(fd, data, size, MSG_WAITALL) != static_cast<ssize_t>(size)) _exit(1);
}
void put_bytes(int fd, const tcpx::Bytes& bytes) {
  size_t size = bytes.size();
  put(fd, &size, sizeof size);
  put(fd, bytes.data(), size);
}
tcpx::Bytes get_bytes(int fd) {
  size_t size = 0;
  get(fd, &size, sizeof size);
  tcpx::Bytes bytes(size);
  get(fd, bytes.data(), size);
  return bytes;
}

// An engine on one NIC with registered memory.
struct Endpoint {
  Endpoint(const std::string& plugin, int nic, uint32_t access) : memory(kBytes, 7) {
    check(tcpx::Engine::create({{"net_plugin", plugin},
                                {"net_devices", "emu" + std::to_string(nic)},
                                {"require_path", "net"},
                                {"interfaces", "127.0.0.1"},
                                {"log_level", "error"},
                                {"lanes", "1"}},
                               &engine),
          "create");
    check(engine.register_memory(memory.data(), kBytes, access, &region), "register");
  }
  tcpx::Engine engine;
  std::vector<uint8_t> memory;
  tcpx_region region = 0;
};

struct ContentOrder {
  Order order;
  uint64_t transfer;
  uint64_t endpoint;
};

// A process with the engines of NICs [first, first + count). Tells where they are, does as it is
// told with the content of their memory, ends with the connection.
[[noreturn]] void serve(int fd, const std::string& plugin, int first, int count) {
  std::vector<Endpoint> endpoints;
  endpoints.reserve(static_cast<size_t>(count));
  for (int nic = first; nic < first + count; ++nic) {
    Endpoint& mine = endpoints.emplace_back(plugin, nic, TCPX_REMOTE_READ | TCPX_REMOTE_WRITE);
    tcpx::Bytes description;
    check(mine.engine.export_region(mine.region, &description), "export");
    put_bytes(fd, mine.engine.connection_info());
    put_bytes(fd, description);
  }
  for (ContentOrder told; recv(fd, &told, sizeof told, MSG_WAITALL) == sizeof told;) {
    int64_t wrong = tcpx::bench::obey(told.order, told.transfer,
                                      endpoints[told.endpoint].memory.data(), kBytes);
    put(fd, &wrong, sizeof wrong);
  }
  _exit(0);
}

double write_for(tcpx::Transfer& transfer, double seconds) {
  auto start = std::chrono::steady_clock::now();
  std::chrono::duration<double> took{};
  double bytes = 0;
  do {
    check(transfer.post(), "post");
    check(transfer.wait(std::chrono::seconds(60)), "wait");
    bytes += kBytes;
    took = std::chrono::steady_clock::now() - start;
  } while (took.count() < seconds);
  return bytes / took.count() / 1e9;
}

int64_t tell(int target, Order order, uint64_t transfer, uint64_t endpoint) {
  ContentOrder told{order, transfer, endpoint};
  put(target, &told, sizeof told);
  int64_t wrong = 0;
  get(target, &wrong, sizeof wrong);
  return wrong;
}

// One more transfer by each, after those that were timed.
void verify(int target, std::vector<Endpoint>& endpoints, std::vector<tcpx::Transfer>& transfers) {
  for (size_t i = 0; i < endpoints.size(); ++i) {
    tell(target, Order::kPoison, i, i);
    tcpx::bench::obey(Order::kFill, i, endpoints[i].memory.data(), kBytes);
    check(transfers[i].post(), "post");
    check(transfers[i].wait(std::chrono::seconds(60)), "wait");
    if (int64_t wrong = tell(target, Order::kCheck, i, i); wrong >= 0) {
      fprintf(stderr, "NIC %zu: the content is wrong from byte %lld\n", i,
              static_cast<long long>(wrong));
      _exit(1);
    }
  }
}

// Its other side. Says when it is ready, waits to be told, reports a rate per NIC.
[[noreturn]] void initiate(int control, int target, const std::string& plugin, int first, int count,
                           double seconds) {
  std::vector<Endpoint> endpoints;
  std::vector<tcpx::Transfer> transfers(static_cast<size_t>(count));
  endpoints.reserve(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) {
    tcpx::Bytes info = get_bytes(target), description = get_bytes(target);
    Endpoint& mine = endpoints.emplace_back(plugin, first + i, 0);
    tcpx_peer peer = 0;
    check(mine.engine.connect(info, &peer), "connect");
    check(mine.engine.peer_wait(peer, std::chrono::seconds(30)), "connecting");
    tcpx_remote_region remote{};
    check(tcpx::Engine::import_region(description, &remote), "import");
    tcpx::Transfer& transfer = transfers[static_cast<size_t>(i)];
    check(mine.engine.prepare(peer, TCPX_WRITE, {{mine.region, 0, kBytes}}, {{&remote, 0, kBytes}},
                              &transfer),
          "prepare");
    write_for(transfer, 0.05);
  }
  char go = 'r';
  put(control, &go, 1);
  get(control, &go, 1);
  std::vector<double> rates(static_cast<size_t>(count));
  std::vector<std::thread> threads;
  for (size_t i = 0; i < rates.size(); ++i)
    threads.emplace_back([&, i] { rates[i] = write_for(transfers[i], seconds); });
  for (std::thread& thread : threads) thread.join();
  verify(target, endpoints, transfers);
  put(control, rates.data(), rates.size() * sizeof(double));
  transfers.clear();
  _exit(0);
}

// The rate of each NIC with `processes` of them on each side.
std::vector<double> run_layout(const std::string& plugin, int nics, int processes, double seconds) {
  int each = nics / processes;
  std::vector<int> controls;
  for (int p = 0; p < processes; ++p) {
    int wire[2], control[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, wire) != 0 ||
        socketpair(AF_UNIX, SOCK_STREAM, 0, control) != 0)
      exit(1);
    if (fork() == 0) {
      close(wire[0]);
      serve(wire[1], plugin, p * each, each);
    }
    close(wire[1]);
    if (fork() == 0) initiate(control[1], wire[0], plugin, p * each, each, seconds);
    close(wire[0]);
    close(control[1]);
    controls.push_back(control[0]);
  }
  char byte = 'g';
  for (int control : controls) get(control, &byte, 1);
  for (int control : controls) put(control, &byte, 1);
  std::vector<double> rates;
  for (int control : controls) {
    std::vector<double> some(static_cast<size_t>(each));
    get(control, some.data(), some.size() * sizeof(double));
    rates.insert(rates.end(), some.begin(), some.end());
    close(control);
  }
  while (wait(nullptr) > 0) {
  }
  return rates;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    fprintf(stderr, "usage: %s PLUGIN [NICS] [SECONDS]\n", argv[0]);
    return 2;
  }
  int nics = argc > 2 ? atoi(argv[2]) : 4;
  double seconds = argc > 3 ? atof(argv[3]) : 1;
  if (nics < 1 || nics > 16) {
    fprintf(stderr, "NICS is 1 to 16\n");
    return 2;
  }
  setenv("TCPX_EMU_DEVICES", std::to_string(nics).c_str(), 1);
  setenv("NCCL_GPUDIRECTTCPX_SOCKET_IFNAME", "lo", 0);
  std::vector<double> one, many;
  for (int round = 0; round < kRounds; ++round) {
    for (double rate : run_layout(argv[1], nics, 1, seconds)) one.push_back(rate);
    for (double rate : run_layout(argv[1], nics, nics, seconds)) many.push_back(rate);
  }
  printf(
      "%d NICs at the same time, %d rounds, %u cores; GB/s per NIC, GB = 10^9 bytes; content of "
      "each checked in "
      "every round\n",
      nics, kRounds, std::thread::hardware_concurrency());
  printf("  1 process with %2d engines      median %6.3f   least %6.3f\n", nics, median(one),
         *std::min_element(one.begin(), one.end()));
  printf("  %2d processes with 1 engine     median %6.3f   least %6.3f   ratio of medians %.2f\n",
         nics, median(many), *std::min_element(many.begin(), many.end()),
         median(many) / median(one));
  return 0;
}
