#include "path/net/net_path.h"

#include <algorithm>
#include <cstdlib>
#include <mutex>

#include "base/text.h"
#include "base/units.h"
#include "config/bindings.h"
#include "memory/pages.h"
#include "path/net/handle_check.h"
#include "path/tcp/tcp_lane.h"
#include "topo/binding_check.h"
#include "topo/thread_cpus.h"

namespace tcpx::net {
namespace {

// Plugins are set through the environment. What the user has set there stands; our options fill in
// the rest, before the plugin reads it.
bool set_default(const char* name, const std::string& value) {
  return getenv(name) == nullptr && setenv(name, value.c_str(), 0) == 0;
}

constexpr const char* kChunk = "NCCL_DYNAMIC_CHUNK_SIZE";
constexpr const char* kSockets = "NCCL_NSOCKS_PERTHREAD";
constexpr const char* kThreads = "NCCL_SOCKET_NTHREADS";
constexpr const char* kZeroCopy = "NCCL_MIN_ZCOPY_SIZE";
constexpr const char* kTxBindings = "NCCL_GPUDIRECTTCPX_TX_BINDINGS";
constexpr const char* kRxBindings = "NCCL_GPUDIRECTTCPX_RX_BINDINGS";

// What our options put into the environment on top of what is there. Options that turn out wrong
// are taken back, or the next engine would find them there as the user's. The chunk size stays: any
// is right, and a plugin that another engine loads later must not miss it.
//
// The environment belongs to the process, and plugins read it while they are loaded: one engine at
// a time, from the first change to the last look.
class Defaults {
 public:
  explicit Defaults(const EngineOptions& options) : lock_(mu()) {
    set_default(kChunk, strf("{}", options.net_chunk));
    if (options.net_sockets != 0) set(kSockets, strf("{}", options.net_sockets));
    if (options.net_sockets != 0 || options.net_threads != 0)
      set(kThreads, strf("{}", std::max(options.net_threads, 1u)));
    if (options.net_min_zerocopy != 0) set(kZeroCopy, strf("{}", options.net_min_zerocopy));
    if (!options.net_tx_bindings.empty()) set(kTxBindings, options.net_tx_bindings);
    if (!options.net_rx_bindings.empty()) set(kRxBindings, options.net_rx_bindings);
  }
  ~Defaults() {
    for (const char* name : ours_) unsetenv(name);
  }
  // The plugin has read it, and will not again.
  void keep_for_plugin() {
    std::erase_if(ours_,
                  [](const char* name) { return name != kTxBindings && name != kRxBindings; });
  }
  void keep() { ours_.clear(); }

 private:
  static std::mutex& mu() {
    static std::mutex one_at_a_time;
    return one_at_a_time;
  }
  void set(const char* name, const std::string& value) {
    if (set_default(name, value)) ours_.push_back(name);
  }
  std::unique_lock<std::mutex> lock_;
  std::vector<const char*> ours_;
};

std::string effective(const char* name) {
  const char* value = getenv(name);
  return strf("{}={}", name, value == nullptr ? "(unset)" : value);
}

// A request never exceeds the plugin's chunk: more than one chunk of a request on a socket leaks
// receive pages in the real one.
uint64_t plugin_chunk(uint64_t ours) {
  const char* text = getenv(kChunk);
  uint64_t theirs = text == nullptr ? 0 : strtoull(text, nullptr, 0);
  return theirs == 0 ? ours : std::min(ours, theirs);
}

Status unavailable(std::string text) {
  return Status(TCPX_PATH_UNAVAILABLE, TCPX_BLAST_ENGINE, std::move(text));
}

Status bad_setting(std::string text) {
  return Status(TCPX_BAD_CONFIG, TCPX_BLAST_ENGINE, std::move(text));
}

Status plugin_count(const char* name, uint64_t* out) {
  const char* text = getenv(name);
  *out = 1;
  if (text == nullptr || (parse_count(text, out).ok() && *out >= 1)) return {};
  return bad_setting(strf("{}=\"{}\" is not a number from 1 to {}; change or unset it", name,
                          escaped(text), kMaxPluginSockets));
}

// The TCPX plugin silently makes fewer sockets than it is told, or none at all, and then every
// transfer hangs. Its environment may come from elsewhere than our options.
Status check_sockets() {
  uint64_t sockets = 0, threads = 0;
  if (Status status = plugin_count(kSockets, &sockets); !status) return status;
  if (Status status = plugin_count(kThreads, &threads); !status) return status;
  if (threads <= kMaxPluginSockets && sockets <= kMaxPluginSockets / threads) return {};
  return bad_setting(
      strf("{}={} times {}={} is more than the {} sockets a comm of the net plugin has; e.g. "
           "{}=4 {}=1",
           kSockets, sockets, kThreads, threads, kMaxPluginSockets, kSockets, kThreads));
}

// What the plugin does with its threads when its environment says otherwise than our option.
void warn_of_difference(const char* name, std::string_view ours, const Log& log) {
  const char* theirs = getenv(name);
  if (theirs != nullptr && !ours.empty() && ours != theirs)
    log.warn("{} is set to \"{}\" and stands for the plugin's threads; ours use \"{}\"", name,
             escaped(theirs), escaped(ours));
}

}  // namespace

PathProbe NetPath::probe(const EngineOptions& options, const Log& log) {
  using enum PathProbe::IfNot;
  PathProbe out;
  out.why = create(options, log, &out.path);
  const bool asked_for = !options.net_plugin.empty();
  const bool mistaken = out.why.code() == TCPX_BAD_CONFIG;
  // A wrong setting is not answered with another path, where the path was asked for.
  out.if_not = asked_for && mistaken ? kFail : asked_for || mistaken ? kWarn : kGoOn;
  return out;
}

// Which of a GPU's memory a plugin takes as it lies is for its registrations to say.
LaneTraits NetPath::traits() const {
  LaneTraits traits;
  traits.may_hang = true;
  traits.caller_may_drive = false;
  traits.keeps_stream_order = false;
  traits.busy_polls = true;
  if (memory_type_ == nccl::kPtrCuda && !plugin_->device_memory_is_host())
    traits.places = PlaceKinds(Place::Kind::kCuda);
  return traits;
}

Status NetPath::create(const EngineOptions& options, const Log& log, std::unique_ptr<Path>* out) {
  std::unique_ptr<NetPath> path(new NetPath());
  path->tap_.emplace(log);
  // Without a plugin the environment, which is not ours, stays as it is.
  if (plugin_candidates(options.net_plugin).empty()) return no_plugin_file();
  Defaults defaults(options);
  // Who sets sockets through us means TCPX; else only a plugin that turns out to be of its kind is
  // held to its limits.
  if (options.net_sockets != 0 || options.net_threads != 0)
    if (Status status = check_sockets(); !status) return status;
  Plugin::Request request;
  request.path = options.net_plugin;
  request.probe = {options.connect_timeout, !options.net_host_memory};
  if (Status status = Plugin::load(request, &path->plugin_); !status) return status;
  defaults.keep_for_plugin();
  if (Status status = path->choose_devices(options.net_devices); !status) return status;
  const DeviceProperties& first = path->plugin_->devices()[static_cast<size_t>(path->devices_[0])];
  if (first.unpacks())
    if (Status status = check_sockets(); !status) return status;
  if (Status status = path->bind_workers(options, log); !status) return status;
  defaults.keep();
  // Its receives land in device memory, and a stranger's first message in host memory may overrun
  // what it lands in: for diagnosis, not for who happens to have the plugin in a usual place.
  if (first.unpacks() && !path->plugin_->device_memory_is_host() && !options.net_host_memory)
    return unavailable(strf(
        "net plugin {} is for device memory, and this engine has none to give it; net_memory=host "
        "uses it for host memory all the same, for diagnosis",
        path->plugin_->file()));
  bool as_device = first.unpacks() && !options.net_host_memory;
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

const std::string& NetPath::device_name(int device) const {
  return plugin_->devices()[static_cast<size_t>(device)].name;
}

Status NetPath::bind_workers(const EngineOptions& options, const Log& log) {
  Bindings tx, rx;
  if (Status status = parse_bindings(options.net_tx_bindings, &tx); !status) return status;
  if (Status status = parse_bindings(options.net_rx_bindings, &rx); !status) return status;
  if (tx.empty() && rx.empty()) return {};
  topo::Sysfs sysfs;
  topo::PciMap map;
  if (Status status = topo::read_pci_map(sysfs, &map); !status)
    log.warn("CPU bindings are not checked: {}", status.text());
  topo::MachineCpus cpus = topo::read_cpus(sysfs);
  std::vector<std::string> names, warnings;
  for (const DeviceProperties& device : plugin_->devices()) names.push_back(device.name);
  if (Status status = check_bindings("net_tx_bindings", tx, map, cpus, names, &warnings); !status)
    return status;
  if (Status status = check_bindings("net_rx_bindings", rx, map, cpus, names, &warnings); !status)
    return status;
  for (const std::string& warning : warnings) log.warn("{}", warning);
  warn_of_difference(kTxBindings, options.net_tx_bindings, log);
  warn_of_difference(kRxBindings, options.net_rx_bindings, log);
  for (int device : devices_) {
    CpuSet asked = topo::worker_cpus(tx, rx, device_name(device)), effective;
    if (asked.none()) continue;
    if (Status status = topo::try_binding(asked, &effective); !status)
      return bad_setting(strf("bindings of {}: {}", device_name(device), status.text()));
    if (effective != asked)
      log.warn("threads of {} run on CPUs {} only; this process may not use the rest of {}",
               device_name(device), format_cpus(effective), format_cpus(asked));
    worker_cpus_[device] = effective;
  }
  return {};
}

std::unique_ptr<Carrier> NetPath::make_carrier(uint32_t lane, std::span<const uint8_t> session_key,
                                               const Loop& loop) const {
  NetCarrierSettings settings;
  settings.plugin = plugin_;
  settings.loop = &loop;
  settings.mover = loop.mover();
  settings.memory_type = memory_type_;
  settings.device = devices_[lane % devices_.size()];
  settings.lane = lane;
  std::copy_n(session_key.begin(), std::min(session_key.size(), settings.session_key.size()),
              settings.session_key.begin());
  settings.request_bytes = request_bytes_;
  settings.send_window = send_window_;
  settings.receive_window = receive_window_;
  settings.setup_deadline = now_ns() + setup_timeout_;
  auto cpus = worker_cpus_.find(settings.device);
  if (cpus != worker_cpus_.end()) settings.cpus = cpus->second;
  return std::make_unique<NetCarrier>(settings);
}

std::unique_ptr<Lane> NetPath::make_lane(LaneParts parts, Loop& loop, LaneSink& sink) const {
  std::unique_ptr<Carrier> carrier = make_carrier(parts.index, parts.session_key, loop);
  return std::make_unique<TcpLane>(loop, sink, std::move(parts.fd), std::move(parts.stream),
                                   std::move(carrier));
}

std::string NetPath::describe() const {
  std::vector<std::string> names, settings;
  for (int device : devices_) {
    auto cpus = worker_cpus_.find(device);
    names.push_back(cpus == worker_cpus_.end()
                        ? device_name(device)
                        : strf("{} (CPUs {})", device_name(device), format_cpus(cpus->second)));
  }
  for (const char* name : {kChunk, kSockets, kThreads, kZeroCopy, kTxBindings, kRxBindings})
    settings.push_back(effective(name));
  bool unpacks = plugin_->devices()[static_cast<size_t>(devices_[0])].unpacks();
  const char* memory = memory_type_ == nccl::kPtrCuda
                           ? "emulated device memory, unpacked by the CPU"
                       : unpacks ? "host memory (debug mode: no devmem)"
                                 : "host memory";
  return strf(
      "net plugin {} ({}, ABI v{}, {}); trial registration {}; devices {}; {}; requests of {} "
      "bytes, windows {} and {}; {}{}",
      plugin_->file(), plugin_->name(), plugin_->calls().version(), plugin_->why(),
      plugin_->trial(), join(names, " "), memory, request_bytes_, send_window_, receive_window_,
      join(settings, " "),
      knows_handles_of(plugin_->name())
          ? ""
          : "; this plugin's handles are not known here: peers are trusted with theirs");
}

}  // namespace tcpx::net
