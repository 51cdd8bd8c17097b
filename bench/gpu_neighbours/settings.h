// What the command line says.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tcpx::bench {

constexpr uint64_t kPiece = 16 << 10;  // of a scattered transfer

struct Settings {
  uint64_t bytes = 64 << 20;  // of a transfer
  double seconds = 1;         // of one measurement
  std::string lanes = "4";
  int device = 0;
  std::string cublas;
};

// Scenarios that are named go to `names`. Throws what is wrong.
Settings parse(int argc, char** argv, std::vector<std::string>* names);

}  // namespace tcpx::bench
