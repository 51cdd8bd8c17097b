#include "bench_memory.h"

#include "print.h"

#include "base/units.h"
#include "failure.h"

namespace tcpx::tool {

std::string MemoryKind::text() const {
  return cuda ? strf("cuda:{}", device) : "host";
}

std::string MemoryKinds::text() const {
  return client == server ? client.text() : client.text() + "," + server.text();
}

MemoryKind parse_memory_kind(const std::string& text) {
  if (text == "host") return {};
  if (text == "cuda") return {.cuda = true};
  uint64_t device = 0;
  if (text.starts_with("cuda:") && parse_count(text.substr(5), &device) && device < 1024)
    return {.cuda = true, .device = static_cast<int>(device)};
  throw Failure(kExitUsage,
                strf("--memory: '{}' is neither host nor cuda nor cuda:N; e.g. cuda:0, or "
                     "cuda:0,host for client and server",
                     text));
}

MemoryKinds parse_memory_kinds(const std::string& text) {
  if (text == "auto") return parse_memory_kinds(cuda_device_count() > 0 ? "cuda:0" : "host");
  const size_t comma = text.find(',');
  const MemoryKind client = parse_memory_kind(text.substr(0, comma));
  if (comma == std::string::npos) return {client, client};
  return {client, parse_memory_kind(text.substr(comma + 1))};
}

BenchMemory::BenchMemory(MemoryKind kind, uint64_t size) : kind_(kind), image_(size) {
  if (kind.cuda) device_ = CudaMemory(kind.device, image_.size());
}

}  // namespace tcpx::tool
