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
inline Options merged(const Options& more, const Options& base) {
  Options out = more;
  for (auto& row : base) {
    bool there = false;
    for (auto& mine : more) there = there || mine.first == row.first;
    if (!there) out.push_back(row);
  }
  return out;
}

// TCPX_TEST_NET_PLUGIN=FILE runs a suite on the net path.
inline Options loopback_options(const Options& more = {}) {
  Options base = {{"interfaces", "127.0.0.1"}, {"deadline", "60s"}};
  if (const char* plugin = std::getenv("TCPX_TEST_NET_PLUGIN")) {
    base.push_back({"net_plugin", plugin});
    ::setenv("NCCL_GPUDIRECTTCPX_SOCKET_IFNAME", "lo", 0);
    ::setenv("TCPX_EMU_SETUP_TIMEOUT_MS", "3000", 0);  // nothing lingers longer than tests wait
  }
  return merged(more, base);
}

inline Engine make_engine(const Options& options, Engine::Log log = log_to_stderr()) {
  Engine engine;
  Result result = Engine::create(options, &engine, std::move(log));
  if (!result) throw std::runtime_error("engine create: " + result.text());
  return engine;
}

inline nlohmann::json counters(const Engine& engine) {
  return nlohmann::json::parse(engine.counters_json());
}
// A counter of the engine itself, e.g. "auth_failures".
inline uint64_t counter(const Engine& engine, const std::string& name) {
  auto all = counters(engine);
  if (!all.contains("engine") || !all["engine"].contains(name))
    throw std::runtime_error("no counter engine." + name + " in " + all.dump());
  return all["engine"][name].get<uint64_t>();
}

inline ::testing::AssertionResult succeeded(const Result& result) {
  if (result.ok()) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << result.name() << ": " << result.text();
}

// A registered piece of this process's memory.
struct Local {
  std::unique_ptr<Memory> memory;
  tcpx_region region = 0;

  uint8_t* data() const { return memory->host(); }
};

inline Local make_local(Engine& engine, uint64_t size, uint32_t access, uint64_t seed,
                        const std::string& kind = "host", uint64_t skew = 0) {
  Local local;
  local.memory = allocate(kind, size, skew);
  if (kind != "sparse") fill(*local.memory, 0, size, Pattern(seed), 0);
  Result result = engine.register_memory(local.memory->address(), size, access, &local.region);
  if (!result) throw std::runtime_error("register: " + result.text());
  return local;
}

inline tcpx_remote_region describe(Engine& engine, tcpx_region region) {
  Bytes bytes;
  Result result = engine.export_region(region, &bytes);
  tcpx_remote_region remote{};
  if (result) result = Engine::import_region(bytes, &remote);
  if (!result) throw std::runtime_error("export and import: " + result.text());
  return remote;
}

// Two engines in this process; `a` has connected to `b`, `b` has accepted it.
struct Pair {
  Local memory_a, memory_b;  // declared first: outlives the engines
  Engine a, b;
  tcpx_peer b_at_a = 0, a_at_b = 0;
  tcpx_remote_region remote_b{};

  explicit Pair(const Options& options, const Options& options_b = {}) {
    a = make_engine(options);
    b = make_engine(merged(options_b, options));
    connect();
  }
  void connect() {
    Result result = a.connect(b.connection_info(), &b_at_a);
    if (result) result = a.peer_wait(b_at_a, kLong);
    if (result) result = b.accept(&a_at_b, kLong);
    if (!result) throw std::runtime_error("connect: " + result.text());
  }
  // Memory of `size` bytes on both sides; the patterns are Pattern(1) at a, Pattern(2) at b.
  void allocate(uint64_t size, uint32_t access_b = TCPX_REMOTE_READ | TCPX_REMOTE_WRITE) {
    memory_a = make_local(a, size, 0, 1);
    memory_b = make_local(b, size, access_b, 2);
    remote_b = describe(b, memory_b.region);
  }
  Transfer prepare(tcpx_op op, uint64_t length, uint64_t offset = 0) {
    Transfer transfer;
    Result result = a.prepare(b_at_a, op, {{memory_a.region, offset, length}},
                              {{&remote_b, offset, length}}, &transfer);
    if (!result) throw std::runtime_error("prepare: " + result.text());
    return transfer;
  }
};

}  // namespace tcpx::test
