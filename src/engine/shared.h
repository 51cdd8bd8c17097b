// What all peers of an engine share: configuration, memory, loops, counters, the service thread.
// Nothing in the data path is a lock here.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <vector>

#include "base/log.h"
#include "config/options.h"
#include "memory/mover.h"
#include "memory/region_table.h"
#include "path/loop.h"
#include "path/paths.h"
#include "wire/handshake.h"

namespace tcpx {

class NoticeQueue;

// An engine counts its resumes: regions that come back are refused to transfers that do not know of
// that, because they were posted before. Peers are told the number, and name it (wire/frame.h).
inline constexpr uint64_t kFirstEpoch = 1;

struct EngineCounters {
  std::atomic<uint64_t> auth_failures{0};
  std::atomic<uint64_t> handshakes_refused{0};
  std::atomic<uint64_t> handshake_timeouts{0};
  std::atomic<uint64_t> half_open_refused{0};
  std::atomic<uint64_t> half_open_evicted{0};
  std::atomic<uint64_t> accept_failures{0};
  std::atomic<uint64_t> protocol_errors{0};
  std::atomic<uint64_t> stale_frames{0};
  std::atomic<uint64_t> rejected_ranges{0};
  std::atomic<uint64_t> rejected_access{0};
  std::atomic<uint64_t> rejected_regions{0};
  std::atomic<uint64_t> refusal_holds{0};  // lanes not read for a while because of those
  std::atomic<uint64_t> peers_connected{0};
  std::atomic<uint64_t> peers_lost{0};
  std::atomic<uint64_t> lanes_lost{0};
  std::atomic<uint64_t> transfers_posted{0};
  std::atomic<uint64_t> transfers_done{0};
  std::atomic<uint64_t> transfers_failed{0};
  std::atomic<uint64_t> chunks_sent{0};      // as initiator: WRITE chunks out
  std::atomic<uint64_t> chunks_received{0};  // payload chunks placed here
  std::atomic<uint64_t> chunks_live{0};      // handed to lanes and not settled
  std::atomic<uint64_t> notifications_in{0};
  std::atomic<uint64_t> notifications_out{0};
  std::atomic<uint64_t> notification_repeats{0};
  std::atomic<uint64_t> notifications_held_back{0};  // the peer had no room; sent again later
};

struct EngineShared {
  wire::Uid uid{};  // who this engine is, to peers
  EngineOptions options;
  PathWish path_wish;
  Log log;
  RegionTable regions;
  std::atomic<uint64_t> epoch{kFirstEpoch};
  Movers* movers = nullptr;  // of all loops, also those of single lanes
  uint32_t cores = 1;        // that this process may use
  Drivers drivers;           // of the loops
  std::vector<std::unique_ptr<Loop>> loops;
  uint32_t lanes_per_peer = 1;  // of peers that this engine connects to
  // Somebody calls again and again and has a core for that: whether those that are left are too few
  // for the loops' threads.
  bool caller_takes_a_core() const { return loops.size() + 1 > cores; }
  EngineCounters counters;
  std::unique_ptr<NoticeQueue> inbox;
  // Runs `task` on the service thread soon. Any thread, also a loop's.
  std::function<void(std::function<void()>)> defer;
  // Has the service thread tick now. The same, and needs no memory.
  std::function<void()> hurry = [] {};
};

}  // namespace tcpx
