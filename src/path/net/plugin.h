// A loaded NCCL net plugin. A plugin is loaded and initialised once per process and never unloaded:
// real ones refuse a second init, keep threads, and have no way back.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "path/net/plugin_calls.h"

namespace tcpx::net {

// What a child process does with the plugin before this one does.
struct Probe {
  Nanos patience = 30 * kSecond;  // for all of it
  bool registration = true;       // not only init; of device memory
};

class Plugin {
 public:
  struct Request {
    std::string path;  // as configured; empty: the usual places
    Probe probe;
  };

  // Distinct failures, all TCPX_PATH_UNAVAILABLE with blast ENGINE; the text starts with what
  // failed: no file, not loadable, no known symbol, refused init, dies in init, hangs in init,
  // no device, dies in set-up, and dies in, hangs in or refuses a trial registration.
  static Status load(const Request& request, std::shared_ptr<Plugin>* out);

  // One that is in no file.
  static std::shared_ptr<Plugin> made_of(std::unique_ptr<PluginCalls> calls,
                                         std::vector<DeviceProperties> devices);

  PluginCalls& calls() { return *calls_; }
  const std::string& file() const { return file_; }  // the file the loader mapped
  const std::string& why() const { return why_; }    // why this file
  const std::string& name() const { return name_; }
  const std::string& trial() const { return trial_; }  // what became of the trial registration
  const std::vector<DeviceProperties>& devices() const { return devices_; }
  // Without a GPU the emulator takes host memory for device memory, and says so.
  bool device_memory_is_host() const { return device_memory_is_host_; }

 private:
  Plugin() = default;
  Status open(const std::string& path);
  Status bind();
  Status initialise();

  void* library_ = nullptr;
  std::unique_ptr<PluginCalls> calls_;
  std::string file_, why_, name_, trial_;
  std::vector<DeviceProperties> devices_;
  bool device_memory_is_host_ = false;
};

// Where a plugin is looked for, first match first, with the reason.
struct Candidate {
  std::string path;
  std::string why;
};
std::vector<Candidate> plugin_candidates(const std::string& configured);
Status no_plugin_file();  // what load() says when there is no candidate

// What init does in a child process, and then the registration of memory as lanes will do it: there
// they may exit, crash or hang. `*trial` says what became of the second, or why it was not tried.
Status probe_plugin(const std::string& file, void* library, PluginCalls& calls, const Probe& probe,
                    std::string* trial);

// Whether a loaded plugin is the emulator without a GPU, which takes host memory for a device's.
bool takes_host_for_device(void* library);

}  // namespace tcpx::net
