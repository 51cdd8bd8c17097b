// An honest client beside an attack: it moves its own data, checks every byte and tells how long
// that took. Public interface only. Driven by lines on stdin, so that no secret is in `ps`:
//   MODE k=v ...     lasting (one session, a steady stream) or anew (a session for each round);
//                    options of its engine
//   INFO REGION      hex: connection info of the victim, description of this client's region there
//   mark             -> one JSON line about the time since the last mark
//   pause, go        (between two rounds)
//   quit
// A round is written, read back into a poisoned buffer and compared; what it writes depends on
// place and round, so that no old or foreign byte passes.
#include <signal.h>
#include <sys/prctl.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <map>
#include <mutex>
#include <numeric>
#include <sstream>
#include <thread>

#include <nlohmann/json.hpp>

#include <tcpx/tcpx.hpp>

#include "support/env.h"
#include "support/hex.h"
#include "support/log.h"
#include "support/pattern.h"

namespace tcpx::test {
namespace {

constexpr uint64_t kRegion = 1 << 20;  // as the driver registers it at the victim
constexpr uint64_t kSmall = 4 << 10;
constexpr uint64_t kMedium = 256 << 10;
constexpr Millis kPatience{30'000};

double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

// What happened since the last mark.
class Record {
 public:
  // Times one thing, also when it fails.
  template <class F>
  Result timed(const char* what, F&& f) {
    auto start = Clock::now();
    {
      std::lock_guard lock(mutex_);
      under_way_ = what;
      since_ = start;
    }
    Result result = f();
    std::lock_guard lock(mutex_);
    under_way_ = nullptr;
    times_[what].push_back(ms_since(start));
    if (!result) fail(what, result);
    return result;
  }
  void wrong(const std::string& text) {
    std::lock_guard lock(mutex_);
    wrong_.push_back(text);
  }
  nlohmann::json mark() {
    std::lock_guard lock(mutex_);
    nlohmann::json out = {{"failures", failures_}, {"wrong", wrong_}};
    // What was done in between is not all: five quick rounds between two of five seconds are no
    // quick client. So the mean counts too, with what is still under way.
    if (under_way_ != nullptr) times_[under_way_].push_back(ms_since(since_));
    for (auto& [what, ms] : times_) {
      std::sort(ms.begin(), ms.end());
      double sum = std::accumulate(ms.begin(), ms.end(), 0.0);
      out[what] = {{"n", ms.size()},
                   {"median", ms[ms.size() / 2]},
                   {"mean", sum / static_cast<double>(ms.size())},
                   {"p99", ms[ms.size() * 99 / 100]},
                   {"worst", ms.back()}};
    }
    failures_.clear();
    times_.clear();
    return out;
  }

 private:
  void fail(const char* what, const Result& result) {
    failures_.push_back(std::string(what) + ": " + result.name() + ": " + result.text());
  }
  std::mutex mutex_;
  std::map<std::string, std::vector<double>> times_;
  std::vector<std::string> failures_, wrong_;  // a wrong byte is never forgotten
  const char* under_way_ = nullptr;
  Clock::time_point since_;
};

class Client {
 public:
  Client(const std::string& mode, const Options& options, Bytes info, const Bytes& region)
      : anew_(mode == "anew"), seed_(anew_ ? 1001 : 1002), info_(std::move(info)) {
    need(Engine::create(options, &engine_, log_to_stderr()));
    need(Engine::import_region(region, &remote_));
    need(engine_.register_memory(source_.data(), source_.size(), 0, &source_region_));
    need(engine_.register_memory(sink_.data(), sink_.size(), 0, &sink_region_));
    worker_ = std::thread([this] { run(); });
  }
  ~Client() {
    stop_ = true;
    worker_.join();
  }
  nlohmann::json mark() { return record_.mark(); }
  void pause(bool on) { paused_ = on; }

 private:
  static void need(const Result& result) {
    if (!result) throw std::runtime_error(std::string(result.name()) + ": " + result.text());
  }
  void run() {
    while (!stop_) anew_ ? anew() : lasting();
  }

  // A session until it ends, which it should not.
  void lasting() {
    tcpx_peer peer = 0;
    if (!record_.timed("first", [&] { return connect(&peer); })) return rest(20);
    while (!stop_) {
      bool medium = rounds_ % 8 == 7;
      if (!round(peer, medium ? "medium" : "small", medium ? kMedium : kSmall)) break;
      rest(1);
    }
    (void)engine_.disconnect(peer);
  }
  void anew() {
    tcpx_peer peer = 0;
    Result result = record_.timed("anew", [&] {
      Result step = connect(&peer);
      if (step) step = write_and_read(peer, kSmall);
      return step;
    });
    if (result) check(kSmall);
    if (peer != 0) (void)engine_.disconnect(peer);
    rest(10);
  }

  Result connect(tcpx_peer* peer) {
    Result result = engine_.connect(info_, peer);
    if (result) result = engine_.peer_wait(*peer, kPatience);
    return result;
  }
  bool round(tcpx_peer peer, const char* what, uint64_t length) {
    if (!record_.timed(what, [&] { return write_and_read(peer, length); })) return false;
    check(length);
    return true;
  }
  Result write_and_read(tcpx_peer peer, uint64_t length) {
    offset_ = rng_.below(kRegion - length + 1);
    Pattern(seed_, ++rounds_).fill(source_.data(), length, offset_);
    std::memset(sink_.data(), 0xCD, length);
    Result result = move(peer, TCPX_WRITE, source_region_, length);
    if (result) result = move(peer, TCPX_READ, sink_region_, length);
    return result;
  }
  // Every medium WRITE brings a notification along.
  Result move(tcpx_peer peer, tcpx_op op, tcpx_region local, uint64_t length) {
    Transfer transfer;
    Result result =
        engine_.prepare(peer, op, {{local, 0, length}}, {{&remote_, offset_, length}}, &transfer);
    bool tells = op == TCPX_WRITE && length == kMedium;
    if (result) result = tells ? transfer.post_notify("done", kPatience) : transfer.post(kPatience);
    if (result) result = transfer.wait(kPatience);
    return result;
  }
  void check(uint64_t length) {
    int64_t bad = Pattern(seed_, rounds_).mismatch(sink_.data(), length, offset_);
    if (bad < 0) return;
    record_.wrong("round " + std::to_string(rounds_) + ", byte " + std::to_string(bad) + " of " +
                  std::to_string(length));
  }
  void rest(int ms) {
    do std::this_thread::sleep_for(Ms{ms});
    while (paused_ && !stop_);
  }

  const bool anew_;
  const uint64_t seed_;
  const Bytes info_;
  Bytes source_ = Bytes(kMedium), sink_ = Bytes(kMedium);
  tcpx_region source_region_ = 0, sink_region_ = 0;
  tcpx_remote_region remote_{};
  Rng rng_{7};
  uint64_t rounds_ = 0, offset_ = 0;
  Record record_;
  std::atomic<bool> stop_{false}, paused_{false};
  Engine engine_;
  std::thread worker_;
};

int serve() {
  std::string line, mode, pair, info, region;
  if (!std::getline(std::cin, line)) return 2;
  std::istringstream first(line);
  first >> mode;
  Options options;
  while (first >> pair) {
    size_t equals = pair.find('=');
    options.emplace_back(pair.substr(0, equals), pair.substr(equals + 1));
  }
  std::cin >> info >> region;
  Client client(mode, options, from_hex(info), from_hex(region));
  while (std::cin >> line && line != "quit") {
    if (line != "mark") client.pause(line == "pause");
    std::cout << (line == "mark" ? client.mark().dump() : "{}") << std::endl;
  }
  return 0;
}

}  // namespace
}  // namespace tcpx::test

int main() {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  try {
    return tcpx::test::serve();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "honest client: %s\n", error.what());
    return 1;
  }
}
