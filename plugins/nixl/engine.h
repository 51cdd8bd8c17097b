// The backend as NIXL sees it: each function translates one call. What happens to bytes is decided
// in the tcpx engine, which has its own threads: a target makes progress without any call.
//
// Threads: NIXL may call the const functions from several threads at once, in every sync mode; all
// state they touch has its own lock or belongs to one request.
#pragma once

#include <memory>
#include <string>
#include <tcpx/tcpx.hpp>

#include "connections.h"
#include "forked.h"
#include "logger.h"
#include "nixl_abi.h"
#include "notifications.h"
#include "ranges.h"

namespace tcpx_nixl {

class TcpxEngine : public nixlBackendEngine {
 public:
  explicit TcpxEngine(const nixlBackendInitParams& params);
  ~TcpxEngine() override;

  bool supportsRemote() const override { return true; }
  bool supportsLocal() const override { return true; }
  bool supportsNotif() const override { return true; }
  // Asked once, when the backend is made. Only what can be registered: an agent whose first
  // registration of a kind fails has metadata that nobody can load.
  nixl_mem_list_t getSupportedMems() const override;
  static nixl_mem_list_t supported_mems();

  nixl_status_t registerMem(const nixlBlobDesc& mem, const nixl_mem_t& type,
                            nixlBackendMD*& out) override;
  nixl_status_t deregisterMem(nixlBackendMD* meta) override;
  nixl_status_t getPublicData(const nixlBackendMD* meta, std::string& out) const override;
  nixl_status_t loadLocalMD(nixlBackendMD* input, nixlBackendMD*& out) override;
  nixl_status_t loadRemoteMD(const nixlBlobDesc& input, const nixl_mem_t& type,
                             const std::string& agent, nixlBackendMD*& out) override;
  nixl_status_t unloadMD(nixlBackendMD* meta) override;

  nixl_status_t getConnInfo(std::string& out) const override;
  nixl_status_t loadRemoteConnInfo(const std::string& agent, const std::string& info) override;
  nixl_status_t connect(const std::string& agent) override;
  nixl_status_t disconnect(const std::string& agent) override;

  nixl_status_t prepXfer(const nixl_xfer_op_t& op, const nixl_meta_dlist_t& local,
                         const nixl_meta_dlist_t& remote, const std::string& agent,
                         nixlBackendReqH*& handle, const nixl_opt_b_args_t* args) const override;
  nixl_status_t postXfer(const nixl_xfer_op_t& op, const nixl_meta_dlist_t& local,
                         const nixl_meta_dlist_t& remote, const std::string& agent,
                         nixlBackendReqH*& handle, const nixl_opt_b_args_t* args) const override;
  nixl_status_t checkXfer(nixlBackendReqH* handle) const override;
  nixl_status_t releaseReqH(nixlBackendReqH* handle) const override;
  nixl_status_t estimateXferCost(const nixl_xfer_op_t& op, const nixl_meta_dlist_t& local,
                                 const nixl_meta_dlist_t& remote, const std::string& agent,
                                 nixlBackendReqH* const& handle,
                                 std::chrono::microseconds& duration,
                                 std::chrono::microseconds& margin, nixl_cost_t& method,
                                 const nixl_opt_args_t* args) const override;

  nixl_status_t getNotifs(notif_list_t& out) override;
  nixl_status_t genNotif(const std::string& agent, const std::string& message) const override;

 protected:
  const MadeHere& made_here() const { return made_here_; }
  void say_thrown(const char* what) const {
    log_.log(TCPX_LOG_ERROR, std::string("a call failed: ") + what);
  }

 private:
  tcpx_code export_region(tcpx_region region, std::string* out) const;
  tcpx_code name_region(tcpx_region region, tcpx_remote_region* out) const;
  bool start(const nixlBackendInitParams& params);
  // Says why (this thread's last error) and gives NIXL's code for it.
  nixl_status_t failed(tcpx_code code, const std::string& what) const;

  // In this order: the engine logs until it is destroyed, and the rest calls it.
  const MadeHere made_here_;
  Logger log_;
  tcpx::Engine engine_;
  bool gpu_memory_ = true;  // option
  std::string conn_info_;
  std::unique_ptr<Ranges> ranges_;
  std::unique_ptr<Connections> connections_;
  std::unique_ptr<Inbox> inbox_;
};

}  // namespace tcpx_nixl
