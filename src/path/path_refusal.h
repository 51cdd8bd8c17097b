// Why the payload of a lane does not travel by the path it was meant to. Said by who knows: the
// carrier that was to be set up (path/carrier.h).
#pragma once

#include "base/status.h"

namespace tcpx {

struct PathRefusal {
  Status status;  // ok: there is none
  // The other end may just have died, and what broke with it looks the same from here. The lane's
  // stream says which it was: in a moment it ends too, or it does not.
  bool in_doubt = false;

  bool none() const { return status.ok(); }
};

}  // namespace tcpx
