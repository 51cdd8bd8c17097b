#include "engine/report.h"

#include <algorithm>
#include <cstring>
#include <map>
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

double to_us(Nanos time) {
  return static_cast<double>(time) / kMicro;
}

double span_us(Nanos from, Nanos to) {
  return from == 0 || to == 0 || to < from ? 0 : to_us(to - from);
}

// Of places: "host", "cuda", "host+cuda".
std::string kinds_of(PlaceMask places) {
  const bool host = (places & kHostBit) != 0, cuda = (places & ~kHostBit) != 0;
  return host && cuda ? "host+cuda" : cuda ? "cuda" : "host";
}

void add_staging(const TransferState& t, tcpx_receipt* out) {
  const Staging& staging = t.staging;
  copy_text(kinds_of(t.plan.local_places), out->local_memory, sizeof out->local_memory);
  copy_text(kinds_of(t.plan.remote_places), out->remote_memory, sizeof out->remote_memory);
  (t.plan.op == TCPX_WRITE ? out->staged_out : out->staged_in) = staging.bytes;
  out->copies = staging.copies;
  out->kernels = staging.kernels;
  out->kernels_missing = staging.kernels_missing;
  out->slot_wait_us = to_us(staging.slots.sum(now_ns()));
  out->submit_wait_us = to_us(staging.submitting.sum());
  out->staging_us = to_us(staging.moving.sum());
}

// What a fact about lanes is for those that carried a part, e.g. the names of their interfaces.
std::string of_lanes(const TransferState& transfer, const std::vector<LaneReport>& lanes,
                     const char* separator, std::string LaneReport::*fact) {
  std::set<std::string> names;
  for (const LaneReport& lane : lanes)
    if (lane.index < transfer.shares.size() && transfer.shares[lane.index].chunks > 0)
      names.insert(lane.*fact);
  return join(names, separator);
}

Json lane_json(const LaneReport& lane, const std::string& thread_cpus) {
  Json out = {{"index", lane.index},
              {"open", lane.open},
              {"path", lane.path},
              {"interface", lane.interface},
              {"remote", lane.remote},
              {"bytes_out", lane.bytes_out},
              {"bytes_in", lane.bytes_in},
              {"frames_out", lane.frames_out},
              {"frames_in", lane.frames_in},
              {"send_calls", lane.send_calls},
              {"receive_calls", lane.receive_calls},
              {"chunks_in_flight", lane.chunks_in_flight},
              {"thread_cpus", thread_cpus}};
  if (!lane.carrier) return out;
  const CarrierReport& carrier = *lane.carrier;
  if (carrier.send_occupancy >= 0) out["send_window_occupancy"] = carrier.send_occupancy;
  if (carrier.receive_occupancy >= 0) out["receive_window_occupancy"] = carrier.receive_occupancy;
  out["send_requests"] = carrier.sends;
  out["receive_requests"] = carrier.receives;
  out["receives_consumed"] = carrier.consumed;
  return out;
}

Json peer_json(Peer& peer) {
  Json lanes = Json::array();
  std::map<uint32_t, std::string> cpus;
  for (PeerLane* lane : peer.lanes()) cpus[lane->index()] = lane->loop().thread_cpus();
  for (const LaneReport& lane : peer.lane_reports())
    lanes.push_back(lane_json(lane, cpus[lane.index]));
  const Session::State state = peer.state();
  const bool over = state == Session::State::kEnding || state == Session::State::kEnded;
  return {{"id", peer.id()},
          {"name", escaped(peer.name())},
          {"state", SessionRules::kStates[static_cast<size_t>(state)].name},
          {"ended_with", over ? peer.end_status().to_string() : ""},
          {"inbound", peer.inbound},
          {"generation", strf("{:016x}", peer.generation())},
          {"lanes", lanes}};
}

Json engine_json(const EngineCounters& c, EngineShared& shared, size_t half_open) {
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
          {"notifications_held_back", get(c.notifications_held_back)},
          {"regions", shared.regions.size()},
          {"progress_threads", shared.loops.size()},
          {"progress_thread_cpus", cpus},
          {"progress_sleeps", sleeps}};
}

}  // namespace

LaneReport report_of(PeerLane& lane) {
  const LaneCounters& c = lane.lane().counters();
  LaneReport out;
  out.index = lane.index();
  out.open = lane.open();
  out.path = lane.lane().path();
  out.interface = lane.lane().interface();
  out.remote = lane.lane().remote();
  out.bytes_out = c.bytes_out.load();
  out.bytes_in = c.bytes_in.load();
  out.frames_out = c.frames_out.load();
  out.frames_in = c.frames_in.load();
  out.send_calls = c.send_calls.load();
  out.receive_calls = c.receive_calls.load();
  out.chunks_in_flight = lane.in_flight();
  out.carrier = lane.lane().carrier_report();
  return out;
}

std::string path_of(Peer& peer) {
  std::set<std::string> paths;
  for (const LaneReport& lane : peer.lane_reports()) paths.insert(lane.path);
  return join(paths, "+");
}

std::string interfaces_of(Peer& peer) {
  std::set<std::string> names;
  for (const LaneReport& lane : peer.lane_reports())
    if (lane.open) names.insert(lane.interface);
  return join(names, ",");
}

tcpx_receipt receipt_of(TransferState& t) {
  tcpx_receipt out{};
  std::string anyway = path_of(*t.peer);
  std::vector<LaneReport> lanes = t.peer->lane_reports();
  PeerLock lock(t.peer->parts());
  std::string interfaces = of_lanes(t, lanes, ",", &LaneReport::interface);
  std::string path = of_lanes(t, lanes, "+", &LaneReport::path);
  if (path.empty()) path = anyway;  // nothing had to be carried
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
  out.peer_generation = t.peer->generation();
  out.queued_us = span_us(t.posted_at, t.first_out);
  out.moving_us = span_us(t.first_out, t.last_settled);
  out.notify_us = span_us(t.notice_out, t.ended_at);
  out.total_us = span_us(t.posted_at, t.ended_at);
  add_staging(t, &out);
  return out;
}

std::string receipt_json_of(TransferState& t) {
  tcpx_receipt r = receipt_of(t);
  Json lanes = Json::array();
  {
    std::vector<LaneReport> all = t.peer->lane_reports();
    PeerLock lock(t.peer->parts());
    // All of them: that one carried nothing is told too.
    for (const LaneReport& lane : all) {
      LaneShare share = lane.index < t.shares.size() ? t.shares[lane.index] : LaneShare{};
      lanes.push_back({{"lane", lane.index},
                       {"interface", lane.interface},
                       {"remote", lane.remote},
                       {"open", lane.open},
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
              {"local_memory", r.local_memory},
              {"remote_memory", r.remote_memory},
              {"staged_out", r.staged_out},
              {"staged_in", r.staged_in},
              {"copies", r.copies},
              {"kernels", r.kernels},
              {"kernels_missing", r.kernels_missing},
              {"slot_wait_us", r.slot_wait_us},
              {"submit_wait_us", r.submit_wait_us},
              {"staging_us", r.staging_us},
              {"lanes", lanes}};
  return out.dump();
}

std::string EngineCore::counters_json() {
  Json list = Json::array();
  for (auto& peer : peers_.all()) list.push_back(peer_json(*peer));
  Json out = {
      {"schema", 1},
      {"version", kVersion},
      {"engine_id", to_hex(shared_.uid)},
      {"engine", engine_json(shared_.counters, shared_, service_.half_open() + door_->visitors())},
      {"peers", list}};
  return out.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace tcpx
