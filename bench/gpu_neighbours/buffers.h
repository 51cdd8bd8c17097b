// A process's memory of both kinds, the host's and the GPU's, and its content: filled, poisoned and
// checked by patterns that no two transfers share. Client and servers have the same.
#pragma once

#include <cstdint>
#include <memory>

#include <tcpx/tcpx.hpp>

#include "cuda_driver.h"
#include "gpu_neighbours/settings.h"
#include "memory/pages.h"

namespace tcpx::bench {

// How a transfer is cut: whole, or into pieces that lie in another order at the server.
struct Cut {
  uint64_t bytes = 0;
  bool scattered = false;

  uint64_t pieces() const { return scattered ? bytes / kPiece : 1; }
  uint64_t length() const { return bytes / pieces(); }
  uint64_t place(uint64_t piece, bool client) const {
    return (client ? piece : piece * 40503 % pieces()) * length();
  }
};

enum class Do : uint32_t { kFill, kPoison, kCheck, kLoadCuda, kEnd };

// What a process does next with one of its buffers; goes to servers as it is.
struct Task {
  Do what = Do::kFill;
  bool cuda = false;
  bool scattered = false;
  uint64_t slot = 0;
  uint64_t pattern = 0;
};

class Buffers {
 public:
  explicit Buffers(const Settings& settings);

  // Not before it is asked for: a scenario measures host memory in a process without CUDA.
  const Cuda& load_cuda();

  tcpx_region register_kind(Engine& engine, bool cuda, uint32_t access) const;
  // Where a byte is wrong, or -1.
  int64_t obey(const Task& task, bool client);

 private:
  int64_t apply(const Task& task, uint8_t* at, bool client) const;

  const Settings& settings_;
  Pages host_;
  Cuda::Pointer device_ = 0;
  std::unique_ptr<Cuda> cuda_;
};

}  // namespace tcpx::bench
