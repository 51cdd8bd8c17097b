// Small reads from sysfs or from a copy of it. What is not there is empty: every file of sysfs is
// missing on some machine.
#pragma once

#include <string>
#include <vector>

namespace tcpx::topo {

class Sysfs {
 public:
  explicit Sysfs(std::string root = "/sys") : root_(std::move(root)) {}

  const std::string& root() const { return root_; }
  bool exists() const;
  std::string path(const std::string& relative) const { return root_ + "/" + relative; }
  // The file's first line, without its end.
  std::string line(const std::string& relative) const;
  std::vector<std::string> names(const std::string& folder) const;  // sorted
  // Where links lead to, as a path from the root ("devices/pci0000:01/..."); empty: nowhere inside.
  std::string resolved(const std::string& relative) const;

 private:
  std::string root_;
};

}  // namespace tcpx::topo
