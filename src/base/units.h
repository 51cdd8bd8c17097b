// Sizes, times and counts as text. Parsing is strict: no sign, space, fraction or leftover; what
// does not fit is an error. Errors are TCPX_BAD_CONFIG, name the text and show a right one.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/status.h"

namespace tcpx {

// "4096", "4096B", "512K", "4MiB", "1G", "2T": powers of two, upper or lower case. Not "KB", which
// means 1000 to some.
Status parse_size(std::string_view text, uint64_t* out);
// "250us", "5ms", "30s", "2m", "1h", "100ns"; a bare number only if it is 0.
Status parse_time(std::string_view text, Nanos* out);
// "16"
Status parse_count(std::string_view text, uint64_t* out);

// The shortest exact form; parses back to the same value.
std::string format_size(uint64_t bytes);
std::string format_time(Nanos time);  // not negative

}  // namespace tcpx
