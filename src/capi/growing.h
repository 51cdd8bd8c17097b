// Structs of the C API that may grow: their first field says how much of them the caller knows, 0
// stands for what the first version had. A caller and a library of different versions then agree:
// what the caller does not know is not written, what it does not give is zero, and what the library
// does not know must be zero.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "base/status.h"
#include "base/text.h"

namespace tcpx {

// Of the first version. Not sizeof: that grows with the struct.
inline constexpr size_t kPeerInfoV1 = 272, kRegisterArgsV1 = 40, kPostArgsV1 = 40, kReceiptV1 = 256;
static_assert(sizeof(tcpx_peer_info) == kPeerInfoV1);
static_assert(sizeof(tcpx_register_args) == kRegisterArgsV1);
static_assert(sizeof(tcpx_post_args) == kPostArgsV1);
static_assert(offsetof(tcpx_receipt, local_memory) == kReceiptV1);

inline Status check_struct_size(const char* type, size_t given) {
  if (given >= sizeof given && given <= (1u << 16)) return {};
  return bad_call(
      TCPX_INVALID_ARGUMENT,
      strf("struct_size of {} is {}; set it to sizeof, or the whole struct to zero", type, given));
}

template <class T>
Status take_struct(const char* type, const T* from, size_t v1, T* to) {
  size_t given = from->struct_size == 0 ? v1 : from->struct_size;
  if (Status status = check_struct_size(type, given); !status) return status;
  if (given == sizeof(T)) {
    *to = *from;
    return {};
  }
  *to = {};
  memcpy(to, from, std::min(given, sizeof(T)));
  auto* bytes = reinterpret_cast<const uint8_t*>(from);
  for (size_t i = sizeof(T); i < given; ++i)
    if (bytes[i] != 0)
      return bad_call(TCPX_UNSUPPORTED,
                      strf("byte {} of {} is set, and this version knows {} of them; it is older "
                           "than the header it is used with",
                           i, type, sizeof(T)));
  return {};
}

// struct_size stays as it was given.
template <class T>
Status give_struct(const char* type, T value, size_t v1, T* to) {
  size_t given = to->struct_size == 0 ? v1 : to->struct_size;
  if (Status status = check_struct_size(type, given); !status) return status;
  value.struct_size = to->struct_size;
  memcpy(to, &value, std::min(given, sizeof(T)));
  if (given > sizeof(T)) memset(reinterpret_cast<uint8_t*>(to) + sizeof(T), 0, given - sizeof(T));
  return {};
}

}  // namespace tcpx
