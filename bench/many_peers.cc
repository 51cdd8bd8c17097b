// Does a busy peer pay for idle ones? One engine with 1 and with 64 peers, alternating in one run;
// only the first peer is busy. Prints rates, threads and memory. ./run bench peers
#include <dirent.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include <tcpx/tcpx.hpp>

#include "content.h"

namespace {

using tcpx::bench::Order;

void check(const tcpx::Result& result, const char* what) {
  if (result) return;
  std::fprintf(stderr, "%s: %s: %s\n", what, result.name(), result.text().c_str());
  std::exit(1);
}

size_t threads() {
  size_t count = 0;
  DIR* dir = opendir("/proc/self/task");
  while (dirent* entry = readdir(dir)) count += entry->d_name[0] != '.';
  closedir(dir);
  return count;
}

size_t resident_kib() {
  unsigned long pages = 0, resident = 0;
  FILE* file = std::fopen("/proc/self/statm", "r");
  if (file == nullptr || std::fscanf(file, "%lu %lu", &pages, &resident) != 2) resident = 0;
  if (file != nullptr) std::fclose(file);
  return resident * static_cast<size_t>(sysconf(_SC_PAGESIZE)) / 1024;
}

void put(int fd, const tcpx::Bytes& bytes) {
  size_t size = bytes.size();
  if (write(fd, &size, sizeof size) != sizeof size ||
      write(fd, bytes.data(), size) != static_cast<ssize_t>(size))
    std::exit(1);
}

tcpx::Bytes get(int fd) {
  size_t size = 0;
  if (read(fd, &size, sizeof size) != sizeof size) std::exit(1);
  tcpx::Bytes bytes(size);
  if (read(fd, bytes.data(), size) != static_cast<ssize_t>(size)) std::exit(1);
  return bytes;
}

const tcpx::Options kOptions = {{"interfaces", "127.0.0.1"}, {"lanes", "1"}};
constexpr uint64_t kBytes = 1 << 20;

struct ContentOrder {
  Order order;
  uint64_t transfer;
};

// The passive side: registers memory, tells where, does as it is told with its content until the
// end of the pipe.
void serve(int out, int in) {
  tcpx::Engine engine;
  check(tcpx::Engine::create(kOptions, &engine), "create");
  std::vector<uint8_t> memory(kBytes);
  tcpx_region region = 0;
  check(engine.register_memory(memory.data(), kBytes, 3, &region), "register");
  tcpx::Bytes description;
  check(engine.export_region(region, &description), "export");
  put(out, engine.connection_info());
  put(out, description);
  for (ContentOrder told; read(in, &told, sizeof told) == sizeof told;) {
    int64_t wrong = tcpx::bench::obey(told.order, told.transfer, memory.data(), kBytes);
    if (write(out, &wrong, sizeof wrong) != sizeof wrong) return;
  }
}

// The busy peer: its transfer, and the pipes to its process.
struct Busy {
  tcpx::Transfer transfer;
  std::vector<uint8_t>& memory;
  int to, from;
  uint64_t verified = 0;

  int64_t tell(Order order) const {
    ContentOrder told{order, verified};
    int64_t wrong = 0;
    if (write(to, &told, sizeof told) != sizeof told ||
        read(from, &wrong, sizeof wrong) != sizeof wrong)
      std::exit(1);
    return wrong;
  }
  void move() {
    check(transfer.post(), "post");
    check(transfer.wait(), "wait");
  }
  void verify() {
    ++verified;
    tell(Order::kPoison);
    tcpx::bench::obey(Order::kFill, verified, memory.data(), kBytes);
    move();
    if (int64_t wrong = tell(Order::kCheck); wrong >= 0) {
      std::fprintf(stderr, "the content is wrong from byte %lld\n", static_cast<long long>(wrong));
      std::exit(1);
    }
  }
};

// What is timed, then one transfer whose content is checked.
double rate(Busy& busy, int iterations) {
  auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < iterations; ++i) busy.move();
  std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  busy.verify();
  return static_cast<double>(kBytes) * iterations / took.count() / 1e9;
}

}  // namespace

int main() {
  int to_client[2], to_server[2];
  if (pipe(to_client) != 0 || pipe(to_server) != 0) return 3;
  if (fork() == 0) {
    close(to_server[1]);
    serve(to_client[1], to_server[0]);
    return 0;
  }
  tcpx::Bytes info = get(to_client[0]), description = get(to_client[0]);
  tcpx::Engine engine;
  check(tcpx::Engine::create(kOptions, &engine), "create");
  std::vector<uint8_t> memory(kBytes, 7);
  tcpx_region region = 0;
  check(engine.register_memory(memory.data(), kBytes, 0, &region), "register");
  tcpx_remote_region remote{};
  check(tcpx::Engine::import_region(description, &remote), "import");
  tcpx_peer busy_peer = 0;
  check(engine.connect(info, &busy_peer), "connect");
  Busy busy{{}, memory, to_server[1], to_client[0]};
  check(engine.prepare(busy_peer, TCPX_WRITE, {{region, 0, kBytes}}, {{&remote, 0, kBytes}},
                       &busy.transfer),
        "prepare");
  rate(busy, 500);

  std::vector<double> alone, crowded;
  size_t threads_alone = threads(), memory_alone = resident_kib(), memory_crowded = 0;
  for (int round = 0; round < 7; ++round) {
    alone.push_back(rate(busy, 500));
    std::vector<tcpx_peer> others(63);
    for (tcpx_peer& peer : others) check(engine.connect(info, &peer), "connect");
    for (tcpx_peer peer : others) check(engine.peer_wait(peer), "wait");
    crowded.push_back(rate(busy, 500));
    if (round == 0) memory_crowded = resident_kib();
    if (threads() != threads_alone) std::printf("threads grew to %zu\n", threads());
    for (tcpx_peer peer : others) check(engine.disconnect(peer), "disconnect");
  }
  std::sort(alone.begin(), alone.end());
  std::sort(crowded.begin(), crowded.end());
  std::printf(
      "1 MiB writes to one busy peer, median of 7 rounds, GB = 10^9 bytes; content checked in %llu "
      "more\n"
      "  1 peer   %.2f GB/s, %zu threads\n"
      "  64 peers %.2f GB/s, ratio %.2f, %zu KiB more memory (%zu per idle peer)\n",
      static_cast<unsigned long long>(busy.verified), alone[3], threads_alone, crowded[3],
      crowded[3] / alone[3], memory_crowded - memory_alone, (memory_crowded - memory_alone) / 63);
  close(to_server[1]);
  wait(nullptr);
  return 0;
}
