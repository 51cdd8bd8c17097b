#include "comm.h"

#include <sys/socket.h>

#include "counters.h"
#include "log.h"
#include "misuse.h"

namespace tcpx_emu {

namespace {

constexpr Nanos kLateTest = 100 * kMicro;  // what the engine promises its requests

}  // namespace

Comm::Comm(Kind k, WorldPtr world, int dev, std::unique_ptr<Setup> setup)
    : kind(k), device(dev), world_(std::move(world)), setup_(std::move(setup)) {
  for (Request& request : requests_) request.comm = this;
  add(counters(device).comms_open);
}

Comm::~Comm() {
  subtract(counters(device).comms_open);
  subtract(counters(device).requests_live, posted_ - freed_);
}

Result Comm::ready(bool* yes) {
  *yes = false;
  if (failed()) return error_;
  if (setup_) {
    Setup::State state = setup_->state();
    if (state == Setup::State::kRunning) return nccl::kSuccess;
    if (state == Setup::State::kFailed) {
      fail(nccl::kInternalError, setup_->error());
      return error_;
    }
    connected(setup_->take());
    setup_.reset();
  }
  *yes = true;
  return nccl::kSuccess;
}

Request* Comm::post(Result* rc) {
  *rc = error_;
  if (failed()) return nullptr;
  tcpx_emu_counters& c = counters(device);
  if (posted_ - freed_ == nccl::kMaxRequests) {
    add(c.refusals);
    *rc = refuse(world(), device, rule::kSixteen, "unable to allocate requests");
    return nullptr;
  }
  if (unfinished() == 0) test_ended();
  Request& request = slot(posted_);
  request = Request{};
  request.comm = this;
  request.ordinal = posted_++;
  add(c.requests_live);
  raise_to(c.requests_live_max, counter(c.requests_live).load(std::memory_order_relaxed));

  FaultPlan& faults = world_->faults;
  if (faults.at(Fault::kDeviceLost, device)) world_->lost[device] = true;
  if (faults.at(Fault::kDataHang, device)) request.hang = true;
  if (faults.at(Fault::kCtrlClosed, device)) ::shutdown(control_.get(), SHUT_RDWR);
  return &request;
}

void Comm::free_oldest() {
  ++freed_;
  subtract(counters(device).requests_live);
}

void Comm::fail(Result rc, const std::string& why) {
  if (failed()) return;
  EMU_WARN("%s", why.c_str());
  fail(rc);
}

void Comm::fail(Result rc) {
  if (!failed()) error_ = rc;
}

void Comm::note_test() {
  tcpx_emu_counters& c = counters(device);
  Nanos gap = now_ns() - last_test_;
  raise_to(c.max_test_gap_ns, static_cast<uint64_t>(gap));
  if (gap <= kLateTest) return;
  add(c.late_tests);
  if (settings().test_cpu && thread_cpu_ns() - last_test_cpu_ > kLateTest) add(c.late_tests_own);
}

void Comm::test_ended() {
  last_test_ = now_ns();
  if (settings().test_cpu) last_test_cpu_ = thread_cpu_ns();
}

Result Comm::test(Request* request, int* done, int* sizes) {
  if (unfinished() == 0 || request != &slot(reported_))
    return refuse(world(), device, rule::kTestOldest, "test called with invalid request");
  note_test();
  if (!complete(*request)) progress();
  test_ended();
  if (!complete(*request)) return error_;

  if (request->completed == 0) request->completed = last_test_;
  if (const auto* late = world_->faults.always(Fault::kDoneDelayed, device))
    if (now_ns() < request->completed + late->arg * kMicro) return nccl::kSuccess;
  ++reported_;
  reported(*request, sizes);
  *done = 1;
  return nccl::kSuccess;
}

Result InCall::refuse() const {
  return tcpx_emu::refuse(comm_.world(), comm_.device, rule::kOneThread, "comm is in use");
}

}  // namespace tcpx_emu
