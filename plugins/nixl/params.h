// NIXL's parameters as options of the table (`tcpx config` lists it).
#pragma once

#include <string>
#include <tcpx/tcpx.hpp>
#include <vector>

#include "nixl_abi.h"

namespace tcpx_nixl {

struct EngineSettings {
  tcpx::Options options;
  std::vector<std::string> unknown;  // parameters that are no option of ours
};

// A parameter that is empty, or what default_params() says, counts as not given: users pass the
// whole map of defaults back, and that must not hide what the environment says.
EngineSettings settings_for(const nixlBackendInitParams& params);

// Every option with the default it has in this backend.
nixl_b_params_t default_params();

// The value of `name` in what tcpx_config_text says.
std::string effective_value(const std::string& config_text, const std::string& name);

}  // namespace tcpx_nixl
