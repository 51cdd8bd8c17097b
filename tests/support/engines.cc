#include "engines.h"

#include <cstdlib>
#include <stdexcept>
#include <utility>

namespace tcpx::test {

Options merged(const Options& more, const Options& base) {
  Options out = more;
  for (auto& row : base) {
    bool there = false;
    for (auto& mine : more) there = there || mine.first == row.first;
    if (!there) out.push_back(row);
  }
  return out;
}

Options loopback_options(const Options& more) {
  Options base = {{"interfaces", "127.0.0.1"}, {"deadline", "60s"}};
  if (const char* plugin = std::getenv("TCPX_TEST_NET_PLUGIN")) {
    base.push_back({"net_plugin", plugin});
    ::setenv("NCCL_GPUDIRECTTCPX_SOCKET_IFNAME", "lo", 0);
    ::setenv("TCPX_EMU_SETUP_TIMEOUT_MS", "3000", 0);  // nothing lingers longer than tests wait
  }
  return merged(more, base);
}

Engine make_engine(const Options& options, Engine::Log log) {
  Engine engine;
  Result result = Engine::create(options, &engine, std::move(log));
  if (!result) throw std::runtime_error("engine create: " + result.text());
  return engine;
}

nlohmann::json counters(const Engine& engine) {
  return nlohmann::json::parse(engine.counters_json());
}

uint64_t counter(const Engine& engine, const std::string& name) {
  auto all = counters(engine);
  if (!all.contains("engine") || !all["engine"].contains(name))
    throw std::runtime_error("no counter engine." + name + " in " + all.dump());
  return all["engine"][name].get<uint64_t>();
}

::testing::AssertionResult succeeded(const Result& result) {
  if (result.ok()) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << result.name() << ": " << result.text();
}

Local make_local(Engine& engine, uint64_t size, uint32_t access, uint64_t seed,
                 const std::string& kind, uint64_t skew) {
  Local local;
  local.memory = allocate(kind, size, skew);
  if (kind != "sparse") fill(*local.memory, 0, content_size(kind, size), Pattern(seed), 0);
  Result result = engine.register_memory(local.memory->address(), size, access, &local.region);
  if (!result) throw std::runtime_error("register: " + result.text());
  return local;
}

tcpx_remote_region describe(Engine& engine, tcpx_region region) {
  Bytes bytes;
  Result result = engine.export_region(region, &bytes);
  tcpx_remote_region remote{};
  if (result) result = Engine::import_region(bytes, &remote);
  if (!result) throw std::runtime_error("export and import: " + result.text());
  return remote;
}

Pair::Pair(const Options& options, const Options& options_b) {
  a = make_engine(options);
  b = make_engine(merged(options_b, options));
  connect();
}

void Pair::connect() {
  Result result = a.connect(b.connection_info(), &b_at_a);
  if (result) result = a.peer_wait(b_at_a, kLong);
  if (result) result = b.accept(&a_at_b, kLong);
  if (!result) throw std::runtime_error("connect: " + result.text());
}

void Pair::allocate(uint64_t size, uint32_t access_b) {
  memory_a = make_local(a, size, 0, 1);
  memory_b = make_local(b, size, access_b, 2);
  remote_b = describe(b, memory_b.region);
}

Transfer Pair::prepare(tcpx_op op, uint64_t length, uint64_t offset) {
  Transfer transfer;
  Result result = a.prepare(b_at_a, op, {{memory_a.region, offset, length}},
                            {{&remote_b, offset, length}}, &transfer);
  if (!result) throw std::runtime_error("prepare: " + result.text());
  return transfer;
}

}  // namespace tcpx::test
