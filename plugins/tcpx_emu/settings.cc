#include "settings.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <string_view>
#include <utility>

#include "log.h"

namespace tcpx_emu {

namespace {

constexpr char kPrefix[] = "TCPX_EMU_";

bool parse_integer(const char* text, int64_t* out) {
  char* end = nullptr;
  *out = std::strtoll(text, &end, 0);
  return end != text && *end == '\0';
}

// A variable of the plugin.
void read_plugin_integer(const char* name, int64_t low, int64_t high, int64_t* value) {
  const char* text = std::getenv(name);
  if (text == nullptr) return;
  int64_t parsed;
  if (parse_integer(text, &parsed) && parsed >= low && parsed <= high)
    *value = parsed;
  else
    EMU_INFO("%s=%s invalid, restore to default %lld", name, text, static_cast<long long>(*value));
}

void read_plugin_flag(const char* name, bool* value) {
  int64_t number = *value;
  read_plugin_integer(name, INT64_MIN, INT64_MAX, &number);
  *value = number != 0;
}

std::string text_or_empty(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? "" : text;
}

// The emulator's own variables: what is wrong is an error.
class OwnVariables {
 public:
  void integer(const char* name, int64_t low, int64_t high, int64_t* value) {
    const char* text = find(name);
    if (text == nullptr) return;
    int64_t parsed;
    if (parse_integer(text, &parsed) && parsed >= low && parsed <= high)
      *value = parsed;
    else
      complain(name, text, "a number from " + std::to_string(low) + " to " + std::to_string(high));
  }
  void flag(const char* name, bool* value) {
    int64_t number = *value;
    integer(name, 0, 1, &number);
    *value = number == 1;
  }
  template <class T>
  void choice(const char* name, std::initializer_list<std::pair<const char*, T>> choices,
              T* value) {
    const char* text = find(name);
    if (text == nullptr) return;
    std::string known;
    for (const auto& [word, meaning] : choices) {
      if (std::strcmp(text, word) == 0) {
        *value = meaning;
        return;
      }
      known += known.empty() ? word : std::string(", ") + word;
    }
    complain(name, text, "one of " + known);
  }
  void text(const char* name, std::string* value) {
    if (const char* found = find(name)) *value = found;
  }
  // After all have been read: what nobody asked for is misspelt.
  void unknown() {
    for (char** entry = environ; *entry != nullptr; ++entry) {
      std::string_view name = *entry;
      name = name.substr(0, name.find('='));
      if (!name.starts_with(kPrefix)) continue;
      if (known_.find("," + std::string(name) + ",") == std::string::npos && problem_.empty())
        problem_ = std::string(name) + " is no variable of the emulator; there are: " +
                   known_.substr(1, known_.size() - 2);
    }
  }
  const std::string& problem() const { return problem_; }

 private:
  const char* find(const char* name) {
    std::string full = std::string(kPrefix) + name;
    known_ += full + ",";
    return std::getenv(full.c_str());
  }
  void complain(const char* name, const char* text, const std::string& wanted) {
    if (problem_.empty()) problem_ = std::string(kPrefix) + name + "=" + text + ": not " + wanted;
  }
  std::string known_ = ",";
  std::string problem_;
};

}  // namespace

int Settings::sockets() const {
  // More threads than sockets allowed leaves no socket at all, as in the plugin.
  if (threads > kMaxSockets) return 0;
  return static_cast<int>(std::min<int64_t>(sockets_per_thread, kMaxSockets / threads) * threads);
}

std::string read_settings(Settings* out) {
  Settings s;
  s.interfaces = text_or_empty("NCCL_GPUDIRECTTCPX_SOCKET_IFNAME");
  s.control_interface = text_or_empty("NCCL_GPUDIRECTTCPX_CTRL_DEV");
  read_plugin_integer("NCCL_NSOCKS_PERTHREAD", 1, kMaxSockets, &s.sockets_per_thread);
  read_plugin_integer("NCCL_SOCKET_NTHREADS", 1, 16, &s.threads);
  read_plugin_integer("NCCL_DYNAMIC_CHUNK_SIZE", 0, INT32_MAX, &s.chunk_bytes);
  read_plugin_integer("NCCL_GPUDIRECTTCPX_PROGRAM_FLOW_STEERING_WAIT_MICROS", 1, INT32_MAX,
                      &s.steering_wait_us);
  read_plugin_integer("NCCL_GPUDIRECTTCPX_CONNECTION_RETRY", 0, 1000, &s.connection_tries);
  read_plugin_flag("NCCL_GPUDIRECTTCPX_RECV_SYNC", &s.recv_sync);
  read_plugin_flag("NCCL_GPUDIRECTTCPX_SPINWAIT_CONNECT", &s.spinwait_connect);
  read_plugin_flag("NCCL_GPUDIRECTTCPX_SOCKET_ENABLE", &s.enabled);
  read_plugin_flag("NCCL_USE_DMA_BUF", &s.dma_buf);

  OwnVariables own;
  own.flag("STRICT", &s.strict);
  own.flag("INIT_ONCE", &s.init_once);
  own.flag("EXIT", &s.may_exit);
  own.flag("CLOSE_RACE", &s.close_race);
  own.flag("SHUFFLE", &s.shuffle);
  own.flag("TEST_CPU", &s.test_cpu);
  own.choice("SEND_DONE", {{"kernel", false}, {"acked", true}}, &s.send_done_acked);
  own.choice("HANDLE", {{"number", false}, {"pointer", true}}, &s.handle_pointer);
  own.choice("TYPE", {{"unpack", true}, {"host", false}}, &s.unpack);
  own.choice("FRAGMENTS",
             {{"page", Fragments::kPage},
              {"mtu", Fragments::kMtu},
              {"random", Fragments::kRandom},
              {"mixed", Fragments::kMixed}},
             &s.fragments);
  own.choice(
      "DEVICE",
      {{"auto", DeviceChoice::kAuto}, {"host", DeviceChoice::kHost}, {"cuda", DeviceChoice::kCuda}},
      &s.device);
  own.integer("SEED", 0, INT64_MAX, &s.seed);
  own.integer("DEVICES", 1, 16, &s.devices);
  own.integer("POOL_MB", 1, 4095, &s.pool_mb);
  own.integer("SETUP_TIMEOUT_MS", 1, 86'400'000, &s.setup_timeout_ms);
  own.integer("SOCKET_DELAY_US", 0, 60'000'000, &s.socket_delay_us);
  own.text("FAULTS", &s.faults);
  own.text("COUNTERS", &s.counters_file);
  own.unknown();
  if (!own.problem().empty()) return own.problem();
  *out = s;
  return {};
}

}  // namespace tcpx_emu
