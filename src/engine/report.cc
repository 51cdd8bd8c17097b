#include "engine/report.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>

#include "base/ids.h"
#include "base/text.h"
#include "base/version.h"
#include "engine/engine.h"
#include "engine/transfer.h"

namespace tcpx {

namespace {

using Json = nlohmann::ordered_json;

void copy_text(const std::string& text, char* out, size_t size) {
  size_t length = std::min(text.size(), size - 1);
  memcpy(out, text.data(), length);
  out[length] = 0;
}

double span_us(Nanos from, Nanos to) {
  return from == 0 || to == 0 || to < from ? 0 : static_cast<double>(to - from) / kMicro;
}

// What a fact about lanes is for those that carried a part, e.g. the names of their interfaces.
template <class F>
std::string of_lanes(TransferState& transfer, const char* separator, F&& fact) {
  std::set<std::string> names;
  for (PeerLane* lane : transfer.peer->lanes()) {
    std::lock_guard lock(transfer.peer->mu);
    if (lane->index() < transfer.shares.size() && transfer.shares[lane->index()].chunks > 0)
      names.insert(fact(lane->lane()));
  }
  return join(names, separator);
}

Json lane_json(PeerLane& lane) {
  const LaneCounters& c = lane.lane().counters();
  auto get = [](const std::atomic<uint64_t>& value) { return value.load(); };
  Json out = {{"index", lane.index()},
              {"open", lane.open()},
              {"path", lane.lane().path()},
              {"interface", lane.lane().interface()},
              {"remote", lane.lane().remote()},
              {"bytes_out", get(c.bytes_out)},
              {"bytes_in", get(c.bytes_in)},
              {"frames_out", get(c.frames_out)},
              {"frames_in", get(c.frames_in)},
              {"send_calls", get(c.send_calls)},
              {"receive_calls", get(c.receive_calls)},
              {"chunks_in_flight", lane.in_flight()},
              {"thread_cpus", lane.loop().thread_cpus()}};
  double sending = lane.lane().send_occupancy(), receiving = lane.lane().receive_occupancy();
  if (sending >= 0) out["send_window_occupancy"] = sending;
  if (receiving >= 0) out["receive_window_occupancy"] = receiving;
  return out;
}

Json peer_json(Peer& peer) {
  Json lanes = Json::array();
  for (PeerLane* lane : peer.lanes()) lanes.push_back(lane_json(*lane));
  Peer::State state = peer.state();
  return {{"id", peer.id()},
          {"name", escaped(peer.name())},
          {"state", state == Peer::State::kUp           ? "up"
                    : state == Peer::State::kConnecting ? "connecting"
                                                        : "ended"},
          {"ended_with", state == Peer::State::kEnded ? peer.end_status().to_string() : ""},
          {"inbound", peer.inbound},
          {"generation", strf("{:016x}", peer.session())},
          {"lanes", lanes}};
}

Json engine_json(const EngineCounters& c, EngineShared& shared, uint32_t half_open) {
  auto get = [](const std::atomic<uint64_t>& value) { return value.load(); };
  uint64_t sleeps = 0;
  Json cpus = Json::array();
  for (auto& loop : shared.loops) {
    sleeps += loop->sleeps();
    cpus.push_back(loop->thread_cpus());
  }
  return {{"auth_failures", get(c.auth_failures)},
          {"handshakes_refused", get(c.handshakes_refused)},
          {"handshake_timeouts", get(c.handshake_timeouts)},
          {"half_open", half_open},
          {"half_open_refused", get(c.half_open_refused)},
          {"half_open_evicted", get(c.half_open_evicted)},
          {"accept_failures", get(c.accept_failures)},
          {"protocol_errors", get(c.protocol_errors)},
          {"stale_frames", get(c.stale_frames)},
          {"rejected_ranges", get(c.rejected_ranges)},
          {"rejected_access", get(c.rejected_access)},
          {"rejected_regions", get(c.rejected_regions)},
          {"refusal_holds", get(c.refusal_holds)},
          {"peers_connected", get(c.peers_connected)},
          {"peers_lost", get(c.peers_lost)},
          {"lanes_lost", get(c.lanes_lost)},
          {"transfers_posted", get(c.transfers_posted)},
          {"transfers_done", get(c.transfers_done)},
          {"transfers_failed", get(c.transfers_failed)},
          {"chunks_sent", get(c.chunks_sent)},
          {"chunks_received", get(c.chunks_received)},
          {"chunks_live", get(c.chunks_live)},
          {"notifications_in", get(c.notifications_in)},
          {"notifications_out", get(c.notifications_out)},
          {"notification_repeats", get(c.notification_repeats)},
          {"regions", shared.regions.size()},
          {"progress_threads", shared.loops.size()},
          {"progress_thread_cpus", cpus},
          {"progress_sleeps", sleeps}};
}

}  // namespace

tcpx_receipt receipt_of(TransferState& t) {
  tcpx_receipt out{};
  std::string interfaces = of_lanes(t, ",", [](Lane& lane) { return lane.interface(); });
  std::string path = of_lanes(t, "+", [](Lane& lane) { return lane.path(); });
  if (path.empty()) path = t.peer->path();  // nothing had to be carried
  std::lock_guard lock(t.peer->mu);
  int code = t.code.load();
  out.result = code == kNotPosted ? TCPX_INVALID_ARGUMENT : static_cast<tcpx_code>(code);
  out.op = t.plan.op;
  copy_text(path, out.path, sizeof out.path);
  copy_text(interfaces, out.interfaces, sizeof out.interfaces);
  out.bytes = t.plan.bytes;
  out.pieces = t.plan.pieces;
  out.runs = t.plan.runs.size();
  out.chunks = t.plan.chunks.size();
  out.staging_copies = t.staging_bytes;
  out.retries = t.retries;
  for (const LaneShare& share : t.shares) out.lanes_used += share.chunks > 0;
  out.lanes_lost = t.lanes_lost;
  out.peer_generation = t.peer->session();
  out.queued_us = span_us(t.posted_at, t.first_out);
  out.moving_us = span_us(t.first_out, t.last_settled);
  out.notify_us = span_us(t.notice_out, t.ended_at);
  out.total_us = span_us(t.posted_at, t.ended_at);
  return out;
}

std::string receipt_json_of(TransferState& t) {
  tcpx_receipt r = receipt_of(t);
  Json lanes = Json::array();
  {
    LaneList all = t.peer->lanes();
    std::lock_guard lock(t.peer->mu);
    for (PeerLane* lane : all) {
      if (lane->index() >= t.shares.size() || t.shares[lane->index()].chunks == 0) continue;
      const LaneShare& share = t.shares[lane->index()];
      lanes.push_back({{"lane", lane->index()},
                       {"interface", lane->lane().interface()},
                       {"remote", lane->lane().remote()},
                       {"open", lane->open()},
                       {"bytes", share.bytes},
                       {"chunks", share.chunks}});
    }
  }
  Json out = {{"result", code_name(r.result)},
              {"op", r.op == TCPX_WRITE ? "write" : "read"},
              {"path", r.path},
              {"interfaces", r.interfaces},
              {"bytes", r.bytes},
              {"pieces", r.pieces},
              {"runs", r.runs},
              {"chunks", r.chunks},
              {"staging_copies", r.staging_copies},
              {"retries", r.retries},
              {"lanes_used", r.lanes_used},
              {"lanes_lost", r.lanes_lost},
              {"peer_generation", strf("{:016x}", r.peer_generation)},
              {"queued_us", r.queued_us},
              {"moving_us", r.moving_us},
              {"notify_us", r.notify_us},
              {"total_us", r.total_us},
              {"lanes", lanes}};
  return out.dump();
}

std::string EngineCore::counters_json() {
  std::vector<std::shared_ptr<Peer>> peers;
  {
    std::lock_guard lock(mu_);
    for (auto& [id, peer] : peers_) peers.push_back(peer);
  }
  Json list = Json::array();
  for (auto& peer : peers) list.push_back(peer_json(*peer));
  Json out = {{"schema", 1},
              {"version", kVersion},
              {"engine_id", to_hex(uid_)},
              {"engine", engine_json(shared_.counters, shared_, service_->half_open())},
              {"peers", list}};
  return out.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace tcpx
