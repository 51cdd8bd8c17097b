// The end of an engine: goodbyes, then everything that has a thread.
#include <chrono>
#include <thread>

#include "base/caught.h"
#include "base/mutex.h"
#include "engine/engine.h"
#include "engine/goodbye.h"
#include "engine/notice_queue.h"

namespace tcpx {

namespace {

// A thread that a plugin holds may come back and find its lane, its peer and what they use.
void leave_behind(std::shared_ptr<Peer> peer) {
  static Mutex mu;
  static auto* const left = new std::vector<std::shared_ptr<Peer>>;
  MutexLock lock(mu);
  left->push_back(std::move(peer));
}

}  // namespace

EngineCore::~EngineCore() {
  peers_.shut();
  shared_.inbox->shut();
  quietly([&] {  // with no memory left they see us close without a word
    say_goodbye(peers_.all(), peer_error(TCPX_SHUTDOWN, "the engine was destroyed"),
                kGoodbyePatience);
  });
  if (door_) door_->stop();
  service_.stop();
  size_t hung = end_all();  // also those that came meanwhile
  shared_.loops.clear();    // joins the threads
  if (hung == 0) return;
  shared_.log.error("{} threads hang in a net plugin and are left behind", hung);
  shared_.defer = [](const std::function<void()>&) {};
  shared_.hurry = [] {};
  (void)shared_owner_.release();
}

// Until nothing of them is left, but for lanes that a plugin does not let go: how many.
size_t EngineCore::end_all() noexcept {
  size_t hung = 0;
  peers_.each_at_the_end([&](const std::shared_ptr<Peer>& peer) {
    peer->ending().for_good(Status(TCPX_SHUTDOWN, TCPX_BLAST_PEER, "engine is gone"));
    bool dismantled = false;
    while (!quietly([&] { dismantled = peer->ending().dismantle(kNever); }))
      std::this_thread::sleep_for(std::chrono::milliseconds(1));  // for want of memory
    if (dismantled) return;
    hung += peer->ending().lanes_not_shut();
    leave_behind(peer);
  });
  return hung;
}

}  // namespace tcpx
