// Connecting to a peer: the first socket makes the session, the others join it as lanes, spread
// over the rails (pairs of a local interface and an address of the peer). Service thread only.
#pragma once

#include <memory>
#include <vector>

#include "engine/addresses.h"
#include "engine/path_choice.h"
#include "engine/peer.h"
#include "session/keyring.h"
#include "session/lookup.h"
#include "session/service.h"

namespace tcpx {

struct ConnectTarget {
  std::vector<wire::Address> addresses;
  std::shared_ptr<Lookup> lookup;  // if not null, it finds the addresses
  wire::Uid uid{};                 // zero: whoever answers
  std::vector<ClientKey> keys;     // at least one; those after the first if that is not known there
  bool retry = false;              // the peer may not listen yet: try until connect_timeout
};

// What connecting needs of its engine.
struct ConnectorHost {
  EngineShared& shared;
  const Addresses& addresses;
  const PathChoice& paths;
  Service& service;
};

struct Rail {
  const LocalAddress* local;  // null: let the kernel choose
  wire::Address remote;
};
// Pairs in the same network, one per local interface (its first address that has a partner);
// without any, the peer's addresses alone, routed as the kernel likes. Pure.
std::vector<Rail> pair_rails(const std::vector<LocalAddress>& local,
                             const std::vector<wire::Address>& remote);

class Connector : public std::enable_shared_from_this<Connector> {
 public:
  Connector(const ConnectorHost& host, std::shared_ptr<Peer> peer, ConnectTarget target);

  void start() noexcept;
  void tick(Nanos now) noexcept;  // tries again
  Nanos wants_tick() const;       // by when
  bool finished() const { return finished_; }

 private:
  template <class F>
  void or_give_up(F&& f) noexcept;
  void look_up(Nanos now);
  void try_again(Nanos now);
  void try_next();
  void first_ended(Handshake& handshake, const Status& status);
  void join_lanes(const wire::Welcome& welcome, const wire::Address& first);
  void join(uint32_t index);
  void join_ended(uint32_t index, Handshake& handshake, const Status& status);
  bool later(Nanos* at, Nanos pause) const;
  void give_up(const Status& status);
  void settle();
  wire::Hello hello(const Rail& rail) const;
  wire::Hello joining_hello(uint32_t index, const Rail& rail) const;
  Status dial(const Rail& rail, const wire::Hello& hello, const auth::Key& key,
              Service::OnEnd on_end);

  const EngineOptions& options() const { return host_.shared.options; }

  const ConnectorHost host_;
  std::shared_ptr<Peer> peer_;
  ConnectTarget target_;
  const Nanos deadline_;
  std::vector<Rail> rails_;
  size_t next_rail_ = 0;
  size_t key_ = 0;  // of target_.keys
  Nanos retry_at_ = kNever;
  Nanos pause_ = 0;  // before the next try of one who was turned away
  Status last_error_;
  Status verdict_;  // of this round: what trying again cannot mend
  struct LaterJoin {
    uint32_t index;
    Nanos at;
  };
  std::vector<LaterJoin> later_joins_;  // turned away
  size_t first_rail_ = 0;               // of lane 0, in rails_
  uint32_t joining_ = 0;                // dialled or to be dialled again
  uint64_t session_ = 0;
  bool finished_ = false;
  bool turned_away_ = false;  // by an address of this round: it may have room in a moment
};

}  // namespace tcpx
