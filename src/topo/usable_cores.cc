#include "topo/usable_cores.h"

#include <sched.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <sstream>

namespace tcpx::topo {

namespace {

// "" if there is none.
std::string text_of(const std::string& file) {
  std::ifstream in(file);
  std::stringstream text;
  if (in) text << in.rdbuf();
  return text.str();
}

bool number(std::string_view* text, int64_t* out) {
  while (!text->empty() && text->front() == ' ') text->remove_prefix(1);
  auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), *out);
  if (error != std::errc()) return false;
  text->remove_prefix(static_cast<size_t>(end - text->data()));
  return true;
}

uint32_t lesser(uint32_t a, uint32_t b) {  // 0: no limit
  return a == 0 || b == 0 ? a + b : std::min(a, b);
}

// Of the group at `path` below `mount`, and of all above it; a container may see its own group as
// the root, whatever it is called outside.
uint32_t least_limit(const std::string& mount, std::string path, bool unified) {
  uint32_t least = 0;
  for (;;) {
    std::string group = mount + path + "/";
    std::string limit =
        unified ? text_of(group + "cpu.max")
                : text_of(group + "cpu.cfs_quota_us") + " " + text_of(group + "cpu.cfs_period_us");
    std::replace(limit.begin(), limit.end(), '\n', ' ');
    least = lesser(least, cores_of_quota(limit));
    if (path.empty()) return least;
    path.resize(path.rfind('/'));
  }
}

}  // namespace

uint32_t cores_of_quota(std::string_view text) {
  int64_t quota = 0, period = 0;
  if (!number(&text, &quota) || !number(&text, &period) || quota <= 0 || period <= 0) return 0;
  return static_cast<uint32_t>(std::clamp<int64_t>((quota + period - 1) / period, 1, 1 << 20));
}

// Lines are "0::/path" (unified) or "4:cpu,cpuacct:/path".
uint32_t cores_of_groups(std::string_view membership, const std::string& root) {
  uint32_t least = 0;
  std::istringstream lines{std::string(membership)};
  for (std::string line; std::getline(lines, line);) {
    size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    std::string path = line.substr(second + 1);
    if (path.empty() || path[0] != '/') continue;
    if (path == "/") path.clear();
    if (controllers == ",,") least = lesser(least, least_limit(root, path, true));
    if (controllers.find(",cpu,") == std::string::npos) continue;
    least = lesser(least, least_limit(root + "/cpu", path, false));
  }
  return least;
}

uint32_t usable_cores() {
  cpu_set_t set;
  uint32_t cores = 1;
  if (sched_getaffinity(0, sizeof set, &set) == 0)
    cores = static_cast<uint32_t>(std::max(1, CPU_COUNT(&set)));
  return lesser(cores, cores_of_groups(text_of("/proc/self/cgroup"), "/sys/fs/cgroup"));
}

}  // namespace tcpx::topo
