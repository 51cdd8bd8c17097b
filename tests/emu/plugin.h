// The emulator as a test drives it: through its exported tables, both ends in one process. Settings
// are environment variables, read again at every init().
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "../../plugins/tcpx_emu/tcpx_emu.h"
#include "path/net/nccl_net_abi.h"
#include "support/env.h"
#include "support/memory.h"
#include "support/pattern.h"

namespace tcpx::test {

const nccl::TableV7& plugin();
const tcpx_emu_v1& extras();

// Lines the plugin has logged since the last clear().
class PluginLog {
 public:
  static std::string all();  // warnings and above, a line each
  static void clear();
  static bool has(const std::string& text) { return all().find(text) != std::string::npos; }
};

using Variables = std::initializer_list<std::pair<const char*, std::string>>;

// Quick loopback settings plus the given ones, for the life of the object; then init().
class Environment {
 public:
  explicit Environment(Variables variables = {});
  ~Environment();
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;
  void set(const char* name, const std::string& value);
  int init_result = 0;

 private:
  std::vector<std::string> names_;
};

inline tcpx_emu_counters counters(int device = 0) {
  tcpx_emu_counters out{};
  EXPECT_EQ(extras().counters(device, &out), 0);
  return out;
}

// Page-aligned memory, full of a byte nobody sends.
class Pages {
 public:
  explicit Pages(size_t size);
  ~Pages();
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  uint8_t* data() const { return data_; }
  size_t size() const { return size_; }
  void poison();

 private:
  size_t size_;
  uint8_t* data_;
};

// A listener, and polls of both ends until both have a comm.
struct Pair {
  explicit Pair(int device = 0, bool expect_success = true);
  ~Pair() { close(); }
  Pair(const Pair&) = delete;
  Pair& operator=(const Pair&) = delete;

  void close();  // and whatever rc it gives
  int close_send();
  int close_receive();

  void* send = nullptr;
  void* receive = nullptr;
  int send_result = 0, receive_result = 0;
  nccl::DeviceHandle description{};

  nccl::UnpackHandle* unpack() const {
    return static_cast<nccl::UnpackHandle*>(description.handle);
  }
  const nccl::UnpackMeta& meta() const { return *unpack()->meta; }
};

// A registration for the life of the object.
class Registered {
 public:
  Registered(void* comm, void* data, size_t size, int type = nccl::kPtrCuda);
  Registered(void* comm, const Pages& pages, int type = nccl::kPtrCuda)
      : Registered(comm, pages.data(), pages.size(), type) {}
  ~Registered();
  Registered(const Registered&) = delete;
  Registered& operator=(const Registered&) = delete;
  void* get() const { return handle_; }

 private:
  void* comm_;
  void* handle_ = nullptr;
};

// One request each way; null and the result in *rc (if given) when it is refused.
void* isend(const Pair& pair, void* data, int size, const Registered& region, int* rc = nullptr);
void* irecv(const Pair& pair, void* data, int size, const Registered& region, int* rc = nullptr);

// Polls until done. Result of the last test(); -1 when it never was done.
int finish(void* request, Ms limit = kLong);
// Polls `first` and `second` in turn until both are done: both ends need polling to move.
void finish_both(void* first, void* second);
int consume(const Pair& pair, void* request);

// Runs `body` in a child process: its result, or -1 if it has not ended by then and is killed.
int in_child(const std::function<int()>& body, Ms limit = kLong);

// Puts the bytes of a finished receive where they belong, as a GPU would. Returns how many.
uint64_t unpack(const Pair& pair, uint64_t ordinal, uint8_t* destination);

}  // namespace tcpx::test
