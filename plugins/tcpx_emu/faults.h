// The fault plan: what goes wrong, and when. The grammar is in docs/emulator.md.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>

namespace tcpx_emu {

enum class Fault {
  kNoCmsg,
  kHostLanded,
  kPoolStarved,
  kSteeringRefused,
  kSteeringSilent,
  kDeviceLost,
  kDataHang,
  kCtrlClosed,
  kSlowSocket,
  kLateConsume,
  kDoneDelayed,
  kConnectAtOnce,
  kConnectPolls,
  kExitIn,
  kHangIn,
  kFloodIn,
  kFailIn,
  kPauseIn,
  kBadHandle,
};

class FaultPlan {
 public:
  struct Item {
    Fault fault;
    uint64_t n = 1;        // @n, from 1
    int64_t arg = -1;      // :arg, -1 if not given
    std::string function;  // of exit_in, hang_in, flood_in, fail_in and pause_in
    int device = -1;       // -1: any
    std::atomic<uint64_t> seen{0};
    std::atomic<bool> fired{false};
  };

  // "" or what is wrong with the text.
  std::string parse(std::string_view text);

  // Of a fault that strikes at its n-th occasion: this is an occasion; the item if it is the n-th.
  const Item* at(Fault fault, int device);
  // Of a fault that holds from its n-th occasion on: this is an occasion; the item if it holds.
  const Item* from(Fault fault, int device);
  // Of a fault that always holds; no occasion is counted.
  const Item* always(Fault fault, int device);
  // A call of the plugin begins. Does not return when the plan says so; false: the call fails.
  bool called(std::string_view function, int device);

 private:
  std::string parse_item(std::string_view text);
  template <class Holds>
  const Item* find(Fault fault, int device, bool count, Holds holds);
  void mark_fired(Item& item, int device);

  std::deque<Item> items_;  // an Item does not move
};

}  // namespace tcpx_emu
