#include "topo/pci_map.h"

#include <algorithm>
#include <charconv>

#include "base/log.h"

namespace tcpx::topo {
namespace {

constexpr std::string_view kNvidia = "0x10de";
// VGA and 3D controllers; the last two digits are a programming interface.
constexpr std::string_view kGpuClasses[] = {"0x0300", "0x0302"};

bool is_gpu(const Sysfs& sysfs, const std::string& device) {
  std::string kind = sysfs.line(device + "/class");
  return sysfs.line(device + "/vendor") == kNvidia &&
         std::any_of(std::begin(kGpuClasses), std::end(kGpuClasses),
                     [&](std::string_view wanted) { return kind.starts_with(wanted); });
}

int numa_node(const Sysfs& sysfs, const PciPlace& place) {
  std::string text = sysfs.line("bus/pci/devices/" + place.address + "/numa_node");
  int node = kNoNode;
  std::from_chars(text.data(), text.data() + text.size(), node);
  return std::max(node, kNoNode);
}

void read_gpus(const Sysfs& sysfs, std::vector<Gpu>* out) {
  for (const std::string& address : sysfs.names("bus/pci/devices")) {
    std::string device = "bus/pci/devices/" + address;
    if (!is_gpu(sysfs, device)) continue;
    auto place = place_of(sysfs.resolved(device));
    if (!place) continue;
    int node = numa_node(sysfs, *place);
    out->push_back({static_cast<int>(out->size()), std::move(*place), node});
  }
}

Nic read_nic(const Sysfs& sysfs, const std::string& name) {
  Nic nic;
  nic.name = name;
  nic.place = place_of(sysfs.resolved("class/net/" + name + "/device"));
  if (!nic.place) return nic;
  nic.numa_node = numa_node(sysfs, *nic.place);
  nic.virtual_function =
      !sysfs.resolved("bus/pci/devices/" + nic.place->address + "/physfn").empty();
  return nic;
}

}  // namespace

const Nic* PciMap::nic(std::string_view name) const {
  auto found = std::find_if(nics.begin(), nics.end(), [&](const Nic& n) { return n.name == name; });
  return found == nics.end() ? nullptr : &*found;
}

const Gpu* PciMap::gpu(std::string_view index_or_address) const {
  for (const Gpu& gpu : gpus)
    if (index_or_address == std::to_string(gpu.index) || index_or_address == gpu.place.address)
      return &gpu;
  return nullptr;
}

Status read_pci_map(const Sysfs& sysfs, PciMap* out) {
  if (!sysfs.exists())
    return bad_call(TCPX_INVALID_ARGUMENT,
                    strf("{} is no folder; name /sys or a copy of it that kept its links (cp -a)",
                         escaped(sysfs.root())));
  PciMap map;
  read_gpus(sysfs, &map.gpus);
  for (const std::string& name : sysfs.names("class/net")) {
    // Some entries are no interfaces (bonding_masters is a file).
    if (!sysfs.names("class/net/" + name).empty()) map.nics.push_back(read_nic(sysfs, name));
  }
  *out = std::move(map);
  return {};
}

Nic nic_of_plugin(std::string name, std::string_view pci_path) {
  Nic nic;
  nic.name = std::move(name);
  nic.place = place_of(pci_path);
  return nic;
}

}  // namespace tcpx::topo
