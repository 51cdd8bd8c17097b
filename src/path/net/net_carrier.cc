#include "path/net/net_carrier.h"

#include <sched.h>
#include <sys/prctl.h>
#include <time.h>

#include <algorithm>
#include <utility>

#include "base/caught.h"
#include "base/text.h"
#include "topo/thread_cpus.h"

namespace tcpx::net {
namespace {

// Frames handed over beyond what the window takes: the next one is there when a request ends.
constexpr uint32_t kFramesAhead = 2;
// All progress is inside test(), so requests under way are polled. After this long without any
// the polls are spaced out: nothing is unpolled for more than 100 us, and an idle wait is cheap.
constexpr Nanos kPollEagerly = 200 * kMicro;
constexpr Nanos kPollPause = 20 * kMicro;
// A turn ends with a finished request, so that chunks are answered and the heads of the next ones
// read at once (a receiver that stayed while anything arrived let the sender's window run dry: 0.5
// of the plain loop's rate), or after so many polls in vain: what else a turn does costs as much as
// several of them.
constexpr int kPollsInVain = 4;
constexpr Nanos kSetupPause = 500 * kMicro;

void nap(Nanos length) {
  // The default slack of 50 us would make a pause of 20 us one of 70.
  static thread_local bool precise = prctl(PR_SET_TIMERSLACK, 1000ul) == 0;
  (void)precise;
  timespec time{0, static_cast<long>(length)};
  nanosleep(&time, nullptr);
}

CommSettings comm_settings(const NetCarrierSettings& settings, uint32_t window) {
  return {settings.plugin, settings.mover, settings.memory_type,
          std::min<uint32_t>(window, nccl::kMaxRequests)};
}

}  // namespace

NetCarrier::NetCarrier(const NetCarrierSettings& settings)
    : settings_(settings),
      send_(comm_settings(settings, settings.send_window)),
      receive_(comm_settings(settings, settings.receive_window)),
      setup_(settings_, send_, receive_) {}

// Of a lane that has never joined its loop, or has left it.
NetCarrier::~NetCarrier() {
  end();
}

std::string NetCarrier::interface() const {
  return settings_.plugin->devices()[static_cast<size_t>(settings_.device)].name;
}

// ---- set-up --------------------------------------------------------------------------------

void NetCarrier::start(CarrierHost& host) {
  assert_inside();
  host_ = &host;
  send_moved_ = receive_moved_ = now_ns();
  // This thread is the lane's own. The engine has tried these CPUs; should they be gone by now, the
  // lane runs where it is, and its counters say where that is.
  if (settings_.cpus.any()) (void)topo::bind_this_thread(settings_.cpus).ok();
  setup_.start(host);
}

Status NetCarrier::on_message(std::span<const uint8_t> bytes) {
  assert_inside();
  return closed_ ? Status() : setup_.on_message(bytes);
}

Status NetCarrier::poll_setup(Work* left) {
  if (Status status = setup_.poll(); !status) return status;
  if (setup_.goes_on()) nap(kSetupPause);
  if (!setup_.has_failed()) *left = Work::kMore;
  return {};
}

// ---- data ----------------------------------------------------------------------------------

uint32_t NetCarrier::credit() const {
  assert_inside();
  uint32_t most = settings_.send_window + kFramesAhead;
  uint32_t queued = static_cast<uint32_t>(send_.queued_frames());
  return is_ready() && queued < most ? most - queued : 0;
}

void NetCarrier::send(TxFrame* frame) {
  assert_inside();
  if (send_.idle()) send_moved_ = now_ns();
  send_.add(frame);
}

void NetCarrier::receive(RxChunk* chunk) {
  assert_inside();
  if (receive_.idle()) receive_moved_ = now_ns();
  receive_.add(chunk);
}

Status NetCarrier::arrived(RxChunk* chunk) {
  return host_->payload_arrived(chunk);
}

tcpx_code NetCarrier::move_failed(RxChunk* chunk, const std::string& why) {
  return host_->move_failed(chunk, why);
}

void NetCarrier::frame_sent(TxFrame* frame) {
  if (setup_.proof().is_ours(frame))  // the peer may have it before its test here says so
    setup_.proof().sent();
  else
    host_->payload_sent(frame);
}

// A plugin has to be asked all the time. Moves elsewhere end by themselves.
Work NetCarrier::work_left() const {
  if (!send_.idle() || receive_.has_work()) return Work::kMore;
  if (receive_.moving() == 0) return Work::kNone;
  return settings_.mover->by_hand() ? Work::kMore : Work::kWaiting;
}

Status NetCarrier::poll(Work* left) {
  assert_inside();
  *left = Work::kNone;
  if (is_ready()) return poll_payload(left);
  return !closed_ && setup_.goes_on() ? poll_setup(left) : Status();
}

Status NetCarrier::poll_payload(Work* left) {
  bool finished = false;
  *left = Work::kMore;
  for (int in_vain = 0; in_vain < kPollsInVain && *left == Work::kMore && !finished;) {
    Nanos before = std::max(send_moved_, receive_moved_);
    if (Status status = move_payload(&finished); !status) return status;
    *left = work_left();
    if (std::max(send_moved_, receive_moved_) == before) ++in_vain;
  }
  if (*left == Work::kMore && !finished) pause();
  return {};
}

Status NetCarrier::move_payload(bool* finished) {
  uint64_t sent = send_.finished(), received = receive_.finished();
  uint64_t progress = receive_.progress();
  Status status = send_.poll([this](TxFrame* frame) { frame_sent(frame); });
  if (status.ok()) status = receive_.poll(*this);
  bool sending = send_.finished() != sent, receiving = receive_.finished() != received;
  *finished = sending || receiving;
  if (sending) send_moved_ = now_ns();
  if (receiving || receive_.progress() != progress) receive_moved_ = now_ns();
  return status;
}

void NetCarrier::pause() {
  if (now_ns() - std::max(send_moved_, receive_moved_) > kPollEagerly)
    nap(kPollPause);
  else
    sched_yield();  // more lanes than cores: the others have something to do
}

void NetCarrier::each_receiving(const std::function<void(RxChunk*)>& f) const {
  assert_inside();
  receive_.each([&](RxChunk* chunk) {
    if (!setup_.proof().is_peers(chunk)) f(chunk);
  });
}

void NetCarrier::forget_region(uint64_t id) {
  assert_inside();
  send_.forget_region(id);
  receive_.forget_region(id);
}

std::string NetCarrier::stalled(Nanos now, Nanos patience) const {
  assert_inside();
  if (!is_ready()) return {};
  Nanos sending = send_.idle() ? 0 : now - send_moved_;
  // While bytes are being moved the plugin may have no page left to receive into.
  Nanos receiving = receive_.idle() || receive_.moving() > 0 ? 0 : now - receive_moved_;
  if (std::max(sending, receiving) < patience) return {};
  return strf("the net plugin has made no progress for {} ms ({}); a helper of it may be dead",
              std::max(sending, receiving) / kMilli,
              receiving < patience ? "sending"
              : sending < patience ? "receiving"
                                   : "sending and receiving");
}

// ---- the end -------------------------------------------------------------------------------

void NetCarrier::close() {
  assert_inside();
  end();
}

void NetCarrier::end() {
  if (std::exchange(closed_, true)) return;
  send_.close([this](TxFrame* frame) { quietly([&] { frame_sent(frame); }); });
  (void)receive_.close();
  setup_.close();
}

void NetCarrier::look_at_moves() {
  assert_inside();
  (void)receive_.close();
  setup_.proof().look_at_moves();
}

}  // namespace tcpx::net
