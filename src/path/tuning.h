// Every number that decides who spins, sleeps or sends, with its reason. What users may need to
// change is an option (config/table.cc: spin, io_threads, lanes, chunk_bytes, window); the rest is
// here. "Two cores" is a virtual machine that both engines share, "16 cores" a server;
// docs/performance.md has the tables.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/clock.h"

namespace tcpx::tuning {

// ---- spinning (path/spin_budget.h) ---------------------------------------------------------

// Times the `spin` option while a frame is half-way or an answer is due: then something comes soon,
// and the sleep would cost more. A passive side that slept while its data was drained began every
// READ with a wake-up: 0.85 of WRITE at 1 MiB; 0.94 so.
inline constexpr int kEngagedFactor = 5;
// Between two polls that find nothing. Without a pause the locks of epoll set and socket are busy,
// which the kernel needs to deliver. 4 KiB take 11 to 12 us so, 12 to 13 with a whole microsecond.
inline constexpr Nanos kBetweenPolls = 300;
// A gap this long between two polls of who spins: somebody else had the core, and needs it.
inline constexpr Nanos kPreempted = 300 * kMicro;
// A sleep this short after a spin: what we waited for was on its way, and the spin only took a
// core.
inline constexpr Nanos kShortSleep = 500 * kMicro;
// Where spinning does not pay, every so many idle times a quarter of `spin` tries whether it does
// again.
inline constexpr uint32_t kProbeEvery = 32;

// ---- asking a source instead of epoll (path/ask_list.h) ------------------------------------

// For so long after it was heard a source is asked directly: one call instead of two, and the
// socket knows before its epoll sets have been told. 4 KiB 14 us by epoll, 12 us so. As long as a
// loop spins with the defaults.
inline constexpr Nanos kAskedFor = kMilli;
// Of these sources at most; one epoll_wait costs less than asking more of them in vain.
inline constexpr size_t kMostAsked = 4;
// Epoll is asked every so many rounds all the same; more often where other sources may wait.
inline constexpr uint32_t kRoundsPerEpollAlone = 8, kRoundsPerEpoll = 2;
// After a move has begun a loop polls for this long whatever its budget: 4 KiB to or from a GPU
// take 7 us, 512 KiB 17, and several of those follow each other.
inline constexpr Nanos kMoveSpin = 100 * kMicro;
// Who waits for a move is asked this often where the loop sleeps: a move is mostly over within the
// time a loop spins.
inline constexpr int kMoveMillis = 1;

// ---- who drives (path/loop.h, path/lease.h) ------------------------------------------------

// Polls this close to each other are those of a caller who does nothing else: it drives.
inline constexpr Nanos kPollsClose = 50 * kMicro;
// It drives until so long after its last poll; then, and no later, the loop's thread takes over.
// The thread looks as often as that while a lease goes on, 3 us of some core each time. Shorter:
// more of those. Longer: an event of another peer waits longer.
inline constexpr Nanos kLeaseLasts = 100 * kMicro;
// Who wants to drive tries this long while the loop's thread gives way, which takes it one round.
inline constexpr Nanos kGiveWay = 50 * kMicro;
// In the middle of a transfer the loop's thread sleeps for so long without giving the loop up,
// which would be four system calls for every wake-up. Two lanes, 64 MiB: 0.75 x raw without, 0.89
// so.
inline constexpr int kDozeMillis = 5;
// Who waits for a thread that may hang looks this often; a look counts for so much at most.
inline constexpr Nanos kLookEvery = 20 * kMilli, kLongestLook = 250 * kMilli;

// ---- polling a transfer (engine/transfers_waiting.cc) -------------------------------------------

// Who asks for the same transfer again this soon, and for no other in between, does nothing else
// (it may have posted the transfer again, from Python); its poll stays for so long. In and out of
// the loop for every few bytes: 1 MiB READ 166 us; with the stay 134 (5, 50, 100 or 200 us: no
// better).
inline constexpr Nanos kRightBack = 20 * kMicro, kStay = 20 * kMicro;
// Who waits and cannot drive looks this often whether it can.
inline constexpr Nanos kTryToDriveEvery = 20 * kMilli;

// ---- shares (path/turns.h) -----------------------------------------------------------------

// What an owner may do in a round, in bytes of payload: as much as keeps the cost of going round
// small, and where there are others, no more than they can wait for (70 us).
inline constexpr uint64_t kTurn = 4u << 20, kSharedTurn = 512u << 10;
// What handling a frame costs beside its bytes, and a piece of it, as payload that moves in the
// same time: 2 us, 30 ns.
inline constexpr uint64_t kFrameCost = 16u << 10, kPieceCost = 256;

// ---- sending (engine/transfers.cc, engine/engine.cc, path/tcp) ------------------------

// From here on sending takes longer than the two system calls that keep the loop's thread asleep
// meanwhile.
inline constexpr uint64_t kLongPost = 64u << 10;
// Small transfers are cut so that every lane gets a part, but not finer than this.
inline constexpr uint64_t kSmallestCut = 64u << 10;
// What passes through a GPU's staging is copied out, sent and copied in: with so many chunks for
// each lane these overlap, with one they follow each other (1 MiB between two GPUs, four lanes: 170
// us with one each, where host memory takes 56). But not finer than this, which a copy engine does
// in 10 us.
inline constexpr uint64_t kGpuParts = 4, kSmallestGpuCut = 128u << 10;
// To wake another loop's thread takes 5 us of the caller's and some 20 until it runs, in which a
// lane sends this much. Smaller parts go to loops that are awake. Two cores, 128 KiB on two lanes:
// 67 us with a thread that had to be woken, 29 us on one lane.
inline constexpr uint64_t kWorthWaking = 256u << 10;
// Payload frames queued ahead of the socket: one on its way out and one to follow without a gap.
// More would only take chunks away from faster lanes.
inline constexpr uint32_t kQueuedPayloadFrames = 2;

// ---- receiving (path/tcp) ------------------------------------------------------------------

// With more payload than this to come, fewer bytes are no event. Every event costs the sender's
// core (on loopback; the interrupt's core otherwise) a walk through two epoll sets, for each 64
// KiB.
inline constexpr uint64_t kEventBytes = 128u << 10;
// While so many bytes were copied more may have come: four lanes, 16 cores, 1 MiB READ 67 us when
// it was left to an event, 63 us when read at once.
inline constexpr size_t kLongCopy = 32u << 10;

}  // namespace tcpx::tuning
