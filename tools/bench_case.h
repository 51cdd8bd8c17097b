// One operation at one size: rounds in which ours and raw take turns.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bench_client.h"
#include "bench_memory.h"
#include "raw_tcp.h"

namespace tcpx::tool {

// What all cases of a run share.
struct BenchContext {
  const BenchOptions& options;
  Engine& engine;
  Control& control;
  const BenchHooks& hooks;
  MemoryKinds kinds;
  BenchMemory memory;
  tcpx_region region;
  tcpx_remote_region remote;
  uint32_t lanes;
  std::unique_ptr<RawLink> raw;  // none: no baseline
};

class BenchCase {
 public:
  BenchCase(BenchContext& context, bool write, uint64_t bytes);

  // Fills `record`. Throws Failure; after a failed verification the record says so.
  void run(Record* record);

 private:
  struct RawSide {
    uint64_t per_round = 1;
    double cpu_s = 0;
    std::vector<double> times_us;
    std::vector<double> rates;  // GB/s of each round
  };

  void prepare(Record* record);
  void warm_up();
  void plan();
  void round(uint64_t index);
  double section(uint64_t transfers);
  double peers_cpu(const Json& answer) const;  // timed; returns their time in us
  double verified_transfer();
  double transfer_once();
  [[noreturn]] void fail_transfer(const Result& result, const char* doing);
  void fail_verification(const std::string& what);
  void check_idle(uint64_t server_live) const;
  void warm_up_raw(RawLoop loop);
  double run_raw(RawLoop loop, uint64_t transfers, std::vector<Nanos>* times);  // returns CPU s
  void raw_round(RawLoop loop);
  void finish(Record* record);
  void finish_raw(Record* record);
  uint64_t transfers_in_round(uint64_t index) const;
  void show(const std::string& what) const;

  BenchContext& context_;
  const bool write_;
  const uint64_t bytes_;
  const Layout layout_;
  Transfer transfer_;
  Millis deadline_;  // of a transfer; negative: the engine's own
  Nanos limit_;      // after which we do not wait for the engine any more
  double estimate_us_ = 0;
  uint64_t rounds_ = 1;
  uint64_t per_round_ = 1;
  uint64_t left_over_ = 0;  // with --iters: the first rounds make one more
  uint64_t verified_ = 0;
  double cpu_s_ = 0;
  std::vector<double> times_us_, posts_us_, rates_;
  RawSide raw_[2];
};

}  // namespace tcpx::tool
