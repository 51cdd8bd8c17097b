#include "path/net/net_carrier.h"

#include <sched.h>
#include <sys/prctl.h>
#include <time.h>

#include <algorithm>
#include <cstring>

#include "base/caught.h"
#include "base/ids.h"
#include "base/text.h"
#include "path/net/connect_reaper.h"
#include "path/net/handle_check.h"
#include "path/net/plugin_log.h"
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

constexpr Nanos kPeersWord = kSecond;

void nap(Nanos length) {
  // The default slack of 50 us would make a pause of 20 us one of 70.
  static thread_local bool precise = prctl(PR_SET_TIMERSLACK, 1000ul) == 0;
  (void)precise;
  timespec time{0, static_cast<long>(length)};
  nanosleep(&time, nullptr);
}

Status setup_error(std::string text) {
  return lane_error(TCPX_PATH_UNAVAILABLE, std::move(text));
}

std::string with_warning(const std::string& text, Nanos since) {
  std::string warning = last_plugin_warning(since);
  return warning.empty() ? text : text + "; the plugin's last warning here: " + warning;
}

CommSettings comm_settings(const NetCarrierSettings& settings, uint32_t window) {
  return {settings.plugin, settings.mover, settings.memory_type,
          std::min<uint32_t>(window, nccl::kMaxRequests)};
}

}  // namespace

NetCarrier::NetCarrier(const NetCarrierSettings& settings)
    : settings_(settings),
      calls_(settings.plugin->calls()),
      send_(comm_settings(settings, settings.send_window)),
      receive_(comm_settings(settings, settings.receive_window)) {}

// Of a lane that has never joined its loop, or has left it.
NetCarrier::~NetCarrier() {
  end();
}

Status NetCarrier::call_failed(const char* call, nccl::Result result) const {
  return setup_error(
      with_warning(strf("the net plugin's {} failed: {}", call, result_name(result)), started_));
}

// The peer may have broken it off by dying.
Status NetCarrier::call_to_peer_failed(const char* call, nccl::Result result) {
  meeting_broke_ = true;
  return call_failed(call, result);
}

std::string NetCarrier::interface() const {
  return settings_.plugin->devices()[static_cast<size_t>(settings_.device)].name;
}

// ---- set-up --------------------------------------------------------------------------------

void NetCarrier::start(CarrierHost& host) {
  assert_inside();
  host_ = &host;
  started_ = send_moved_ = receive_moved_ = now_ns();
  // This thread is the lane's own. The engine has tried these CPUs; should they be gone by now, the
  // lane runs where it is, and its counters say where that is.
  if (settings_.cpus.any()) (void)topo::bind_this_thread(settings_.cpus).ok();
  if (Status status = listen(); !status) fail_setup({status}, true);
}

Status NetCarrier::listen() {
  if (Status status = random_bytes(offer_.nonce); !status) return status;
  nccl::Result result = calls_.listen(settings_.device, offer_.handle.data(), &listen_comm_);
  if (result != nccl::kSuccess) return call_failed("listen", result);
  offer_.step = wire::NetStep::kOffer;
  offer_.version = static_cast<uint8_t>(calls_.version());
  offer_.request_bytes = settings_.request_bytes;
  offer_.plugin = settings_.plugin->name();
  std::array<uint8_t, wire::kNetSetupBytes> bytes;
  wire::encode(offer_, bytes);
  host_->send_message(bytes);
  return {};
}

void NetCarrier::say(wire::NetStep step) {
  wire::NetSetup message;
  message.step = step;
  std::array<uint8_t, wire::kNetSetupBytes> bytes;
  wire::encode(message, bytes);
  host_->send_message(bytes);
}

Status NetCarrier::on_message(std::span<const uint8_t> bytes) {
  assert_inside();
  wire::NetSetup message;
  if (Status status = wire::decode(bytes, &message); !status) return status;
  if (state_ == State::kFailed || state_ == State::kClosed) return {};  // they crossed
  if (message.step == wire::NetStep::kFailed) {
    Status why = setup_error(with_warning("the peer: " + escaped(message.text), started_));
    if (state_ == State::kReady) return why;  // too late to go on without
    fail_setup({why}, false);
    return {};
  }
  if (state_ == State::kReady)
    return lane_error(TCPX_PROTOCOL_ERROR, "net set-up goes on after its end");
  switch (message.step) {
    case wire::NetStep::kOffer:
      if (Status status = offer_received(message); !status) fail_setup({status}, true);
      return {};
    case wire::NetStep::kReady: peer_ready_ = true; return {};
    case wire::NetStep::kBound:
      peer_bound_ = true;
      settle_if_bound();
      return {};
    default: return {};
  }
}

Status NetCarrier::offer_received(const wire::NetSetup& offer) {
  if (peers_offer_) return setup_error("the peer made two offers for one lane");
  if (offer.plugin != settings_.plugin->name())
    return setup_error(strf("the plugins differ: {} here, {} at the peer", settings_.plugin->name(),
                            escaped(offer.plugin)));
  if (Status status = check_handle(offer.plugin, offer.handle); !status) return status;
  peers_offer_ = offer;
  settings_.request_bytes = std::min(settings_.request_bytes, offer.request_bytes);
  return {};
}

Status NetCarrier::try_connect() {
  if (connecting_ == nullptr) connecting_ = std::make_unique<wire::NetHandle>(peers_offer_->handle);
  void* comm = nullptr;
  nccl::Result result = calls_.connect(settings_.device, connecting_->data(), &comm);
  if (comm != nullptr || result != nccl::kSuccess) connecting_.reset();
  if (result != nccl::kSuccess) return call_to_peer_failed("connect", result);
  if (comm != nullptr) send_.open(comm, settings_.request_bytes);
  return {};
}

// With the receive for the proof posted, the peer may send.
Status NetCarrier::try_accept() {
  void* comm = nullptr;
  nccl::DeviceHandle* device = &device_handle_;
  nccl::Result result = calls_.accept(listen_comm_, &comm, &device);
  if (result != nccl::kSuccess) return call_to_peer_failed("accept", result);
  if (comm == nullptr) return {};
  calls_.close_listen(listen_comm_);
  listen_comm_ = nullptr;
  if (Status status = receive_.open(comm, *device, settings_.request_bytes); !status) return status;
  if (Status status = take_proof_slot(SlotUse::kReceive, &proof_in_); !status) return status;
  proof_chunk_.header.payload_bytes = proof_in_.proof.size();
  proof_chunk_.slot = proof_in_.slot;
  proof_chunk_.landing = {{proof_in_.slot, proof_in_.proof.size()}};
  proof_chunk_.regions.assign(settings_.mover->slot_extent(proof_in_.slot));
  for (auto step : {RxChunk::State::kHead, RxChunk::State::kLanding}) proof_chunk_.state.step(step);
  receive_.add(&proof_chunk_);
  if (Status status = receive_.poll(*this); !status) return status;
  say(wire::NetStep::kReady);
  return {};
}

Status NetCarrier::take_proof_slot(SlotUse use, ProofMove* move) {
  move->slot = settings_.mover->take_slot(use, move->proof.size(), {});
  return move->slot != nullptr ? Status() : setup_error("no slot for the proof of a comm");
}

void NetCarrier::give_proof_slot(SlotUse use, ProofMove* move) {
  if (move->slot == nullptr || move->ticket != 0) return;
  settings_.mover->give_slot(use, std::exchange(move->slot, nullptr));
}

Status NetCarrier::look(ProofMove* move, bool* over) {
  MoveEnd end;
  MoveState state = settings_.mover->look(move->ticket, &end);
  *over = state != MoveState::kRunning;
  if (*over) move->ticket = 0;
  return state != MoveState::kFailed ? Status()
                                     : setup_error("the proof of a comm was not moved: " + end.why);
}

Status NetCarrier::show_proof() {
  ProofMove& out = proof_out_;
  if (out.slot == nullptr) {
    if (!wire::net_proof(settings_.session_key, settings_.lane, *peers_offer_, &out.proof))
      return setup_error("cannot compute the proof for the peer's comm");
    if (Status status = take_proof_slot(SlotUse::kSend, &out); !status) return status;
    out.ticket = settings_.mover->begin_out({&out.memory, 1}, {}, out.slot);
  }
  bool over = false;
  if (Status status = look(&out, &over); !status || !over) return status;
  proof_frame_.header.payload_bytes = out.proof.size();
  proof_frame_.slot = out.slot;
  proof_frame_.payload = {{out.slot, out.proof.size()}};
  proof_frame_.regions.assign(settings_.mover->slot_extent(out.slot));
  if (!send_.reaches(proof_frame_)) return setup_error(send_.refusal());
  send_.add(&proof_frame_);
  proof_sent_ = true;
  return {};
}

Status NetCarrier::check_proof() {
  ProofMove& in = proof_in_;
  if (in.ticket == 0) in.ticket = settings_.mover->begin_in(in.slot, {&in.memory, 1}, {});
  bool over = false;
  if (Status status = look(&in, &over); !status || !over) return status;
  give_proof_slot(SlotUse::kReceive, &in);
  wire::Digest expected;
  if (!wire::net_proof(settings_.session_key, settings_.lane, offer_, &expected) ||
      !wire::equal_constant_time(expected, in.proof))
    return setup_error("whoever connected to the plugin's socket does not know the session's key");
  say(wire::NetStep::kBound);
  bound_sent_ = true;
  settle_if_bound();
  return {};
}

// At once, not with the next poll: heads of payload frames may follow the peer's last message.
void NetCarrier::settle_if_bound() {
  if (!bound_sent_ || !peer_bound_ || state_ != State::kSettingUp) return;
  state_ = State::kReady;
  host_->carrier_settled({});
}

Status NetCarrier::advance_setup() {
  if (!peers_offer_) return {};
  if (!send_.is_open())
    if (Status status = try_connect(); !status) return status;
  if (!receive_.is_open())
    if (Status status = try_accept(); !status) return status;
  if (send_.is_open() && peer_ready_ && !proof_sent_)
    if (Status status = show_proof(); !status) return status;
  if (send_.is_open())
    if (Status status = send_.poll([this](TxFrame* frame) { frame_sent(frame); }); !status)
      return status;
  if (receive_.is_open() && !proof_arrived_)
    if (Status status = receive_.poll(*this); !status) return status;
  if (proof_arrived_ && !bound_sent_) return check_proof();
  return {};
}

void NetCarrier::fail_setup(const PathRefusal& refusal, bool tell) {
  state_ = State::kFailed;
  if (tell) {
    wire::NetSetup message;
    message.step = wire::NetStep::kFailed;
    message.status = static_cast<uint16_t>(refusal.status.code());
    message.text = refusal.status.text();
    std::array<uint8_t, wire::kNetSetupBytes> bytes;
    wire::encode(message, bytes);
    host_->send_message(bytes);
  }
  close_comms();
  host_->carrier_settled(refusal);
}

// ---- data ----------------------------------------------------------------------------------

uint32_t NetCarrier::credit() const {
  assert_inside();
  uint32_t most = settings_.send_window + kFramesAhead;
  uint32_t queued = static_cast<uint32_t>(send_.queued_frames());
  return state_ == State::kReady && queued < most ? most - queued : 0;
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
  if (chunk != &proof_chunk_) return host_->payload_arrived(chunk);
  if (chunk->refusal != TCPX_OK) return setup_error("the peer's proof could not be unpacked");
  proof_arrived_ = true;
  return {};
}

tcpx_code NetCarrier::move_failed(RxChunk* chunk, const std::string& why) {
  return chunk == &proof_chunk_ ? TCPX_COPY_FAILED : host_->move_failed(chunk, why);
}

void NetCarrier::frame_sent(TxFrame* frame) {
  if (frame == &proof_frame_)
    give_proof_slot(SlotUse::kSend, &proof_out_);
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
  if (state_ == State::kReady) {
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
  if (state_ != State::kSettingUp) return {};
  if (setup_failure_.ok()) {
    setup_failure_ = advance_setup();
    if (setup_failure_.ok() && now_ns() > settings_.setup_deadline)
      setup_failure_ =
          setup_error(strf("the net plugin's comms were not set up in time: {}, {}, {}",
                           send_.is_open() ? "connected" : "connect pending",
                           receive_.is_open() ? "accepted" : "accept pending",
                           proof_arrived_ ? "proof seen" : "no proof seen"));
    failed_at_ = now_ns();
  }
  if (!setup_failure_.ok()) {
    // With our proof sent and our word that we are bound the peer may be up, and send beside the
    // stream: then there is no way back to the stream, only the end of the lane. If it is not, it
    // says so; its word may be behind what broke.
    if (!proof_sent_ || !bound_sent_) {
      fail_setup({setup_failure_, meeting_broke_ || send_.broke() || receive_.broke()}, true);
      return {};
    }
    if (now_ns() - failed_at_ > kPeersWord) return setup_failure_;
  }
  if (state_ == State::kSettingUp) nap(kSetupPause);
  *left = Work::kMore;
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
    if (chunk != &proof_chunk_) f(chunk);
  });
}

void NetCarrier::forget_region(uint64_t id) {
  assert_inside();
  send_.forget_region(id);
  receive_.forget_region(id);
}

std::string NetCarrier::stalled(Nanos now, Nanos patience) const {
  assert_inside();
  if (state_ != State::kReady) return {};
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

void NetCarrier::close_comms() {
  send_.close([this](TxFrame* frame) { quietly([&] { frame_sent(frame); }); });
  (void)receive_.close();
  if (connecting_ != nullptr)
    reap_connect(settings_.plugin, settings_.device, std::move(connecting_));
  if (listen_comm_ != nullptr) calls_.close_listen(std::exchange(listen_comm_, nullptr));
}

void NetCarrier::close() {
  assert_inside();
  end();
}

void NetCarrier::end() {
  if (state_ == State::kClosed) return;
  state_ = State::kClosed;
  if (host_ != nullptr) close_comms();
}

void NetCarrier::look_at_moves() {
  assert_inside();
  (void)receive_.close();
  for (ProofMove* move : {&proof_out_, &proof_in_}) {
    for (bool over = move->ticket == 0; !over;) {
      (void)look(move, &over).ok();
      if (!settings_.mover->by_hand()) break;
    }
  }
}

}  // namespace tcpx::net
