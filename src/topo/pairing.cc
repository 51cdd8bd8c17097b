#include "topo/pairing.h"

#include <algorithm>
#include <set>

#include "base/log.h"

namespace tcpx::topo {
namespace {

bool below_same_root(const Gpu& gpu, const Nic& nic) {
  return nic.place && nic.place->root == gpu.place.root;
}

std::string advice(const PciMap& map, const Gpu& gpu) {
  const Nic* right = nic_for(map, gpu);
  return right == nullptr ? strf("there is no NIC below {}, so GPU {} cannot use this path",
                                 gpu.place.root, gpu.index)
                          : "use " + right->name;
}

std::string place_text(const Nic& nic) {
  return nic.place ? strf("{} is below {}", nic.name, nic.place->root)
                   : strf("{} is not on PCI", nic.name);
}

std::string names_of(const std::vector<Nic>& nics) {
  std::vector<std::string> names;
  for (const Nic& nic : nics) names.push_back(nic.name);
  return names.empty() ? "none" : join(names, ", ");
}

Status refused(std::string text) {
  return bad_call(TCPX_BAD_CONFIG, std::move(text));
}

}  // namespace

Verdict judge_pair(const PciMap& map, const Gpu& gpu, const Nic& nic) {
  if (!nic.place)
    return {false, strf("{} is not on PCI (a virtual interface?) and GPU {} is below PCIe root {}; "
                        "{}",
                        nic.name, gpu.index, gpu.place.root, advice(map, gpu))};
  if (!below_same_root(gpu, nic))
    return {false, strf("GPU {} is below PCIe root {}, {} below {}: a NIC reaches only GPUs of its "
                        "own root; {}",
                        gpu.index, gpu.place.root, nic.name, nic.place->root, advice(map, gpu))};
  size_t common = common_bridges(gpu.place, *nic.place);
  if (common == 0)
    return {true, strf("both below PCIe root {}, on ports of their own", gpu.place.root)};
  return {true, strf("both below PCIe root {}, behind bridge {}", gpu.place.root,
                     gpu.place.bridges[common - 1])};
}

const Nic* nic_for(const PciMap& map, const Gpu& gpu) {
  const Nic* best = nullptr;
  for (const Nic& nic : map.nics) {
    if (!below_same_root(gpu, nic)) continue;
    if (best == nullptr ||
        common_bridges(gpu.place, *nic.place) > common_bridges(gpu.place, *best->place) ||
        (common_bridges(gpu.place, *nic.place) == common_bridges(gpu.place, *best->place) &&
         nic.name < best->name))
      best = &nic;
  }
  return best;
}

Status check_pair(const PciMap& map, const Gpu& gpu, const Nic& nic) {
  Verdict verdict = judge_pair(map, gpu, nic);
  return verdict.allowed ? Status() : refused(std::move(verdict.reason));
}

Status check_nics_of_gpu(const PciMap& map, const Gpu& gpu, std::span<const std::string> nics) {
  std::set<std::string> names(nics.begin(), nics.end());
  if (names.empty())
    return refused(strf("no NIC is named for GPU {}; {}", gpu.index, advice(map, gpu)));
  std::vector<std::string> places;
  const Nic* nic = nullptr;
  for (const std::string& name : names) {
    nic = map.nic(name);
    if (nic == nullptr)
      return refused(strf("there is no NIC \"{}\"; there are: {}", escaped(name.substr(0, 40)),
                          names_of(map.nics)));
    places.push_back(place_text(*nic));
  }
  if (names.size() == 1) return check_pair(map, gpu, *nic);
  return refused(
      strf("{} NICs ({}) are named for GPU {}, whose receive pages belong to the queues "
           "of one NIC: GPU {} is below PCIe root {}, {}; {} alone",
           names.size(), join(names, ", "), gpu.index, gpu.index, gpu.place.root,
           join(places, ", "), advice(map, gpu)));
}

}  // namespace tcpx::topo
