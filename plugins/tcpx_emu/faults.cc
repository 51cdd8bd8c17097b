#include "faults.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>

#include "counters.h"
#include "log.h"

namespace tcpx_emu {

namespace {

enum class Argument { kNone, kOptional, kNumber, kFunction, kFunctionAndNumber };

struct Kind {
  const char* name;
  Fault fault;
  Argument argument;
};
constexpr Kind kKinds[] = {
    {"no_cmsg", Fault::kNoCmsg, Argument::kNone},
    {"host_landed", Fault::kHostLanded, Argument::kNone},
    {"pool_starved", Fault::kPoolStarved, Argument::kOptional},
    {"steering_refused", Fault::kSteeringRefused, Argument::kOptional},
    {"steering_silent", Fault::kSteeringSilent, Argument::kNone},
    {"device_lost", Fault::kDeviceLost, Argument::kNone},
    {"data_hang", Fault::kDataHang, Argument::kNone},
    {"ctrl_closed", Fault::kCtrlClosed, Argument::kNone},
    {"slow_socket", Fault::kSlowSocket, Argument::kNumber},
    {"late_consume", Fault::kLateConsume, Argument::kNumber},
    {"done_delayed", Fault::kDoneDelayed, Argument::kNumber},
    {"connect_at_once", Fault::kConnectAtOnce, Argument::kNone},
    {"connect_polls", Fault::kConnectPolls, Argument::kNumber},
    {"exit_in", Fault::kExitIn, Argument::kFunction},
    {"hang_in", Fault::kHangIn, Argument::kFunction},
    {"flood_in", Fault::kFloodIn, Argument::kFunction},
    {"fail_in", Fault::kFailIn, Argument::kFunction},
    {"pause_in", Fault::kPauseIn, Argument::kFunctionAndNumber},
    {"bad_handle", Fault::kBadHandle, Argument::kNone},
};
constexpr std::string_view kFunctions[] = {"init",  "listen", "connect", "accept",  "regmr",
                                           "isend", "irecv",  "test",    "consume", "close"};

bool parse_number(std::string_view text, int64_t* out) {
  int shift = 0;
  if (!text.empty()) {
    switch (text.back()) {
      case 'K': shift = 10; break;
      case 'M': shift = 20; break;
      case 'G': shift = 30; break;
      default: break;
    }
    if (shift > 0) text.remove_suffix(1);
  }
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *out);
  if (error != std::errc() || end != text.data() + text.size() || *out < 0) return false;
  if (*out > (INT64_MAX >> shift)) return false;
  *out <<= shift;
  return true;
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

// Cuts what follows `mark` off `text`; false if there is no mark.
bool cut(std::string_view* text, char mark, std::string_view* tail) {
  size_t at = text->find(mark);
  if (at == std::string_view::npos) return false;
  *tail = text->substr(at + 1);
  *text = text->substr(0, at);
  return true;
}

std::string bad(std::string_view item, const std::string& why) {
  return "TCPX_EMU_FAULTS: \"" + std::string(item) + "\": " + why;
}

std::string kind_names() {
  std::string out;
  for (const Kind& kind : kKinds) out += (out.empty() ? "" : ", ") + std::string(kind.name);
  return out;
}

}  // namespace

std::string FaultPlan::parse(std::string_view text) {
  for (std::string_view rest; !text.empty(); text = rest) {
    rest = {};
    cut(&text, ';', &rest);
    text = trimmed(text);
    if (text.empty()) continue;
    if (std::string problem = parse_item(text); !problem.empty()) return problem;
  }
  return {};
}

// name[@n][:arg][,dev=D]
std::string FaultPlan::parse_item(std::string_view text) {
  std::string_view name = text, device, argument, count;
  bool has_device = cut(&name, ',', &device);
  bool has_argument = cut(&name, ':', &argument);
  bool has_count = cut(&name, '@', &count);
  const Kind* kind = std::find_if(std::begin(kKinds), std::end(kKinds),
                                  [&](const Kind& k) { return name == k.name; });
  if (kind == std::end(kKinds)) return bad(text, "no such fault; there are: " + kind_names());

  int64_t n = 1, dev = -1, arg = -1;
  if (has_count && (!parse_number(count, &n) || n < 1)) return bad(text, "after @ a number from 1");
  if (has_device && (!device.starts_with("dev=") || !parse_number(device.substr(4), &dev) ||
                     dev >= TCPX_EMU_MAX_DEVICES))
    return bad(text, "after the comma dev=D, with D from 0 to 15");
  bool of_function =
      kind->argument == Argument::kFunction || kind->argument == Argument::kFunctionAndNumber;
  if (of_function) {
    std::string_view milliseconds;
    if (kind->argument == Argument::kFunctionAndNumber &&
        (!cut(&argument, '/', &milliseconds) || !parse_number(milliseconds, &arg)))
      return bad(text, "after the function /milliseconds");
    if (std::find(std::begin(kFunctions), std::end(kFunctions), argument) == std::end(kFunctions)) {
      std::string known;
      for (std::string_view f : kFunctions) known += (known.empty() ? "" : ", ") + std::string(f);
      return bad(text, "after : one of " + known);
    }
  } else if (kind->argument == Argument::kNone && has_argument) {
    return bad(text, "takes nothing after :");
  } else if (kind->argument == Argument::kNumber && !has_argument) {
    return bad(text, "needs a number after :");
  } else if (has_argument && !parse_number(argument, &arg)) {
    return bad(text, "after : a number, e.g. 100 or 64M");
  }

  Item& item = items_.emplace_back();
  item.fault = kind->fault;
  item.n = static_cast<uint64_t>(n);
  item.arg = arg;
  if (of_function) item.function = argument;
  item.device = static_cast<int>(dev);
  return {};
}

void FaultPlan::mark_fired(Item& item, int device) {
  if (item.fired.exchange(true)) return;
  add(counters(std::max(device, 0)).faults_fired);
  for (const Kind& kind : kKinds)
    if (kind.fault == item.fault)
      EMU_INFO("fault %s%s%s on device %d", kind.name, item.function.empty() ? "" : ":",
               item.function.c_str(), device);
}

template <class Holds>
const FaultPlan::Item* FaultPlan::find(Fault fault, int device, bool count, Holds holds) {
  const Item* found = nullptr;
  for (Item& item : items_) {
    if (item.fault != fault || (item.device >= 0 && item.device != device)) continue;
    uint64_t seen = count ? item.seen.fetch_add(1) + 1 : 0;
    if (found != nullptr || !holds(item, seen)) continue;
    mark_fired(item, device);
    found = &item;
  }
  return found;
}

const FaultPlan::Item* FaultPlan::at(Fault fault, int device) {
  return find(fault, device, true, [](const Item& item, uint64_t seen) { return seen == item.n; });
}

const FaultPlan::Item* FaultPlan::from(Fault fault, int device) {
  return find(fault, device, true, [](const Item& item, uint64_t seen) { return seen >= item.n; });
}

const FaultPlan::Item* FaultPlan::always(Fault fault, int device) {
  return find(fault, device, false, [](const Item&, uint64_t) { return true; });
}

bool FaultPlan::called(std::string_view function, int device) {
  bool good = true;
  for (Item& item : items_) {
    if (item.function != function) continue;
    if (item.device >= 0 && item.device != device) continue;
    uint64_t seen = item.seen.fetch_add(1) + 1;
    if (seen < item.n) continue;
    if (item.fault == Fault::kPauseIn && seen > item.n) continue;
    mark_fired(item, device);
    if (item.fault == Fault::kPauseIn) {
      ::usleep(static_cast<useconds_t>(item.arg * 1000));
      continue;
    }
    if (item.fault == Fault::kExitIn) {
      EMU_WARN("CU failure: exit_in:%s", item.function.c_str());
      std::exit(1);
    }
    while (item.fault == Fault::kHangIn) ::sleep(1000);
    for (; item.fault == Fault::kFloodIn; ::usleep(1000))
      EMU_WARN("flood_in:%s, still trying", item.function.c_str());
    EMU_WARN("fail_in:%s", item.function.c_str());
    good = false;
  }
  return good;
}

}  // namespace tcpx_emu
