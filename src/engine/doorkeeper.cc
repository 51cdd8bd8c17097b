#include "engine/doorkeeper.h"

#include "base/caught.h"
#include "base/text.h"
#include "base/units.h"
#include "topo/interfaces.h"

namespace tcpx {

bool Doorkeeper::may_say(LineLimit Doorkeeper::*lines) {
  MutexLock lock(mu_);
  return (this->*lines).allow(now_ns(), shared_.log);
}

void Doorkeeper::count_refusal(tcpx_code code, bool timed_out) {
  EngineCounters& counters = shared_.counters;
  (timed_out ? counters.handshake_timeouts : counters.handshakes_refused).fetch_add(1);
  if (code == TCPX_AUTH_FAILED) counters.auth_failures.fetch_add(1);
}

void Doorkeeper::refused(const wire::Address& remote, const Status& status) {
  count_refusal(status.code(), false);
  if (may_say(&Doorkeeper::refusal_lines_))
    shared_.log.warn("refused a connection from {}: {}", to_string(remote), status.to_string());
}

void Doorkeeper::refused(const Handshake& handshake, bool timed_out) {
  count_refusal(handshake.status().code(), timed_out);
  if (may_say(&Doorkeeper::refusal_lines_))
    shared_.log.warn("refused a connection from {}: {}", handshake.remote(),
                     handshake.status().to_string());
}

void Doorkeeper::late(const wire::Address& remote) {
  count_refusal(TCPX_DEADLINE, true);
  if (may_say(&Doorkeeper::refusal_lines_))
    shared_.log.warn("refused a connection from {}: it said no hello in time", to_string(remote));
}

void Doorkeeper::crowded(size_t evicted) {
  EngineCounters& counters = shared_.counters;
  if (evicted == 0) counters.half_open_refused.fetch_add(1);
  counters.half_open_evicted.fetch_add(evicted);
  if (may_say(&Doorkeeper::crowd_lines_))
    shared_.log.warn(
        "{} connections wait to prove themselves (max_half_open): {}; so far {} were closed to "
        "make room and {} turned away. A port scan, or more clients at once than max_half_open",
        shared_.options.max_half_open,
        evicted == 0 ? "a new one was turned away"
                     : strf("the {} least likely to do it were closed", evicted),
        counters.half_open_evicted.load(), counters.half_open_refused.load());
}

void Doorkeeper::cannot_accept(int err, Nanos pause) {
  shared_.counters.accept_failures.fetch_add(1);
  if (may_say(&Doorkeeper::accept_lines_))
    shared_.log.error(
        "no new connection can be accepted, trying again in {}: {}. Peers that are connected go "
        "on; raise the limit of open files (ulimit -n) if that is what is missing",
        format_time(pause), Status::system(err, TCPX_BLAST_ENGINE, "accept").text());
}

void Doorkeeper::failed(const char* what, const Status& status) noexcept {
  quietly([&] {
    if (may_say(&Doorkeeper::failure_lines_))
      shared_.log.warn("{}: {}; going on", what, status.to_string());
  });
}

}  // namespace tcpx
