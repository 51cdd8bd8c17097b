// What a loop drives: its sources, and one round of asking them. Everything here happens in the
// loop's exclusive section; who is in it is path/loop.h's business.
#pragma once

#include <sys/epoll.h>

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "memory/mover.h"
#include "path/ask_list.h"
#include "path/event_set.h"
#include "path/inside.h"
#include "path/turns.h"

namespace tcpx {

// What a source has left to do that no event announces: nothing; something it can do now; something
// that is over when it is over (a copy on a GPU), which it has to be asked about.
enum class Work : uint8_t { kNone, kMore, kWaiting };

// What a loop drives. All calls are made in the loop's exclusive section.
class LoopSource {
 public:
  virtual ~LoopSource() = default;
  virtual void on_events(uint32_t epoll_events) = 0;
  virtual void on_wake() = 0;
  // Does some of it, and tells what is left.
  virtual Work on_hot() = 0;
  // Asked instead of epoll whether anything came (Loop::heard).
  virtual bool on_spin() { return false; }
  // A call of the above threw. It costs this source alone, which ends; memory may be out.
  virtual void on_failure(const Status&) noexcept {}
};

class LoopSources {
 public:
  // Ends the process, where the build checks that, if this thread is not inside.
  void assert_inside() const { inside_.check(); }
  // Sources of one owner take their turns together: an owner with 64 of them gets no more of the
  // loop than one with a single source.
  Status add(int fd, std::shared_ptr<LoopSource> source, uint32_t* index, uint64_t owner = 0);
  void remove(uint32_t index, int fd);
  // Whether room to send is an event for this source.
  void watch_room(uint32_t index, int fd, bool on) {
    assert_inside();
    events_.watch_room(fd, index, on);
  }
  // The source has more to do: on_hot() in the next round.
  void make_hot(uint32_t index) {
    assert_inside();
    asked_.ask_now(index);
  }
  // on_hot() in every round, and at least every millisecond. That keeps no loop spinning.
  void make_waiting(uint32_t index) {
    assert_inside();
    asked_.ask_waiting(index);
  }
  // Something came from this source at `now`, and more is likely to: on_spin() in every round.
  void heard(uint32_t index, Nanos now) {
    assert_inside();
    saw_clock(now);
    asked_.ask_until(index, now + tuning::kAskedFor);
  }
  // For what is left of a source that has gone: called until it returns true, as often as those who
  // wait.
  void finish_later(std::function<bool()> finish) {
    assert_inside();
    unfinished_.push_back(std::move(finish));
  }
  // Of this loop alone; null where nothing is moved.
  Mover* mover() const { return mover_.get(); }
  // How much the source may do in this round, in bytes of payload; handling a frame has its price,
  // too. 0: its owner has had its turn; be hot, and come again in the next round.
  uint64_t turn_left(uint32_t index) const {
    assert_inside();
    return turns_.left(index);
  }
  void spend(uint32_t index, uint64_t cost) {
    assert_inside();
    turns_.spend(index, cost);
  }
  // Lanes say whether they expect traffic, so that the loop spins longer before it sleeps.
  void engage(int delta) {
    assert_inside();
    engaged_ += delta;
  }

 protected:
  static constexpr uint32_t kMaxSources = 1 << 16;
  static constexpr int kEventsPerPoll = 64;

  // One round of those who are asked by themselves, and of epoll unless they were asked instead of
  // it. Whether anything was found.
  bool poll_sources();
  // Events within `timeout_ms`; `woken` is called before they are handled.
  template <class Woken>
  bool poll_events(int timeout_ms, Woken&& woken);
  bool wake_source(uint32_t index);
  // Those who have more to do or wait for a move. `directly`: somebody was asked so that epoll need
  // not be.
  bool run_asked(bool* directly);
  bool finish_some();
  bool has_more() const { return asked_.any_now(); }
  bool awaits_moves() const { return !unfinished_.empty() || asked_.any_waits(); }
  bool something_is_due() const { return engaged_ > 0; }
  size_t source_count() const { return sources_.size(); }
  // The clock as it was at the end of the last round, or when a source was heard: near enough for
  // who is asked for a millisecond, and one look less in each round.
  Nanos seen_clock() const { return seen_clock_; }
  void saw_clock(Nanos now) { seen_clock_ = now; }

  EventSet events_;
  Inside inside_;
  Turns turns_;
  std::unique_ptr<Mover> mover_;

 private:
  template <class F>
  bool with_source(uint32_t index, F&& f);
  void handle(const epoll_event& event);
  void has_left(uint32_t index, Work work);

  std::vector<std::shared_ptr<LoopSource>> sources_;
  std::vector<uint32_t> free_sources_;
  AskList asked_;
  uint32_t rounds_without_epoll_ = 0;
  Nanos seen_clock_ = 0;
  int engaged_ = 0;
  std::list<std::function<bool()>> unfinished_;
};

template <class Woken>
bool LoopSources::poll_events(int timeout_ms, Woken&& woken) {
  epoll_event events[kEventsPerPoll];
  int count = events_.wait(events, timeout_ms);
  woken();
  for (int i = 0; i < count; ++i) handle(events[i]);
  return count > 0;
}

}  // namespace tcpx
