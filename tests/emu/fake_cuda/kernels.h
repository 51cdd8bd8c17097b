// Kernels are functions of the CPU, found by their name.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace fake_cuda {

struct Kernel {
  void (*function)(void** params, unsigned grid_x, unsigned block_x) = nullptr;
  std::vector<size_t> param_sizes;
  // For a parameter whose end is not used: how much of it is.
  size_t (*used_of_param)(const void* param) = nullptr;
};

void register_kernel(const char* name, const Kernel& kernel);
const Kernel* kernel_named(const char* name);
// What the kernel will do, with a copy of its parameters; empty: they are more than a launch takes.
std::function<void()> bind(const Kernel& kernel, void** params, unsigned grid_x, unsigned block_x);

// In a kernel: memory as its device sees it. Null, false: it broke its context.
uint8_t* kernel_view(uint64_t address, size_t size);
bool kernel_copy(uint64_t to, uint64_t from, size_t size);

}  // namespace fake_cuda
