// A carrier whose set-up fails says whether the peer may have died, or the path is refused.
#include "path/net/net_carrier.h"

#include <gtest/gtest.h>

#include "memory/host_mover.h"

namespace tcpx::net {
namespace {

// Calls fail that are told to; the others succeed and nothing comes of them.
class FailingPlugin final : public PluginCalls {
 public:
  explicit FailingPlugin(std::string fails) : fails_(std::move(fails)) {}

  int version() const override { return 7; }
  std::string name() const override { return "failing"; }
  bool consumes() const override { return false; }
  nccl::Result init(nccl::Logger) override { return nccl::kSuccess; }
  nccl::Result devices(int*) override { return nccl::kSuccess; }
  nccl::Result properties(int, DeviceProperties*) override { return nccl::kSuccess; }
  nccl::Result listen(int, void*, void** comm) override { return make("listen", comm); }
  nccl::Result connect(int, void*, void** comm) override { return make("connect", comm); }
  nccl::Result accept(void*, void** comm, nccl::DeviceHandle**) override {
    return make("accept", comm);
  }
  nccl::Result reg_mr(void*, void*, size_t, int, void** mhandle) override {
    return make("regMr", mhandle);
  }
  nccl::Result dereg_mr(void*, void*) override { return nccl::kSuccess; }
  nccl::Result isend(void*, void*, size_t, int, void*, void** request) override {
    return make("isend", request);
  }
  nccl::Result irecv(void*, void*, size_t, int, void*, void** request) override {
    return make("irecv", request);
  }
  nccl::Result test(void*, int* done, int*) override {
    *done = 0;
    return make("test", nullptr);
  }
  nccl::Result consumed(void*, void*) override { return nccl::kSuccess; }
  nccl::Result close_send(void*) override { return nccl::kSuccess; }
  nccl::Result close_recv(void*) override { return nccl::kSuccess; }
  nccl::Result close_listen(void*) override { return nccl::kSuccess; }

 private:
  nccl::Result make(const char* call, void** out) {
    if (fails_ == call) return nccl::kSystemError;
    if (out != nullptr) *out = this;
    return nccl::kSuccess;
  }
  const std::string fails_;
};

// The lane and the carrier at its other end, which only makes its offer.
struct Meeting : CarrierHost {
  HostMovers movers{false};
  std::unique_ptr<Loop> loop;
  std::vector<PathRefusal> settled;

  Meeting() {
    Loop::Settings settings;
    settings.movers = &movers;
    settings.mover_for = MoverFor::kBeside;
    EXPECT_TRUE(Loop::create(settings, &loop).ok());
  }
  PathRefusal of(const std::string& fails, const std::string& peers_plugin = "failing") {
    loop->run_exclusive([&] { set_up(fails, peers_plugin); });
    EXPECT_EQ(settled.size(), 1u);
    return settled.empty() ? PathRefusal{} : settled[0];
  }
  void set_up(const std::string& fails, const std::string& peers_plugin) {
    DeviceProperties device;
    device.name = "nic0";
    device.max_request = 1 << 20;
    NetCarrierSettings settings;
    settings.plugin = Plugin::made_of(std::make_unique<FailingPlugin>(fails), {device});
    settings.loop = loop.get();
    settings.mover = loop->mover();
    settings.setup_deadline = now_ns() + (fails.empty() ? 0 : 5 * kSecond);
    NetCarrier carrier(settings);
    carrier.start(*this);
    wire::NetSetup offer;
    offer.step = wire::NetStep::kOffer;
    offer.version = 7;
    offer.request_bytes = 512u << 10;
    offer.plugin = peers_plugin;
    if (settled.empty()) say(carrier, offer);
    Work left = Work::kMore;
    for (int i = 0; i < 3 && settled.empty(); ++i) EXPECT_TRUE(carrier.poll(&left).ok());
  }
  static void say(NetCarrier& carrier, const wire::NetSetup& message) {
    std::array<uint8_t, wire::kNetSetupBytes> bytes;
    wire::encode(message, bytes);
    EXPECT_TRUE(carrier.on_message(bytes).ok());
  }

  void send_message(std::span<const uint8_t>) override {}
  void carrier_settled(const PathRefusal& refusal) override { settled.push_back(refusal); }
  void payload_sent(TxFrame*) override {}
  Status payload_arrived(RxChunk*) override { return {}; }
  tcpx_code move_failed(RxChunk*, const std::string&) override { return TCPX_COPY_FAILED; }
};

TEST(CarrierSetUp, WhatBrokeBetweenTheTwoIsInDoubt) {
  for (const char* call : {"connect", "accept", "irecv", "test"}) {
    PathRefusal refusal = Meeting().of(call);
    EXPECT_FALSE(refusal.none()) << call;
    EXPECT_TRUE(refusal.in_doubt) << call << ": " << refusal.status.to_string();
  }
}

TEST(CarrierSetUp, WhatFailedOnOneSideIsCertain) {
  for (const char* call : {"listen", "regMr"}) {
    PathRefusal refusal = Meeting().of(call);
    EXPECT_FALSE(refusal.none()) << call;
    EXPECT_FALSE(refusal.in_doubt) << call << ": " << refusal.status.to_string();
  }
  EXPECT_FALSE(Meeting().of("nothing", "another").none());
  EXPECT_FALSE(Meeting().of("nothing", "another").in_doubt) << "the plugins differ";
  EXPECT_FALSE(Meeting().of("").none());
  EXPECT_FALSE(Meeting().of("").in_doubt) << "not in time";
}

}  // namespace
}  // namespace tcpx::net
