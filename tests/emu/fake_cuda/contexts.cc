#include "contexts.h"

#include <algorithm>
#include <cstdlib>

#include "cuda_abi.h"
#include "device_memory.h"

namespace fake_cuda {

namespace {

// What a recent data centre GPU says of itself; what is not here is 0.
const std::map<int, int> kAttributes = {
    {1, 1024},    {2, 1024},  {3, 1024},      {4, 64},      {5, 2147483647}, {6, 65535},
    {7, 65535},   {8, 49152}, {10, 32},       {12, 65536},  {13, 1980000},   {16, 132},
    {19, 1},      {31, 1},    {38, 50 << 20}, {39, 2048},   {40, 3},         {41, 1},
    {75, 9},      {76, 0},    {78, 1},        {81, 233472}, {83, 1},         {89, 0},
    {90, 1},      {91, 1},    {92, 1},        {93, 1},      {94, 1},         {95, 1},
    {97, 232448}, {99, 1},    {102, 1},       {103, 1},     {106, 32},       {115, 1},
    {120, 1},     {122, 1},   {123, 1}};
constexpr int kPciBus = 33;

std::vector<Device*>& devices() {
  static auto& all = *[] {
    auto* made = new std::vector<Device*>;
    const char* wanted = std::getenv("FAKE_CUDA_DEVICES");
    const int n = wanted != nullptr ? std::atoi(wanted) : 2;
    for (int i = 0; i < n; ++i) {
      auto* device = new Device;
      device->ordinal = i;
      device->attributes = kAttributes;
      device->attributes[kPciBus] = i + 1;
      made->push_back(device);
    }
    return made;
  }();
  return all;
}

std::vector<Context*>& contexts() {
  static auto& all = *new std::vector<Context*>;
  return all;
}

}  // namespace

std::mutex& driver_lock() {
  static auto& lock = *new std::mutex;
  return lock;
}

int device_count() {
  return static_cast<int>(devices().size());
}
Device* device_at(int ordinal) {
  return ordinal >= 0 && ordinal < device_count() ? devices()[static_cast<size_t>(ordinal)]
                                                  : nullptr;
}
std::string pci_of(int ordinal) {
  char text[32];
  std::snprintf(text, sizeof text, "0000:%02X:00.0", ordinal + 1);
  return text;
}
std::string name_of_device(int ordinal) {
  return "Fake GPU " + std::to_string(ordinal);
}

std::vector<Context*>& context_stack() {
  static thread_local std::vector<Context*> stack;
  return stack;
}
Context* current_context() {
  return context_stack().empty() ? nullptr : context_stack().back();
}

Context* make_context(Device* device) {
  auto* context = new Context(device);
  ++device->contexts_made;
  contexts().push_back(context);
  return context;
}

void destroy_context(Context* context) {
  context->lose(kContextIsDestroyed);
  for (Stream* stream : std::vector(context->streams)) stream->close();
  forget_ranges_of(context);
}

bool is_context(const Context* context) {
  return std::ranges::find(contexts(), context) != contexts().end();
}

Context* retain_primary(Device* device) {
  if (device->primary == nullptr) {
    device->primary = make_context(device);
    device->primary->flags = device->primary_flags;
  }
  ++device->retained;
  return device->primary;
}

}  // namespace fake_cuda
