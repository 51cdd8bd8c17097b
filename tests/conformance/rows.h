// The table the suite runs over. A new path or memory kind is one more row (and, for a kind, one
// more line in support/memory.h).
#pragma once

#include <cstdlib>
#include <ostream>
#include <string>
#include <vector>

#include "../support/engines.h"
#include "../support/peer.h"

namespace tcpx::test {

// The net rows run over the emulator, or over any other NCCL net plugin that this names.
inline std::string conformance_plugin() {
  const char* other = std::getenv("TCPX_TEST_CONFORMANCE_PLUGIN");
  return other != nullptr ? other : TCPX_TEST_EMULATOR_PATH;
}

// A machine with one GPU has no other.
inline const char* lacks_two_gpus() {
  const char* which = std::getenv("TCPX_TEST_CUDA");
  return which != nullptr && std::string(which) == "real" ? "needs a second GPU" : nullptr;
}

struct Row {
  std::string name;
  std::string path;
  std::string memory;
  uint32_t lanes;
  uint64_t chunk;
  Options options;
  std::vector<std::pair<const char*, const char*>> environment = {};  // of both processes
  const char* excluded = nullptr;     // the reason why this row does not run here
  const char* peer_memory = nullptr;  // where that is of another kind

  Options engine_options(const Options& more = {}) const {
    Options own = {{"lanes", std::to_string(lanes)},
                   {"chunk_bytes", std::to_string(chunk)},
                   {"require_path", path},
                   {"allow_path", path}};
    if (path == "net") own.push_back({"net_plugin", conformance_plugin()});
    return loopback_options(merged(more, merged(options, own)));
  }
  // Plugins are set through the environment; every test case is a process of its own.
  void set_environment() const {
    for (auto& [variable, value] : environment) ::setenv(variable, value, 1);
    if (path == "net") ::setenv("NCCL_GPUDIRECTTCPX_SOCKET_IFNAME", "lo", 1);
  }
};

inline const std::vector<Row>& rows() {
  static const std::vector<Row> table = {
      {"tcp_host_1lane", "tcp", "host", 1, 512 << 10, {}},
      {"tcp_host_4lanes", "tcp", "host", 4, 512 << 10, {}},
      {"tcp_host_64k_chunks", "tcp", "host", 2, 64 << 10, {}},
      {"tcp_host_ipv6", "tcp", "host", 2, 512 << 10, {{"interfaces", "::1"}}},
      {"tcp_host_paced", "tcp", "host", 2, 256 << 10, {{"pacing", "on"}}},
      {"tcp_host_round_robin", "tcp", "host", 4, 256 << 10, {{"striping", "round_robin"}}},
      {"tcp_host_2threads", "tcp", "host", 3, 1 << 20, {{"io_threads", "2"}}},
      // Out of memory into a slot and back, as memory that lanes cannot touch.
      {"tcp_host_staged", "tcp", "host", 3, 256 << 10, {{"staging", "host"}}},
      // GPU memory, on the fake driver or (TCPX_TEST_CUDA=real) on a GPU: copies are asynchronous
      // and really happen later, bytes pass through pinned slots.
      {"tcp_cuda_1lane", "tcp", "cuda", 1, 512 << 10, {}},
      {"tcp_cuda_4lanes", "tcp", "cuda", 4, 64 << 10, {{"io_threads", "3"}}},
      // Two slots for each way, for all lanes of a loop; chunks larger than a slot.
      {"tcp_cuda_few_slots",
       "tcp",
       "cuda",
       3,
       256 << 10,
       {{"gpu_staging", "1M"}, {"gpu_slot", "64K"}, {"io_threads", "2"}}},
      {"tcp_cuda_to_host", "tcp", "cuda", 2, 256 << 10, {}, {}, nullptr, "host"},
      {"tcp_host_to_cuda", "tcp", "host", 2, 256 << 10, {}, {}, nullptr, "cuda"},
      {"tcp_cuda_to_other", "tcp", "cuda", 2, 512 << 10, {}, {}, lacks_two_gpus(), "cuda:1"},
      // The emulator takes host memory for device memory: scattered fragments, unpacked by the CPU.
      {"net_host_1lane", "net", "host", 1, 512 << 10, {}, {{"TCPX_EMU_FRAGMENTS", "mixed"}}},
      {"net_host_4lanes",
       "net",
       "host",
       4,
       512 << 10,
       {{"net_sockets", "4"}},
       {{"TCPX_EMU_FRAGMENTS", "random"}, {"TCPX_EMU_SHUFFLE", "1"}}},
      // Chunks of several requests, requests in parts over eight sockets; always on both lanes.
      {"net_host_64k_requests",
       "net",
       "host",
       2,
       1 << 20,
       {{"net_chunk", "64K"}, {"net_sockets", "8"}, {"striping", "round_robin"}},
       {{"TCPX_EMU_FRAGMENTS", "mtu"}}},
      {"net_host_8lanes",
       "net",
       "host",
       8,
       128 << 10,
       {{"net_sockets", "1"}, {"striping", "round_robin"}},
       {{"TCPX_EMU_FRAGMENTS", "mixed"}}},
      // Through slots on both sides, and what arrives is unpacked into them.
      {"net_host_staged",
       "net",
       "host",
       2,
       256 << 10,
       {{"staging", "host"}},
       {{"TCPX_EMU_FRAGMENTS", "mixed"}}},
      {"net_host_direct", "net", "host", 2, 512 << 10, {{"net_memory", "host"}}, {}},
      {"net_host_plain", "net", "host", 2, 512 << 10, {}, {{"TCPX_EMU_TYPE", "host"}}},
  };
  return table;
}

struct Case {
  const Row* row;
  Placement placement;
};
inline std::string name_of(const Case& c) {
  return c.row->name + (c.placement == Placement::kThread ? "_thread" : "_process");
}
inline void PrintTo(const Case& c, std::ostream* out) {
  *out << name_of(c);
}

// Sanitizers make everything several times slower and look at one process: there every row runs
// with its peer as a thread, and only the first row of each path with a process too; of the net
// rows those that differ in how memory is touched.
inline bool runs_here(const Row& row, Placement placement) {
  if (!kSanitized) return true;
  bool first = row.name == "tcp_host_1lane" || row.name == "net_host_1lane";
  if (placement == Placement::kProcess) return first;
  return row.path == "tcp" || first || row.name == "net_host_4lanes" ||
         row.name == "net_host_direct";
}

// Of all rows, or of the one with this name.
inline std::vector<Case> cases(const std::string& only = {}) {
  std::vector<Case> out;
  for (const Row& row : rows())
    for (Placement placement : {Placement::kThread, Placement::kProcess})
      if (only.empty() ? runs_here(row, placement) : row.name == only)
        out.push_back({&row, placement});
  return out;
}

}  // namespace tcpx::test
