#include "gpu_neighbours/settings.h"

#include "base/units.h"
#include "gpu_neighbours/failure.h"

namespace tcpx::bench {

Settings parse(int argc, char** argv, std::vector<std::string>* names) {
  Settings out;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (!name.starts_with("--")) {
      names->push_back(name);
      continue;
    }
    if (i + 1 == argc) fail(name + " without a value");
    const std::string value = argv[++i];
    if (name == "--bytes") {
      if (Status s = parse_size(value, &out.bytes); !s) fail(s.text());
    } else if (name == "--seconds") {
      out.seconds = std::stod(value);
    } else if (name == "--lanes") {
      out.lanes = value;
    } else if (name == "--device") {
      out.device = std::stoi(value);
    } else if (name == "--cublas") {
      out.cublas = value;
    } else {
      fail("unknown argument " + name);
    }
  }
  if (out.bytes % (2 * kPiece) != 0 || (out.bytes & (out.bytes - 1)) != 0)
    fail("--bytes: a power of two, 32K at least");
  return out;
}

}  // namespace tcpx::bench
