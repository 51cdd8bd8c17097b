#include "engine/lane_ledger.h"

#include <utility>

namespace tcpx {

void LaneLedger::lost(uint32_t lane, UnconfirmedWrites writes) {
  limbo_[lane] = std::move(writes);
  for (auto& [index, unconfirmed] : limbo_) to_ask_about_.add(index);
  for (LaneBits again = closed_; !again.empty();) to_confirm_.add(again.take_first());
  say();
}

bool LaneLedger::confirmed(uint32_t lane, UnconfirmedWrites* out) {
  auto found = limbo_.find(lane);
  if (found == limbo_.end()) return false;
  *out = std::move(found->second);
  limbo_.erase(found);
  return true;
}

// A peer that says it again is told again, by the lane that brought it.
bool LaneLedger::given_up_by_peer(uint32_t lane) {
  if (closed_.has(lane)) {
    to_confirm_.add(lane);
    say();
  }
  if (given_up_.has(lane)) return false;
  given_up_.add(lane);
  to_close_.add(lane);
  return true;
}

LaneBits LaneLedger::take_to_close() {
  return std::exchange(to_close_, {});
}

void LaneLedger::closed(uint32_t lane) {
  closed_.add(lane);
  to_confirm_.add(lane);
  say();
}

bool LaneLedger::next(News* out) {
  if (!to_ask_about_.empty()) {
    *out = {News::Kind::kQuestion, to_ask_about_.take_first()};
    return true;
  }
  if (!to_confirm_.empty()) {
    *out = {News::Kind::kAnswer, to_confirm_.take_first()};
    return true;
  }
  news_.store(false, std::memory_order_relaxed);
  return false;
}

// A lane is lost once, and then asks once more about each one that is not confirmed yet.
bool LaneLedger::heard_too_much() {
  constexpr uint32_t kMost = 2 * wire::kMaxLanes * wire::kMaxLanes;  // questions and answers
  return heard_.fetch_add(1, std::memory_order_relaxed) >= kMost;
}

void LaneLedger::forget_all() {
  limbo_.clear();
  to_ask_about_ = to_confirm_ = closed_ = {};
}

}  // namespace tcpx
