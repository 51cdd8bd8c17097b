// The thread of a GPU at work: moves out of the queues of all loops into streams, and an eye on
// what becomes of them.
#include <algorithm>

#include "base/caught.h"
#include "base/futex.h"
#include "base/text.h"
#include "gpu/gpu.h"

namespace tcpx::gpu {

namespace {

// Up to so many pieces copies are submitted sooner (2.3 us each) than a kernel has done it (10 us);
// and pieces this long keep the copy engine busy by themselves.
constexpr size_t kFewPieces = 3;
constexpr uint64_t kLongPiece = 128u << 10;
// Streams in which nothing has moved for so long are asked what is wrong.
constexpr Nanos kLookAfter = kMilli;
// A kernel that has not ended by then waits for a GPU that others hold: the copy engine serves
// meanwhile.
constexpr Nanos kKernelHeld = 300 * kMicro;
constexpr Nanos kBetweenLooks = 100;
// Moves of less than this are somebody's latency, and the next is likely to follow: the thread
// stays awake for it as long as loops do. Larger ones come as a stream, which a sleep of 5 us now
// and then does not hold up; awake all the time the thread took 0.1 s of CPU per GB and side at 10
// GB/s. The more loops there are, the more of them wait for it, and the more likely it is that none
// of the cores is free when it is woken: eight lanes did 15 GB/s where it stayed awake for 50 us,
// 18 with 400.
constexpr uint64_t kSmall = 64u << 10;
constexpr Nanos kAwakePerLoop = 50 * kMicro;
// Loops that have brought a move within this are counted.
constexpr Nanos kAtWork = kMilli;
// When nothing has moved for so long (512 KiB take 16 us, a kernel 25), the thread sleeps between
// its looks, a part of the time for which it has waited already: a GPU that stands still keeps no
// core, and the wait for one that is slow is longer by that part at most.
constexpr Nanos kDozeAfter = 400 * kMicro;
constexpr Nanos kDozeShare = 4;

constexpr RangeName range_of(Lane lane) {
  switch (lane) {
    case Lane::kCopyOut: return RangeName::kCopyOut;
    case Lane::kCopyIn: return RangeName::kCopyIn;
    case Lane::kKernelOut: return RangeName::kGather;
    case Lane::kKernelIn: return RangeName::kScatter;
  }
  return RangeName::kCopyOut;
}

constexpr bool is_kernel(Lane lane) {
  return lane == Lane::kKernelOut || lane == Lane::kKernelIn;
}

}  // namespace

void Gpu::serve() {
  while (!closing_.load(std::memory_order_acquire)) {
    if (queues_changed_.load(std::memory_order_acquire) != served_version_) take_queues();
    // What held them may be over, and nobody has looked since.
    if (kernels_held_) watch(now_ns());
    if (begin_some()) continue;
    const Nanos now = now_ns();
    watch(now);
    const bool waited_for = tell(now - told_all_ > kLookAfter);
    const Nanos since = now - moved_;
    if (waited_for && since > kDozeAfter)
      sleep(std::min(since / kDozeShare, kLookAfter), true);
    else if (waited_for || now < awake_until_)
      relax(kBetweenLooks);
    else
      sleep(under_way() && !lost() ? kLookAfter : kNever, false);
  }
}

// Loops that do not look by themselves hear of what is over; `all`: those that wait for anything,
// so that they see their deadlines. Whether one of them waits still.
bool Gpu::tell(bool all) {
  bool waits = false;
  if (all) told_all_ = now_ns();
  for (auto& queue : served_) {
    const bool news = queue->has_news(lost()), under_way = queue->under_way() && !lost();
    if ((!news && !under_way) || !queue->unwatched()) continue;
    waits |= under_way;
    if (news || all) queue->tell(lost());
  }
  return waits;
}

void Gpu::take_queues() {
  std::lock_guard lock(mu_);
  served_version_ = queues_changed_.load(std::memory_order_relaxed);
  served_ = queues_;  // there is room
}

// One of each loop in turn.
bool Gpu::begin_some() {
  bool any = false;
  for (auto& queue : served_) {
    MoveJob* job = queue->next();
    if (job == nullptr) continue;
    queue->taken();
    any = true;
    if (!queue->closed()) begin(*queue, *job);
  }
  return any;
}

bool Gpu::wants_kernel(const MoveJob& job) {
  return job.memory.size() > kFewPieces && job.bytes / job.memory.size() < kLongPiece;
}

void Gpu::begin(MoveQueue& queue, MoveJob& job) {
  if (unusable_) return queue.refuse(job, lost_why_);
  const Nanos from = now_ns();
  const bool wants = wants_kernel(job), kernel = wants && gather_ != nullptr && !kernels_held_;
  job.lacked_kernel = wants && !kernel;
  job.lane = kernel ? (job.out ? Lane::kKernelOut : Lane::kKernelIn)
                    : (job.out ? Lane::kCopyOut : Lane::kCopyIn);
  job.range.begin(range_of(job.lane), job.bytes);
  const cu::Stream stream = stream_of(job.lane, queue);
  cu::Result result = kernel ? submit_kernels(job, stream) : submit_copies(job, stream);
  if (result != cu::kSuccess) fail(job, result);
  // Also behind a part of it: the rest has failed, but the memory is let go when the part is over.
  job.mark = queue.next_mark(job.lane);
  const cu::Result marked = cuda_.stream_write_value32(
      stream, reinterpret_cast<cu::Pointer>(queue.word(job.lane)), job.mark, 0);
  const Nanos now = now_ns(), took = now - from;
  queue.begun(now);
  moved_ = now;
  awake_until_ =
      std::max(awake_until_,
               now + (job.bytes <= kSmall ? settings_.spin : kAwakePerLoop * loops_at_work(now)));
  if (took > counts_.longest_call.load(std::memory_order_relaxed))
    counts_.longest_call.store(took, std::memory_order_relaxed);
  counts_.moves.fetch_add(1, std::memory_order_relaxed);
  job.submitted = now;
  if (marked == cu::kSuccess) {
    job.state.store(MoveJob::State::kUnderWay, std::memory_order_release);
    return;
  }
  // Nothing will tell when it has ended, but that all has: the stream is beyond use.
  if (!job.failed) fail(job, marked);
  job.state.store(MoveJob::State::kUnderWay, std::memory_order_release);
  stop_using(marked);
}

// That it has failed is no matter of memory for the words.
void Gpu::fail(MoveJob& job, cu::Result result) noexcept {
  job.failed = true;
  (void)quietly([&] { job.why = cuda_.text_of(result); });
}

cu::Result Gpu::submit_copies(MoveJob& job, cu::Stream stream) {
  uint8_t* slot = job.slot;
  for (const iovec& part : job.memory) {
    const auto memory = reinterpret_cast<cu::Pointer>(part.iov_base);
    const cu::Result result = job.out ? cuda_.memcpy_dtoh_async(slot, memory, part.iov_len, stream)
                                      : cuda_.memcpy_htod_async(memory, slot, part.iov_len, stream);
    if (result != cu::kSuccess) return result;
    ++job.copies;
    slot += part.iov_len;
  }
  counts_.copies.fetch_add(job.memory.size(), std::memory_order_relaxed);
  return cu::kSuccess;
}

cu::Result Gpu::submit_kernels(MoveJob& job, cu::Stream stream) {
  uint32_t at = 0;
  for (size_t next = 0; next < job.memory.size();) {
    const size_t count = std::min<size_t>(job.memory.size() - next, Pieces::kMost);
    pieces_.slot = reinterpret_cast<uint64_t>(job.slot);
    pieces_.count = static_cast<uint32_t>(count);
    for (size_t i = 0; i < count; ++i) {
      const iovec& part = job.memory[next + i];
      const auto bytes = static_cast<uint32_t>(part.iov_len);
      pieces_.piece[i] = {reinterpret_cast<uint64_t>(part.iov_base), at, bytes};
      at += bytes;
    }
    pieces_.bytes = at;
    void* parameters[] = {&pieces_};
    const cu::Result result =
        cuda_.launch_kernel(job.out ? gather_ : scatter_, settings_.blocks, 1, 1, kThreadsPerBlock,
                            1, 1, 0, stream, parameters, nullptr);
    if (result != cu::kSuccess) return result;
    counts_.kernels.fetch_add(1, std::memory_order_relaxed);
    ++job.kernels;
    next += count;
  }
  return cu::kSuccess;
}

Nanos Gpu::loops_at_work(Nanos now) const {
  return std::count_if(served_.begin(), served_.end(),
                       [now](const auto& queue) { return now - queue->last_begun() < kAtWork; });
}

bool Gpu::under_way() const {
  return std::any_of(served_.begin(), served_.end(),
                     [](const auto& queue) { return queue->under_way(); });
}

// A stream in which something is under way and nothing has moved for a while is asked why: an error
// is told by no word in memory.
void Gpu::watch(Nanos now) {
  if (lost()) return;
  if (unusable_) {
    if (streams_are_empty()) lose();
    return;
  }
  bool held = false;
  for (size_t i = 0; i < kLanes; ++i)
    for (size_t k = 0; k < kStreams; ++k) held |= watch(static_cast<Lane>(i), k, now);
  kernels_held_ = held;
}

// Whether it is a kernel that does not get its turn.
bool Gpu::watch(Lane lane, size_t number, Nanos now) {
  uint64_t reached = 0;
  bool under_way = false;
  for (size_t i = number; i < served_.size(); i += kStreams) {
    reached += served_[i]->reached(lane);
    under_way |= served_[i]->under_way(lane);
  }
  Progress& progress = progress_[static_cast<size_t>(lane)][number];
  if (!under_way || reached != progress.reached) {
    if (reached != progress.reached) moved_ = now;
    progress = {reached, now, 0};
    return false;
  }
  if (now - progress.since >= kLookAfter && now - progress.asked >= kLookAfter) {
    progress.asked = now;
    const cu::Result result = cuda_.stream_query(streams_[static_cast<size_t>(lane)][number]);
    if (result != cu::kSuccess && result != cu::kNotReady) stop_using(result);
  }
  return is_kernel(lane) && now - progress.since > kKernelHeld;
}

// No more moves are begun. Those under way are told to have failed when they touch nothing any
// more.
void Gpu::stop_using(cu::Result why) noexcept {
  if (unusable_) return;
  unusable_ = true;
  (void)quietly([&] {
    lost_why_ = strf("cuda:{} is lost to this process: {}", device_, cuda_.text_of(why));
    log_.error("{}; transfers of its memory fail from now on", lost_why_);
  });
  if (streams_are_empty()) lose();
}

// With a context that is gone goes everything that was under way in it.
bool Gpu::streams_are_empty() {
  for (auto& kind : streams_)
    for (cu::Stream stream : kind)
      if (stream != nullptr && cuda_.stream_query(stream) == cu::kNotReady) return false;
  return true;
}

void Gpu::lose() {
  lost_.store(true, std::memory_order_release);
}

// Asleep first, then look: who pushes either sees that we sleep and wakes us, or we see what it has
// pushed. `waited_for`: that loops wait for what is under way is known.
void Gpu::sleep(Nanos at_most, bool waited_for) {
  asleep_.store(1, std::memory_order_seq_cst);
  const bool something = closing_.load(std::memory_order_seq_cst) ||
                         queues_changed_.load(std::memory_order_seq_cst) != served_version_ ||
                         std::any_of(served_.begin(), served_.end(), [&](const auto& queue) {
                           const bool untold = (!waited_for && queue->under_way() && !lost()) ||
                                               queue->has_news(lost());
                           return queue->next() != nullptr || (untold && queue->unwatched());
                         });
  if (!something) futex_wait(&asleep_, 1, at_most);
  asleep_.store(0, std::memory_order_seq_cst);
}

void Gpu::wake_thread() noexcept {
  if (asleep_.exchange(0, std::memory_order_seq_cst) != 0) futex_wake(&asleep_);
}

}  // namespace tcpx::gpu
