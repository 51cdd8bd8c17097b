#include "engine/lane_pings.h"

#include <algorithm>

#include "engine/peer.h"

namespace tcpx {

namespace {

// While no slot is free the peer's pings are not read, and while what has arrived is being moved a
// plugin may get no further. This often the peer hears that we live all the same, or four times as
// often as it could give the lane up.
constexpr Nanos kSignOfLife = 250 * kMilli;

}  // namespace

// Because somebody asked for one, or because the peer has to know of our epoch. One at a time: a
// peer that does not read must not find a heap of them.
void LanePings::send() {
  const uint64_t epoch = core_.shared.epoch.load(), asked = asked_.load();
  const bool news = epoch != epoch_told_ && epoch > core_.peer.epochs().answered();
  if (unanswered_ || (!news && asked == sent_for_)) return;
  unanswered_ = true;
  sent_for_ = asked;
  epoch_told_ = epoch;
  wire::Header ping;
  ping.type = wire::FrameType::kPing;
  ping.aux = ping.transfer = epoch;
  small_.send(ping);
}

void LanePings::hear_ping(const wire::Header& ping) {
  core_.peer.epochs().hear(ping.transfer);
  wire::Header pong;
  pong.type = wire::FrameType::kPong;
  pong.aux = ping.aux;
  pong.transfer = core_.payload_received;
  small_.send(pong);
}

void LanePings::hear_pong(const wire::Header& pong) {
  peer_received_.store(pong.transfer, std::memory_order_relaxed);
  if (pong.aux == 0) return core_.lane->peer_is_full();  // answers no ping
  core_.peer.epochs().was_heard(pong.aux);
  unanswered_ = false;
}

void LanePings::keep_alive() {
  const Nanos often = std::min(kSignOfLife, core_.shared.options.lane_timeout / 4);
  const Nanos last_send = core_.lane->counters().last_send.load(std::memory_order_relaxed);
  if (now_ns() - last_send < often) return;
  wire::Header pong;
  pong.type = wire::FrameType::kPong;
  pong.transfer = core_.payload_received;
  small_.send(pong);
}

}  // namespace tcpx
