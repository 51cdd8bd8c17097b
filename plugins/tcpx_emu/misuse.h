// The rules of the contract that callers break, by name. In strict mode breaking one is counted,
// kept for last_misuse() and said as "strict: <rule>".
#pragma once

#include <string>

#include "abi.h"
#include "world.h"

namespace tcpx_emu {

namespace rule {
inline constexpr char kTestOldest[] = "test() only the oldest unfinished request of a comm";
inline constexpr char kSixteen[] =
    "at most 16 requests per comm, and a receive counts until consumed";
inline constexpr char kConsumeOrder[] = "irecvConsumed() in the order of the receives";
inline constexpr char kConsumeDone[] = "irecvConsumed() only after test() said done";
inline constexpr char kConsumeSend[] = "irecvConsumed() only for receives of this comm";
inline constexpr char kChunk[] = "a request is not larger than NCCL_DYNAMIC_CHUNK_SIZE";
inline constexpr char kChunkUnset[] =
    "NCCL_DYNAMIC_CHUNK_SIZE must be set, or nothing is ever sent";
inline constexpr char kAligned[] = "CUDA memory is registered in whole, aligned 4096-byte pages";
inline constexpr char kOneThread[] = "one thread at a time in a comm";
inline constexpr char kCloseConsumed[] =
    "every receive that is done is consumed before the comm is closed";
inline constexpr char kHandleOnce[] =
    "a handle buffer is not used again after connect() gave a comm";
inline constexpr char kHandleSame[] = "connect() is polled with one and the same handle buffer";
inline constexpr char kAcceptOnce[] = "one accept() per listen()";
inline constexpr char kInsideSend[] = "isend() only from inside the registered memory";
inline constexpr char kInsideReceive[] = "irecv() only into the registered memory";
inline constexpr char kReceiveRoom[] = "a receive is at least as large as what is sent to it";
inline constexpr char kRecvSync[] = "NCCL_GPUDIRECTTCPX_RECV_SYNC is the same on both ends";
}  // namespace rule

// Always kInternalError. `plugin_says`: what the plugin would log; used when not strict.
Result refuse(const World& world, int device, const char* rule, const std::string& plugin_says);

std::string last_misuse();

}  // namespace tcpx_emu
