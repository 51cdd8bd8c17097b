// Two engines in this process, below the public API: `source` writes to and reads from `target`.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "../support/env.h"
#include "config/options.h"
#include "engine/engine.h"

namespace tcpx {

struct CorePair {
  // Of these engines. Under a sanitizer, with other tests beside it, a thread may be away for
  // seconds.
  static constexpr test::Ms kLaneTimeout = test::patience(1'000),
                            kPeerTimeout = test::patience(3'000);
  static constexpr Nanos longer_than(test::Ms time) { return (time.count() + 2'000) * kMilli; }

  std::vector<uint8_t> local, remote;  // outlive the engines
  std::unique_ptr<EngineCore> source, target;
  uint64_t local_region = 0, remote_region = 0, peer = 0;
  tcpx_remote_region described{};

  explicit CorePair(size_t bytes, Movers* source_movers = nullptr, Movers* target_movers = nullptr,
                    const char* chunk_bytes = "64K", const char* lanes = "2",
                    const NameValues& more = {})
      : local(bytes),
        remote(bytes),
        source(make_engine(source_movers, chunk_bytes, lanes, more)),
        target(make_engine(target_movers, chunk_bytes, lanes, more)) {
    EXPECT_TRUE(source->regions().register_memory({local.data(), bytes, 0}, &local_region).ok());
    EXPECT_TRUE(target->regions().register_memory({remote.data(), bytes, 3}, &remote_region).ok());
    EXPECT_TRUE(source->dialler().connect(target->connection_info(), &peer).ok());
    std::copy(target->shared().uid.begin(), target->shared().uid.end(), described.engine_id);
    described.id = remote_region;
    described.length = bytes;
    described.access = 3;
  }

  // All of the memory.
  std::shared_ptr<TransferState> prepare(tcpx_op op) {
    tcpx_local_piece from{local_region, 0, local.size()};
    tcpx_remote_piece to{&described, 0, remote.size()};
    std::shared_ptr<TransferState> transfer;
    Status status = source->prepare(peer, op, {&from, 1}, {&to, 1}, &transfer);
    if (!status) throw std::runtime_error(status.to_string());
    return transfer;
  }
  void post(const std::shared_ptr<TransferState>& transfer) {
    Status status = transfer->peer->transfers().post(transfer, nullptr, now_ns() + 20 * kSecond);
    EXPECT_TRUE(status.ok()) << status.to_string();
  }

 private:
  static std::string in_ms(test::Ms time) { return std::to_string(time.count()) + "ms"; }
  static std::unique_ptr<EngineCore> make_engine(Movers* movers, const char* chunk_bytes,
                                                 const char* lanes, const NameValues& more) {
    static const char* const no_environment[] = {nullptr};
    Config config;
    NameValues options = {{"interfaces", "lo"},
                          {"chunk_bytes", chunk_bytes},
                          {"lanes", lanes},
                          {"io_threads", "2"},
                          {"keepalive", "300ms"},
                          {"lane_timeout", in_ms(kLaneTimeout)},
                          {"peer_timeout", in_ms(kPeerTimeout)}};
    options.insert(options.end(), more.begin(), more.end());
    Status status = load_config(options, no_environment, &config);
    EXPECT_TRUE(status.ok()) << status.to_string();
    std::unique_ptr<EngineCore> engine;
    status = EngineCore::create(config, Log(), movers, &engine);
    EXPECT_TRUE(status.ok()) << status.to_string();
    return engine;
  }
};

}  // namespace tcpx
