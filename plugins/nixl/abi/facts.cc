// Prints what nixl_abi.h declares: sizes, offsets and vtable slots, one "name value" per line.
// Built once from our declarations, and once more from NIXL's headers where there are any; a test
// compares the two outputs. Slots are also held against the numbers below, so that a test exists
// without NIXL's headers.
#include "nixl_abi.h"

#include <cstdio>
#include <cstring>
#include <string>
#include <type_traits>

namespace {

int wrong = 0;

void fact(const char* name, size_t value) {
  printf("%s %zu\n", name, value);
}

void slot(const char* name, size_t found, size_t expected) {
  fact(name, found);
  if (found == expected) return;
  fprintf(stderr, "%s: slot %zu, the interface has it at %zu\n", name, found, expected);
  ++wrong;
}

// A pointer to a virtual member function holds 1 + 8 * slot (Itanium C++ ABI).
template <class F>
size_t slot_of(F function) {
  size_t word;
  static_assert(sizeof function >= sizeof word);
  memcpy(&word, &function, sizeof word);
  return (word - 1) / sizeof(void*);
}

template <class A, class B>
size_t distance(const A* from, const B* to) {
  return static_cast<size_t>(reinterpret_cast<const char*>(to) -
                             reinterpret_cast<const char*>(from));
}

// Concrete, with a way to where the base class keeps its members.
class Probe final : public nixlBackendEngine {
 public:
  explicit Probe(const nixlBackendInitParams* params) : nixlBackendEngine(params) {}
  bool supportsRemote() const override { return false; }
  bool supportsLocal() const override { return false; }
  bool supportsNotif() const override { return false; }
  nixl_mem_list_t getSupportedMems() const override { return {}; }
  nixl_status_t registerMem(const nixlBlobDesc&, const nixl_mem_t&, nixlBackendMD*&) override {
    return NIXL_SUCCESS;
  }
  nixl_status_t deregisterMem(nixlBackendMD*) override { return NIXL_SUCCESS; }
  nixl_status_t connect(const std::string&) override { return NIXL_SUCCESS; }
  nixl_status_t disconnect(const std::string&) override { return NIXL_SUCCESS; }
  nixl_status_t unloadMD(nixlBackendMD*) override { return NIXL_SUCCESS; }
  nixl_status_t prepXfer(const nixl_xfer_op_t&, const nixl_meta_dlist_t&, const nixl_meta_dlist_t&,
                         const std::string&, nixlBackendReqH*&,
                         const nixl_opt_b_args_t*) const override {
    return NIXL_SUCCESS;
  }
  nixl_status_t postXfer(const nixl_xfer_op_t&, const nixl_meta_dlist_t&, const nixl_meta_dlist_t&,
                         const std::string&, nixlBackendReqH*&,
                         const nixl_opt_b_args_t*) const override {
    return NIXL_SUCCESS;
  }
  nixl_status_t checkXfer(nixlBackendReqH*) const override { return NIXL_SUCCESS; }
  nixl_status_t releaseReqH(nixlBackendReqH*) const override { return NIXL_SUCCESS; }

  void members() const {
    fact("engine.backendType", distance(this, &getType()));
    fact("engine.customParams", distance(this, &getCustomParams()));
    fact("engine.initErr", distance(this, &initErr));
    fact("engine.localAgent", distance(this, &localAgent));
    fact("engine.enableTelemetry", distance(this, &enableTelemetry_));
  }
};

void engine_members() {
  nixl_b_params_t none;
  nixlBackendInitParams params;
  params.customParams = &none;
  params.syncMode = nixl_thread_sync_t::NIXL_THREAD_SYNC_NONE;
  Probe(&params).members();
}

void sizes() {
  fact("sizeof.engine", sizeof(nixlBackendEngine));
  fact("sizeof.plugin", sizeof(nixlBackendPlugin));
  fact("sizeof.init_params", sizeof(nixlBackendInitParams));
  fact("sizeof.opt_args", sizeof(nixl_opt_b_args_t));
  fact("sizeof.basic_desc", sizeof(nixlBasicDesc));
  fact("sizeof.meta_desc", sizeof(nixlMetaDesc));
  fact("sizeof.blob_desc", sizeof(nixlBlobDesc));
  fact("sizeof.remote_meta_desc", sizeof(nixlRemoteMetaDesc));
  fact("sizeof.meta_dlist", sizeof(nixl_meta_dlist_t));
  fact("sizeof.reg_dlist", sizeof(nixl_reg_dlist_t));
  fact("sizeof.request", sizeof(nixlBackendReqH));
  fact("sizeof.metadata", sizeof(nixlBackendMD));
  fact("sizeof.mem_list", sizeof(nixl_mem_list_t));
  fact("sizeof.params", sizeof(nixl_b_params_t));
  fact("sizeof.query_resp", sizeof(nixl_query_resp_t));
  fact("sizeof.notif", sizeof(notif_list_t::value_type));
}

// On objects, not with offsetof: these classes need not be standard layout.
template <class T, class M>
void offset(const char* name, M T::*member) {
  alignas(T) static char place[sizeof(T)];
  T* object = reinterpret_cast<T*>(place);
  fact(name, distance(object, &(object->*member)));
}

void offsets() {
  offset("basic_desc.addr", &nixlBasicDesc::addr);
  offset("basic_desc.len", &nixlBasicDesc::len);
  offset("basic_desc.devId", &nixlBasicDesc::devId);
  offset("meta_desc.metadataP", &nixlMetaDesc::metadataP);
  offset("blob_desc.metaInfo", &nixlBlobDesc::metaInfo);
  offset("remote_meta_desc.remoteAgent", &nixlRemoteMetaDesc::remoteAgent);
  offset("opt_args.notifMsg", &nixl_opt_b_args_t::notifMsg);
  offset("opt_args.hasNotif", &nixl_opt_b_args_t::hasNotif);
  offset("opt_args.customParam", &nixl_opt_b_args_t::customParam);
  offset("init_params.localAgent", &nixlBackendInitParams::localAgent);
  offset("init_params.type", &nixlBackendInitParams::type);
  offset("init_params.customParams", &nixlBackendInitParams::customParams);
  offset("init_params.enableProgTh", &nixlBackendInitParams::enableProgTh);
  offset("init_params.pthrDelay", &nixlBackendInitParams::pthrDelay);
  offset("init_params.syncMode", &nixlBackendInitParams::syncMode);
  offset("init_params.enableTelemetry", &nixlBackendInitParams::enableTelemetry_);
  offset("plugin.api_version", &nixlBackendPlugin::api_version);
  offset("plugin.create_engine", &nixlBackendPlugin::create_engine);
  offset("plugin.destroy_engine", &nixlBackendPlugin::destroy_engine);
  offset("plugin.get_plugin_name", &nixlBackendPlugin::get_plugin_name);
  offset("plugin.get_plugin_version", &nixlBackendPlugin::get_plugin_version);
  offset("plugin.get_backend_options", &nixlBackendPlugin::get_backend_options);
  offset("plugin.get_backend_mems", &nixlBackendPlugin::get_backend_mems);
}

// Where the inline functions of a list look for its type and its descriptors.
void list_members() {
  alignas(nixl_meta_dlist_t) static char place[sizeof(nixl_meta_dlist_t)];
  auto* list = reinterpret_cast<const nixl_meta_dlist_t*>(place);
  for (size_t at = sizeof(void*); at < sizeof place; at += sizeof(void*)) {
    memset(place, 0, sizeof place);
    place[at] = static_cast<char>(FILE_SEG);
    if (list->getType() == FILE_SEG) fact("dlist.type", at);
    memset(place, 0, sizeof place);
    nixlMetaDesc* end = reinterpret_cast<nixlMetaDesc*>(sizeof(nixlMetaDesc));
    memcpy(place + at, &end, sizeof end);
    if (list->descCount() == 1) fact("dlist.end", at);
  }
}

void slots() {
  using E = nixlBackendEngine;
  using Remote = nixl_status_t (E::*)(const nixl_remote_meta_dlist_t&, nixlMemViewH&,
                                      const nixl_opt_b_args_t*) const;
  using Local =
      nixl_status_t (E::*)(const nixl_meta_dlist_t&, nixlMemViewH&, const nixl_opt_b_args_t*) const;
  slot("slot.supportsRemote", slot_of(&E::supportsRemote), 2);
  slot("slot.supportsLocal", slot_of(&E::supportsLocal), 3);
  slot("slot.supportsNotif", slot_of(&E::supportsNotif), 4);
  slot("slot.getSupportedMems", slot_of(&E::getSupportedMems), 5);
  slot("slot.registerMem", slot_of(&E::registerMem), 6);
  slot("slot.deregisterMem", slot_of(&E::deregisterMem), 7);
  slot("slot.connect", slot_of(&E::connect), 8);
  slot("slot.disconnect", slot_of(&E::disconnect), 9);
  slot("slot.unloadMD", slot_of(&E::unloadMD), 10);
  slot("slot.prepXfer", slot_of(&E::prepXfer), 11);
  slot("slot.postXfer", slot_of(&E::postXfer), 12);
  slot("slot.checkXfer", slot_of(&E::checkXfer), 13);
  slot("slot.releaseReqH", slot_of(&E::releaseReqH), 14);
  slot("slot.prepMemView.remote", slot_of(static_cast<Remote>(&E::prepMemView)), 15);
  slot("slot.prepMemView.local", slot_of(static_cast<Local>(&E::prepMemView)), 16);
  slot("slot.releaseMemView", slot_of(&E::releaseMemView), 17);
  slot("slot.getPublicData", slot_of(&E::getPublicData), 18);
  slot("slot.getConnInfo", slot_of(&E::getConnInfo), 19);
  slot("slot.loadRemoteConnInfo", slot_of(&E::loadRemoteConnInfo), 20);
  slot("slot.loadRemoteMD", slot_of(&E::loadRemoteMD), 21);
  slot("slot.loadLocalMD", slot_of(&E::loadLocalMD), 22);
  slot("slot.getNotifs", slot_of(&E::getNotifs), 23);
  slot("slot.genNotif", slot_of(&E::genNotif), 24);
  slot("slot.queryMem", slot_of(&E::queryMem), 25);
  slot("slot.estimateXferCost", slot_of(&E::estimateXferCost), 26);
}

void words() {
  fact("api_version", NIXL_PLUGIN_API_VERSION);
  fact("DRAM_SEG", DRAM_SEG);
  fact("VRAM_SEG", VRAM_SEG);
  fact("FILE_SEG", FILE_SEG);
  fact("NIXL_READ", NIXL_READ);
  fact("NIXL_WRITE", NIXL_WRITE);
  fact("NIXL_THREAD_SYNC_RW", static_cast<size_t>(nixl_thread_sync_t::NIXL_THREAD_SYNC_RW));
  fact("ANALYTICAL_BACKEND", static_cast<size_t>(nixl_cost_t::ANALYTICAL_BACKEND));
  for (int status : {NIXL_IN_PROG, NIXL_SUCCESS, NIXL_ERR_NOT_POSTED, NIXL_ERR_INVALID_PARAM,
                     NIXL_ERR_BACKEND, NIXL_ERR_NOT_FOUND, NIXL_ERR_MISMATCH, NIXL_ERR_NOT_ALLOWED,
                     NIXL_ERR_REPOST_ACTIVE, NIXL_ERR_UNKNOWN, NIXL_ERR_NOT_SUPPORTED,
                     NIXL_ERR_REMOTE_DISCONNECT, NIXL_ERR_CANCELED, NIXL_ERR_NO_TELEMETRY})
    printf("status %d\n", status);
}

}  // namespace

int main() {
  words();
  sizes();
  offsets();
  engine_members();
  list_members();
  slots();
  return wrong == 0 ? 0 : 1;
}
