// One GPU of an engine: its context, streams, pinned staging and kernels, and the thread that alone
// makes CUDA calls for transfers. A call may wait for a lock of the driver as long as another
// thread of the process is in cudaFree (150 ms were seen): that costs this thread's transfers, and
// no loop.
//
// Nothing is created, allocated or waited for once it is open.
//
// More than 30 members: all that is open stays so, to the end.
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/log.h"
#include "base/status.h"
#include "gpu/cuda_driver.h"
#include "gpu/kernels/pieces.h"
#include "gpu/move_queue.h"
#include "gpu/staging_cut.h"

namespace tcpx::gpu {

struct GpuSettings {
  uint64_t staging = 64u << 20;  // pinned bytes, both ways together
  uint64_t slot = 0;             // bytes; 0: as large as a chunk
  uint64_t chunk = 512u << 10;   // bytes, the largest of ours
  uint32_t blocks = 2;           // of a kernel
  Nanos spin = 200 * kMicro;     // of its thread, before it sleeps
  uint32_t loops = 1;            // that share it

  StagingCut cut() const { return {staging, slot, chunk, loops}; }
};

class Gpu : public std::enable_shared_from_this<Gpu> {
 public:
  // Ready to move, or why not. Takes as long as CUDA needs to make a context where there is none.
  static Status open(const CudaDriver& driver, int device, const GpuSettings& settings,
                     const Log& log, std::shared_ptr<Gpu>* out);
  Gpu(const CudaDriver& driver, int device, const GpuSettings& settings, const Log& log);
  ~Gpu();
  // No more moves are begun. Waits for those under way, but not for ever: what does not end keeps
  // its memory.
  void close();

  // ---- loops ----
  // A loop's part of the staging: as many slots for each use.
  struct Part {
    uint8_t* slots = nullptr;  // first those to send from, then those to receive into
    uint32_t of_each = 0;
    std::shared_ptr<MoveQueue> queue;
  };
  Part take_part(MoveWatcher& watcher);  // once per loop; none left: of_each is 0
  uint32_t slots_of_each() const { return cut_.slots_of_each; }
  uint32_t slots_of_a_chunk() const { return static_cast<uint32_t>(cut_.chunk / cut_.slot); }
  void wake() {
    if (asleep_.load(std::memory_order_seq_cst) != 0) wake_thread();
  }
  // Nothing of it touches memory any more, and nothing will.
  bool lost() const { return lost_.load(std::memory_order_acquire); }
  std::string lost_why() const;
  uint64_t slot_bytes() const { return cut_.slot; }
  uint64_t chunk_bytes() const { return cut_.chunk; }

  // ---- anybody ----
  // CUDA waits with copies of its own to and from this memory until they are over; without, what a
  // synchronous cudaMemcpy has just returned from may not be there yet when it is sent.
  Status sync_memops(const void* base, uint64_t length);
  const std::string& describe() const { return description_; }
  struct Counts {
    std::atomic<uint64_t> copies{0}, kernels{0}, moves{0}, refused{0};
    std::atomic<uint64_t> bytes_out{0}, bytes_in{0};
    std::atomic<Nanos> longest_call{0};
  };
  const Counts& counts() const { return counts_; }

 private:
  void sync_context();
  // The thread's: gpu.cc
  void run();
  Status set_up();
  void set_up_kernels();
  void bind_near();
  void tear_down();
  // gpu_moves.cc
  void serve();
  void take_queues();
  bool begin_some();
  void begin(MoveQueue& queue, MoveJob& job);
  static bool wants_kernel(const MoveJob& job);
  cu::Stream stream_of(Lane lane, const MoveQueue& queue) const {
    return streams_[static_cast<size_t>(lane)][queue.number() % kStreams];
  }
  cu::Result submit_copies(MoveJob& job, cu::Stream stream);
  cu::Result submit_kernels(MoveJob& job, cu::Stream stream);
  bool under_way() const;
  Nanos loops_at_work(Nanos now) const;
  bool tell(bool all);
  void watch(Nanos now);
  bool watch(Lane lane, size_t number, Nanos now);
  void lose();
  void fail(MoveJob& job, cu::Result result) noexcept;
  void stop_using(cu::Result why) noexcept;
  bool streams_are_empty();
  void sleep(Nanos at_most, bool waited_for);
  // Anybody's.
  void wake_thread() noexcept;

  const CudaDriver& cuda_;
  const int device_;
  const GpuSettings settings_;
  const StagingCut cut_;
  const Log log_;
  std::string description_;

  cu::Device handle_ = 0;
  cu::Context context_ = nullptr;
  // Several of a kind, loops take turns: between two operations of one stream the GPU rests for
  // some 5 us, which the other streams' fill.
  static constexpr size_t kStreams = 4;
  cu::Stream streams_[kLanes][kStreams] = {};
  cu::Module module_ = nullptr;
  cu::Function gather_ = nullptr, scatter_ = nullptr;
  std::string no_kernels_;  // why
  uint8_t* staging_ = nullptr;
  Marks* marks_ = nullptr;

  std::thread thread_;
  std::mutex mu_;
  std::condition_variable changed_;
  // Guarded by mu_:
  bool opened_ = false, ended_ = false;
  Status opening_;
  std::vector<std::shared_ptr<MoveQueue>> queues_;
  uint32_t parts_ = 0;  // taken

  std::atomic<bool> closing_{false};
  std::atomic<uint32_t> queues_changed_{0};
  std::atomic<uint32_t> asleep_{0};  // what the thread sleeps on
  std::atomic<bool> lost_{false};
  std::string lost_why_;  // before lost_
  std::once_flag synced_context_;
  Counts counts_;

  // Of the thread.
  std::vector<std::shared_ptr<MoveQueue>> served_;
  uint32_t served_version_ = 0;
  struct Progress {
    uint64_t reached = 0;
    Nanos since = 0, asked = 0;
  };
  Progress progress_[kLanes][kStreams];
  bool kernels_held_ = false;
  bool unusable_ = false;  // no more moves are begun; lost once those under way have ended
  Nanos awake_until_ = 0;  // for what may come next
  Nanos moved_ = 0;        // something was begun, or a stream got further
  Nanos told_all_ = 0;
  Pieces pieces_;
};

}  // namespace tcpx::gpu
