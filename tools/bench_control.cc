#include "bench_control.h"

#include <sys/resource.h>

#include <algorithm>
#include <charconv>

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>
#include "print.h"

#include "failure.h"
#include "signals.h"

namespace tcpx::tool {
namespace {

constexpr Nanos kControlSlice = 100 * kMilli;  // between looks at signals and at the other side

spdlog::level::level_enum to_spdlog(tcpx_log_level level) {
  switch (level) {
    case TCPX_LOG_ERROR: return spdlog::level::err;
    case TCPX_LOG_WARN: return spdlog::level::warn;
    case TCPX_LOG_INFO: return spdlog::level::info;
    case TCPX_LOG_DEBUG: return spdlog::level::debug;
    case TCPX_LOG_TRACE: return spdlog::level::trace;
  }
  return spdlog::level::err;
}

}  // namespace

Engine make_engine(const std::vector<std::pair<std::string, std::string>>& options,
                   const std::string& who) {
  auto logger = std::make_shared<spdlog::logger>(
      who, std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
  logger->set_pattern("%H:%M:%S.%e %^%l%$ %n: %v");
  logger->set_level(spdlog::level::trace);  // the engine's log_level option decides
  Engine engine;
  const Result made = Engine::create({options.begin(), options.end()}, &engine,
                                     [logger](tcpx_log_level level, const char* line) {
                                       logger->log(to_spdlog(level), "{}", line);
                                     });
  if (!made) {
    const bool usage = made.code() == TCPX_BAD_CONFIG || made.code() == TCPX_INVALID_ARGUMENT;
    throw Failure(usage ? kExitUsage : kExitEnvironment,
                  strf("cannot start the engine: {}", made.text()));
  }
  return engine;
}

Control::Control(Engine& engine, tcpx_peer peer, AliveCheck alive)
    : engine_(engine), peer_(peer), alive_(std::move(alive)) {}

void Control::check_peer() {
  check_interrupted();
  if (alive_) alive_();
  tcpx_peer_info info{};
  const Result got = engine_.peer_info(peer_, &info);
  if (!got) throw PeerGone("the other side is gone: " + got.text());
  if (info.state != TCPX_OK && info.state != TCPX_IN_PROGRESS)
    throw PeerGone(strf("the other side is gone: {}", tcpx_code_name(info.state)));
}

void Control::post(const Json& message) {
  const Result sent = engine_.notify(peer_, message.dump(), Millis{kPatience / kMilli});
  if (sent) return;
  if (alive_) alive_();
  throw PeerGone(strf("cannot reach the other side: {}: {}", sent.name(), sent.text()));
}

bool Control::next(Json* message, Nanos timeout) {
  const Nanos deadline = deadline_after(now_ns(), timeout);
  do {
    Notification note;
    const Nanos left = std::clamp<Nanos>(deadline - now_ns(), 0, kControlSlice);
    const Result got = engine_.next_notification(&note, Millis{(left + kMilli - 1) / kMilli});
    if (got.in_progress()) {
      check_peer();
      continue;
    }
    if (!got) throw Failure(kExitFailed, "receiving: " + got.text());
    Json parsed = Json::parse(note.bytes, nullptr, false);
    if (!parsed.is_object()) continue;  // not from a bench
    if (note.peer != peer_) {
      const Json busy = {{"id", parsed.value("id", uint64_t{0})},
                         {"busy", true},
                         {"error", "this bench serves another client; try again later"}};
      (void)engine_.notify(note.peer, busy.dump(), Millis{1000});
      continue;
    }
    *message = std::move(parsed);
    return true;
  } while (now_ns() < deadline);
  return false;
}

uint64_t Control::send(const std::string& what, Json body) {
  body["what"] = what;
  body["id"] = ++last_id_;
  post(body);
  return last_id_;
}

Json Control::await(uint64_t id, Nanos timeout) {
  const Nanos deadline = deadline_after(now_ns(), timeout);
  Json message;
  while (next(&message, deadline - now_ns())) {
    if (message.value("id", uint64_t{0}) != id) continue;  // of a request given up
    if (message.contains("busy"))
      throw ServerBusy("the server says: " + message.value("error", std::string()));
    if (message.contains("error"))
      throw Failure(static_cast<ExitCode>(message.value("exit", static_cast<int>(kExitFailed))),
                    "the server says: " + message.value("error", std::string()));
    return message;
  }
  throw Failure(kExitFailed, "the server did not answer in time");
}

Json Control::request(const std::string& what, Json body, Nanos timeout) {
  return await(send(what, std::move(body)), timeout);
}

bool Control::receive(Json* request, Nanos timeout) {
  return next(request, timeout);
}

void Control::reply(const Json& request, Json body) {
  body["id"] = request.value("id", uint64_t{0});
  post(body);
}

void Control::refuse(const Json& request, int exit_code, const std::string& text) {
  reply(request, {{"exit", exit_code}, {"error", text}});
}

double cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) / 1e6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

std::string to_hex(const uint8_t* bytes, size_t length) {
  return strf("{:02x}", fmt::join(bytes, bytes + length, ""));
}

Bytes from_hex(const std::string& text) {
  Bytes out(text.size() / 2);
  for (size_t i = 0; i < out.size(); ++i) {
    const char* at = text.data() + 2 * i;
    const auto [end, error] = std::from_chars(at, at + 2, out[i], 16);
    if (error != std::errc() || end != at + 2) throw Failure(kExitFailed, "bad hexadecimal text");
  }
  return out;
}

}  // namespace tcpx::tool
