#include "fake_cuda.h"

#include "env.h"

#include <map>
#include <mutex>

namespace tcpx::test {

namespace {

void find_functions(Cuda* c) {
  auto find = [c](const char* name, auto** out) {
    *out = c->function<std::remove_pointer_t<std::remove_reference_t<decltype(*out)>>>(name);
  };
  find("cuInit", &c->init);
  find("cuDeviceGetCount", &c->device_get_count);
  find("cuDevicePrimaryCtxRetain", &c->primary_ctx_retain);
  find("cuCtxPushCurrent_v2", &c->ctx_push);
  find("cuCtxPopCurrent_v2", &c->ctx_pop);
  find("cuMemAlloc_v2", &c->mem_alloc);
  find("cuMemFree_v2", &c->mem_free);
  find("cuStreamCreate", &c->stream_create);
  find("cuStreamSynchronize", &c->stream_synchronize);
  find("cuMemcpyHtoDAsync_v2", &c->copy_to_device);
  find("cuMemcpyDtoHAsync_v2", &c->copy_to_host);
  find("cuGetErrorString", &c->get_error_string);
}

bool wants(const char* driver) {
  const char* which = std::getenv("TCPX_TEST_CUDA");
  return which != nullptr && std::string(which) == driver;
}

const char* cuda_file() {
  if (wants("counted")) return TCPX_TEST_COUNTING_CUDA_PATH;
  return wants("real") ? "libcuda.so.1" : TCPX_TEST_FAKE_CUDA_PATH;
}

const Cuda* load_cuda() {
  auto* c = new Cuda;
  c->library = ::dlopen(cuda_file(), RTLD_NOW | RTLD_GLOBAL);
  if (c->library == nullptr) throw std::runtime_error(::dlerror());
  find_functions(c);
  c->fake = static_cast<const FakeCuda*>(::dlsym(c->library, "fakeCuda"));
  const char* counts = wants("counted") ? "countedCuda" : "cudaCounts";
  c->counts = static_cast<const CudaCounts*>(::dlsym(c->library, counts));
  const bool before = c->counts != nullptr && c->counts->set_aside(true);
  c->check(c->init(0), "cuInit");
  c->check(c->device_get_count(&c->devices), "cuDeviceGetCount");
  if (c->counts != nullptr) c->counts->set_aside(before);
  return c;
}

std::mutex g_devices_mutex;
std::map<int, Cuda::Device>& devices() {
  static auto& all = *new std::map<int, Cuda::Device>;
  return all;
}

Cuda::Device open_device(int device) {
  if (device < 0 || device >= cuda().devices)
    throw std::runtime_error("there is no GPU " + std::to_string(device));
  Aside aside;
  Cuda::Device made;
  Cuda::Context popped;
  cuda().check(cuda().primary_ctx_retain(&made.context, device), "cuDevicePrimaryCtxRetain");
  cuda().check(cuda().ctx_push(made.context), "cuCtxPushCurrent");
  const int code = cuda().stream_create(&made.stream, 1);
  cuda().ctx_pop(&popped);
  cuda().check(code, "cuStreamCreate");
  return made;
}

}  // namespace

bool wants_real_cuda() {
  return wants("real") || wants("counted");
}

const Cuda& cuda() {
  static const Cuda& only = *load_cuda();
  return only;
}

const Cuda::Device& cuda_device(int device) {
  std::lock_guard lock(g_devices_mutex);
  auto found = devices().find(device);
  if (found == devices().end()) found = devices().emplace(device, open_device(device)).first;
  return found->second;
}

void forget_cuda_device(int device) {
  std::lock_guard lock(g_devices_mutex);
  devices().erase(device);
}

void order_operations() {
#if defined(TCPX_TEST_TSAN)
  if (fake_cuda() != nullptr) fake_cuda()->plan("one_by_one:1");
#endif
}

std::unique_ptr<Memory> allocate_device(const std::string& kind, uint64_t size, uint64_t skew) {
  order_operations();
  const size_t colon = kind.find(':');
  const int device = colon == std::string::npos ? 0 : std::stoi(kind.substr(colon + 1));
  return std::make_unique<DeviceMemory>(size, device, skew);
}

}  // namespace tcpx::test
