#include "gpu_neighbours/rig.h"

#include <sys/wait.h>

#include <csignal>
#include <cstdio>
#include <thread>

#include "base/clock.h"
#include "gpu_neighbours/failure.h"

namespace tcpx::bench {

Rig::Rig(const Settings& settings, size_t servers, bool servers_cuda) : settings_(settings) {
  for (size_t i = 0; i < servers; ++i) servers_.push_back(start_server(settings, servers_cuda));
  buffers_ = std::make_unique<Buffers>(settings);
  engine_ = make_engine(settings);
  for (Server& server : servers_) {
    const Bytes info = server.connection_info();
    server.learn_region(false);
    if (servers_cuda) server.learn_region(true);
    check(engine_.connect(info, &server.peer), "connect");
    check(engine_.peer_wait(server.peer, Millis{20000}), "connect");
  }
  region_[0] = buffers_->register_kind(engine_, false, 0);
}

Rig::~Rig() {
  engine_.destroy();  // before the servers, or it would say what it lost
  for (const Server& server : servers_) kill(server.pid, SIGKILL);
  for (const Server& server : servers_) waitpid(server.pid, nullptr, 0);
}

const Cuda& Rig::load_cuda() {
  const Cuda& cuda = buffers_->load_cuda();
  region_[1] = buffers_->register_kind(engine_, true, 0);
  return cuda;
}

void Rig::load_cuda_at_servers() {
  for (Server& server : servers_) server.load_cuda();
}

void Rig::arm(const Job& job) {
  patterns_[{job.server, job.slot}] = ++last_pattern_;
  order(job, Do::kFill, job.op == TCPX_WRITE);
  order(job, Do::kPoison, job.op != TCPX_WRITE);
}

std::string Rig::content(const Job& job) {
  const int64_t at = wrong(job);
  return at < 0 ? "content right" : "byte " + std::to_string(at) + " is WRONG";
}

bool Rig::right_once(const Job& job) {
  arm(job);
  Transfer transfer = prepare(job);
  run(transfer);
  return wrong(job) < 0;
}

Transfer Rig::prepare(const Job& job) {
  const Cut cut{settings_.bytes, job.scattered};
  const uint64_t base = job.slot * settings_.bytes;
  std::vector<tcpx_local_piece> local;
  std::vector<tcpx_remote_piece> remote;
  for (uint64_t i = 0; i < cut.pieces(); ++i) {
    local.push_back({region_[job.local_cuda], base + cut.place(i, true), cut.length()});
    remote.push_back(
        {&servers_[job.server].region[job.remote_cuda], base + cut.place(i, false), cut.length()});
  }
  Transfer out;
  check(engine_.prepare(servers_[job.server].peer, job.op, local, remote, &out), "prepare");
  return out;
}

void Rig::run(Transfer& transfer) {
  check(transfer.post(Millis{30000}), "post");
  const Result done = transfer.wait(Millis{40000});
  if (!done) fail("transfer: " + std::string(done.name()) + ": " + transfer.error());
  lanes_lost_ += transfer.receipt().lanes_lost;
}

double Rig::rate(const Job& job, double seconds, std::string* receipt) {
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

std::vector<double> Rig::rates(const std::vector<Job>& jobs, double seconds) {
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

int64_t Rig::order(const Job& job, Do what, bool client) {
  const Task task{.what = what,
                  .cuda = client ? job.local_cuda : job.remote_cuda,
                  .scattered = job.scattered,
                  .slot = job.slot,
                  .pattern = patterns_.at({job.server, job.slot})};
  return client ? buffers_->obey(task, true) : servers_[job.server].obey(task);
}

}  // namespace tcpx::bench
