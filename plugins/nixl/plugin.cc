// What NIXL looks up in the file: the table of functions that make and destroy engines.
//
// NIXL loads, asks for the options, unloads and loads again: nothing here starts a thread or keeps
// state, and all of it can be called any number of times.
#include <cstdio>
#include <exception>
#include <memory>

#include "core_check.h"
#include "guarded_engine.h"
#include "logger.h"
#include "params.h"

namespace {

nixlBackendEngine* create_engine(const nixlBackendInitParams* params) {
  // Before anything of `params` is read: an old core lays it out differently.
  std::string too_old = tcpx_nixl::why_core_is_too_old(__builtin_return_address(0));
  if (!too_old.empty()) {
    tcpx_nixl::Logger("plugin").log(TCPX_LOG_ERROR, too_old);
    return nullptr;
  }
  try {
    return std::make_unique<tcpx_nixl::GuardedEngine>(*params).release();
  } catch (const std::exception& error) {
    try {
      tcpx_nixl::Logger("plugin").log(TCPX_LOG_ERROR, std::string("no engine: ") + error.what());
    } catch (...) {  // no memory to say it with
    }
    return nullptr;
  }
}

void destroy_engine(nixlBackendEngine* engine) {
  delete engine;
}

const char* name() {
  return "TCPX";
}

nixlBackendPlugin plugin{NIXL_PLUGIN_API_VERSION,
                         create_engine,
                         destroy_engine,
                         name,
                         tcpx_version,
                         tcpx_nixl::default_params,
                         tcpx_nixl::TcpxEngine::supported_mems};

}  // namespace

extern "C" {

NIXL_PLUGIN_EXPORT nixlBackendPlugin* nixl_plugin_init() {
  return &plugin;
}

NIXL_PLUGIN_EXPORT void nixl_plugin_fini() {}
}
