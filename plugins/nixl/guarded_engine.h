// The engine as NIXL gets it: nothing is thrown into its core, and in a child of fork() nothing of
// the parent's engine is touched.
#pragma once

#include <exception>
#include <new>

#include "engine.h"

namespace tcpx_nixl {

class GuardedEngine final : public TcpxEngine {
 public:
  using TcpxEngine::TcpxEngine;

  nixl_mem_list_t getSupportedMems() const noexcept override try {
    return TcpxEngine::getSupportedMems();
  } catch (...) {
    return {};
  }

  nixl_status_t registerMem(const nixlBlobDesc& mem, const nixl_mem_t& type,
                            nixlBackendMD*& out) override {
    return guarded([&] { return TcpxEngine::registerMem(mem, type, out); });
  }
  nixl_status_t deregisterMem(nixlBackendMD* meta) override {
    return guarded([&] { return TcpxEngine::deregisterMem(meta); });
  }
  nixl_status_t getPublicData(const nixlBackendMD* meta, std::string& out) const override {
    return guarded([&] { return TcpxEngine::getPublicData(meta, out); });
  }
  nixl_status_t loadLocalMD(nixlBackendMD* input, nixlBackendMD*& out) override {
    return guarded([&] { return TcpxEngine::loadLocalMD(input, out); });
  }
  nixl_status_t loadRemoteMD(const nixlBlobDesc& input, const nixl_mem_t& type,
                             const std::string& agent, nixlBackendMD*& out) override {
    return guarded([&] { return TcpxEngine::loadRemoteMD(input, type, agent, out); });
  }

  nixl_status_t getConnInfo(std::string& out) const override {
    return guarded([&] { return TcpxEngine::getConnInfo(out); });
  }
  nixl_status_t loadRemoteConnInfo(const std::string& agent, const std::string& info) override {
    return guarded([&] { return TcpxEngine::loadRemoteConnInfo(agent, info); });
  }
  nixl_status_t connect(const std::string& agent) override {
    return guarded([&] { return TcpxEngine::connect(agent); });
  }
  nixl_status_t disconnect(const std::string& agent) override {
    return guarded([&] { return TcpxEngine::disconnect(agent); });
  }

  nixl_status_t prepXfer(const nixl_xfer_op_t& op, const nixl_meta_dlist_t& local,
                         const nixl_meta_dlist_t& remote, const std::string& agent,
                         nixlBackendReqH*& handle, const nixl_opt_b_args_t* args) const override {
    return guarded([&] { return TcpxEngine::prepXfer(op, local, remote, agent, handle, args); });
  }
  nixl_status_t postXfer(const nixl_xfer_op_t& op, const nixl_meta_dlist_t& local,
                         const nixl_meta_dlist_t& remote, const std::string& agent,
                         nixlBackendReqH*& handle, const nixl_opt_b_args_t* args) const override {
    return guarded([&] { return TcpxEngine::postXfer(op, local, remote, agent, handle, args); });
  }
  nixl_status_t checkXfer(nixlBackendReqH* handle) const override {
    return guarded([&] { return TcpxEngine::checkXfer(handle); });
  }
  nixl_status_t estimateXferCost(const nixl_xfer_op_t& op, const nixl_meta_dlist_t& local,
                                 const nixl_meta_dlist_t& remote, const std::string& agent,
                                 nixlBackendReqH* const& handle,
                                 std::chrono::microseconds& duration,
                                 std::chrono::microseconds& margin, nixl_cost_t& method,
                                 const nixl_opt_args_t* args) const override {
    return guarded([&] {
      return TcpxEngine::estimateXferCost(op, local, remote, agent, handle, duration, margin,
                                          method, args);
    });
  }

  nixl_status_t getNotifs(notif_list_t& out) override {
    return guarded([&] { return TcpxEngine::getNotifs(out); });
  }
  nixl_status_t genNotif(const std::string& agent, const std::string& message) const override {
    return guarded([&] { return TcpxEngine::genNotif(agent, message); });
  }

 private:
  template <class F>
  nixl_status_t guarded(F&& f) const noexcept {
    if (made_here().is_inherited()) return NIXL_ERR_NOT_SUPPORTED;
    try {
      return f();
    } catch (const std::exception& error) {
      try {
        say_thrown(error.what());
      } catch (...) {  // no memory to say it with
      }
    } catch (...) {
    }
    return NIXL_ERR_BACKEND;
  }
};

}  // namespace tcpx_nixl
