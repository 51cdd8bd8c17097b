#include "path/net/plugin.h"

#include <dlfcn.h>
#include <link.h>
#include <unistd.h>

#include <map>

#include "base/forked.h"
#include "base/mutex.h"
#include "base/text.h"
#include "path/net/connect_reaper.h"
#include "path/net/plugin_log.h"

namespace tcpx::net {
namespace {

constexpr const char* kUsualPlaces[] = {"/usr/local/tcpx/lib64/libnccl-net-tcpx.so",
                                        "/usr/local/tcpx/lib64/libnccl-net.so",
                                        "/var/lib/tcpx/lib64/libnccl-net.so"};

// Beyond the plugin ABI; plugins/tcpx_emu/tcpx_emu.h declares the same.
struct EmulatorTable {
  int version;
  int (*device_is_host)();
};

Status unavailable(std::string text) {
  return Status(TCPX_PATH_UNAVAILABLE, TCPX_BLAST_ENGINE, std::move(text));
}

std::string mapped_file(void* library, const std::string& asked) {
  link_map* map = nullptr;
  if (dlinfo(library, RTLD_DI_LINKMAP, &map) == 0 && map != nullptr && map->l_name[0] != '\0')
    return map->l_name;
  return asked;
}

}  // namespace

std::vector<Candidate> plugin_candidates(const std::string& configured) {
  if (!configured.empty()) return {{configured, "net_plugin names it"}};
  std::vector<Candidate> out;
  for (const char* place : kUsualPlaces)
    if (access(place, R_OK) == 0) out.push_back({place, "found in the usual place"});
  return out;
}

bool takes_host_for_device(void* library) {
  auto* table = static_cast<const EmulatorTable*>(dlsym(library, "tcpxEmu_v1"));
  return table != nullptr && table->device_is_host() != 0;
}

Status no_plugin_file() {
  return unavailable(
      "no net plugin file: none is configured (net_plugin, "
      "UCCL_TCPX_PLUGIN_PATH) and none is in the usual places");
}

Status Plugin::load(const Request& request, std::shared_ptr<Plugin>* out) {
  static Mutex mu;
  static std::map<std::string, std::shared_ptr<Plugin>>* const loaded =
      new std::map<std::string, std::shared_ptr<Plugin>>;
  static const MadeHere made_here;
  if (made_here.is_inherited())
    return unavailable(
        "this process was forked from one that had loaded a net plugin, whose threads are not "
        "here; start the program anew (exec) to use one");
  std::vector<Candidate> candidates = plugin_candidates(request.path);
  if (candidates.empty()) return no_plugin_file();
  const Candidate& chosen = candidates.front();
  MutexLock lock(mu);  // the first use of a plugin is serial
  if (auto found = loaded->find(chosen.path); found != loaded->end()) {
    *out = found->second;
    return {};
  }
  std::shared_ptr<Plugin> plugin(new Plugin);
  plugin->why_ = chosen.why;
  if (Status status = plugin->open(chosen.path); !status) return status;
  if (Status status = plugin->bind(); !status) return status;
  if (Status status = probe_plugin(plugin->file_, plugin->library_, *plugin->calls_, request.probe,
                                   &plugin->trial_);
      !status)
    return status;
  if (Status status = plugin->initialise(); !status) return status;
  stop_reaping_at_exit();
  (*loaded)[chosen.path] = plugin;
  *out = std::move(plugin);
  return {};
}

Status Plugin::open(const std::string& path) {
  if (path.find('/') != std::string::npos && access(path.c_str(), R_OK) != 0)
    return unavailable(
        strf("no net plugin file: {} cannot be read ({}); set net_plugin to the "
             "plugin's .so",
             path, why_));
  library_ = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library_ == nullptr)
    return unavailable(strf("net plugin not loadable: {} ({})", dlerror(), why_));
  file_ = mapped_file(library_, path);
  return {};
}

// Newest first, as NCCL does.
Status Plugin::bind() {
  std::string refused;
  for (int version = nccl::kNewestVersion; version >= nccl::kOldestVersion; --version) {
    void* table = dlsym(library_, strf("ncclNetPlugin_v{}", version).c_str());
    if (table == nullptr) continue;
    std::string why;
    calls_ = bind_table(version, table, &why);
    if (calls_ != nullptr) break;
    refused += strf("; version {}: {}", version, why);
  }
  if (calls_ == nullptr)
    return unavailable(
        strf("no known symbol in net plugin {}: it has none of ncclNetPlugin_v{} to "
             "v{}{}",
             file_, nccl::kOldestVersion, nccl::kNewestVersion, refused));
  name_ = calls_->name();
  return {};
}

Status Plugin::initialise() {
  nccl::Result result = calls_->init(plugin_logger());
  if (result != nccl::kSuccess)
    return unavailable(strf("net plugin {} refused init: {}; its last warning: {}", file_,
                            result_name(result), last_plugin_warning()));
  int count = 0;
  result = calls_->devices(&count);
  if (result != nccl::kSuccess || count <= 0)
    return unavailable(
        strf("net plugin {} has no device ({}); check the interfaces it is told to "
             "use",
             file_, result_name(result)));
  for (int device = 0; device < count; ++device) {
    DeviceProperties properties;
    if (calls_->properties(device, &properties) != nccl::kSuccess) continue;
    if (properties.unpacks() && properties.device_version != nccl::kUnpackVersion)
      return unavailable(strf("net plugin {} has unpack queue version {}, only {} is understood",
                              file_, properties.device_version, nccl::kUnpackVersion));
    devices_.push_back(properties);
  }
  if (devices_.empty())
    return unavailable(strf("net plugin {} has no device that describes itself", file_));
  device_memory_is_host_ = takes_host_for_device(library_);
  return {};
}

}  // namespace tcpx::net
