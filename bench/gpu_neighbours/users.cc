#include "gpu_neighbours/users.h"

#include <dlfcn.h>

#include <chrono>
#include <cstring>

#include "gpu_neighbours/failure.h"

namespace tcpx::bench {

namespace {

constexpr const char* kHoldPtx = R"(.version 7.0
.target sm_80
.address_size 64
.visible .entry hold(.param .u64 nanoseconds)
{
  .reg .u64 %start, %now, %want, %spent;
  .reg .pred %more;
  ld.param.u64 %want, [nanoseconds];
  mov.u64 %start, %globaltimer;
again:
  nanosleep.u32 2000;
  mov.u64 %now, %globaltimer;
  sub.u64 %spent, %now, %start;
  setp.lt.u64 %more, %spent, %want;
  @%more bra again;
  ret;
}
)";

constexpr int kSide = 8192;  // of a matrix

}  // namespace

Holder::Holder(const Cuda& cuda) : cuda_(cuda) {
  fake_ = static_cast<const FakeCuda*>(dlsym(RTLD_DEFAULT, "fakeCuda"));
  if (fake_ != nullptr) return;
  constexpr int kMultiprocessors = 16, kThreadsPerMultiprocessor = 39;
  int sms = 0, threads = 0;
  cuda_.check(cuda_.device_get_attribute(&sms, kMultiprocessors, cuda_.device), "attribute");
  cuda_.check(cuda_.device_get_attribute(&threads, kThreadsPerMultiprocessor, cuda_.device),
              "attribute");
  blocks_ = static_cast<unsigned>(sms * (threads / 1024));
  Cuda::Module module = nullptr;
  cuda_.check(cuda_.module_load(&module, kHoldPtx), "cuModuleLoadData");
  cuda_.check(cuda_.module_get_function(&hold_, module, "hold"), "cuModuleGetFunction");
  cuda_.check(cuda_.stream_create(&stream_, Cuda::kNonBlocking), "cuStreamCreate");
}

void Holder::start(uint64_t milliseconds) {
  if (fake_ != nullptr) {
    until_ = now_ns() + static_cast<Nanos>(milliseconds) * kMilli;
    fake_->plan(("hold_kernels:" + std::to_string(milliseconds)).c_str());
    return;
  }
  uint64_t nanoseconds = milliseconds * 1'000'000;
  void* parameters[] = {&nanoseconds};
  cuda_.check(cuda_.launch(hold_, blocks_, 1, 1, 1024, 1, 1, 0, stream_, parameters, nullptr),
              "cuLaunchKernel");
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
}

bool Holder::holds() const {
  return fake_ != nullptr ? now_ns() < until_ : cuda_.stream_query(stream_) == Cuda::kNotReady;
}

void Holder::await() const {
  while (holds()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
}

uint64_t Allocator::end() {
  stop_ = true;
  if (thread_.joinable()) thread_.join();
  return count_;
}

void Allocator::run() {
  cuda_.enter();
  while (!stop_) {
    Cuda::Pointer memory = 0;
    if (cuda_.mem_alloc(&memory, 64 << 20) != 0) continue;
    (void)cuda_.mem_free(memory);
    ++count_;
  }
}

Gemm::Gemm(const Cuda& cuda, const std::string& file) : cuda_(cuda) {
  // What it needs lies beside it, and not always where it looks.
  std::string beside = file;
  if (const size_t at = beside.rfind("libcublas"); at != std::string::npos)
    (void)dlopen(beside.insert(at + 9, "Lt").c_str(), RTLD_NOW | RTLD_GLOBAL);
  void* library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) fail(dlerror());
  const auto find = [&](const char* name, auto* out) {
    void* found = dlsym(library, name);
    if (found == nullptr) fail(std::string("cuBLAS has no ") + name);
    std::memcpy(out, &found, sizeof *out);
  };
  int (*create)(void**);
  int (*set_stream)(void*, Cuda::Stream);
  find("cublasCreate_v2", &create);
  find("cublasSetStream_v2", &set_stream);
  find("cublasGemmEx", &gemm_);
  if (create(&handle_) != 0) fail("cublasCreate");
  cuda_.check(cuda_.stream_create(&stream_, Cuda::kNonBlocking), "cuStreamCreate");
  if (set_stream(handle_, stream_) != 0) fail("cublasSetStream");
  for (Cuda::Pointer& matrix : matrices_) {
    cuda_.check(cuda_.mem_alloc(&matrix, kSide * kSide * 2), "cuMemAlloc");
    cuda_.check(cuda_.memset(matrix, 0x3c, kSide * kSide * 2), "cuMemset");
  }
  run(0.3);
}

double Gemm::run(double seconds) const {
  cuda_.enter();
  uint64_t count = 0;
  const Nanos start = now_ns(), end = start + static_cast<Nanos>(seconds * 1e9);
  Nanos now = start;
  for (; now < end; now = now_ns()) {
    for (int i = 0; i < 16; ++i) one();
    count += 16;
    cuda_.check(cuda_.stream_synchronize(stream_), "cuStreamSynchronize");
  }
  return static_cast<double>(count) / (static_cast<double>(now - start) * 1e-9);
}

void Gemm::one() const {
  const float alpha = 1, beta = 0;
  constexpr int kBf16 = 14, kCompute32f = 68, kDefault = -1;
  if (gemm_(handle_, 0, 0, kSide, kSide, kSide, &alpha, matrices_[0], kBf16, kSide, matrices_[1],
            kBf16, kSide, &beta, matrices_[2], kBf16, kSide, kCompute32f, kDefault) != 0)
    fail("cublasGemmEx");
}

}  // namespace tcpx::bench
