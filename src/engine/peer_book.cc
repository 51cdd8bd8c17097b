#include "engine/peer_book.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/ids.h"
#include "base/text.h"
#include "base/wait.h"

namespace tcpx {

namespace {

constexpr size_t kKeptEndedPeers = 256;

}  // namespace

// ---- peers -----------------------------------------------------------------------------------

std::shared_ptr<Peer> PeerBook::add(bool inbound) {
  MutexLock lock(mu_);
  forget_ended_inbound();
  auto peer = std::make_shared<Peer>(shared_, next_peer_++, inbound);
  peers_[peer->id()] = peer;
  return peer;
}

void PeerBook::take_back(const Peer& peer) {
  MutexLock lock(mu_);
  peers_.erase(peer.id());
}

Status PeerBook::find(uint64_t id, std::shared_ptr<Peer>* out) {
  MutexLock lock(mu_);
  auto found = peers_.find(id);
  if (found == peers_.end())
    return bad_call(TCPX_NOT_FOUND, strf("no peer {}; it was disconnected, or never "
                                         "connected",
                                         id));
  *out = found->second;
  return {};
}

std::vector<std::shared_ptr<Peer>> PeerBook::all() {
  std::vector<std::shared_ptr<Peer>> peers;
  MutexLock lock(mu_);
  for (auto& [id, peer] : peers_) peers.push_back(peer);
  return peers;
}

void PeerBook::all_with_lanes(std::vector<std::shared_ptr<Peer>>* out) {
  MutexLock lock(mu_);
  std::erase_if(held_, [](auto& peer) { return peer->ending().dismantled(); });
  *out = held_;
  for (auto& [id, peer] : peers_) out->push_back(peer);
}

void PeerBook::forget(const std::shared_ptr<Peer>& peer) {
  MutexLock lock(mu_);
  keep_while_held(peer);
  peers_.erase(peer->id());
  std::erase(arrivals_, peer->id());
  sessions_.erase(peer->generation());
}

// A plugin that hangs keeps its lanes until it comes back.
void PeerBook::keep_while_held(const std::shared_ptr<Peer>& peer) {
  if (!peer->ending().dismantle(0)) held_.push_back(peer);
}

// Clients come and go; what remains of those that went is kept for a while, for its status.
void PeerBook::forget_ended_inbound() {
  if (peers_.size() < kKeptEndedPeers) return;
  size_t ended = 0;
  for (auto& [id, peer] : peers_)
    if (peer->inbound && peer->ending().ended_wholly()) ++ended;
  for (auto it = peers_.begin(); it != peers_.end() && ended > kKeptEndedPeers / 2;) {
    bool gone = it->second->inbound && it->second->ending().ended_wholly();
    if (gone) {
      keep_while_held(it->second);
      sessions_.erase(it->second->generation());
      --ended;
    }
    it = gone ? peers_.erase(it) : std::next(it);
  }
  // Not everybody accepts what arrives.
  std::erase_if(arrivals_, [this](uint64_t id) TCPX_REQUIRES(mu_) { return !peers_.contains(id); });
}

// ---- sessions of clients ---------------------------------------------------------------------

Status PeerBook::open_session(const wire::Uid& client, const auth::Key& key, uint64_t* session) {
  std::array<uint8_t, 8> random;
  if (Status status = random_bytes(random); !status) return status;
  uint64_t number = 0;
  memcpy(&number, random.data(), random.size());
  if (number == 0) number = 1;
  MutexLock lock(mu_);
  if (shut_) return peer_error(TCPX_SHUTDOWN, "the engine is being destroyed");
  auto living = std::count_if(peers_.begin(), peers_.end(),
                              [](auto& entry) { return !entry.second->over(); });
  if (static_cast<size_t>(living) >= shared_.options.max_peers)
    return peer_error(TCPX_LIMIT, strf("max_peers ({}) are connected", shared_.options.max_peers));
  sessions_[number] = {client, key, {}, false};
  *session = number;
  return {};
}

void PeerBook::set_peer(uint64_t session, const std::shared_ptr<Peer>& peer) {
  MutexLock lock(mu_);
  ClientSession& its = sessions_[session];
  its.peer = peer;
  its.has_peer = true;
}

void PeerBook::welcome_over(uint64_t session) noexcept {
  MutexLock lock(mu_);
  auto found = sessions_.find(session);
  if (found != sessions_.end() && !found->second.has_peer) sessions_.erase(found);
}

PeerBook::ClientSession* PeerBook::session_of(const wire::Hello& hello) {
  auto found = sessions_.find(hello.session);
  return found == sessions_.end() || found->second.client != hello.uid ? nullptr : &found->second;
}

std::shared_ptr<Peer> PeerBook::find_joined(const wire::Hello& hello) {
  MutexLock lock(mu_);
  ClientSession* session = session_of(hello);
  std::shared_ptr<Peer> peer = session == nullptr ? nullptr : session->peer.lock();
  return peer == nullptr || peer->over() ? nullptr : peer;
}

Status PeerBook::key_of_joined(const wire::Hello& hello, auth::Key* key) {
  MutexLock lock(mu_);
  ClientSession* session = session_of(hello);
  if (session == nullptr)
    return lane_error(TCPX_NOT_FOUND, "a lane asked for a session that is not this client's");
  *key = session->key;
  return {};
}

// ---- arrivals --------------------------------------------------------------------------------

void PeerBook::arrived(const Peer& peer) {
  MutexLock lock(mu_);
  arrivals_.push_back(peer.id());
  arrived_.notify_one();
}

Status PeerBook::accept(Nanos deadline, uint64_t* peer) {
  MutexLock lock(mu_);
  wait_until(arrived_, lock, deadline,
             [&]() TCPX_REQUIRES(mu_) { return !arrivals_.empty() || shut_; });
  if (shut_) return bad_call(TCPX_SHUTDOWN, "the engine is being destroyed");
  if (arrivals_.empty()) return Status::in_progress();
  *peer = arrivals_.front();
  arrivals_.pop_front();
  return {};
}

// ---- the end of the engine -------------------------------------------------------------------

void PeerBook::shut() {
  MutexLock lock(mu_);
  shut_ = true;
  arrived_.notify_all();
}

}  // namespace tcpx
