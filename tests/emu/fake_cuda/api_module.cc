// Modules, kernels and their launch.
#include <set>

#include "call.h"
#include "kernels.h"

using namespace fake_cuda;

namespace fake_cuda {

// Handles; never deleted.
struct KernelHandle {
  const Kernel* kernel;
  Context* context;
};
struct Module {
  Context* context;
  bool loaded = true;
  std::vector<KernelHandle*> kernels;
};

}  // namespace fake_cuda

namespace {

std::set<const void*>& handles() {
  static auto& all = *new std::set<const void*>;
  return all;
}

int load(Call& call, Module** module, const void* image) {
  if (image == nullptr) return kInvalidValue;
  handles().insert(*module = new Module{.context = call.context, .kernels = {}});
  return kSuccess;
}

bool is_loaded(const Module* module) {
  return handles().contains(module) && module->loaded;
}

}  // namespace

FAKE_CUDA_API cuModuleLoadData(Module** module, const void* image) {
  FAKE_CUDA_CALL(kContext);
  return load(call, module, image);
}
FAKE_CUDA_API cuModuleLoadDataEx(Module** module, const void* image, unsigned, int*, void**) {
  FAKE_CUDA_CALL(kContext);
  return load(call, module, image);
}
FAKE_CUDA_API cuModuleUnload(Module* module) {
  FAKE_CUDA_CALL(kContext);
  if (!is_loaded(module)) return kInvalidHandle;
  module->loaded = false;
  for (KernelHandle* kernel : module->kernels) handles().erase(kernel);
  return kSuccess;
}
FAKE_CUDA_API cuModuleGetFunction(KernelHandle** out, Module* module, const char* name) {
  FAKE_CUDA_CALL(kContext);
  if (!is_loaded(module)) return kInvalidHandle;
  const Kernel* kernel = kernel_named(name);
  if (kernel == nullptr) return kNotFound;
  *out = new KernelHandle{kernel, module->context};
  module->kernels.push_back(*out);
  handles().insert(*out);
  return kSuccess;
}
FAKE_CUDA_API cuFuncGetAttribute(int* value, int attribute, KernelHandle* kernel) {
  FAKE_CUDA_CALL(kContext);
  constexpr int kMaxThreads = 0, kRegisters = 4;
  if (!handles().contains(kernel)) return kInvalidHandle;
  *value = attribute == kMaxThreads ? 1024 : attribute == kRegisters ? 32 : 0;
  return attribute >= 0 && attribute < 16 ? kSuccess : kInvalidValue;
}
FAKE_CUDA_API cuLaunchKernel(KernelHandle* kernel, unsigned grid_x, unsigned grid_y,
                             unsigned grid_z, unsigned block_x, unsigned block_y, unsigned block_z,
                             unsigned, void* handle, void** params, void** extra) {
  FAKE_CUDA_CALL(kContext);
  if (!handles().contains(kernel) || kernel->context != call.context) return kInvalidHandle;
  Stream* stream = stream_of(call, handle);
  if (stream == nullptr || stream->context != call.context) return kInvalidHandle;
  const uint64_t threads = uint64_t{block_x} * block_y * block_z;
  if (grid_x == 0 || grid_y == 0 || grid_z == 0 || threads == 0 || threads > 1024 ||
      extra != nullptr)
    return kInvalidValue;
  auto op = std::make_unique<Op>();
  op->kind = OpKind::kKernel;
  op->work = bind(*kernel->kernel, params, grid_x, block_x);
  if (!op->work) return kInvalidValue;
  stream->submit(std::move(op));
  return kSuccess;
}
FAKE_CUDA_API cuLaunchHostFunc(void* handle, void (*todo)(void*), void* argument) {
  FAKE_CUDA_CALL(kContext);
  Stream* stream = stream_of(call, handle);
  if (stream == nullptr) return kInvalidHandle;
  auto op = std::make_unique<Op>();
  op->work = [todo, argument] { todo(argument); };
  stream->submit(std::move(op));
  return kSuccess;
}
