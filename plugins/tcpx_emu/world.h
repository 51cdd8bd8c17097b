// What one init() found: settings, NICs, fault plan. Listeners and comms hold on to theirs, so a
// later init() with another environment does not change what exists.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <vector>

#include "faults.h"
#include "nics.h"
#include "settings.h"
#include "tcpx_emu.h"

namespace tcpx_emu {

struct World {
  Settings settings;
  std::vector<Nic> nics;
  FaultPlan faults;
  // Faults that hold for a NIC once they struck: it is lost; its pool gives nothing until then.
  std::array<std::atomic<bool>, TCPX_EMU_MAX_DEVICES> lost{};
  std::array<std::atomic<Nanos>, TCPX_EMU_MAX_DEVICES> starved_until{};

  bool has(int device) const { return device >= 0 && device < static_cast<int>(nics.size()); }
};
using WorldPtr = std::shared_ptr<World>;

}  // namespace tcpx_emu
