// The library's C++ interface, as this command uses it. Files that need src/config/options.h do not
// include it: both define a tcpx::Options.
#pragma once

#include <tcpx/tcpx.hpp>

#include <nlohmann/json.hpp>

namespace tcpx::tool {
using Json = nlohmann::ordered_json;
}  // namespace tcpx::tool
