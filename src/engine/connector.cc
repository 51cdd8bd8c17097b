#include "engine/connector.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/text.h"
#include "session/sockets.h"

namespace tcpx {

namespace {
constexpr Nanos kRetryEvery = 100 * kMilli;  // nobody listens yet
// Who is turned away by a crowd comes again at once: places are free again within milliseconds.
constexpr Nanos kShortestPause = 10 * kMilli;
constexpr Nanos kLongestPause = 50 * kMilli;
constexpr Nanos kShortestTry = kSecond;

// Trying again cannot help against these.
bool is_final(tcpx_code code) {
  return code == TCPX_AUTH_FAILED || code == TCPX_VERSION_MISMATCH || code == TCPX_LIMIT ||
         code == TCPX_PROTOCOL_ERROR || code == TCPX_PATH_UNAVAILABLE || code == TCPX_NO_MEMORY ||
         code == TCPX_INTERNAL;
}
}  // namespace

std::vector<Rail> pair_rails(const std::vector<LocalAddress>& local,
                             const std::vector<wire::Address>& remote) {
  std::vector<Rail> rails;
  auto taken = [&](const std::string& interface) {
    return std::any_of(rails.begin(), rails.end(),
                       [&](const Rail& rail) { return rail.local->interface == interface; });
  };
  for (const LocalAddress& from : local) {
    auto to = std::find_if(remote.begin(), remote.end(), [&](const wire::Address& address) {
      return is_v4(from.address) == is_v4(address) && same_network(from.address, address);
    });
    if (to != remote.end() && !taken(from.interface)) rails.push_back({&from, *to});
  }
  if (!rails.empty()) return rails;
  for (const wire::Address& to : remote) rails.push_back({nullptr, to});
  return rails;
}

Connector::Connector(const ConnectorHost& host, std::shared_ptr<Peer> peer, ConnectTarget target)
    : host_(host),
      peer_(std::move(peer)),
      target_(std::move(target)),
      deadline_(deadline_after(now_ns(), options().connect_timeout)) {
  rails_ = pair_rails(host_.addresses.used(), target_.addresses);
}

void Connector::start() noexcept {
  or_give_up([&] {
    if (target_.lookup != nullptr) return look_up(now_ns());
    next_rail_ = 0;
    retry_at_ = kNever;
    verdict_ = {};
    try_next();
  });
}

// What f throws ends the attempt, and the peer with it.
template <class F>
void Connector::or_give_up(F&& f) noexcept {
  try {
    f();
  } catch (...) {
    finished_ = true;
    peer_->ending().fail(caught(TCPX_BLAST_PEER).code());
  }
}

void Connector::tick(Nanos now) noexcept {
  or_give_up([&] { try_again(now); });
}

void Connector::try_again(Nanos now) {
  if (finished_) return;
  if (peer_->over()) finished_ = true;
  if (finished_) return;
  if (target_.lookup != nullptr) return look_up(now);
  if (now >= retry_at_) return start();
  std::vector<LaterJoin> due;
  std::erase_if(later_joins_, [&](const LaterJoin& join) {
    if (now >= join.at) due.push_back(join);
    return now >= join.at;
  });
  for (const LaterJoin& next : due) join(next.index);
  if (!due.empty()) settle();
}

// The service is woken when the lookup ends.
void Connector::look_up(Nanos now) {
  Status status;
  if (!target_.lookup->ended(&status, &target_.addresses)) {
    if (now < deadline_) return;
    return give_up(peer_error(TCPX_CONNECT_FAILED,
                              strf("host \"{}\" was not resolved within connect_timeout: the "
                                   "system's resolver does not answer",
                                   escaped(target_.lookup->host()))));
  }
  target_.lookup.reset();
  if (!status) return give_up(peer_error(status.code(), status.text()));
  rails_ = pair_rails(host_.addresses.used(), target_.addresses);
  start();
}

Nanos Connector::wants_tick() const {
  Nanos first = target_.lookup == nullptr ? retry_at_ : deadline_;
  for (const LaterJoin& join : later_joins_) first = std::min(first, join.at);
  return finished_ ? kNever : first;
}

// *at is set if there is time for another try after the pause.
bool Connector::later(Nanos* at, Nanos pause) const {
  Nanos when = now_ns() + pause;
  if (when >= deadline_) return false;
  *at = when;
  return true;
}

wire::Hello Connector::hello(const Rail& rail) const {
  wire::Hello out;
  out.authenticated = options().auth;
  out.uid = host_.shared.uid;
  out.target_uid = target_.uid;
  out.lanes = host_.shared.lanes_per_peer;
  out.paths = host_.paths.offer(rail.remote);
  out.chunk_bytes = options().chunk_bytes;
  out.window = options().window;
  out.epoch = host_.shared.epoch.load();
  out.key_id = target_.keys[key_].id;
  out.name = options().name;
  return out;
}

Status Connector::dial(const Rail& rail, const wire::Hello& hello, const auth::Key& key,
                       Service::OnEnd on_end) {
  Fd fd;
  const wire::Address* from = rail.local == nullptr ? nullptr : &rail.local->address;
  if (Status status = start_connect(rail.remote, from, &fd); !status) return status;
  Nanos share = (deadline_ - now_ns()) / static_cast<Nanos>(std::max<size_t>(1, rails_.size()));
  Nanos deadline = std::min(deadline_, now_ns() + std::max(kShortestTry, share));
  host_.service.add_client(
      std::make_unique<Handshake>(std::move(fd), to_string(rail.remote), hello, key, deadline),
      std::move(on_end));
  return {};
}

void Connector::try_next() {
  while (next_rail_ < rails_.size()) {
    const Rail& rail = rails_[next_rail_++];
    Status status = dial(rail, hello(rail), target_.keys[key_].key,
                         [self = shared_from_this()](Handshake& handshake, const Status& ended) {
                           self->or_give_up([&] { self->first_ended(handshake, ended); });
                         });
    if (status) return;
    last_error_ = status;
  }
  if (!verdict_ && !turned_away_) {
    // While keys are being changed a peer may have one of them only.
    if (verdict_.code() != TCPX_AUTH_FAILED || key_ + 1 == target_.keys.size())
      return give_up(verdict_);
    ++key_;
    return start();
  }
  bool crowded = std::exchange(turned_away_, false);
  if (crowded) pause_ = std::clamp(pause_ * 2, kShortestPause, kLongestPause);
  if ((crowded || target_.retry) && later(&retry_at_, crowded ? pause_ : kRetryEvery)) return;
  give_up(
      peer_error(TCPX_CONNECT_FAILED, strf("cannot reach the peer at any of its {} addresses: {}",
                                           rails_.size(), last_error_.text())));
}

void Connector::first_ended(Handshake& handshake, const Status& status) {
  if (peer_->over()) {
    finished_ = true;
    return;
  }
  if (!status) {
    last_error_ = status;
    turned_away_ |= handshake.turned_away();
    if (is_final(status.code())) {
      if (handshake.server_proved()) return give_up(status);
      // Anybody may be at this address and say so; the peer itself may be at another.
      verdict_ = status;
    }
    return try_next();
  }
  const wire::Welcome& welcome = handshake.welcome();
  wire::Address first = rails_[next_rail_ - 1].remote;
  if ((welcome.paths & host_.paths.offer(first)) == 0)
    return give_up(
        peer_error(TCPX_PATH_UNAVAILABLE,
                   strf("there is no path that both this engine and the peer have and allow: {}",
                        host_.shared.path_wish.text())));
  session_ = welcome.session;
  peer_->established({handshake.challenge().uid, welcome.session, options().chunk_bytes,
                      std::min(welcome.window, options().window), handshake.session_key()},
                     welcome.name);
  peer_->epochs().start(welcome.epoch, handshake.hello().epoch);
  if (Status adopted = host_.paths.adopt_lane(*peer_, 0, handshake); !adopted)
    return give_up(adopted);
  join_lanes(welcome, first);
}

void Connector::join_lanes(const wire::Welcome& welcome, const wire::Address& first) {
  std::vector<wire::Address> addresses = welcome.addresses;
  if (addresses.empty()) addresses.push_back(first);
  rails_ = pair_rails(host_.addresses.used(), addresses);
  // Lane 0 is on the rail we came by; the others go on from there.
  auto here = std::find_if(rails_.begin(), rails_.end(),
                           [&](const Rail& rail) { return rail.remote == first; });
  first_rail_ = here == rails_.end() ? 0 : static_cast<size_t>(here - rails_.begin());
  pause_ = 0;
  const uint32_t lanes = std::min(host_.shared.lanes_per_peer, welcome.lanes);
  joining_ = lanes - 1;
  for (uint32_t index = 1; index < lanes; ++index) join(index);
  settle();
}

wire::Hello Connector::joining_hello(uint32_t index, const Rail& rail) const {
  wire::Hello out = hello(rail);
  out.kind = wire::HelloKind::kJoinLane;
  out.key_id = 0;
  out.session = session_;
  out.target_uid = peer_->identity().uid;
  out.lanes = 1;
  out.epoch = 0;
  out.chunk_bytes = 0;
  out.lane = index;
  return out;
}

void Connector::join(uint32_t index) {
  const Rail& rail = rails_[(first_rail_ + index) % rails_.size()];
  Status status =
      dial(rail, joining_hello(index, rail), peer_->identity().session_key,
           [self = shared_from_this(), index](Handshake& handshake, const Status& ended) {
             self->or_give_up([&] { self->join_ended(index, handshake, ended); });
           });
  if (status) return;
  --joining_;
  last_error_ = status;
}

void Connector::join_ended(uint32_t index, Handshake& handshake, const Status& status) {
  Status result = status;
  if (result) result = host_.paths.adopt_lane(*peer_, index, handshake);
  if (!result && handshake.turned_away() && !peer_->over()) {
    pause_ = std::clamp(pause_ * 2, kShortestPause, kLongestPause);
    LaterJoin again{index, 0};
    if (later(&again.at, pause_)) {
      later_joins_.push_back(again);
      return;
    }
  }
  --joining_;
  if (!result) last_error_ = result;
  settle();
}

void Connector::settle() {
  if (joining_ > 0 || finished_) return;
  finished_ = true;
  auto on_up = [paths = &host_.paths, weak = std::weak_ptr<Peer>(peer_)] {
    if (std::shared_ptr<Peer> peer = weak.lock()) paths->connected(*peer);
  };
  peer_->connected(on_up, last_error_.ok() ? "" : last_error_.text());
}

void Connector::give_up(const Status& status) {
  finished_ = true;
  peer_->ending().begin(status);
}

}  // namespace tcpx
