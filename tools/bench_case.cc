#include "bench_case.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "print.h"

#include "base/units.h"
#include "bench_server.h"
#include "failure.h"
#include "signals.h"

namespace tcpx::tool {
namespace {

constexpr double kMaxPerRound = 1e6;
constexpr Nanos kWarmUp = 50 * kMilli;
constexpr uint64_t kWarmUpLeast = 3, kWarmUpMost = 2000;
constexpr Nanos kRawWarmUp = 10 * kMilli;
constexpr Millis kTransferSlice{200};  // between looks at signals while a transfer runs
// A transfer that names no deadline gets one that a slow network keeps: 10 MB/s and half a minute.
constexpr Nanos kNanosPerByte = 100;
constexpr Nanos kLeastDeadline = 30 * kSecond;
// For requests that walk over the whole memory, possibly for the first time (0.3 GB/s).
constexpr Nanos kSlowNanosPerByte = 20;

double to_us(Nanos time) {
  return static_cast<double>(time) / kMicro;
}

Nanos patience(uint64_t bytes) {
  return Control::kPatience + static_cast<Nanos>(bytes) * kSlowNanosPerByte;
}

double sum(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
}

}  // namespace

BenchCase::BenchCase(BenchContext& context, bool write, uint64_t bytes)
    : context_(context), write_(write), bytes_(bytes), layout_(bytes, context.options.pieces) {
  const auto resolved = context.options.engine.resolve();
  const auto& deadline = find_option(resolved, "deadline");
  Nanos given = 0;
  if (deadline.source == "default" || !parse_time(deadline.value, &given)) {
    given = kLeastDeadline + static_cast<Nanos>(bytes) * kNanosPerByte;
    deadline_ = Millis{given / kMilli};
  } else {
    deadline_ = kDefaultDeadline;
  }
  limit_ = given + 10 * kSecond;
}

void BenchCase::run(Record* record) {
  record->write = write_;
  record->bytes = bytes_;
  record->pieces = context_.options.pieces;
  record->lanes = context_.lanes;
  record->memory = context_.kinds.text();
  try {
    prepare(record);
    warm_up();
    if (context_.raw)
      for (RawLoop loop : {RawLoop::kBlocking, RawLoop::kSpinning}) warm_up_raw(loop);
    plan();
    for (uint64_t i = 0; i < rounds_; ++i) round(i);
  } catch (const Failure& failure) {
    record->error = failure.what();
    throw;
  }
  finish(record);
}

void BenchCase::show(const std::string& what) const {
  if (context_.hooks.progress)
    context_.hooks.progress(
        strf("{} {}: {}", write_ ? "write" : "read", format_size(bytes_), what));
}

void BenchCase::prepare(Record* record) {
  show("preparing");
  context_.control.request(
      "case", {{"write", write_}, {"bytes", bytes_}, {"pieces", context_.options.pieces}},
      patience(layout_.extent()));
  fill(context_.memory.image(), layout_, true, 0);
  context_.memory.put(layout_.extent());
  std::vector<tcpx_local_piece> local;
  std::vector<tcpx_remote_piece> remote;
  for (auto& piece : layout_.pieces()) {
    local.push_back({context_.region, piece.client_offset, piece.length});
    remote.push_back({&context_.remote, piece.server_offset, piece.length});
  }
  const Nanos start = now_ns();
  const Result made = context_.engine.prepare(
      context_.control.peer(), write_ ? TCPX_WRITE : TCPX_READ, local, remote, &transfer_);
  record->prepare_us = to_us(now_ns() - start);
  if (!made) throw Failure(kExitFailed, "preparing the transfer: " + made.text());
}

void BenchCase::warm_up() {
  show("warming up");
  const auto& wanted = context_.options.warmup;
  const uint64_t least = wanted.value_or(kWarmUpLeast), most = wanted.value_or(kWarmUpMost);
  const Nanos start = now_ns();
  for (uint64_t i = 0; i < most; ++i) {
    if (i >= least && now_ns() - start >= kWarmUp) break;
    transfer_once();
  }
  if (times_us_.empty()) transfer_once();
  // The later half: the first ones grow windows and caches.
  std::vector<double> later(times_us_.begin() + static_cast<ptrdiff_t>(times_us_.size() / 2),
                            times_us_.end());
  estimate_us_ = percentile(&later, 0.5);
  times_us_.clear();
  posts_us_.clear();
}

void BenchCase::plan() {
  const auto& options = context_.options;
  const Nanos duration = options.duration > 0 ? options.duration : kDefaultDuration;
  rounds_ = options.rounds;
  const double round_us = to_us(duration) / static_cast<double>(rounds_);
  const auto fitting = [round_us](double each_us) {
    return static_cast<uint64_t>(std::clamp(round_us / std::max(each_us, 0.1), 1.0, kMaxPerRound));
  };
  per_round_ = fitting(estimate_us_);
  if (options.iters > 0) {
    rounds_ = std::min(rounds_, options.iters);
    per_round_ = options.iters / rounds_;
    left_over_ = options.iters % rounds_;
  }
  for (auto& raw : raw_) {
    if (raw.times_us.empty()) continue;
    raw.per_round = fitting(percentile(&raw.times_us, 0.5));
    if (options.iters > 0) raw.per_round = std::min(raw.per_round, per_round_);
    raw.times_us.clear();
    raw.cpu_s = 0;
  }
}

uint64_t BenchCase::transfers_in_round(uint64_t index) const {
  return per_round_ + (index < left_over_ ? 1 : 0);
}

void BenchCase::round(uint64_t index) {
  show(strf("round {} of {}", index + 1, rounds_));
  const bool verify = context_.options.verify;
  const uint64_t count = transfers_in_round(index);
  uint64_t left = count;
  double time_us = 0;
  if (verify && index == 0 && left > 1) {
    time_us += verified_transfer();
    --left;
  }
  const uint64_t plain = verify ? left - 1 : left;
  if (plain > 0) time_us += section(plain);
  if (verify) time_us += verified_transfer();
  rates_.push_back(static_cast<double>(bytes_ * count) / (time_us * 1e-6) / kGb);
  if (context_.raw)
    for (RawLoop loop : {RawLoop::kBlocking, RawLoop::kSpinning}) raw_round(loop);
}

double BenchCase::section(uint64_t transfers) {
  times_us_.reserve(times_us_.size() + transfers);
  posts_us_.reserve(posts_us_.size() + transfers);
  const Json before = context_.control.request("barrier");
  const double own_before = cpu_seconds();
  double time_us = 0;
  for (uint64_t i = 0; i < transfers; ++i) time_us += transfer_once();
  const double own = cpu_seconds() - own_before;
  const Json after = context_.control.request("barrier");
  cpu_s_ += own + peers_cpu(after) - peers_cpu(before);
  check_idle(after.at("live").get<uint64_t>());
  return time_us;
}

double BenchCase::verified_transfer() {
  const uint64_t salt = make_salt(0x7463'7078, write_, bytes_, ++verified_);
  const Nanos timeout = patience(layout_.extent());
  const uint64_t arming = context_.control.send("arm", {{"salt", salt}});
  const Memory& image = context_.memory.image();
  if (write_)
    fill(image, layout_, true, salt);
  else
    poison(image, layout_, salt);
  context_.memory.put(layout_.extent());
  context_.control.await(arming, timeout);
  const double time_us = section(1);
  std::string wrong;
  if (write_) {
    wrong = context_.control.request("verify", {{"salt", salt}}, timeout)
                .at("wrong")
                .get<std::string>();
  } else {
    context_.memory.get(layout_.extent());
    if (corruption_wanted()) corrupt(image, layout_, true);
    wrong = find_error(image, layout_, true, salt);
  }
  if (!wrong.empty()) fail_verification(wrong);
  return time_us;
}

double BenchCase::transfer_once() {
  check_interrupted();
  const Nanos start = now_ns();
  const Result posted = transfer_.post(deadline_);
  const Nanos out = now_ns();
  if (!posted) fail_transfer(posted, "post");
  Result result = transfer_.wait(kTransferSlice);
  while (result.in_progress()) {
    context_.control.check_peer();
    if (now_ns() - start > limit_)
      throw Failure(kExitFailed, "the engine did not end a transfer at its deadline");
    result = transfer_.wait(kTransferSlice);
  }
  const Nanos end = now_ns();
  if (!result) fail_transfer(result, "wait");
  times_us_.push_back(to_us(end - start));
  posts_us_.push_back(to_us(out - start));
  return times_us_.back();
}

void BenchCase::fail_transfer(const Result& result, const char* doing) {
  const std::string reason = transfer_.error();
  std::string text =
      strf("{} of {} failed in {}: {}: {}", write_ ? "write" : "read", format_size(bytes_), doing,
           result.name(), reason.empty() ? result.text() : reason);
  const Json receipt = Json::parse(transfer_.receipt_json(), nullptr, false);
  if (receipt.is_object()) text += "\nreceipt: " + receipt.dump();
  context_.control.check_peer();  // a dead server is the better explanation
  throw Failure(kExitFailed, text);
}

void BenchCase::fail_verification(const std::string& what) {
  throw Failure(kExitVerification,
                strf("{} of {}: data verification failed in verified transfer {}: {}",
                     write_ ? "write" : "read", format_size(bytes_), verified_, what));
}

// The timed part has ended, so nothing of it may still be under way on either side. What the other
// side has yet to hear about (the last confirmation) may take a moment.
void BenchCase::check_idle(uint64_t server_live) const {
  const Nanos deadline = now_ns() + kSecond;
  uint64_t own = live_transfers(context_.engine);
  while (own + server_live > 0) {
    if (now_ns() > deadline)
      throw Failure(kExitFailed,
                    strf("after the timed part {} transfers and chunks are live here and {} "
                         "at the server",
                         own, server_live));
    server_live = context_.control.request("barrier").at("live").get<uint64_t>();
    own = live_transfers(context_.engine);
  }
}

double BenchCase::run_raw(RawLoop loop, uint64_t transfers, std::vector<Nanos>* times) {
  RawTask task;
  task.write = write_;
  task.loop = loop;
  task.bytes = bytes_;
  task.transfers = transfers;
  task.timeout = kLeastDeadline + static_cast<Nanos>(bytes_) * kNanosPerByte;
  const uint64_t id = context_.control.send("raw_run", {{"write", write_},
                                                        {"spinning", loop == RawLoop::kSpinning},
                                                        {"bytes", bytes_},
                                                        {"transfers", transfers},
                                                        {"timeout_ns", task.timeout}});
  const double before = cpu_seconds();
  context_.raw->run(task, times);
  const double own = cpu_seconds() - before;
  return own + peers_cpu(context_.control.await(id));
}

// One process is counted once.
double BenchCase::peers_cpu(const Json& answer) const {
  return context_.options.one_process ? 0 : answer.at("cpu_s").get<double>();
}

void BenchCase::warm_up_raw(RawLoop loop) {
  show(strf("warming up raw {}", raw_loop_name(loop)));
  auto& times_us = raw_[static_cast<int>(loop)].times_us;
  for (uint64_t transfers = 1; transfers <= 4096; transfers *= 4) {
    std::vector<Nanos> times;
    run_raw(loop, transfers, &times);
    times_us.clear();
    for (Nanos time : times) times_us.push_back(to_us(time));
    if (sum(times_us) >= to_us(kRawWarmUp)) return;
  }
}

void BenchCase::raw_round(RawLoop loop) {
  check_interrupted();
  auto& side = raw_[static_cast<int>(loop)];
  std::vector<Nanos> times;
  side.cpu_s += run_raw(loop, side.per_round, &times);
  double total_us = 0;
  for (Nanos time : times) {
    side.times_us.push_back(to_us(time));
    total_us += to_us(time);
  }
  side.rates.push_back(static_cast<double>(bytes_ * side.per_round) / (total_us * 1e-6) / kGb);
}

void BenchCase::finish_raw(Record* record) {
  if (!context_.raw) return;
  for (int i = 0; i < 2; ++i) {
    RawSide& side = raw_[i];
    RawResult result;
    result.gb_per_s = spread(side.rates).median;
    result.latency_us = percentile(&side.times_us, 0.5);
    result.iters = side.times_us.size();
    result.cpu_s_per_gb = side.cpu_s / (static_cast<double>(bytes_ * result.iters) / kGb);
    record->raw[i] = result;
  }
  record->better_raw =
      record->raw[1]->gb_per_s > record->raw[0]->gb_per_s ? RawLoop::kSpinning : RawLoop::kBlocking;
  const auto& best = raw_[static_cast<int>(record->better_raw)].rates;
  std::vector<double> ratios;
  for (size_t i = 0; i < rates_.size(); ++i) ratios.push_back(rates_[i] / best[i]);
  record->ratio_to_raw = percentile(&ratios, 0.5);
}

void BenchCase::finish(Record* record) {
  record->iters = times_us_.size();
  record->rounds = rounds_;
  record->verified_iters = verified_;
  record->verified = context_.options.verify;
  record->gb_per_s = spread(rates_);
  record->mean_us = sum(times_us_) / static_cast<double>(times_us_.size());
  record->cpu_s_per_gb = cpu_s_ / (static_cast<double>(bytes_ * record->iters) / kGb);
  record->latency_p50_us = percentile(&times_us_, 0.5);
  record->latency_p99_us = percentile(&times_us_, 0.99);
  record->post_p50_us = percentile(&posts_us_, 0.5);
  record->post_max_us = posts_us_.back();  // sorted now
  record->receipt = transfer_.receipt();
  record->path = record->receipt.path;
  record->receipt_json = Json::parse(transfer_.receipt_json(), nullptr, false);
  if (!record->receipt_json.is_object()) record->receipt_json = nullptr;
  if (record->receipt.bytes != bytes_)
    throw Failure(kExitFailed,
                  strf("the receipt says {} bytes, not {}", record->receipt.bytes, bytes_));
  finish_raw(record);
}

}  // namespace tcpx::tool
