// Servers and a client of them in this process: transfers between them, how fast they are, and
// whether what arrives is right.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <tcpx/tcpx.hpp>

#include "cuda_driver.h"
#include "gpu_neighbours/buffers.h"
#include "gpu_neighbours/servers.h"
#include "gpu_neighbours/settings.h"

namespace tcpx::bench {

// What a transfer moves; those at once have a slot each.
struct Job {
  size_t server = 0;
  tcpx_op op = TCPX_WRITE;
  bool local_cuda = true, remote_cuda = true;
  bool scattered = false;
  uint64_t slot = 0;
};

// Servers are forked before anything else exists.
class Rig {
 public:
  Rig(const Settings& settings, size_t servers, bool servers_cuda);
  ~Rig();
  Rig(const Rig&) = delete;
  Rig& operator=(const Rig&) = delete;

  const Cuda& load_cuda();
  void load_cuda_at_servers();
  const Server& server(size_t i) const { return servers_[i]; }

  // ---- content ----
  // Source filled, destination poisoned.
  void arm(const Job& job);
  // Where the destination is wrong, or -1.
  int64_t wrong(const Job& job) { return order(job, Do::kCheck, job.op != TCPX_WRITE); }
  std::string content(const Job& job);
  // Armed, moved once, looked at.
  bool right_once(const Job& job);

  // ---- transfers ----
  Transfer prepare(const Job& job);
  void run(Transfer& transfer);
  // GB/s, over and over for that long.
  double rate(const Job& job, double seconds, std::string* receipt = nullptr);
  // Several at once; 0 for one that failed.
  std::vector<double> rates(const std::vector<Job>& jobs, double seconds);
  uint64_t lanes_lost() const { return lanes_lost_; }

 private:
  int64_t order(const Job& job, Do what, bool client);

  const Settings& settings_;
  std::vector<Server> servers_;
  std::unique_ptr<Buffers> buffers_;
  Engine engine_;
  tcpx_region region_[2] = {};  // host, cuda
  uint64_t last_pattern_ = 0;
  std::map<std::pair<size_t, uint64_t>, uint64_t> patterns_;  // by server and slot
  std::atomic<uint64_t> lanes_lost_{0};
};

}  // namespace tcpx::bench
