#include "gpu_neighbours/rows.h"

#include <cstdio>

namespace tcpx::bench {

void print_row(const Json& row) {
  std::printf("%s\n", row.dump().c_str());
  std::fflush(stdout);
}

void compare(const std::string& name, double seen, const std::string& ceiling_name, double ceiling,
             double least, const std::string& note) {
  const double ratio = ceiling > 0 ? seen / ceiling : 0;
  print_row({{"name", name},
             {"seen", seen},
             {"ceiling_name", ceiling_name},
             {"ceiling", ceiling},
             {"ratio", ratio},
             {"least", least},
             {"ok", ratio >= least},
             {"note", note}});
}

void state(const std::string& name, bool ok, const std::string& note) {
  print_row({{"name", name}, {"ok", ok}, {"note", note}});
}

void skip(const std::string& name, const std::string& why) {
  print_row({{"name", name}, {"skipped", why}});
}

}  // namespace tcpx::bench
