#include "path/net/net_path.h"

#include <algorithm>
#include <cstdlib>
#include <mutex>

#include "base/text.h"

namespace tcpx::net {
namespace {

// Plugins are set through the environment. What the user has set there stands; our options fill in
// the rest, before the plugin reads it.
void set_default(const char* name, const std::string& value) {
  if (getenv(name) == nullptr) setenv(name, value.c_str(), 0);
}

void set_defaults(const EngineOptions& options) {
  static std::mutex one_at_a_time;  // the environment belongs to the process
  std::lock_guard lock(one_at_a_time);
  set_default("NCCL_DYNAMIC_CHUNK_SIZE", strf("{}", options.net_chunk));
  if (options.net_sockets == 0) return;
  set_default("NCCL_NSOCKS_PERTHREAD", strf("{}", options.net_sockets));
  set_default("NCCL_SOCKET_NTHREADS", "1");
}

std::string effective(const char* name) {
  const char* value = getenv(name);
  return strf("{}={}", name, value == nullptr ? "(unset)" : value);
}

// A request never exceeds the plugin's chunk: more than one chunk of a request on a socket leaks
// receive pages in the real one.
uint64_t plugin_chunk(uint64_t ours) {
  const char* text = getenv("NCCL_DYNAMIC_CHUNK_SIZE");
  uint64_t theirs = text == nullptr ? 0 : strtoull(text, nullptr, 0);
  return theirs == 0 ? ours : std::min(ours, theirs);
}

Status unavailable(std::string text) {
  return Status(TCPX_PATH_UNAVAILABLE, TCPX_BLAST_ENGINE, std::move(text));
}

}  // namespace

Status NetPath::create(const EngineOptions& options, const RegionTable& regions, const Log& log,
                       std::unique_ptr<NetPath>* out) {
  std::unique_ptr<NetPath> path(new NetPath(regions));
  path->tap_.emplace(log);
  set_defaults(options);
  Plugin::Request request;
  request.path = options.net_plugin;
  request.probe_patience = options.connect_timeout;
  if (Status status = Plugin::load(request, &path->plugin_); !status) return status;
  if (Status status = path->choose_devices(options.net_devices); !status) return status;
  const DeviceProperties& first = path->plugin_->devices()[static_cast<size_t>(path->devices_[0])];
  bool as_device =
      first.unpacks() && path->plugin_->device_memory_is_host() && !options.net_host_memory;
  path->memory_type_ = as_device ? nccl::kPtrCuda : nccl::kPtrHost;
  path->request_bytes_ = std::clamp<uint64_t>(
      std::min(plugin_chunk(options.net_chunk), first.max_request) / Pages::kPage * Pages::kPage,
      wire::kMinNetRequest, wire::kMaxNetRequest);
  path->send_window_ = options.net_send_window;
  path->receive_window_ = options.net_receive_window;
  path->setup_timeout_ = options.connect_timeout;
  *out = std::move(path);
  return {};
}

Status NetPath::choose_devices(const std::string& asked) {
  const std::vector<DeviceProperties>& all = plugin_->devices();
  std::vector<std::string> names;
  for (const DeviceProperties& device : all) names.push_back(device.name);
  if (asked == "auto") {
    for (size_t i = 0; i < all.size(); ++i) devices_.push_back(static_cast<int>(i));
    return {};
  }
  for (size_t start = 0; start <= asked.size();) {
    size_t end = std::min(asked.find(',', start), asked.size());
    std::string name = asked.substr(start, end - start);
    start = end + 1;
    auto found = std::find(names.begin(), names.end(), name);
    if (found == names.end())
      return unavailable(
          strf("net_devices names \"{}\", which the net plugin does not have; it has {}", name,
               join(names, ", ")));
    devices_.push_back(static_cast<int>(found - names.begin()));
  }
  return {};
}

std::unique_ptr<Carrier> NetPath::make_carrier(uint32_t lane,
                                               std::span<const uint8_t> session_key) const {
  NetCarrierSettings settings;
  settings.plugin = plugin_;
  settings.regions = &regions_;
  settings.memory_type = memory_type_;
  settings.device = devices_[lane % devices_.size()];
  settings.lane = lane;
  std::copy_n(session_key.begin(), std::min(session_key.size(), settings.session_key.size()),
              settings.session_key.begin());
  settings.request_bytes = request_bytes_;
  settings.send_window = send_window_;
  settings.receive_window = receive_window_;
  settings.setup_deadline = now_ns() + setup_timeout_;
  return std::make_unique<NetCarrier>(settings);
}

std::string NetPath::describe() const {
  std::vector<std::string> names;
  for (int device : devices_) names.push_back(plugin_->devices()[static_cast<size_t>(device)].name);
  bool unpacks = plugin_->devices()[static_cast<size_t>(devices_[0])].unpacks();
  const char* memory = memory_type_ == nccl::kPtrCuda
                           ? "emulated device memory, unpacked by the CPU"
                       : unpacks ? "host memory (debug mode: no devmem)"
                                 : "host memory";
  return strf(
      "net plugin {} ({}, ABI v{}, {}); devices {}; {}; requests of {} bytes, windows {} "
      "and {}; {} {} {}",
      plugin_->file(), plugin_->name(), plugin_->calls().version(), plugin_->why(),
      join(names, " "), memory, request_bytes_, send_window_, receive_window_,
      effective("NCCL_DYNAMIC_CHUNK_SIZE"), effective("NCCL_NSOCKS_PERTHREAD"),
      effective("NCCL_SOCKET_NTHREADS"));
}

}  // namespace tcpx::net
