// What every function of the driver does first: it is counted, the plan has its say, the driver's
// lock is taken, and the current context is looked at.
#pragma once

#include <mutex>

#include "contexts.h"
#include "counters.h"
#include "cuda_abi.h"

namespace fake_cuda {

enum class Needs { kNothing, kInit, kContext };

class Call {
 public:
  Call(Function& function, Needs needs);

  int code = 0;  // not 0: the call ends with it
  Context* context = nullptr;

  // Waits without the driver's lock until the point is reached; or the code of its lost context.
  int wait(Point point);
  int wait_until(Context* of, const std::function<bool()>& is_so);
  int wait_for_all(Context* of);

 private:
  void follow_plan(Function& function);
  int check(Needs needs);
  std::unique_lock<std::mutex> lock_;
};

// From now on, or as tests that never call it expect.
void initialize();
bool is_initialized();
void hold_driver_lock(unsigned milliseconds);

Stream* legacy_of(Context* context);
// The stream that a handle is of; null: of none. Handles 0 to 2 are counted.
Stream* stream_of(Call& call, void* handle);

}  // namespace fake_cuda

#define FAKE_CUDA_CALL(needs)                                                     \
  static ::fake_cuda::Function& function = ::fake_cuda::function_named(__func__); \
  ::fake_cuda::Call call(function, ::fake_cuda::Needs::needs);                    \
  if (call.code != 0) return call.code
