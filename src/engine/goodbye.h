// How sessions are left in order: transfers end, last notifications leave, every lane says goodbye,
// the peers close, we do. Step by step for all of them together: a peer that is silent must not
// take the others' time. Not from a loop.
#pragma once

#include <memory>
#include <vector>

#include "base/clock.h"
#include "base/status.h"

namespace tcpx {

class Peer;

// `patience`: for the last words, and again for the peers to close. Returns when the sessions have
// ended wholly.
void say_goodbye(const std::vector<std::shared_ptr<Peer>>& peers, const Status& status,
                 Nanos patience);

}  // namespace tcpx
