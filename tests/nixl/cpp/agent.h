// The plugin as NIXL's core uses it, as little of a core as the tests need: agents with registered
// memory, what they know of each other, requests. Every wait has a deadline.
#pragma once

#include <dlfcn.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "nixl_abi.h"
#include "support/env.h"
#include "support/memory.h"

namespace tcpx_nixl::test {

using tcpx::test::kLong;
using tcpx::test::Memory;
using tcpx::test::Ms;
using tcpx::test::Pattern;

inline void need(nixl_status_t status, const std::string& what) {
  if (status != NIXL_SUCCESS) throw std::runtime_error(what + ": status " + std::to_string(status));
}

// Opened once, never closed: the core, too, holds on to a plugin that has backends.
inline nixlBackendPlugin& plugin() {
  static nixlBackendPlugin* const loaded = [] {
    void* library = dlopen(TCPX_TEST_NIXL_PLUGIN_PATH, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) throw std::runtime_error(dlerror());
    auto init = reinterpret_cast<nixlBackendPlugin* (*)()>(dlsym(library, "nixl_plugin_init"));
    if (init == nullptr) throw std::runtime_error("no nixl_plugin_init");
    return init();
  }();
  return *loaded;
}

struct Destroy {
  void operator()(nixlBackendEngine* engine) const { plugin().destroy_engine(engine); }
};
using EnginePtr = std::unique_ptr<nixlBackendEngine, Destroy>;

inline EnginePtr create(const std::string& name, nixl_b_params_t params) {
  nixlBackendInitParams init;
  init.localAgent = name;
  init.type = "TCPX";
  init.customParams = &params;  // gone when this returns, as with the core
  init.enableProgTh = true;
  init.syncMode = nixl_thread_sync_t::NIXL_THREAD_SYNC_RW;
  return EnginePtr(plugin().create_engine(&init));
}

// What the core passes for descriptors. nixl_abi.h only lets them be seen, so this has their
// layout.
class List {
 public:
  void add(const uint8_t* address, size_t length, nixlBackendMD* md, nixl_mem_t type = DRAM_SEG) {
    image_.type = type;
    nixlMetaDesc desc;
    desc.addr = reinterpret_cast<uintptr_t>(address);
    desc.len = length;
    desc.devId = 0;
    desc.metadataP = md;
    image_.descs.push_back(desc);
  }
  const nixl_meta_dlist_t& get() const {
    return *static_cast<const nixl_meta_dlist_t*>(static_cast<const void*>(&image_));
  }

 private:
  struct Image {
    void* vptr = nullptr;
    nixl_mem_t type = DRAM_SEG;
    std::vector<nixlMetaDesc> descs;
  };
  static_assert(sizeof(Image) == sizeof(nixl_meta_dlist_t));
  Image image_;
};

// Memory of one agent; registered or not.
class Range {
 public:
  // Kinds as tests/support/memory.h has them.
  explicit Range(size_t size, const std::string& kind = "host")
      : type(kind.starts_with("cuda") ? VRAM_SEG : DRAM_SEG),
        memory_(tcpx::test::allocate(kind, size)) {}
  uint8_t* at(size_t offset = 0) const {
    return static_cast<uint8_t*>(memory_->address()) + offset;
  }
  size_t size() const { return memory_->size(); }
  std::string damage() const { return memory_->damage(); }

  void set(uint8_t byte) { set(byte, 0, size()); }
  // After a fence: first the end, where what comes late would land. Under a sanitizer setting all
  // of it takes longer than a transfer, which would hide that.
  void reuse(uint8_t byte) {
    size_t tail = std::min(size(), kTail);
    set(byte, size() - tail, tail);
    set(byte, 0, size() - tail);
  }
  bool all(uint8_t byte) const {
    if (memory_->host() != nullptr) return *at() == byte && memcmp(at(), at(1), size() - 1) == 0;
    std::vector<uint8_t> seen(size());
    memory_->load(0, seen.data(), seen.size());
    return seen == std::vector<uint8_t>(size(), byte);
  }
  void fill(uint64_t seed, size_t offset, size_t length) {
    tcpx::test::fill(*memory_, offset, length, Pattern(seed), 0);
  }
  bool holds(uint64_t seed, size_t offset, size_t length) const {
    return tcpx::test::mismatch(*memory_, offset, length, Pattern(seed), 0) < 0;
  }

  nixlBlobDesc blob() const {
    nixlBlobDesc desc;
    desc.addr = reinterpret_cast<uintptr_t>(at());
    desc.len = size();
    desc.devId = 0;
    desc.metaInfo = public_data;
    return desc;
  }

  static constexpr size_t kTail = 256 << 10;

  nixlBackendMD* md = nullptr;       // of the registration
  nixlBackendMD* self_md = nullptr;  // to reach it from the same agent
  std::string public_data;
  const nixl_mem_t type;

 private:
  void set(uint8_t byte, size_t offset, size_t length) {
    if (memory_->host() != nullptr) {
      memset(at(offset), byte, length);
      return;
    }
    const std::vector<uint8_t> bytes(length, byte);
    memory_->store(offset, bytes.data(), length);
  }

  const std::unique_ptr<Memory> memory_;
};

// An engine and what the core would keep for it. Ranges belong to the test: they must outlive it.
class Agent {
 public:
  explicit Agent(std::string name, nixl_b_params_t more = {}) : name_(std::move(name)) {
    more.insert({{"interfaces", "127.0.0.1"}, {"require_path", "tcp"}, {"deadline", "60s"}});
    engine_ = create(name_, more);
    if (engine_ == nullptr || engine_->getInitErr()) throw std::runtime_error("no engine");
    need(engine_->getConnInfo(info_), "getConnInfo");
    need(engine_->connect(name_), "connect to itself");
  }
  // The core's order at the end of an agent: registrations, what was loaded, the engine. It
  // releases no request and disconnects nobody.
  ~Agent() {
    for (auto& [range, md] : registered_) engine_->deregisterMem(md);
    for (nixlBackendMD* md : own_copies_) engine_->unloadMD(md);
    for (auto& [key, md] : loaded_) engine_->unloadMD(md);
  }

  const std::string& name() const { return name_; }
  const std::string& info() const { return info_; }
  nixlBackendEngine* operator->() const { return engine_.get(); }

  void add(Range& range) {
    need(engine_->registerMem(range.blob(), range.type, range.md), "registerMem");
    need(engine_->loadLocalMD(range.md, range.self_md), "loadLocalMD");
    need(engine_->getPublicData(range.md, range.public_data), "getPublicData");
    registered_[&range] = range.md;
    own_copies_.push_back(range.self_md);
  }
  void remove(Range& range) {
    need(engine_->deregisterMem(range.md), "deregisterMem");
    registered_.erase(&range);
  }

  void know(const Agent& peer) {
    need(engine_->loadRemoteConnInfo(peer.name(), peer.info()), "loadRemoteConnInfo");
  }
  void load(const Agent& peer, const Range& range) {
    nixlBackendMD* md = nullptr;
    need(engine_->loadRemoteMD(range.blob(), range.type, peer.name(), md), "loadRemoteMD");
    nixlBackendMD*& mine = loaded_[{peer.name(), &range}];
    if (mine != nullptr) engine_->unloadMD(mine);
    mine = md;
  }
  // The core unloads first and disconnects then.
  void unload(const std::string& peer) {
    for (auto row = loaded_.begin(); row != loaded_.end();) {
      if (row->first.first == peer) {
        engine_->unloadMD(row->second);
        row = loaded_.erase(row);
      } else {
        ++row;
      }
    }
  }
  bool knows(const std::string& peer, const Range& range) const {
    return loaded_.count({peer, &range}) > 0;
  }
  // How this agent names memory of another one, or of itself.
  nixlBackendMD* named(const std::string& peer, const Range& range) const {
    return peer == name_ ? range.self_md : loaded_.at({peer, &range});
  }

 private:
  const std::string name_;
  std::string info_;
  std::map<Range*, nixlBackendMD*> registered_;
  std::vector<nixlBackendMD*> own_copies_;
  std::map<std::pair<std::string, const Range*>, nixlBackendMD*> loaded_;
  EnginePtr engine_;
};

// One place of a transfer.
struct Place {
  Range& range;
  size_t offset = 0;
};

// A request handle of `agent`, made of equal pieces, the last one with what is left.
class Request {
 public:
  Request(const Agent& agent, nixl_xfer_op_t op, Place here, const std::string& peer, Place there,
          size_t length, size_t pieces = 1)
      : Request(agent, op, peer) {
    status_ = prepare(here, there, agent.named(peer, there.range), length, pieces);
  }
  ~Request() { release(); }
  Request(const Request&) = delete;
  Request& operator=(const Request&) = delete;

  // Of prepXfer.
  nixl_status_t status() const { return status_; }
  nixl_status_t post() { return post(nullptr); }
  nixl_status_t post(const std::string& message) {
    nixl_opt_b_args_t args;
    args.hasNotif = true;
    args.notifMsg = message;
    return post(&args);
  }
  nixl_status_t check() { return agent_->checkXfer(handle_); }
  // How it ended, or NIXL_IN_PROG when that takes too long. Polls, as applications do.
  nixl_status_t wait(Ms limit = kLong) {
    auto end = tcpx::test::Clock::now() + limit;
    nixl_status_t status;
    while ((status = check()) == NIXL_IN_PROG && tcpx::test::Clock::now() < end)
      std::this_thread::yield();
    return status;
  }
  nixl_status_t run(const std::string& message) { return ended(post(message)); }
  nixl_status_t run() { return ended(post()); }
  void release() {
    if (handle_ != nullptr) agent_->releaseReqH(handle_);
    handle_ = nullptr;
  }
  // As an application that never releases it.
  nixlBackendReqH* forget() { return std::exchange(handle_, nullptr); }

  nixl_status_t estimate(std::chrono::microseconds* duration) const {
    std::chrono::microseconds margin{};
    nixl_cost_t method{};
    return agent_->estimateXferCost(op_, local_.get(), remote_.get(), peer_, handle_, *duration,
                                    margin, method);
  }

 private:
  Request(const Agent& agent, nixl_xfer_op_t op, std::string peer)
      : agent_(agent), op_(op), peer_(std::move(peer)) {}

  nixl_status_t prepare(Place here, Place there, nixlBackendMD* there_md, size_t length,
                        size_t pieces) {
    size_t each = length / pieces;
    for (size_t i = 0; i < pieces; ++i) {
      size_t start = i * each, size = i + 1 == pieces ? length - start : each;
      local_.add(here.range.at(here.offset + start), size, here.range.md, here.range.type);
      remote_.add(there.range.at(there.offset + start), size, there_md, there.range.type);
    }
    return agent_->prepXfer(op_, local_.get(), remote_.get(), peer_, handle_);
  }
  nixl_status_t post(const nixl_opt_b_args_t* args) {
    return agent_->postXfer(op_, local_.get(), remote_.get(), peer_, handle_, args);
  }
  nixl_status_t ended(nixl_status_t status) { return status == NIXL_IN_PROG ? wait() : status; }

  const Agent& agent_;
  const nixl_xfer_op_t op_;
  const std::string peer_;
  List local_, remote_;
  nixlBackendReqH* handle_ = nullptr;
  nixl_status_t status_ = NIXL_ERR_UNKNOWN;
};

}  // namespace tcpx_nixl::test
