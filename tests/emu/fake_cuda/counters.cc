#include "counters.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>

namespace fake_cuda {

struct Function {
  std::string name;
  uint64_t CudaUse::*group;  // null: none of those that count
  uint64_t since_load = 0;
  std::map<pid_t, uint64_t> by_thread;
};

namespace {

struct Group {
  uint64_t CudaUse::*member;
  const char* names;
};
constexpr Group kGroups[] = {
    {&CudaUse::allocations,
     " cuMemAlloc_v2 cuMemAllocAsync cuMemFreeAsync cuMemAllocManaged cuMemHostAlloc"
     " cuMemHostRegister_v2 cuMemAddressReserve cuMemAddressFree cuMemCreate cuMemRelease cuMemMap"
     " cuMemUnmap cuMemSetAccess cuMemFree_v2 cuMemFreeHost cuMemHostUnregister "},
    {&CudaUse::creations,
     " cuStreamCreate cuStreamCreateWithPriority cuStreamDestroy_v2 cuEventCreate"
     " cuEventDestroy_v2 cuModuleLoadData cuModuleLoadDataEx cuModuleUnload cuCtxCreate_v2"
     " cuCtxDestroy_v2 cuDevicePrimaryCtxRetain cuDevicePrimaryCtxRelease_v2"
     " cuDevicePrimaryCtxReset_v2 "},
    {&CudaUse::synchronizing,
     " cuCtxSynchronize cuStreamSynchronize cuEventSynchronize cuMemcpy cuMemcpyHtoD_v2"
     " cuMemcpyDtoH_v2 cuMemcpyDtoD_v2 cuMemsetD8_v2 "},
    {&CudaUse::host_functions, " cuLaunchHostFunc "},
};

uint64_t CudaUse::*group_of(const std::string& name) {
  for (const Group& group : kGroups)
    if (std::strstr(group.names, (" " + name + " ").c_str()) != nullptr) return group.member;
  return nullptr;
}

struct Counters {
  std::mutex mutex;
  std::map<std::string, Function> functions;
  std::map<pid_t, uint64_t> legacy, pageable;
  uint64_t without_context = 0;
};
Counters& counters() {
  static auto& all = *new Counters;
  return all;
}
thread_local bool t_aside = false;

pid_t this_thread() {
  static thread_local const pid_t id = ::gettid();
  return id;
}

uint64_t sum(const std::map<pid_t, uint64_t>& counted, pid_t thread) {
  uint64_t all = 0;
  for (auto& [who, n] : counted)
    if (thread == 0 || thread == who) all += n;
  return all;
}

}  // namespace

Function& function_named(const char* name) {
  Counters& c = counters();
  std::lock_guard lock(c.mutex);
  auto [at, fresh] = c.functions.try_emplace(name);
  if (fresh) at->second.name = name, at->second.group = group_of(name);
  return at->second;
}

const std::string& name_of(const Function& function) {
  return function.name;
}

void count_call(Function& function) {
  std::lock_guard lock(counters().mutex);
  ++function.since_load;
  if (!t_aside) ++function.by_thread[this_thread()];
}

void count_legacy_stream() {
  std::lock_guard lock(counters().mutex);
  if (!t_aside) ++counters().legacy[this_thread()];
}

void count_call_without_context() {
  std::lock_guard lock(counters().mutex);
  ++counters().without_context;
}

uint64_t calls_without_context() {
  std::lock_guard lock(counters().mutex);
  return counters().without_context;
}

void count_pageable_wait() {
  std::lock_guard lock(counters().mutex);
  if (!t_aside) ++counters().pageable[this_thread()];
}

bool set_aside(bool aside) {
  return std::exchange(t_aside, aside);
}
bool is_aside() {
  return t_aside;
}

void reset_counters() {
  Counters& c = counters();
  std::lock_guard lock(c.mutex);
  for (auto& [name, function] : c.functions) function.by_thread.clear();
  c.legacy.clear();
  c.pageable.clear();
  c.without_context = 0;
}

uint64_t calls(const char* name, pid_t thread) {
  Counters& c = counters();
  std::lock_guard lock(c.mutex);
  auto found = c.functions.find(name);
  return found != c.functions.end() ? sum(found->second.by_thread, thread) : 0;
}

uint64_t calls_since_load(const char* name) {
  Counters& c = counters();
  std::lock_guard lock(c.mutex);
  auto found = c.functions.find(name);
  return found != c.functions.end() ? found->second.since_load : 0;
}

uint64_t calls_by_other_threads_than(pid_t thread) {
  Counters& c = counters();
  std::lock_guard lock(c.mutex);
  uint64_t all = 0;
  for (auto& [name, function] : c.functions)
    all += sum(function.by_thread, 0) - (thread != 0 ? sum(function.by_thread, thread) : 0);
  return all;
}

uint64_t legacy_stream_calls() {
  std::lock_guard lock(counters().mutex);
  return sum(counters().legacy, 0);
}

void use_of(pid_t thread, CudaUse* out) {
  Counters& c = counters();
  std::lock_guard lock(c.mutex);
  *out = {};
  for (auto& [name, function] : c.functions) {
    const uint64_t n = sum(function.by_thread, thread);
    out->calls += n;
    if (function.group != nullptr) out->*function.group += n;
  }
  out->legacy_stream = sum(c.legacy, thread);
  out->synchronizing += sum(c.pageable, thread);
}

size_t threads(pid_t* out, size_t room) {
  Counters& c = counters();
  std::lock_guard lock(c.mutex);
  std::map<pid_t, bool> seen;
  for (auto& [name, function] : c.functions)
    for (auto& [who, n] : function.by_thread) seen[who] = true;
  size_t i = 0;
  for (auto& [who, yes] : seen)
    if (i++ < room) out[i - 1] = who;
  return seen.size();
}

void describe(pid_t thread, char* out, size_t room) {
  std::string text;
  {
    Counters& c = counters();
    std::lock_guard lock(c.mutex);
    for (auto& [name, function] : c.functions)
      if (uint64_t n = sum(function.by_thread, thread); n != 0)
        text += name + " " + std::to_string(n) + "\n";
  }
  if (room == 0) return;
  const size_t n = std::min(room - 1, text.size());
  std::memcpy(out, text.data(), n);
  out[n] = 0;
}

}  // namespace fake_cuda
