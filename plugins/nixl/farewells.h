// Goodbyes that nobody waits for: to a peer that does not answer one takes half a second.
#pragma once

#include <tcpx/tcpx.h>

#include <atomic>
#include <list>
#include <system_error>
#include <thread>

#include "guarded.h"

namespace tcpx_nixl {

class Farewells {
 public:
  ~Farewells() {
    for (Going& each : going_) each.thread.join();
  }
  void say(tcpx_engine* engine, tcpx_peer peer) {
    tcpx::MutexLock lock(mu_);
    going_.remove_if([](Going& each) {
      bool said = each.said;  // once: a thread that says it between two looks is not joined
      if (said) each.thread.join();
      return said;
    });
    Going& mine = going_.emplace_back();
    try {
      mine.thread = std::thread([&mine, engine, peer] {
        (void)tcpx_disconnect(engine, peer);
        mine.said = true;
      });
    } catch (const std::system_error&) {  // no thread to be had: then somebody waits
      going_.pop_back();
      (void)tcpx_disconnect(engine, peer);
    }
  }

 private:
  struct Going {
    std::thread thread;
    std::atomic<bool> said{false};
  };
  tcpx::Mutex mu_;
  std::list<Going> going_ TCPX_GUARDED_BY(mu_);
};

}  // namespace tcpx_nixl
