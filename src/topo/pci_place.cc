#include "topo/pci_place.h"

#include <algorithm>

#include "config/fields.h"

namespace tcpx::topo {
namespace {

bool is_hex(std::string_view text, size_t least, size_t most) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  return text.size() >= least && text.size() <= most &&
         text.find_first_not_of(kDigits) == std::string_view::npos;
}

// "pci0000:01"
bool is_root(std::string_view text) {
  if (!text.starts_with("pci")) return false;
  text.remove_prefix(3);
  size_t colon = text.find(':');
  return colon != std::string_view::npos && is_hex(text.substr(0, colon), 4, 8) &&
         is_hex(text.substr(colon + 1), 2, 2);
}

}  // namespace

// Domains have four digits, more where there are many.
bool is_pci_address(std::string_view text) {
  auto parts = config::split(text, ':');
  return parts.size() == 3 && is_hex(parts[0], 4, 8) && is_hex(parts[1], 2, 2) &&
         parts[2].size() == 4 && is_hex(parts[2].substr(0, 2), 2, 2) && parts[2][2] == '.' &&
         parts[2][3] >= '0' && parts[2][3] <= '7';
}

std::optional<PciPlace> place_of(std::string_view sysfs_path) {
  PciPlace place;
  for (std::string_view part : config::split(sysfs_path, '/')) {
    if (place.root.empty()) {
      // A root inside another one's tree (a volume controller's) is still below the outer one.
      if (is_root(part)) place.root = part;
    } else if (is_pci_address(part)) {
      place.bridges.emplace_back(part);
    }
  }
  if (place.bridges.empty()) return std::nullopt;
  place.address = std::move(place.bridges.back());
  place.bridges.pop_back();
  return place;
}

size_t common_bridges(const PciPlace& a, const PciPlace& b) {
  if (a.root != b.root) return 0;
  auto parted =
      std::mismatch(a.bridges.begin(), a.bridges.end(), b.bridges.begin(), b.bridges.end());
  return static_cast<size_t>(parted.first - a.bridges.begin());
}

}  // namespace tcpx::topo
