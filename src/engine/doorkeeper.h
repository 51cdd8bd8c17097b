// What an engine counts and says about connections that do not become peers, and who is let in.
#pragma once

#include <functional>
#include <string>

#include "base/line_limit.h"
#include "base/mutex.h"
#include "engine/shared.h"
#include "session/door.h"
#include "session/handshake.h"

namespace tcpx {

// Any thread: the door's and the service's.
class Doorkeeper final : public DoorOwner {
 public:
  Doorkeeper(EngineShared& shared, std::function<bool(Guest)> let_in)
      : shared_(shared), let_in_(std::move(let_in)) {}

  bool enter(Guest guest) override { return let_in_(std::move(guest)); }
  void refused(const wire::Address& remote, const Status& status) override;
  void left() override { shared_.counters.handshakes_refused.fetch_add(1); }
  void late(const wire::Address& remote) override;
  void crowded(size_t evicted) override;
  void cannot_accept(int err, Nanos pause) override;
  void failed(const char* what, const Status& status) noexcept override;
  // A handshake, which got further.
  void refused(const Handshake& handshake, bool timed_out);

 private:
  void count_refusal(tcpx_code code, bool timed_out);
  bool may_say(LineLimit Doorkeeper::*lines);

  EngineShared& shared_;
  const std::function<bool(Guest)> let_in_;
  Mutex mu_;
  LineLimit refusal_lines_ TCPX_GUARDED_BY(mu_){"connections were refused"};
  // These are about a state that lasts.
  LineLimit crowd_lines_ TCPX_GUARDED_BY(mu_){
      "times half-open connections were closed or turned away", 1};
  LineLimit accept_lines_ TCPX_GUARDED_BY(mu_){"times no connection could be accepted", 2};
  LineLimit failure_lines_ TCPX_GUARDED_BY(mu_){"things could not be done for a peer"};
};

}  // namespace tcpx
