// The binary interface between a NIXL core >= 1.0.0 and a backend plugin, declared by ourselves.
//
// Wheels ship no headers, and NIXL's own ones pull in Abseil; what a plugin really needs is the
// layout of a few classes and the order of one vtable. Those are written down here, with asserts;
// test/abi_facts.cc holds them against NIXL's headers where a directory with them is given
// (TCPX_NIXL_INCLUDE_DIR), and then the plugin is compiled with those instead of this file.
//
// Rules for code that uses these types: never construct or copy a nixlDescList, never construct a
// descriptor: the real ones have functions outside the headers, and a plugin must leave no symbol
// of NIXL undefined (Python loads NIXL's libraries where the linker does not look for them).
#pragma once

#ifdef TCPX_NIXL_OWN_HEADERS

#include "backend/backend_plugin.h"

#else

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

// NOLINTBEGIN(readability-identifier-naming): names that are NIXL's
// ---- words -----------------------------------------------------------------------------------

enum nixl_mem_t { DRAM_SEG = 0, VRAM_SEG = 1, BLK_SEG = 2, OBJ_SEG = 3, FILE_SEG = 4 };
enum nixl_xfer_op_t { NIXL_READ = 0, NIXL_WRITE = 1 };
enum nixl_status_t {
  NIXL_IN_PROG = 1,
  NIXL_SUCCESS = 0,
  NIXL_ERR_NOT_POSTED = -1,
  NIXL_ERR_INVALID_PARAM = -2,
  NIXL_ERR_BACKEND = -3,
  NIXL_ERR_NOT_FOUND = -4,
  NIXL_ERR_MISMATCH = -5,
  NIXL_ERR_NOT_ALLOWED = -6,
  NIXL_ERR_REPOST_ACTIVE = -7,
  NIXL_ERR_UNKNOWN = -8,
  NIXL_ERR_NOT_SUPPORTED = -9,
  NIXL_ERR_REMOTE_DISCONNECT = -10,
  NIXL_ERR_CANCELED = -11,
  NIXL_ERR_NO_TELEMETRY = -12
};
enum class nixl_thread_sync_t {
  NIXL_THREAD_SYNC_NONE = 0,
  NIXL_THREAD_SYNC_STRICT = 1,
  NIXL_THREAD_SYNC_RW = 2
};
enum class nixl_cost_t { ANALYTICAL_BACKEND = 0 };

using nixl_backend_t = std::string;
using nixl_blob_t = std::string;
using nixl_mem_list_t = std::vector<nixl_mem_t>;
using nixl_b_params_t = std::unordered_map<std::string, std::string>;
using nixl_query_resp_t = std::optional<nixl_b_params_t>;
using notif_list_t = std::vector<std::pair<std::string, std::string> >;  // agent, message
using nixlMemViewH = void*;

struct nixlAgentOptionalArgs;  // of the agent's API; only its address passes through here
using nixl_opt_args_t = nixlAgentOptionalArgs;

// ---- descriptors -----------------------------------------------------------------------------

class nixlBasicDesc {
 public:
  uintptr_t addr;
  size_t len;
  uint64_t devId;
};
static_assert(sizeof(nixlBasicDesc) == 24);
static_assert(offsetof(nixlBasicDesc, addr) == 0 && offsetof(nixlBasicDesc, len) == 8 &&
              offsetof(nixlBasicDesc, devId) == 16);

class nixlBlobDesc : public nixlBasicDesc {
 public:
  nixl_blob_t metaInfo;
};
static_assert(sizeof(nixlBlobDesc) == 56);

class nixlBackendMD;
class nixlMetaDesc : public nixlBasicDesc {
 public:
  nixlBackendMD* metadataP;
};
static_assert(sizeof(nixlMetaDesc) == 32);

struct nixlRemoteMetaDesc : public nixlMetaDesc {
  std::string remoteAgent;
};
static_assert(sizeof(nixlRemoteMetaDesc) == 64);

// Only ever seen by reference. The real class has virtual functions, none of which a backend
// calls, so the word before the data is all that has to be right.
template <class T>
class nixlDescList {
 public:
  nixlDescList() = delete;
  nixlDescList(const nixlDescList&) = delete;
  nixlDescList& operator=(const nixlDescList&) = delete;

  nixl_mem_t getType() const { return type_; }
  int descCount() const { return static_cast<int>(descs_.size()); }
  const T& operator[](size_t index) const { return descs_[index]; }
  typename std::vector<T>::const_iterator begin() const { return descs_.begin(); }
  typename std::vector<T>::const_iterator end() const { return descs_.end(); }

 private:
  void* vptr_;
  nixl_mem_t type_;
  std::vector<T> descs_;
};
using nixl_meta_dlist_t = nixlDescList<nixlMetaDesc>;
using nixl_remote_meta_dlist_t = nixlDescList<nixlRemoteMetaDesc>;
using nixl_reg_dlist_t = nixlDescList<nixlBlobDesc>;
static_assert(sizeof(nixl_meta_dlist_t) == 40 && sizeof(nixl_reg_dlist_t) == 40);

// ---- what crosses the border -----------------------------------------------------------------

struct nixlBackendOptionalArgs {
  nixl_blob_t notifMsg;
  bool hasNotif = false;
  nixl_blob_t customParam;
};
using nixl_opt_b_args_t = nixlBackendOptionalArgs;
static_assert(sizeof(nixl_opt_b_args_t) == 72);
static_assert(offsetof(nixl_opt_b_args_t, hasNotif) == 32 &&
              offsetof(nixl_opt_b_args_t, customParam) == 40);

class nixlBackendInitParams {
 public:
  std::string localAgent;
  nixl_backend_t type;
  nixl_b_params_t* customParams = nullptr;  // valid during create_engine only
  bool enableProgTh = false;
  uint64_t pthrDelay = 0;  // microseconds
  nixl_thread_sync_t syncMode;
  bool enableTelemetry_ = false;
};
static_assert(sizeof(nixlBackendInitParams) == 96);
static_assert(offsetof(nixlBackendInitParams, type) == 32 &&
              offsetof(nixlBackendInitParams, customParams) == 64 &&
              offsetof(nixlBackendInitParams, enableProgTh) == 72 &&
              offsetof(nixlBackendInitParams, pthrDelay) == 80 &&
              offsetof(nixlBackendInitParams, syncMode) == 88 &&
              offsetof(nixlBackendInitParams, enableTelemetry_) == 92);

class nixlBackendReqH {
 public:
  nixlBackendReqH() = default;
  virtual ~nixlBackendReqH() = default;
};
static_assert(sizeof(nixlBackendReqH) == 8);

class nixlBackendMD {
 public:
  explicit nixlBackendMD(bool isPrivate) : isPrivateMD(isPrivate) {}
  virtual ~nixlBackendMD() = default;

 protected:
  bool isPrivateMD;
};
static_assert(sizeof(nixlBackendMD) == 16);

// ---- the engine ------------------------------------------------------------------------------

// The order of the virtual functions is the interface: 27 entries, two of them the destructor's.
class nixlBackendEngine {
 public:
  explicit nixlBackendEngine(const nixlBackendInitParams* params)
      : backendType(params->type),
        customParams(*params->customParams),
        localAgent(params->localAgent),
        enableTelemetry_(params->enableTelemetry_) {}
  nixlBackendEngine(const nixlBackendEngine&) = delete;
  nixlBackendEngine& operator=(const nixlBackendEngine&) = delete;

  bool getInitErr() const noexcept { return initErr; }
  const nixl_backend_t& getType() const noexcept { return backendType; }
  const nixl_b_params_t& getCustomParams() const noexcept { return customParams; }

  /*  0,  1 */ virtual ~nixlBackendEngine() = default;
  /*  2 */ virtual bool supportsRemote() const = 0;
  /*  3 */ virtual bool supportsLocal() const = 0;
  /*  4 */ virtual bool supportsNotif() const = 0;
  /*  5 */ virtual nixl_mem_list_t getSupportedMems() const = 0;
  /*  6 */ virtual nixl_status_t registerMem(const nixlBlobDesc& mem, const nixl_mem_t& type,
                                             nixlBackendMD*& out) = 0;
  /*  7 */ virtual nixl_status_t deregisterMem(nixlBackendMD* meta) = 0;
  /*  8 */ virtual nixl_status_t connect(const std::string& agent) = 0;
  /*  9 */ virtual nixl_status_t disconnect(const std::string& agent) = 0;
  /* 10 */ virtual nixl_status_t unloadMD(nixlBackendMD* meta) = 0;
  /* 11 */ virtual nixl_status_t prepXfer(const nixl_xfer_op_t& op, const nixl_meta_dlist_t& local,
                                          const nixl_meta_dlist_t& remote, const std::string& agent,
                                          nixlBackendReqH*& handle,
                                          const nixl_opt_b_args_t* args = nullptr) const = 0;
  /* 12 */ virtual nixl_status_t postXfer(const nixl_xfer_op_t& op, const nixl_meta_dlist_t& local,
                                          const nixl_meta_dlist_t& remote, const std::string& agent,
                                          nixlBackendReqH*& handle,
                                          const nixl_opt_b_args_t* args = nullptr) const = 0;
  /* 13 */ virtual nixl_status_t checkXfer(nixlBackendReqH* handle) const = 0;
  /* 14 */ virtual nixl_status_t releaseReqH(nixlBackendReqH* handle) const = 0;
  /* 15 */ virtual nixl_status_t prepMemView(const nixl_remote_meta_dlist_t&, nixlMemViewH&,
                                             const nixl_opt_b_args_t* = nullptr) const {
    return NIXL_ERR_NOT_SUPPORTED;
  }
  /* 16 */ virtual nixl_status_t prepMemView(const nixl_meta_dlist_t&, nixlMemViewH&,
                                             const nixl_opt_b_args_t* = nullptr) const {
    return NIXL_ERR_NOT_SUPPORTED;
  }
  /* 17 */ virtual void releaseMemView(nixlMemViewH) const {}
  /* 18 */ virtual nixl_status_t getPublicData(const nixlBackendMD*, std::string&) const {
    return NIXL_ERR_BACKEND;
  }
  /* 19 */ virtual nixl_status_t getConnInfo(std::string&) const { return NIXL_ERR_BACKEND; }
  /* 20 */ virtual nixl_status_t loadRemoteConnInfo(const std::string&, const std::string&) {
    return NIXL_ERR_BACKEND;
  }
  /* 21 */ virtual nixl_status_t loadRemoteMD(const nixlBlobDesc&, const nixl_mem_t&,
                                              const std::string&, nixlBackendMD*&) {
    return NIXL_ERR_BACKEND;
  }
  /* 22 */ virtual nixl_status_t loadLocalMD(nixlBackendMD*, nixlBackendMD*&) {
    return NIXL_ERR_BACKEND;
  }
  /* 23 */ virtual nixl_status_t getNotifs(notif_list_t&) { return NIXL_ERR_BACKEND; }
  /* 24 */ virtual nixl_status_t genNotif(const std::string&, const std::string&) const {
    return NIXL_ERR_BACKEND;
  }
  /* 25 */ virtual nixl_status_t queryMem(const nixl_reg_dlist_t&,
                                          std::vector<nixl_query_resp_t>&) const {
    return NIXL_ERR_NOT_SUPPORTED;
  }
  /* 26 */ virtual nixl_status_t estimateXferCost(const nixl_xfer_op_t&, const nixl_meta_dlist_t&,
                                                  const nixl_meta_dlist_t&, const std::string&,
                                                  nixlBackendReqH* const&,
                                                  std::chrono::microseconds&,
                                                  std::chrono::microseconds&, nixl_cost_t&,
                                                  const nixl_opt_args_t* = nullptr) const {
    return NIXL_ERR_NOT_SUPPORTED;
  }

 private:
  nixl_backend_t backendType;
  nixl_b_params_t customParams;
  std::vector<uint64_t> telemetryEvents_;  // never filled; the core looks at it only if it drains
  std::mutex telemetryEventsMutex_;

 protected:
  bool initErr = false;
  const std::string localAgent;
  const bool enableTelemetry_;
};
static_assert(sizeof(nixlBackendEngine) == 208);

// ---- the plugin ------------------------------------------------------------------------------

#define NIXL_PLUGIN_API_VERSION 1  // in every release, also in those with another vtable

class nixlBackendPlugin {
 public:
  int api_version;
  nixlBackendEngine* (*create_engine)(const nixlBackendInitParams* params);  // must not throw
  void (*destroy_engine)(nixlBackendEngine* engine);
  const char* (*get_plugin_name)();
  const char* (*get_plugin_version)();
  nixl_b_params_t (*get_backend_options)();
  nixl_mem_list_t (*get_backend_mems)();
};
static_assert(sizeof(nixlBackendPlugin) == 56);
static_assert(offsetof(nixlBackendPlugin, create_engine) == 8 &&
              offsetof(nixlBackendPlugin, get_backend_mems) == 48);

#define NIXL_PLUGIN_EXPORT __attribute__((visibility("default")))
extern "C" {
NIXL_PLUGIN_EXPORT nixlBackendPlugin* nixl_plugin_init();
NIXL_PLUGIN_EXPORT void nixl_plugin_fini();
}

// NOLINTEND(readability-identifier-naming)
#endif  // TCPX_NIXL_OWN_HEADERS
