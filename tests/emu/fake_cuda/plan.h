// What goes wrong, and when: set by tests, or by FAKE_CUDA_PLAN.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace fake_cuda {

enum class OpKind { kCopy, kKernel, kWrite, kOther };

bool add_to_plan(const char* entries);
void clear_plan();
void release_plan();

// What the plan has for this call of a function.
struct Planned {
  int fail = 0, lose = 0;
  unsigned lock_ms = 0;
};
Planned planned_for(const std::string& function);

// Whether the asynchronous copy that is handed over now is one that hangs; then its ticket, else 0.
uint64_t planned_hang();
bool hang_is_over(uint64_t ticket);
bool kernels_are_held();
bool is_one_by_one();
bool neighbours_are_one();
bool ranges_are_reservations();
bool takes_any_context();
int64_t planned_ns(OpKind kind);  // what an operation takes
bool has_room(bool device_memory, uint64_t bytes_in_all);

int64_t now_ns();

}  // namespace fake_cuda
