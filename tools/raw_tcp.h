// The `raw` ceiling: what plain TCP connections do with the same bytes. No framing, no
// authentication past the token, no library of ours: send, recv and one small answer.
//
// A transfer of B bytes over N connections moves B/N bytes on each. WRITE: the client sends, the
// server answers once it has everything. READ: the client asks on every connection, the server
// sends. Two loops, and the better one is the ceiling: blocking calls (sleeps in the kernel), and
// non-blocking calls that spin. One thread per connection on each side; the first connection is
// served by the calling thread, so one connection costs no thread switch.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"

namespace tcpx::tool {

enum class RawLoop { kBlocking = 0, kSpinning = 1 };
const char* raw_loop_name(RawLoop loop);

struct RawTask {
  bool write = true;  // the client's bytes go to the server; else the other way
  RawLoop loop = RawLoop::kBlocking;
  uint64_t bytes = 0;            // of one transfer
  uint64_t transfers = 0;        // one after another
  Nanos timeout = 30 * kSecond;  // of one transfer
};

// Threads that wait for work and run it together; made once, started many times.
class Crew {
 public:
  explicit Crew(size_t size);
  ~Crew();
  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;

  size_t size() const { return threads_.size(); }
  // Every thread calls work(index), index from 0. `work` must not throw.
  void start(std::function<void(size_t)> work);
  void finish();  // waits until every thread has returned from it

 private:
  void loop(size_t index);

  std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable idle_;
  std::function<void(size_t)> work_;  // guarded by mutex_ until started
  uint64_t batch_ = 0;                // guarded by mutex_
  size_t running_ = 0;                // guarded by mutex_
  bool stop_ = false;                 // guarded by mutex_
  std::vector<std::thread> threads_;
};

// One end of N connected sockets. Not thread-safe: one caller at a time.
class RawLink {
 public:
  RawLink(std::vector<Fd> sockets, uint8_t* memory, uint64_t memory_size);

  size_t connections() const { return sockets_.size(); }
  // Server end: takes part in task.transfers transfers. Throws Failure.
  void serve(const RawTask& task);
  // Client end: makes task.transfers transfers and appends the time of each. Throws Failure.
  void run(const RawTask& task, std::vector<Nanos>* times);

 private:
  struct Share {
    uint64_t offset;
    uint64_t length;
  };
  void begin(const RawTask& task);
  void end();
  Share share(size_t connection) const;
  void guarded(const std::function<void()>& work);  // first failure wins and stops the others
  void serve_connection(size_t connection);
  void run_connection(size_t connection);
  void run_first(std::vector<Nanos>* times);
  void send_all(size_t connection, const void* data, uint64_t length);
  void recv_all(size_t connection, void* data, uint64_t length);
  void await(const std::atomic<uint32_t>& word, uint32_t value) const;
  void wake(const std::atomic<uint32_t>& word) const;
  void check(Nanos deadline, const char* doing) const;

  std::vector<Fd> sockets_;
  uint8_t* memory_;
  uint64_t memory_size_;
  Crew crew_;
  RawTask task_;
  size_t active_ = 0;  // connections with bytes to move: fewer than all when bytes are few
  std::atomic<bool> stop_{false};
  std::mutex error_mutex_;
  std::exception_ptr error_;  // guarded by error_mutex_
  // Written once per transfer and waited for by other threads, so each has its own cache line.
  alignas(64) std::atomic<uint32_t> turn_{0};      // client: transfers started
  alignas(64) std::atomic<uint32_t> finished_{0};  // client: shares finished by the crew
  alignas(64) std::atomic<uint32_t> missing_{0};   // server: shares not yet received
  alignas(64) std::atomic<uint32_t> ready_{0};     // server: crew threads at their socket
};

}  // namespace tcpx::tool
