#include "bench_run.h"

#include <algorithm>
#include <cstdio>
#include <memory>

#include "print.h"

#include "base/units.h"
#include "bench_control.h"
#include "bench_memory.h"
#include "bench_server.h"
#include "loopback.h"
#include "signals.h"

namespace tcpx::tool {
namespace {

constexpr Millis kPeerSlice{200};  // between looks at signals
constexpr Nanos kConnectMargin = 30 * kSecond;

// Two hosts have no other way to share the secret than a key.
void require_key(const std::vector<ResolvedOption>& resolved) {
  if (find_option(resolved, "auth").value == "off") return;
  for (const char* name : {"auth_key", "auth_key_file"})
    if (!find_option(resolved, name).value.empty()) return;
  throw Failure(kExitUsage,
                "no key: both sides need the same one. Make it with\n"
                "  head -c 32 /dev/urandom | base64 > key\n"
                "copy it to both hosts and give --auth-key-file key (or TCPX_AUTH_KEY_FILE, "
                "TCPX_AUTH_KEY). To run open to anyone who can connect: --auth off");
}

// Both ends on this machine use loopback unless told otherwise.
void prefer_loopback(EngineOptions* engine) {
  const auto resolved = engine->resolve();
  if (find_option(resolved, "interfaces").source == "default" &&
      find_option(resolved, "listen").source == "default")
    engine->set("interfaces", "127.0.0.1");
}

void wait_connected(Engine& engine, tcpx_peer peer, const AliveCheck& alive,
                    const std::vector<ResolvedOption>& resolved) {
  Nanos limit = 0;
  (void)parse_time(find_option(resolved, "connect_timeout").value, &limit);
  const Nanos deadline = now_ns() + limit + kConnectMargin;
  while (true) {
    const Result state = engine.peer_wait(peer, kPeerSlice);
    if (state.ok()) return;
    check_interrupted();
    if (alive) alive();
    if (!state.in_progress())
      throw Failure(kExitFailed, strf("cannot connect: {}: {}", state.name(), state.text()));
    if (now_ns() > deadline) throw Failure(kExitFailed, "cannot connect: no answer in time");
  }
}

void measure(BenchOptions& options, LoopbackServer* server, const BenchHooks& hooks,
             ClientRun* run) {
  const AliveCheck alive = server != nullptr ? AliveCheck([server] { server->check(); }) : nullptr;
  const Bytes info = server != nullptr ? server->connection_info() : Bytes{};
  // Not before the server was forked: CUDA lives in one process.
  if (options.memory == "auto" && find_option(run->resolved, "gpu_memory").value == "off")
    options.memory = "host";
  options.memory = parse_memory_kinds(options.memory).text();
  Engine engine = make_engine(options.engine.given(), "client");
  tcpx_peer peer = 0;
  RawRoute route;
  Result started;
  if (server != nullptr) {
    started = engine.connect(info, &peer);
  } else {
    const HostPort to = parse_host_port(options.connect);
    const std::string address = to.to_string();
    started = engine.connect_address(address, &peer);
    route.v6 = to.host.find(':') != std::string::npos;
    route.host = address.substr(0, address.rfind(':'));
  }
  if (!started)
    throw Failure(kExitFailed, strf("cannot connect: {}: {}", started.name(), started.text()));
  wait_connected(engine, peer, alive, run->resolved);
  tcpx_peer_info connected{};
  if (engine.peer_info(peer, &connected)) run->interfaces = connected.interfaces;
  Control control(engine, peer, alive);
  run_bench(options, engine, control, route, hooks, &run->result);
}

Json describe_config(const BenchOptions& options, const ClientRun& run) {
  Json config = describe_host();
  config["gb"] = static_cast<uint64_t>(kGb);
  config["mode"] = options.loopback ? "loopback" : "connect";
  if (!options.connect.empty()) config["connect"] = options.connect;
  config["op"] = Json::array();
  for (bool write : options.writes) config["op"].push_back(write ? "write" : "read");
  config["size"] = options.sizes;
  config["pieces"] = options.pieces;
  config["iters"] = options.iters > 0 ? Json(options.iters) : Json();
  config["duration_s"] =
      static_cast<double>(options.duration > 0 ? options.duration : kDefaultDuration) / kSecond;
  config["rounds"] = options.rounds;
  config["warmup"] = options.warmup ? Json(*options.warmup) : Json();
  config["verify"] = options.verify;
  config["baseline"] = options.baseline;
  config["memory"] = options.memory;
  config["path"] = options.path;
  config["interfaces"] = run.interfaces;
  config["raw_endpoints"] = run.result.raw_endpoints;
  config["peer"] = run.result.peer;
  Json& resolved = config["options"] = Json::object();
  for (auto& option : run.resolved)
    resolved[option.name] = {{"value", option.value}, {"origin", option.source}};
  return config;
}

void serve_session(Engine& engine, tcpx_peer peer, uint16_t raw_port) {
  tcpx_peer_info info{};
  if (!engine.peer_info(peer, &info) || info.state != TCPX_OK)
    throw PeerGone("a client left before it was served");
  print(stderr, "client {} ({}), {} lanes on {}\n", info.name, info.engine_id, info.lanes,
        info.interfaces);
  Control control(engine, peer, nullptr);
  serve_client(engine, control, raw_port);
  print(stderr, "client {} is done\n", info.name);
}

}  // namespace

ClientRun run_client(BenchOptions& options, const BenchHooks& hooks) {
  ClientRun run;
  std::unique_ptr<LoopbackServer> server;
  if (options.loopback) {
    prefer_loopback(&options.engine);
    (void)options.engine.resolve();
    using enum LoopbackServer::Where;
    server = std::make_unique<LoopbackServer>(options.engine.given(),
                                              options.one_process ? kThisProcess : kOwnProcess);
  }
  // The port of the other side is not ours to take.
  if (options.loopback || !options.engine.given("port_range"))
    options.engine.set("port_range", "0");
  run.resolved = options.engine.resolve();
  if (!options.loopback) require_key(run.resolved);
  try {
    measure(options, server.get(), hooks, &run);
  } catch (const Failure& failure) {
    run.code = failure.code();
    run.error = failure.what();
    if (server && run.code == kExitFailed) run.error += server->cause_of_death();
  } catch (const nlohmann::json::exception& error) {
    run.code = kExitFailed;
    run.error = strf("the server's answer is malformed: {}", error.what());
  }
  auto& records = run.result.records;
  if (run.code == kExitInterrupted && !records.empty() && !records.back().error.empty())
    records.pop_back();
  return run;
}

int run_listener(BenchOptions& options) {
  const HostPort at = parse_host_port(options.listen);
  const bool range_given = find_option(options.engine.resolve(), "port_range").source != "default";
  if (!at.host.empty()) options.engine.set("listen", at.host);
  if (at.has_port || !range_given) options.engine.set("port_range", std::to_string(at.port));
  const auto resolved = options.engine.resolve();
  require_key(resolved);
  Engine engine = make_engine(options.engine.given(), "server");
  print(stderr, "listening on {} port {}\n", at.host.empty() ? "all interfaces in use" : at.host,
        find_option(resolved, "port_range").value);
  while (!interrupted()) {
    tcpx_peer peer = 0;
    const Result came = engine.accept(&peer, kPeerSlice);
    if (came.in_progress()) continue;
    if (!came) throw Failure(kExitFailed, "accepting: " + came.text());
    ExitCode code = kExitOk;
    try {
      serve_session(engine, peer, options.raw_port);
    } catch (const Failure& failure) {
      code = failure.code();
      print(stderr, "{}\n", failure.what());
    }
    (void)engine.disconnect(peer);
    if (options.once || code == kExitInterrupted) return code;
  }
  return kExitOk;
}

Json bench_document(const BenchOptions& options, const ClientRun& run) {
  Json document = {{"schema", kSchema}, {"config", describe_config(options, run)}};
  document["records"] = Json::array();
  for (auto& record : run.result.records) document["records"].push_back(record.to_json());
  if (run.code != kExitOk)
    document["error"] = {{"exit", static_cast<int>(run.code)}, {"text", run.error}};
  return document;
}

}  // namespace tcpx::tool
