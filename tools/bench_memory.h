// The memory that one end of the bench moves: the host's, or a GPU's with an image of it in host
// memory, where content is made and looked at. Between the two it is copied outside the timed part.
#pragma once

#include <cstdint>
#include <string>

#include "bench_data.h"
#include "cuda_memory.h"

namespace tcpx::tool {

struct MemoryKind {
  bool cuda = false;
  int device = 0;

  std::string text() const;  // "host", "cuda:1"
  bool operator==(const MemoryKind&) const = default;
};
MemoryKind parse_memory_kind(const std::string& text);  // throws Failure

// What each end uses.
struct MemoryKinds {
  MemoryKind client, server;
  std::string text() const;  // "cuda:0": both; "cuda:0,host"
};
// "host", "cuda", "cuda:1", "cuda:0,host" (client, server), or "auto": the first GPU where there is
// one. With auto it opens the driver.
MemoryKinds parse_memory_kinds(const std::string& text);

class BenchMemory {
 public:
  BenchMemory() = default;
  BenchMemory(MemoryKind kind, uint64_t size);  // throws Failure

  void* address() const { return kind_.cuda ? device_.address() : image_.data(); }
  uint64_t size() const { return image_.size(); }
  const Memory& image() const { return image_; }

  // The first `length` bytes: from the image to where they are moved, and back. Nothing for host
  // memory.
  void put(uint64_t length) const {
    if (kind_.cuda) device_.put(image_.data(), length);
  }
  void get(uint64_t length) const {
    if (kind_.cuda) device_.get(image_.data(), length);
  }

 private:
  MemoryKind kind_;
  Memory image_;
  CudaMemory device_;
};

}  // namespace tcpx::tool
