// What those who use lanes have to know of their path. Each asks for the trait that it means;
// nobody asks by which path a lane goes.
#pragma once

#include "memory/place.h"

namespace tcpx {

struct LaneTraits {
  // Calls code that may not come back (a plugin). Its thread is watched, and nothing is left with
  // the lane that somebody else could not take back. No caller may drive it.
  bool may_hang = false;
  // Whoever waits for a transfer makes its progress himself: no thread has to be woken for it.
  bool caller_may_drive = true;
  // What is sent behind payload is not there before it, and who hears the stream knows that payload
  // moves.
  bool keeps_stream_order = true;
  // Nothing announces its progress: while payload is under way it is asked all the time.
  bool busy_polls = false;
  // Of memory elsewhere every byte passes through a slot. Of this memory, what Lane::reaches() says
  // is sent from and received into as it lies.
  PlaceKinds places = PlaceKinds(Place::Kind::kHost);

  // A loop and a thread that it shares with no other lane, which they could not bear.
  bool own_loop() const { return may_hang || busy_polls || !caller_may_drive; }
};

}  // namespace tcpx
