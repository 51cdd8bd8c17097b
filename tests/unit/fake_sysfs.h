// A copy of /sys for tests: folders, small files, and links as the kernel lays them out (relative).
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>

namespace tcpx::test {

class FakeSysfs {
 public:
  FakeSysfs() {
    char folder[] = "/tmp/tcpx_sysfs.XXXXXX";
    if (::mkdtemp(folder) == nullptr) throw std::runtime_error("mkdtemp");
    root_ = folder;
    std::filesystem::create_directories(root_ / "class/net");
    std::filesystem::create_directories(root_ / "bus/pci/devices");
  }
  ~FakeSysfs() {
    std::error_code ignored;
    std::filesystem::remove_all(root_, ignored);
  }
  FakeSysfs(const FakeSysfs&) = delete;
  FakeSysfs& operator=(const FakeSysfs&) = delete;

  std::string root() const { return root_.string(); }

  void file(const std::string& path, const std::string& text) const {
    std::filesystem::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text << "\n";
  }
  // `from` and `to` are paths from the root.
  void link(const std::string& from, const std::string& to) const {
    auto folder = (root_ / from).parent_path();
    std::filesystem::create_directories(folder);
    std::filesystem::create_directories(root_ / to);
    std::filesystem::create_symlink((root_ / to).lexically_relative(folder), root_ / from);
  }

  // `where`: "pci0000:01/0000:01:00.0/0000:04:00.0"; bridges on the way are made as well.
  void pci(const std::string& where, const std::string& kind, const std::string& vendor,
           const std::string& node = "") const {
    size_t slash = where.rfind('/');
    std::string parent = where.substr(0, slash), device = "devices/" + where;
    if (parent.find('/') != std::string::npos && !there("devices/" + parent + "/class"))
      pci(parent, "0x060400", "0x8086");
    file(device + "/class", kind);
    file(device + "/vendor", vendor);
    if (!node.empty()) file(device + "/numa_node", node);
    link("bus/pci/devices/" + where.substr(slash + 1), device);
  }
  void gpu(const std::string& where, const std::string& node = "") const {
    pci(where, "0x030200", "0x10de", node);
  }
  void nic(const std::string& name, const std::string& where, const std::string& node = "") const {
    pci(where, "0x020000", "0x1ae0", node);
    interface(name, where);
  }
  // `below`: what in devices/ offers the interface.
  void interface(const std::string& name, const std::string& below) const {
    std::string folder = "devices/" + below + "/net/" + name;
    file(folder + "/mtu", "8244");
    link(folder + "/device", "devices/" + below);
    link("class/net/" + name, folder);
  }
  void virtual_interface(const std::string& name) const {
    file("devices/virtual/net/" + name + "/mtu", "1500");
    link("class/net/" + name, "devices/virtual/net/" + name);
  }

 private:
  bool there(const std::string& path) const { return std::filesystem::exists(root_ / path); }
  std::filesystem::path root_;
};

// The A3-high as it was measured: four roots with a switch, two GPUs and a NIC each; eth0 apart.
inline void make_a3_high(const FakeSysfs& sysfs) {
  sysfs.virtual_interface("lo");
  sysfs.nic("eth0", "pci0000:00/0000:00:0c.0", "0");
  const int first_bus[] = {0x01, 0x07, 0x81, 0x87};
  for (int i = 0; i < 4; ++i) {
    int bus = first_bus[i];
    const char* node = i < 2 ? "0" : "1";
    auto number = [](int value) {
      char text[8];
      snprintf(text, sizeof text, "%02x", value);
      return std::string(text);
    };
    // Root port, the switch's upstream port, and a downstream port per device.
    std::string above = "pci0000:" + number(bus) + "/0000:" + number(bus) +
                        ":00.0/0000:" + number(bus + 1) + ":00.0/0000:" + number(bus + 2) + ":0";
    sysfs.gpu(above + "0.0/0000:" + number(bus + 3) + ":00.0", node);
    sysfs.gpu(above + "1.0/0000:" + number(bus + 4) + ":00.0", node);
    sysfs.nic("eth" + std::to_string(i + 1), above + "2.0/0000:" + number(bus + 5) + ":00.0", node);
  }
  sysfs.file("devices/system/cpu/online", "0-207");
  sysfs.file("devices/system/node/online", "0-1");
  sysfs.file("devices/system/node/node0/cpulist", "0-51,104-155");
  sysfs.file("devices/system/node/node1/cpulist", "52-103,156-207");
}

}  // namespace tcpx::test
