#include "engine/lane_life.h"

#include <utility>

#include "base/caught.h"
#include "engine/peer.h"

namespace tcpx {

namespace {

constexpr Nanos kMovePatience = 10 * kSecond;

}  // namespace

Status LaneLife::start(const LaneFactory& factory, LaneSink& sink) {
  auto status = std::make_shared<Status>();
  bool ran = in_loop([this, factory, &sink, status, keep = core_.peer.shared_from_this()] {
    if (shut_) {
      *status = lane_error(TCPX_PEER_CLOSED, "the session has ended");
      return;
    }
    try {
      core_.lane = factory(core_.loop, sink);
      interface_is_known();
      *status =
          core_.lane->start(std::shared_ptr<LoopSource>(keep, core_.lane.get()), core_.peer.id());
    } catch (...) {
      core_.lane.reset();  // with its socket: the other side must not wait for it
      *status = caught(TCPX_BLAST_LANE);
    }
    if (!status->ok()) return;
    // Only now: others wake an open lane by the place it has in its loop.
    core_.started.store(true, std::memory_order_release);
    core_.load.open.store(true, std::memory_order_release);
  });
  return ran ? *status : lane_error(TCPX_PATH_UNAVAILABLE, "the net plugin hangs in listen");
}

void LaneLife::interface_is_known() {
  rail_.store(std::hash<std::string>()(core_.lane->interface()), std::memory_order_relaxed);
}

// ---- it is asked -----------------------------------------------------------------------------

bool LaneLife::in_loop(std::function<void()> f, Nanos patience) {
  auto guarded = [this, keep = core_.peer.shared_from_this(), f = std::move(f)] {
    try {
      f();
    } catch (...) {
      if (started()) core_.lane->on_failure(caught(TCPX_BLAST_PEER));
      throw;
    }
  };
  return core_.loop.run_exclusive(guarded, patience);
}

void LaneLife::ask_if_answered(const LanesKept& kept, std::function<void()> question) {
  if (owes_answer_.exchange(true)) return;
  try {
    (void)core_.loop.ask(
        [this, kept, question = std::move(question), keep = core_.peer.shared_from_this()] {
          core_.or_close(question);
          owes_answer_.store(false);
        });
  } catch (...) {
    owes_answer_.store(false);
    throw;
  }
}

// ---- it is shut ------------------------------------------------------------------------------

// It may be asked twice (an end that had to be tried again), and whoever sees that it is shut lets
// the lanes go: the second one still has them.
Loop::Asked LaneLife::ask_shut(const Status& status, const LanesKept& kept) {
  return core_.loop.ask([this, status, kept, keep = core_.peer.shared_from_this()] {
    shut(status);
    keep->ending().lane_shut();
  });
}

void LaneLife::shut(const Status& status) {
  core_.assert_inside();
  shut_ = true;
  if (started()) core_.lane->close(status);
  if (ending_since_.load(std::memory_order_relaxed) != 0) return;  // has_ended() says so
  is_shut_.store(true, std::memory_order_release);
}

void LaneLife::shut_for_peer(const Status& status) {
  peer_waits_ = true;
  shut(status);
  if (ending_since_.load(std::memory_order_relaxed) == 0) tell_peer();
}

void LaneLife::tell_peer() {
  if (std::exchange(peer_waits_, false)) core_.peer.lost_lanes().closed_here(index());
}

void LaneLife::has_ended() {
  if (ending_since_.exchange(0, std::memory_order_relaxed) == 0) return;
  core_.peer.ending().or_fail([&] { tell_peer(); });
  if (!shut_) return;
  is_shut_.store(true, std::memory_order_release);
  core_.peer.ending().or_fail([&] { core_.peer.ending().lane_shut(); });
}

bool LaneLife::moves_hang(Nanos now) const {
  const Nanos since = ending_since_.load(std::memory_order_relaxed);
  return since != 0 && now - since > kMovePatience;
}

}  // namespace tcpx
