// A state with a name that takes only the steps it may take.
//
// Rules say what follows what:
//   struct DoorRules {
//     enum class State : uint8_t { kOpen, kClosed };
//     static constexpr const char* kWhat = "a door";
//     static constexpr std::array kStates = {Step{State::kOpen, "open", {State::kClosed}}, ...};
//   };
// in the order of the enum. A step that is not there is a mistake of ours, not of a caller or a
// peer: it is thrown where it is made, and costs the peer it was made for (base/caught.h).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <stdexcept>
#include <string>

namespace tcpx {

template <class State>
struct Step {
  State state;
  const char* name;
  uint32_t next = 0;  // bits of the states that may follow

  constexpr Step(State from, const char* called, std::initializer_list<State> to)
      : state(from), name(called) {
    for (State each : to) next |= 1u << static_cast<unsigned>(each);
  }
};

template <class Rules>
class Stepped {
 public:
  using State = typename Rules::State;

  constexpr Stepped() {
    for (size_t i = 0; i < Rules::kStates.size(); ++i)
      if (static_cast<size_t>(Rules::kStates[i].state) != i)
        throw std::logic_error("rules are not in the order of their enum");
  }
  State now() const { return state_; }
  bool operator==(State state) const { return state_ == state; }
  const char* name() const { return rule(state_).name; }
  static bool may(State from, State to) {
    return (rule(from).next >> static_cast<unsigned>(to) & 1) != 0;
  }
  void step(State to) {
    if (!may(state_, to)) [[unlikely]]
      wrong(to);
    state_ = to;
  }

 private:
  // Apart, so that a step is a look into a table where it is made.
  [[noreturn, gnu::cold, gnu::noinline]] void wrong(State to) const {
    throw std::logic_error(std::string(Rules::kWhat) + " went from " + name() + " to " +
                           rule(to).name);
  }
  static constexpr const Step<State>& rule(State state) {
    return Rules::kStates[static_cast<size_t>(state)];
  }
  State state_ = Rules::kStates[0].state;
};

}  // namespace tcpx
