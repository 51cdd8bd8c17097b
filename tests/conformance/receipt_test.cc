// The path is visible: receipts add up, counters tell, a silent fallback is an error.
#include "fixture.h"

namespace tcpx::test {
namespace {

class Receipts : public Conformance {
 protected:
  // Bytes come out of the plugin's bounce buffers: each is copied once more where it arrives.
  bool unpacks() const {
    return row().path == "net" && row().name != "net_host_direct" && row().name != "net_host_plain";
  }
  // "cuda:1" is of the kind cuda.
  static std::string kind_of(const std::string& memory) { return memory.substr(0, 4); }
  bool passes_slots() const { return row().memory == "cuda" || row().name.ends_with("_staged"); }
  void expect_staging(const tcpx_receipt& receipt) const {
    EXPECT_EQ(receipt.local_memory, kind_of(row().memory));
    EXPECT_EQ(receipt.remote_memory,
              kind_of(row().peer_memory != nullptr ? row().peer_memory : row().memory));
    const uint64_t staged = receipt.op == TCPX_WRITE ? receipt.staged_out : receipt.staged_in;
    EXPECT_EQ(receipt.op == TCPX_WRITE ? receipt.staged_in : receipt.staged_out, 0u);
    EXPECT_EQ(receipt.kernels, 0u);
    EXPECT_EQ(receipt.kernels_missing, 0u);
    // A chunk is one piece.
    EXPECT_EQ(receipt.copies, row().memory == "cuda" ? receipt.chunks : 0);
    if (passes_slots()) {
      EXPECT_EQ(staged, receipt.bytes);
      EXPECT_GT(receipt.staging_us, 0);
    } else if (row().path == "tcp") {
      EXPECT_EQ(staged, 0u);
      EXPECT_EQ(receipt.slot_wait_us + receipt.submit_wait_us + receipt.staging_us, 0);
    }
    for (double us : {receipt.slot_wait_us, receipt.submit_wait_us, receipt.staging_us})
      EXPECT_LE(us, receipt.total_us);
  }
  // Bytes and chunks by lane, from the receipt's JSON.
  static std::vector<std::pair<uint64_t, uint64_t>> lanes_of(const nlohmann::json& json) {
    std::vector<std::pair<uint64_t, uint64_t>> out;
    for (auto& lane : json.at("lanes"))
      out.emplace_back(lane.at("bytes").get<uint64_t>(), lane.at("chunks").get<uint64_t>());
    return out;
  }
};

TEST_P(Receipts, FieldsAddUp) {
  Remote& peer = connected_peer();
  const uint64_t length = 10 * row().chunk + 17;
  LocalRegion& local = local_memory(length, 1);
  PeerRegion& remote = peer.memory(length, 2);
  tcpx_peer_info info{};
  ASSERT_TRUE(succeeded(engine.peer_info(peer.id, &info)));
  EXPECT_EQ(info.path, row().path);
  EXPECT_EQ(info.lanes, row().lanes);
  for (tcpx_op op : kBothOps) {
    SCOPED_TRACE(op_name(op));
    Transfer transfer = prepare(peer, op, local, remote, {{0, 0, length}});
    ASSERT_TRUE(succeeded(transfer.post_notify("n")));
    ASSERT_TRUE(succeeded(transfer.wait(kLong)));
    tcpx_receipt receipt = transfer.receipt();
    EXPECT_EQ(receipt.result, TCPX_OK);
    EXPECT_EQ(receipt.op, op);
    EXPECT_EQ(receipt.path, row().path);
    EXPECT_STRNE(receipt.interfaces, "");
    EXPECT_EQ(receipt.bytes, length);
    EXPECT_EQ(receipt.pieces, 1u);
    EXPECT_EQ(receipt.runs, 1u);
    // Ten whole ones and the rest, unless the GPUs of this row take shorter ones.
    const uint64_t most = remote.remote.chunk_bytes;
    const uint64_t chunk = most == 0 ? row().chunk : std::min(most, row().chunk);
    EXPECT_EQ(receipt.chunks, (length + chunk - 1) / chunk);
    EXPECT_GE(receipt.chunks, 11u);
    EXPECT_EQ(receipt.retries, 0u);
    EXPECT_EQ(receipt.lanes_lost, 0u);
    EXPECT_GE(receipt.lanes_used, 1u);
    EXPECT_LE(receipt.lanes_used, row().lanes);
    EXPECT_EQ(receipt.peer_generation, info.generation);
    if (row().name == "tcp_host_staged" || (row().memory == "cuda" && op == TCPX_WRITE))
      EXPECT_EQ(receipt.staging_copies, length);
    else if (row().memory == "cuda")  // once more what found no slot in time
      EXPECT_TRUE(receipt.staging_copies >= length && receipt.staging_copies <= 2 * length);
    else if (row().name == "net_host_staged")  // unpacked into a slot, and from there into place
      EXPECT_EQ(receipt.staging_copies, op == TCPX_READ ? 2 * length : length);
    else if (op == TCPX_READ)
      EXPECT_EQ(receipt.staging_copies, unpacks() ? length : 0);
    else  // the short end goes through staging
      EXPECT_EQ(receipt.staging_copies, unpacks() ? length % row().chunk : 0);
    EXPECT_GE(receipt.queued_us, 0);
    EXPECT_GT(receipt.moving_us, 0);
    EXPECT_GT(receipt.notify_us, 0);
    EXPECT_LE(receipt.queued_us + receipt.moving_us + receipt.notify_us, receipt.total_us + 1);

    expect_staging(receipt);

    auto json = nlohmann::json::parse(transfer.receipt_json());
    EXPECT_EQ(json.at("staged_out"), receipt.staged_out);
    EXPECT_EQ(json.at("staged_in"), receipt.staged_in);
    EXPECT_EQ(json.at("copies"), receipt.copies);
    EXPECT_EQ(json.at("staging_us"), receipt.staging_us);
    EXPECT_EQ(json.at("submit_wait_us"), receipt.submit_wait_us);
    EXPECT_EQ(json.at("slot_wait_us"), receipt.slot_wait_us);
    EXPECT_EQ(lanes_of(json).size(), row().lanes) << "also those that carried nothing";
    uint64_t bytes = 0, chunks = 0, used = 0;
    for (auto [lane_bytes, lane_chunks] : lanes_of(json)) {
      bytes += lane_bytes;
      chunks += lane_chunks;
      used += lane_chunks > 0;
    }
    EXPECT_EQ(bytes, length);
    EXPECT_EQ(chunks, receipt.chunks);
    EXPECT_EQ(used, receipt.lanes_used);
  }
}

class RoundRobin : public Receipts {};

TEST_P(RoundRobin, GivesEveryLaneTheSameWithinOneChunk) {
  Remote& peer = connected_peer();
  const uint64_t length = 22 * row().chunk + 5;
  LocalRegion& local = local_memory(length, 3);
  PeerRegion& remote = peer.memory(length, 4);
  for (tcpx_op op : kBothOps) {
    Transfer transfer = prepare(peer, op, local, remote, {{0, 0, length}});
    ASSERT_TRUE(succeeded(transfer.post()));
    ASSERT_TRUE(succeeded(transfer.wait(kLong)));
    uint64_t least = UINT64_MAX, most = 0;
    auto lanes = lanes_of(nlohmann::json::parse(transfer.receipt_json()));
    ASSERT_EQ(lanes.size(), row().lanes);
    for (auto [bytes, chunks] : lanes) {
      least = std::min(least, bytes);
      most = std::max(most, bytes);
    }
    EXPECT_LE(most - least, row().chunk) << op_name(op);
  }
}

// Transfers of one chunk, one after the other: every lane is free for each of them, so whoever asks
// which lane is free or fast always finds the same one.
TEST_P(RoundRobin, SingleChunksTakeTheLanesInTurn) {
  constexpr uint64_t kLength = 4096,
                     kTurns = 3;  // longer ones are cut, to have a part for every lane
  Remote& peer = connected_peer();
  LocalRegion& local = local_memory(kLength, 7);
  PeerRegion& remote = peer.memory(kLength, 8);
  for (tcpx_op op : kBothOps) {
    Transfer transfer = prepare(peer, op, local, remote, {{0, 0, kLength}});
    std::vector<uint64_t> chunks_of(row().lanes);
    for (uint64_t i = 0; i < kTurns * row().lanes; ++i) {
      ASSERT_TRUE(succeeded(transfer.post()));
      ASSERT_TRUE(succeeded(transfer.wait(kLong)));
      auto lanes = lanes_of(nlohmann::json::parse(transfer.receipt_json()));
      ASSERT_EQ(lanes.size(), row().lanes);
      for (size_t lane = 0; lane < lanes.size(); ++lane) chunks_of[lane] += lanes[lane].second;
    }
    EXPECT_EQ(chunks_of, std::vector<uint64_t>(row().lanes, kTurns)) << op_name(op);
  }
}

// How many chunks wait for a peer that is stopped: with pacing one on each lane, without it more.
// Chunks are so small that no socket is ever full.
TEST(Pacing, NoLaneHasMoreThanOneChunkOutstanding) {
  constexpr uint64_t kChunk = 4096, kLanes = 2, kChunks = 16;
  for (bool paced : {true, false}) {
    SCOPED_TRACE(paced ? "paced" : "not paced");
    Options options = loopback_options({{"lanes", std::to_string(kLanes)},
                                        {"chunk_bytes", std::to_string(kChunk)},
                                        {"pacing", paced ? "on" : "off"}});
    Engine engine = make_engine(options);
    Remote peer(Placement::kProcess, options, "host");
    PeerRegion& remote = peer.memory(kChunk * kChunks, 2);
    Local local = make_local(engine, kChunk * kChunks, 0, 3);
    ASSERT_TRUE(succeeded(engine.connect(peer.program.info(), &peer.id)));
    ASSERT_TRUE(succeeded(engine.peer_wait(peer.id, kLong)));
    for (tcpx_op op : kBothOps) {
      SCOPED_TRACE(op_name(op));
      Transfer transfer;
      ASSERT_TRUE(succeeded(engine.prepare(peer.id, op, {{local.region, 0, kChunk * kChunks}},
                                           {{&remote.remote, 0, kChunk * kChunks}}, &transfer)));
      peer.program.freeze();
      ASSERT_TRUE(succeeded(transfer.post()));
      auto outstanding = [&] { return counter(engine, "chunks_live"); };
      EXPECT_TRUE(eventually([&] { return outstanding() > 0; }));
      // A lane that may send more does so at once; where none may, this can only be too short a
      // look.
      bool more = eventually([&] { return outstanding() > kLanes; }, paced ? Ms{100} : kLong);
      EXPECT_EQ(more, !paced) << outstanding() << " of " << kChunks << " chunks are outstanding";
      peer.program.thaw();
      ASSERT_TRUE(succeeded(transfer.wait(kLong))) << transfer.error();
      EXPECT_EQ(transfer.receipt().chunks, kChunks);
      EXPECT_EQ(peer.program.check(remote.name, 0, kChunk * kChunks, 3, 0, 0), "");
    }
  }
}

TEST_P(Receipts, CountersShowWhatHappened) {
  Remote& peer = connected_peer();
  LocalRegion& local = local_memory(1 << 20, 5);
  PeerRegion& remote = peer.memory(1 << 20, 6);
  auto before = counters(engine).at("engine");
  move(peer, TCPX_WRITE, local, remote, {{0, 0, 1 << 20}});
  move(peer, TCPX_READ, local, remote, {{0, 0, 1 << 20}});
  ASSERT_TRUE(succeeded(engine.notify(peer.id, "x", kLong)));
  auto all = counters(engine);
  auto after = all.at("engine");
  auto grown = [&](const char* name) {
    return after.at(name).get<uint64_t>() - before.at(name).get<uint64_t>();
  };
  EXPECT_EQ(grown("transfers_posted"), 2u);
  EXPECT_EQ(grown("transfers_done"), 2u);
  EXPECT_EQ(grown("transfers_failed"), 0u);
  EXPECT_EQ(grown("notifications_out"), 1u);
  EXPECT_GT(grown("chunks_sent"), 0u) << "sent and received are counted apart";
  EXPECT_GT(grown("chunks_received"), 0u);
  EXPECT_EQ(after.at("chunks_live").get<uint64_t>(), 0u) << "nothing is left in flight";
  EXPECT_EQ(after.at("stale_frames").get<uint64_t>(), 0u);
  ASSERT_TRUE(all.contains("peers"));
  EXPECT_EQ(all.at("peers").size(), 1u);
}

TCPX_INSTANTIATE_CONFORMANCE(Receipts);
TCPX_INSTANTIATE_CONFORMANCE_ROW(RoundRobin, "tcp_host_round_robin");

TEST(PathPolicy, ARequiredPathThatCannotBeHadIsAnErrorNotAFallback) {
  Engine server = make_engine(loopback_options());
  Engine engine;
  Options wanted = loopback_options({{"require_path", "net"}, {"allow_path", "net,tcp"}});
  Result result = Engine::create(wanted, &engine);
  tcpx_peer peer = 0;
  if (result) result = engine.connect(server.connection_info(), &peer);
  if (result) result = engine.peer_wait(peer, kLong);
  EXPECT_EQ(result.code(), TCPX_PATH_UNAVAILABLE) << result.text();
  EXPECT_NE(result.text().find("net"), std::string::npos) << result.text();
}

TEST(PathPolicy, OneLogLineSaysWhichPathEachPeerGot) {
  std::mutex mutex;
  std::vector<std::string> lines;
  Engine a = make_engine(loopback_options(), [&](tcpx_log_level, const char* line) {
    std::lock_guard lock(mutex);
    lines.emplace_back(line);
  });
  Engine b = make_engine(loopback_options());
  tcpx_peer peer = 0;
  ASSERT_TRUE(succeeded(a.connect(b.connection_info(), &peer)));
  ASSERT_TRUE(succeeded(a.peer_wait(peer, kLong)));
  a.destroy();
  int told = 0;
  for (auto& line : lines)
    told += line.find(strf("peer {} ", peer)) != std::string::npos &&
            line.find(": path tcp, ") != std::string::npos;
  EXPECT_EQ(told, 1);
}

}  // namespace
}  // namespace tcpx::test
