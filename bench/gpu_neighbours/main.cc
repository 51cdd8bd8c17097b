// GPU memory beside what else goes on: a user's kernel on every SM, a thread that allocates all the
// time, a user's matrix products, transfers the other way, a peer that is stopped, CUDA in a
// process that moves host memory. Every row has its ceiling from the same run; content is checked
// after each.
//
//   tcpx_gpu_neighbours [--bytes 64M] [--seconds 1] [--lanes 4] [--device 0] [--cublas FILE]
//   [NAME...]
//
// NAMEs: held allocator gemm both_ways stopped loaded; default all. A JSON document per row.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "gpu_neighbours/failure.h"
#include "gpu_neighbours/rig.h"
#include "gpu_neighbours/rows.h"
#include "gpu_neighbours/settings.h"
#include "gpu_neighbours/users.h"

namespace tcpx::bench {

namespace {

constexpr int kScenarioPatience = 120;  // seconds

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
  size_t worst = 0;
  for (size_t i = 0; i < others.size(); ++i)
    if (beside[i] * together[worst] < beside[worst] * together[i]) worst = i;
  compare("the same: the one of them that lost most", beside[worst], "before", together[worst], 0.5,
          "peer " + std::to_string(worst + 1));
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

}  // namespace

}  // namespace tcpx::bench

int main(int argc, char** argv) {
  using namespace tcpx::bench;
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
