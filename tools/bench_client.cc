#include "bench_client.h"

#include <poll.h>

#include <algorithm>
#include <cstdlib>
#include <memory>

#include "print.h"

#include "base/units.h"
#include "bench_case.h"
#include "bench_server.h"
#include "failure.h"
#include "raw_setup.h"

namespace tcpx::tool {
namespace {

constexpr Nanos kRawConnectPatience = 5 * kSecond;
constexpr Nanos kBusy = 3 * kSecond;
constexpr Nanos kSetupPatience = 120 * kSecond;

// TCPX_TEST_BENCH_PROTOCOL plays a client of another version.
int protocol_to_speak() {
  const char* other = std::getenv("TCPX_TEST_BENCH_PROTOCOL");
  return other == nullptr ? kBenchProtocol : std::atoi(other);
}

// A server that has just lost its client says busy for a moment longer.
void greet(Control& control, BenchResult* out) {
  const Nanos deadline = now_ns() + kBusy;
  while (true) {
    try {
      out->peer = control.request("hello",
                                  {{"protocol", protocol_to_speak()}, {"version", tcpx_version()}});
      return;
    } catch (const ServerBusy&) {
      if (now_ns() > deadline) throw;
      poll(nullptr, 0, 200);
    }
  }
}

std::unique_ptr<RawLink> open_raw(Control& control, const RawRoute& route, uint32_t connections,
                                  const Memory& memory, BenchResult* out) {
  const Json opened = control.request("raw_open", {{"v6", route.v6}});
  auto endpoints = opened.at("endpoints").get<std::vector<std::string>>();
  const Bytes token_bytes = from_hex(opened.at("token").get<std::string>());
  RawToken token{};
  std::copy_n(token_bytes.begin(), std::min(token_bytes.size(), token.size()), token.begin());
  const uint64_t accepting = control.send("raw_accept", {{"connections", connections}});
  std::vector<Fd> sockets;
  try {
    sockets = raw_connect(endpoints, token, connections, now_ns() + kRawConnectPatience);
  } catch (const Failure&) {
    // Behind NAT: the same port at the address that has led us to the server.
    if (route.host.empty()) throw;
    const std::string& first = endpoints.front();
    endpoints = {route.host + first.substr(first.rfind(':'))};
    sockets = raw_connect(endpoints, token, connections, now_ns() + kRawConnectPatience);
  }
  control.await(accepting);
  out->raw_endpoints = endpoints;
  return std::make_unique<RawLink>(std::move(sockets), memory.data(), memory.size());
}

uint64_t memory_needed(const BenchOptions& options) {
  uint64_t most = 0;
  for (uint64_t bytes : options.sizes) most = std::max(most, Layout::extent(bytes, options.pieces));
  return most;
}

// Ends before the memory does, also on the way out of a failure.
class Registration {
 public:
  Registration(Engine& engine, tcpx_region region) : engine_(engine), region_(region) {}
  ~Registration() { (void)engine_.deregister(region_); }
  Registration(const Registration&) = delete;
  Registration& operator=(const Registration&) = delete;

 private:
  Engine& engine_;
  tcpx_region region_;
};

}  // namespace

void run_bench(const BenchOptions& options, Engine& engine, Control& control, const RawRoute& route,
               const BenchHooks& hooks, BenchResult* out) {
  greet(control, out);
  const uint64_t size = memory_needed(options);
  check_room(options.loopback ? 2 * size : size);
  const MemoryKinds kinds = parse_memory_kinds(options.memory);
  BenchContext context{options, engine, control, hooks,  kinds, BenchMemory(kinds.client, size),
                       0,       {},     0,       nullptr};
  const Json setup =
      control.request("setup", {{"memory", size}, {"kind", kinds.server.text()}}, kSetupPatience);
  const Result imported =
      Engine::import_region(from_hex(setup.at("region").get<std::string>()), &context.remote);
  if (!imported) throw Failure(kExitFailed, "the server's region: " + imported.text());
  const Result registered =
      engine.register_memory(context.memory.address(), context.memory.size(), 0, &context.region);
  if (!registered) throw Failure(kExitFailed, "registering memory: " + registered.text());
  const Registration registration(engine, context.region);

  tcpx_peer_info peer{};
  const Result got = engine.peer_info(control.peer(), &peer);
  if (!got) throw Failure(kExitFailed, "the server is gone: " + got.text());
  context.lanes = std::max(peer.lanes, 1u);
  if (options.baseline == "raw")
    context.raw = open_raw(control, route, context.lanes, context.memory.image(), out);

  for (bool write : options.writes) {
    for (uint64_t bytes : options.sizes) {
      out->records.emplace_back();
      BenchCase(context, write, bytes).run(&out->records.back());
      if (hooks.record) hooks.record(out->records.back());
    }
  }
  control.request("bye");
}

}  // namespace tcpx::tool
