// What one agent tells another about a range: the region's description, which has a check of its
// own and says what kind of memory it is, and behind it where the range begins in its owner, which
// the description does not know. A request names addresses, so a wrong beginning would move other
// bytes than were meant.
#pragma once

#include <tcpx/tcpx.h>

#include <cstdint>
#include <string>

namespace tcpx_nixl {

struct RangePlace {
  uint64_t base = 0;
  uint64_t device = 0;
  bool operator==(const RangePlace&) const = default;
};

// Each number twice, the second time inverted: whatever is damaged shows.
void add_place(const RangePlace& place, std::string* blob);
// False: damaged, or no such blob. The rest of it is *description.
bool split_place(const std::string& blob, RangePlace* place, std::string* description);

}  // namespace tcpx_nixl
