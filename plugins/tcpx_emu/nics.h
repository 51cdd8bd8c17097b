// The NICs this process has: interfaces that are up, chosen as the plugin chooses them.
#pragma once

#include <string>
#include <vector>

#include "settings.h"
#include "sockets.h"

namespace tcpx_emu {

struct Nic {
  std::string name;
  std::string pci_path;  // "": virtual
  int speed = 10000;     // Mbit/s
  SocketAddress data;    // port 0
  SocketAddress control;
};

// Those that the settings ask for, alphabetically. "" or why there are none.
std::string find_nics(const Settings& settings, std::vector<Nic>* out);

// Whether `name` is asked for: comma-separated prefixes; "^..." all but those, "=..." whole names.
bool matches(const std::string& spec, const std::string& name);

}  // namespace tcpx_emu
