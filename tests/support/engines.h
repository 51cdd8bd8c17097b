// Engines on loopback, and two of them in one process.
#pragma once

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include <tcpx/tcpx.hpp>

#include "env.h"
#include "log.h"
#include "memory.h"

namespace tcpx::test {

// `more` wins over `base`: the option list is first wins.
Options merged(const Options& more, const Options& base);

// TCPX_TEST_NET_PLUGIN=FILE runs a suite on the net path.
Options loopback_options(const Options& more = {});

Engine make_engine(const Options& options, Engine::Log log = log_to_stderr());

nlohmann::json counters(const Engine& engine);
// A counter of the engine itself, e.g. "auth_failures".
uint64_t counter(const Engine& engine, const std::string& name);

::testing::AssertionResult succeeded(const Result& result);

// A registered piece of this process's memory.
struct Local {
  std::unique_ptr<Memory> memory;
  tcpx_region region = 0;

  uint8_t* data() const { return memory->host(); }
};

Local make_local(Engine& engine, uint64_t size, uint32_t access, uint64_t seed,
                 const std::string& kind = usual_memory(), uint64_t skew = 0);

tcpx_remote_region describe(Engine& engine, tcpx_region region);

// Two engines in this process; `a` has connected to `b`, `b` has accepted it.
struct Pair {
  Local memory_a, memory_b;  // declared first: outlives the engines
  Engine a, b;
  tcpx_peer b_at_a = 0, a_at_b = 0;
  tcpx_remote_region remote_b{};

  explicit Pair(const Options& options, const Options& options_b = {});
  void connect();
  // Memory of `size` bytes on both sides; the patterns are Pattern(1) at a, Pattern(2) at b.
  void allocate(uint64_t size, uint32_t access_b = TCPX_REMOTE_READ | TCPX_REMOTE_WRITE);
  Transfer prepare(tcpx_op op, uint64_t length, uint64_t offset = 0);
};

}  // namespace tcpx::test
