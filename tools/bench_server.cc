#include "bench_server.h"

#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string_view>

#include "print.h"

#include "bench_memory.h"
#include "failure.h"
#include "raw_setup.h"
#include "raw_tcp.h"

namespace tcpx::tool {
namespace {

constexpr Nanos kRawAcceptPatience = 10 * kSecond;
// A client that is connected and silent keeps others out, so not for ever.
constexpr Nanos kGreeting = 10 * kSecond;
constexpr Nanos kIdle = 600 * kSecond;

// Everything that belongs to one client.
class Session {
 public:
  Session(Engine& engine, Control& control, uint16_t raw_port)
      : engine_(engine), control_(control), raw_port_(raw_port) {}
  ~Session() {
    if (region_ != 0) (void)engine_.deregister(region_);
  }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  Json handle(const Json& request);
  bool ended() const { return ended_; }

 private:
  Json hello(const Json& request);
  Json setup(const Json& request);
  Json begin_case(const Json& request);
  Json arm(const Json& request);
  Json verify(const Json& request);
  Json barrier(const Json& request);
  Json raw_open(const Json& request);
  Json raw_accept(const Json& request);
  Json raw_run(const Json& request);
  Json bye(const Json& request);
  void require(bool condition, const char* text) const {
    if (!condition) throw Failure(kExitFailed, text);
  }

  Engine& engine_;
  Control& control_;
  uint16_t raw_port_;
  bool greeted_ = false;
  bool ended_ = false;
  bool write_ = false;
  BenchMemory memory_;
  tcpx_region region_ = 0;
  Layout layout_;
  std::unique_ptr<RawListener> listener_;
  std::unique_ptr<RawLink> raw_;
};

Json Session::handle(const Json& request) {
  struct Handler {
    std::string_view what;
    Json (Session::*call)(const Json&);
  };
  static constexpr Handler kHandlers[] = {
      {"hello", &Session::hello},       {"setup", &Session::setup},
      {"case", &Session::begin_case},   {"arm", &Session::arm},
      {"verify", &Session::verify},     {"barrier", &Session::barrier},
      {"raw_open", &Session::raw_open}, {"raw_accept", &Session::raw_accept},
      {"raw_run", &Session::raw_run},   {"bye", &Session::bye},
  };
  const auto what = request.value("what", std::string());
  for (auto& handler : kHandlers) {
    if (handler.what != what) continue;
    require(greeted_ || what == "hello", "the first request must be hello");
    return (this->*handler.call)(request);
  }
  throw Failure(kExitFailed, strf("unknown request '{}'", what));
}

Json Session::hello(const Json& request) {
  const int theirs = request.at("protocol").get<int>();
  if (theirs != kBenchProtocol)
    throw Failure(
        kExitUsage,
        strf("bench protocol versions differ: server {} (tcpx {}), client {} (tcpx "
             "{}); use the same tcpx on both sides",
             kBenchProtocol, tcpx_version(), theirs, request.value("version", std::string("?"))));
  greeted_ = true;
  return describe_host();
}

Json Session::setup(const Json& request) {
  const auto size = request.at("memory").get<uint64_t>();
  const MemoryKind kind = parse_memory_kind(request.at("kind").get<std::string>());
  check_room(size);
  if (region_ != 0) (void)engine_.deregister(region_);
  region_ = 0;
  memory_ = BenchMemory(kind, size);
  const Result made = engine_.register_memory(memory_.address(), memory_.size(),
                                              TCPX_REMOTE_READ | TCPX_REMOTE_WRITE, &region_);
  require(made.ok(), made.text().c_str());
  Bytes description;
  const Result exported = engine_.export_region(region_, &description);
  require(exported.ok(), exported.text().c_str());
  return {{"region", to_hex(description.data(), description.size())}};
}

Json Session::begin_case(const Json& request) {
  const auto bytes = request.at("bytes").get<uint64_t>();
  const auto pieces = request.at("pieces").get<uint64_t>();
  require(pieces > 0 && pieces <= 1'000'000 && bytes <= memory_.size(), "bad case");
  require(Layout::extent(bytes, pieces) <= memory_.size(), "the case does not fit the memory");
  write_ = request.at("write").get<bool>();
  layout_ = Layout(bytes, pieces);
  fill(memory_.image(), layout_, false, 0);
  memory_.put(layout_.extent());
  return Json::object();
}

Json Session::arm(const Json& request) {
  const auto salt = request.at("salt").get<uint64_t>();
  if (write_)
    poison(memory_.image(), layout_, salt);
  else
    fill(memory_.image(), layout_, false, salt);
  memory_.put(layout_.extent());
  return Json::object();
}

Json Session::verify(const Json& request) {
  const Memory& image = memory_.image();
  memory_.get(layout_.extent());
  if (corruption_wanted()) corrupt(image, layout_, false);
  return {{"wrong", find_error(image, layout_, false, request.at("salt").get<uint64_t>())}};
}

Json Session::barrier(const Json&) {
  return {{"cpu_s", cpu_seconds()}, {"live", live_transfers(engine_)}};
}

Json Session::raw_open(const Json& request) {
  tcpx_peer_info info{};
  const Result got = engine_.peer_info(control_.peer(), &info);
  require(got.ok(), got.text().c_str());
  const auto addresses = interface_addresses(info.interfaces, request.at("v6").get<bool>());
  require(!addresses.empty(), "raw: no address on the interfaces in use");
  listener_ = std::make_unique<RawListener>(addresses, raw_port_);
  return {{"endpoints", listener_->endpoints()},
          {"token", to_hex(listener_->token().data(), listener_->token().size())}};
}

Json Session::raw_accept(const Json& request) {
  const auto connections = request.at("connections").get<size_t>();
  require(listener_ != nullptr && connections > 0 && connections <= 1024, "raw: not open");
  raw_ = std::make_unique<RawLink>(listener_->accept(connections, now_ns() + kRawAcceptPatience),
                                   memory_.image().data(), memory_.size());
  listener_.reset();
  return Json::object();
}

Json Session::raw_run(const Json& request) {
  require(raw_ != nullptr, "raw: not open");
  RawTask task;
  task.write = request.at("write").get<bool>();
  task.loop = request.at("spinning").get<bool>() ? RawLoop::kSpinning : RawLoop::kBlocking;
  task.bytes = request.at("bytes").get<uint64_t>();
  task.transfers = request.at("transfers").get<uint64_t>();
  task.timeout = request.at("timeout_ns").get<Nanos>();
  const double before = cpu_seconds();
  raw_->serve(task);
  return {{"cpu_s", cpu_seconds() - before}};
}

Json Session::bye(const Json&) {
  ended_ = true;
  return Json::object();
}

}  // namespace

void serve_client(Engine& engine, Control& control, uint16_t raw_port) {
  Session session(engine, control, raw_port);
  Nanos patience = kGreeting;
  while (!session.ended()) {
    Json request;
    if (!control.receive(&request, patience))
      throw Failure(kExitFailed, strf("the client said nothing for {} s", patience / kSecond));
    patience = kIdle;
    try {
      control.reply(request, session.handle(request));
    } catch (const Failure& failure) {
      control.refuse(request, failure.code(), failure.what());
    } catch (const nlohmann::json::exception& error) {
      control.refuse(request, kExitFailed, strf("malformed request: {}", error.what()));
    }
  }
}

Json describe_host() {
  utsname system{};
  uname(&system);
  return {{"version", tcpx_version()},
          {"bench_protocol", kBenchProtocol},
          {"host", system.nodename},
          {"cores", sysconf(_SC_NPROCESSORS_ONLN)},
          {"kernel", strf("{} {} {}", system.sysname, system.release, system.machine)}};
}

void check_room(uint64_t bytes) {
  std::ifstream info("/proc/meminfo");
  for (std::string line; std::getline(info, line);) {
    if (!line.starts_with("MemAvailable:")) continue;
    const uint64_t available = std::strtoull(line.c_str() + 13, nullptr, 10) << 10;
    if (bytes > available)
      throw Failure(kExitEnvironment,
                    strf("needs {} MiB of memory, {} MiB are available; use a smaller --size",
                         bytes >> 20, available >> 20));
  }
}

bool corruption_wanted() {
  const char* value = std::getenv("TCPX_TEST_CORRUPT");
  return value != nullptr && std::string_view(value) == "1";
}

uint64_t live_transfers(const Engine& engine) {
  const Json counters = Json::parse(engine.counters_json());
  const Json& all = counters.at("engine");
  return all.at("transfers_posted").get<uint64_t>() - all.at("transfers_done").get<uint64_t>() -
         all.at("transfers_failed").get<uint64_t>() + all.at("chunks_live").get<uint64_t>();
}

}  // namespace tcpx::tool
