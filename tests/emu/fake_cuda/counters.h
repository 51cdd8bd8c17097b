// Who called what, and how often.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "cuda_counts.h"

namespace fake_cuda {

// One of the driver's functions; lives for ever.
struct Function;
Function& function_named(const char* name);
const std::string& name_of(const Function& function);

// Of the calling thread. What a thread does aside is not counted.
void count_call(Function& function);
void count_legacy_stream();
void count_pageable_wait();
void count_call_without_context();

bool set_aside(bool aside);
bool is_aside();

void reset_counters();
uint64_t calls(const char* name, pid_t thread);
uint64_t calls_since_load(const char* name);
uint64_t calls_by_other_threads_than(pid_t thread);
uint64_t legacy_stream_calls();
uint64_t calls_without_context();
void use_of(pid_t thread, CudaUse* out);
size_t threads(pid_t* out, size_t room);
void describe(pid_t thread, char* out, size_t room);

}  // namespace fake_cuda
