#include "call.h"

#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <memory>
#include <thread>

#include "plan.h"

namespace fake_cuda {

namespace {

// As with the real driver: what a parent has is not there in a child that it forked.
std::atomic<pid_t> g_initialized_in{0};

void sleep_us(long us) {
  std::this_thread::sleep_for(std::chrono::microseconds(us));
}

}  // namespace

void initialize() {
  pid_t nobody = 0;
  if (!g_initialized_in.compare_exchange_strong(nobody, ::getpid())) return;
  if (const char* entries = std::getenv("FAKE_CUDA_PLAN"))
    if (!add_to_plan(entries)) std::abort();
}

bool is_initialized() {
  return g_initialized_in.load(std::memory_order_relaxed) == ::getpid();
}

void hold_driver_lock(unsigned milliseconds) {
  auto held = std::make_shared<std::atomic<bool>>(false);
  std::thread([milliseconds, held] {
    std::lock_guard lock(driver_lock());
    held->store(true, std::memory_order_relaxed);
    sleep_us(milliseconds * 1000L);
  }).detach();
  while (!held->load(std::memory_order_relaxed)) sleep_us(20);
}

Call::Call(Function& function, Needs needs) {
  count_call(function);
  if (!is_aside()) follow_plan(function);
  if (code != 0) return;
  lock_ = std::unique_lock(driver_lock());
  code = check(needs);
}

void Call::follow_plan(Function& function) {
  const Planned planned = planned_for(name_of(function));
  if (planned.lock_ms != 0) hold_driver_lock(planned.lock_ms);
  if (Context* now = current_context(); planned.lose != 0 && now != nullptr) {
    now->lose(planned.lose);
  }
  code = planned.fail;
}

int Call::check(Needs needs) {
  context = current_context();
  if (needs == Needs::kNothing) return 0;
  if (!is_initialized()) return kNotInitialized;
  if (needs == Needs::kInit) return 0;
  if (context == nullptr) {
    if (!is_aside()) count_call_without_context();
    context = takes_any_context() ? device_at(0)->primary : nullptr;
  }
  return context == nullptr ? static_cast<int>(kInvalidContext) : context->code();
}

int Call::wait_until(Context* of, const std::function<bool()>& is_so) {
  lock_.unlock();
  while (!is_so() && of->code() == 0) sleep_us(20);
  lock_.lock();
  return of->code();
}

int Call::wait(Point point) {
  return wait_until(point.stream->context, [point] { return point.reached(); });
}

int Call::wait_for_all(Context* of) {
  for (Stream* stream : std::vector(of->streams))
    if (int lost = wait(stream->end())) return lost;
  return 0;
}

Stream* legacy_of(Context* context) {
  if (context->legacy == nullptr) context->legacy = make_stream(context, true);
  return context->legacy;
}

Stream* stream_of(Call& call, void* handle) {
  Context* context = call.context;
  const auto number = reinterpret_cast<uintptr_t>(handle);
  if (number > 2) {
    auto* stream = static_cast<Stream*>(handle);
    return is_open(stream) ? stream : nullptr;
  }
  count_legacy_stream();
  if (number != 2) return legacy_of(context);
  if (context->per_thread == nullptr) context->per_thread = make_stream(context, true);
  return context->per_thread;
}

}  // namespace fake_cuda
