// Who is a peer of an engine, by number; which sessions of clients further lanes may join; and who
// has come and was not accepted yet. Any thread, no sockets. A peer is forgotten in all of it at
// once, so it has one lock.
#pragma once

#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "base/mutex.h"
#include "engine/peer.h"
#include "engine/shared.h"
#include "session/auth.h"
#include "wire/handshake.h"

namespace tcpx {

class PeerBook {
 public:
  explicit PeerBook(EngineShared& shared) : shared_(shared) {}

  // ---- peers ----
  std::shared_ptr<Peer> add(bool inbound);
  void take_back(const Peer& peer);  // it could not even begin
  Status find(uint64_t id, std::shared_ptr<Peer>* out);
  std::vector<std::shared_ptr<Peer>> all();
  // And those that were forgotten, but whose lanes are not gone: fences have to know of them.
  void all_with_lanes(std::vector<std::shared_ptr<Peer>>* out);
  // Of a peer that has ended. Its number names nobody from now on.
  void forget(const std::shared_ptr<Peer>& peer);

  // ---- sessions of clients ----
  // For one that has proved itself, if there is room for another peer. Lanes may join it from the
  // moment its Welcome is sent, which is before there is a peer.
  Status open_session(const wire::Uid& client, const auth::Key& key, uint64_t* session);
  void set_peer(uint64_t session, const std::shared_ptr<Peer>& peer);
  // Its handshake is over. One that came to nothing is forgotten.
  void welcome_over(uint64_t session) noexcept;
  // Of a client that wants to join. Null: it is none of its own, or has no peer, or is over.
  std::shared_ptr<Peer> find_joined(const wire::Hello& hello);
  Status key_of_joined(const wire::Hello& hello, auth::Key* key);

  // ---- arrivals ----
  void arrived(const Peer& peer);
  Status accept(Nanos deadline, uint64_t* peer);

  // ---- the end of the engine ----
  void shut();  // nobody comes any more, and who waits in accept() goes
  // All with lanes, when nobody else is left. Needs no memory, and f may enter loops.
  template <class F>
  void each_at_the_end(F&& f) noexcept TCPX_NOT_CHECKED {
    for (auto& peer : held_) f(peer);
    for (auto& [id, peer] : peers_) f(peer);
  }

 private:
  struct ClientSession {
    wire::Uid client{};
    auth::Key key;
    std::weak_ptr<Peer> peer;
    bool has_peer = false;  // or had: it may be gone
  };

  ClientSession* session_of(const wire::Hello& hello) TCPX_REQUIRES(mu_);
  void keep_while_held(const std::shared_ptr<Peer>& peer) TCPX_REQUIRES(mu_);
  void forget_ended_inbound() TCPX_REQUIRES(mu_);

  EngineShared& shared_;
  Mutex mu_;  // never held while entering a loop
  bool shut_ TCPX_GUARDED_BY(mu_) = false;
  uint64_t next_peer_ TCPX_GUARDED_BY(mu_) = 1;
  std::map<uint64_t, std::shared_ptr<Peer>> peers_ TCPX_GUARDED_BY(mu_);
  std::vector<std::shared_ptr<Peer>> held_ TCPX_GUARDED_BY(mu_);  // forgotten, with lanes
  std::map<uint64_t, ClientSession> sessions_ TCPX_GUARDED_BY(mu_);
  std::deque<uint64_t> arrivals_ TCPX_GUARDED_BY(mu_);
  std::condition_variable arrived_;
};

}  // namespace tcpx
