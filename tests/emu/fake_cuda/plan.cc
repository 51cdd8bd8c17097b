#include "plan.h"

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <vector>

namespace fake_cuda {

namespace {

struct Entry {
  enum class What { kFail, kLose, kLock } what;
  std::string function;
  uint64_t from, to;  // which calls
  long value;
  uint64_t seen = 0;
};

constexpr int64_t kForEver = INT64_MAX;

// What the devices' threads read is atomic, and relaxed: it must not order what copies order.
struct Plan {
  std::mutex mutex;
  std::vector<Entry> entries;
  std::vector<uint64_t> hangs;  // how many copies from now
  std::atomic<uint64_t> hung{0}, released{0};
  std::atomic<int64_t> kernels_held_until{0};
  std::atomic<bool> one_by_one{false}, neighbours{false}, reservations{true}, any_context{false};
  std::atomic<int64_t> takes_ns[4] = {};
  std::atomic<uint64_t> device_memory{UINT64_MAX}, host_memory{UINT64_MAX};
};
Plan& plan() {
  static auto& only = *new Plan;
  return only;
}

bool which_calls(const std::string& text, uint64_t* from, uint64_t* to) {
  *from = 1, *to = UINT64_MAX;
  if (text == "*") return true;
  char* end = nullptr;
  *from = std::strtoull(text.c_str(), &end, 10);
  if (*from == 0 || end == text.c_str()) return false;
  if (std::strcmp(end, "+") == 0) return true;
  *to = *from;
  return *end == 0;
}

bool number(const std::string& text, uint64_t* out) {
  char* end = nullptr;
  *out = std::strtoull(text.c_str(), &end, 10);
  return !text.empty() && *end == 0;
}

// FUNCTION@N=VALUE
bool add_call(Entry::What what, const std::string& text) {
  const size_t at = text.find('@'), is = text.find('=');
  Entry entry{what, text.substr(0, at), 0, 0, 0};
  uint64_t value = 0;
  if (at == std::string::npos || is == std::string::npos || is < at ||
      !which_calls(text.substr(at + 1, is - at - 1), &entry.from, &entry.to) ||
      !number(text.substr(is + 1), &value))
    return false;
  entry.value = static_cast<long>(value);
  plan().entries.push_back(entry);
  return true;
}

void set_us(OpKind kind, uint64_t us) {
  plan().takes_ns[static_cast<int>(kind)].store(static_cast<int64_t>(us) * 1000,
                                                std::memory_order_relaxed);
}

bool add_value(const std::string& what, uint64_t n) {
  if (what == "hang") return n != 0 && (plan().hangs.push_back(n), true);
  if (what == "copy_us") return set_us(OpKind::kCopy, n), true;
  if (what == "kernel_us") return set_us(OpKind::kKernel, n), true;
  if (what == "write_us") return set_us(OpKind::kWrite, n), true;
  if (what == "neighbours_are_one") return plan().neighbours = n != 0, true;
  if (what == "ranges_are_reservations") return plan().reservations = n != 0, true;
  if (what == "any_context") return plan().any_context = n != 0, true;
  if (what == "one_by_one") return plan().one_by_one = n != 0, true;
  if (what == "device_memory") return plan().device_memory = n, true;
  if (what == "host_memory") return plan().host_memory = n, true;
  if (what != "hold_kernels") return false;
  plan().kernels_held_until = n == 0 ? kForEver : now_ns() + static_cast<int64_t>(n) * 1000000;
  return true;
}

bool add_entry(const std::string& entry) {
  const size_t colon = entry.find(':');
  if (colon == std::string::npos) return false;
  const std::string what = entry.substr(0, colon), rest = entry.substr(colon + 1);
  if (what == "fail") return add_call(Entry::What::kFail, rest);
  if (what == "lose") return add_call(Entry::What::kLose, rest);
  if (what == "lock") return add_call(Entry::What::kLock, rest);
  uint64_t n = 0;
  return number(rest, &n) && add_value(what, n);
}

}  // namespace

int64_t now_ns() {
  return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

bool add_to_plan(const char* entries) {
  std::lock_guard lock(plan().mutex);
  const std::string all = entries;
  for (size_t at = 0; at < all.size();) {
    const size_t end = std::min(all.find(';', at), all.size());
    const std::string entry = all.substr(at, end - at);
    at = end + 1;
    if (entry.empty() || add_entry(entry)) continue;
    std::fprintf(stderr, "fake CUDA: no such plan: %s\n", entry.c_str());
    return false;
  }
  return true;
}

void clear_plan() {
  Plan& p = plan();
  std::lock_guard lock(p.mutex);
  p.entries.clear();
  p.hangs.clear();
  for (auto& takes : p.takes_ns) takes = 0;
  p.device_memory = p.host_memory = UINT64_MAX;
  p.neighbours = p.any_context = false;
  p.reservations = true;
}

void release_plan() {
  Plan& p = plan();
  std::lock_guard lock(p.mutex);
  p.hangs.clear();
  p.released.store(p.hung, std::memory_order_relaxed);
  p.kernels_held_until.store(0, std::memory_order_relaxed);
}

Planned planned_for(const std::string& function) {
  Planned out;
  std::lock_guard lock(plan().mutex);
  for (Entry& entry : plan().entries) {
    if (entry.function != function) continue;
    ++entry.seen;
    if (entry.seen < entry.from || entry.seen > entry.to) continue;
    if (entry.what == Entry::What::kFail) out.fail = static_cast<int>(entry.value);
    if (entry.what == Entry::What::kLose) out.lose = static_cast<int>(entry.value);
    if (entry.what == Entry::What::kLock) out.lock_ms = static_cast<unsigned>(entry.value);
  }
  return out;
}

uint64_t planned_hang() {
  Plan& p = plan();
  std::lock_guard lock(p.mutex);
  bool hangs = false;
  for (uint64_t& left : p.hangs) hangs |= --left == 0;
  std::erase(p.hangs, 0);
  return hangs ? ++p.hung : 0;
}

bool hang_is_over(uint64_t ticket) {
  return ticket <= plan().released.load(std::memory_order_relaxed);
}

bool neighbours_are_one() {
  return plan().neighbours.load(std::memory_order_relaxed);
}

bool ranges_are_reservations() {
  return plan().reservations.load(std::memory_order_relaxed);
}

bool takes_any_context() {
  return plan().any_context.load(std::memory_order_relaxed);
}

bool is_one_by_one() {
  return plan().one_by_one.load(std::memory_order_relaxed);
}

bool kernels_are_held() {
  const int64_t until = plan().kernels_held_until.load(std::memory_order_relaxed);
  return until != 0 && now_ns() < until;
}

int64_t planned_ns(OpKind kind) {
  return plan().takes_ns[static_cast<int>(kind)].load(std::memory_order_relaxed);
}

bool has_room(bool device_memory, uint64_t bytes_in_all) {
  return bytes_in_all <= (device_memory ? plan().device_memory : plan().host_memory);
}

}  // namespace fake_cuda
