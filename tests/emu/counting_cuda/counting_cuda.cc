// Stands before a CUDA driver and counts the calls that are made to it: shows on a real one what
// the fake driver shows without a GPU. Loaded in the place of libcuda.so.1 (it has that name
// inside); the driver behind it is the file that TCPX_TEST_COUNTED_CUDA names, else the system's.
//
// No function's parameters are known here, but for the few in functions.h: each is a jump to where
// the call is counted, and on to the driver's own with all registers and the stack as they were.
#include "functions.h"

#include <dlfcn.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>

#include "../fake_cuda/counters.h"
#include "../fake_cuda/cuda_counts.h"

namespace {

constexpr int kNo = -1;
constexpr int kMostDevices = 64;

struct Counted {
  const char* name;
  int stream, memory;
  std::atomic<void*> real{nullptr};
  std::atomic<fake_cuda::Function*> function{nullptr};
};

// What the jump has put on the stack, in the order of addresses.
struct Saved {
  uint64_t nothing, registers[6], return_address, stack[8];

  uint64_t argument(int i) const { return i < 6 ? registers[5 - i] : stack[i - 6]; }
};

std::atomic<int> g_contexts_made[kMostDevices];

void* driver() {
  static void* const library = [] {
    const char* named = std::getenv("TCPX_TEST_COUNTED_CUDA");
    const std::array files = {"/usr/lib/x86_64-linux-gnu/libcuda.so.1", "/usr/lib64/libcuda.so.1",
                              "/usr/local/nvidia/lib64/libcuda.so.1"};
    // By its path: by its name this library would be found.
    if (named != nullptr) return ::dlopen(named, RTLD_NOW | RTLD_LOCAL);
    for (const char* file : files)
      if (void* found = ::dlopen(file, RTLD_NOW | RTLD_LOCAL)) return found;
    return static_cast<void*>(nullptr);
  }();
  if (library != nullptr) return library;
  std::fprintf(stderr, "counting_cuda: no driver; name its file in TCPX_TEST_COUNTED_CUDA\n");
  std::abort();
}

void* real_of(Counted& counted) {
  if (void* known = counted.real.load(std::memory_order_acquire)) return known;
  void* found = ::dlsym(driver(), counted.name);
  if (found == nullptr) {
    std::fprintf(stderr, "counting_cuda: the driver has no %s\n", counted.name);
    std::abort();
  }
  counted.real.store(found, std::memory_order_release);
  return found;
}

fake_cuda::Function& function_of(Counted& counted) {
  fake_cuda::Function* known = counted.function.load(std::memory_order_acquire);
  if (known == nullptr) {
    known = &fake_cuda::function_named(counted.name);
    counted.function.store(known, std::memory_order_release);
  }
  return *known;
}

// Memory that the driver does not know: a copy to or from it waits.
bool is_pageable(uint64_t address) {
  constexpr int kMemoryType = 2;
  static const auto ask =
      reinterpret_cast<int (*)(void*, int, uint64_t)>(::dlsym(driver(), "cuPointerGetAttribute"));
  unsigned type = 0;
  return ask(&type, kMemoryType, address) != 0 || type == 0;
}

void count_context(const Counted& counted, const Saved& call) {
  const std::string name = counted.name;
  if (name != "cuDevicePrimaryCtxRetain" && name != "cuCtxCreate_v2") return;
  const auto device = static_cast<uint32_t>(call.argument(name == "cuCtxCreate_v2" ? 2 : 1));
  if (device < kMostDevices) g_contexts_made[device].fetch_add(1, std::memory_order_relaxed);
}

}  // namespace

// Where every call comes by; returns where it goes on.
extern "C" __attribute__((visibility("hidden"))) void* counting_cuda_count(Counted* counted,
                                                                           const Saved* call) {
  fake_cuda::count_call(function_of(*counted));
  if (counted->stream != kNo && call->argument(counted->stream) <= 2)
    fake_cuda::count_legacy_stream();
  if (counted->memory != kNo && !fake_cuda::is_aside() &&
      is_pageable(call->argument(counted->memory)))
    fake_cuda::count_pageable_wait();
  count_context(*counted, *call);
  return real_of(*counted);
}

asm(R"(
  .text
  .type counting_cuda_go, @function
counting_cuda_go:
  push %rdi
  push %rsi
  push %rdx
  push %rcx
  push %r8
  push %r9
  push %rax
  mov %rax, %rdi
  mov %rsp, %rsi
  call counting_cuda_count
  mov %rax, %r11
  pop %rax
  pop %r9
  pop %r8
  pop %rcx
  pop %rdx
  pop %rsi
  pop %rdi
  jmp *%r11
)");

#define COUNTED(function, stream, memory)                                       \
  extern "C" {                                                                  \
  __attribute__((visibility("hidden")))                                         \
  Counted counting_cuda_##function{#function, stream, memory};                  \
  }                                                                             \
  asm(".text\n.globl " #function "\n.type " #function ", @function\n" #function \
      ":\n"                                                                     \
      "  lea counting_cuda_" #function "(%rip), %rax\n  jmp counting_cuda_go\n");
COUNTED_FUNCTIONS(COUNTED)

using namespace fake_cuda;

extern "C" {

const CudaCounts countedCuda = {
    set_aside,
    reset_counters,
    calls,
    calls_by_other_threads_than,
    legacy_stream_calls,
    use_of,
    threads,
    describe,
    [](int device) {
      return device < kMostDevices ? g_contexts_made[device].load(std::memory_order_relaxed) : 0;
    },
};
}
