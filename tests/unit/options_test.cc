#include "config/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <set>

namespace tcpx {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

struct Loaded {
  Status status;
  Config config;

  const OptionValue& value(std::string_view name) const {
    for (auto& v : config.values) {
      if (v.name == name) return v;
    }
    static const OptionValue none{"", "(no such row)", Origin::kDefault, ""};
    return none;
  }
};

Loaded load(const NameValues& values, std::vector<const char*> environment = {}) {
  environment.push_back(nullptr);
  Loaded out;
  out.status = load_config(values, environment.data(), &out.config);
  return out;
}

// ---- the table ------------------------------------------------------------------------------

TEST(OptionTable, EveryRowIsCompleteAndUnique) {
  std::set<std::string> names;
  for (const OptionRow& row : option_table()) {
    EXPECT_TRUE(names.insert(row.name).second) << row.name;
    for (const char* text : {row.unit, row.range, row.help}) {
      EXPECT_GT(std::string_view(text).size(), 0u) << row.name;
    }
    EXPECT_EQ(find_option(row.name)->help, row.help);
  }
  EXPECT_EQ(find_option("no_such"), nullptr);
  EXPECT_EQ(find_option(""), nullptr);
}

TEST(OptionTable, DefaultTextsAreWhatAnEngineRunsWith) {
  Loaded loaded = load({});
  ASSERT_TRUE(loaded.status.ok()) << loaded.status.text();
  ASSERT_EQ(loaded.config.values.size(), option_table().size());
  for (size_t i = 0; i < option_table().size(); ++i) {
    const OptionRow& row = option_table()[i];
    const OptionValue& value = loaded.config.values[i];
    EXPECT_EQ(value.name, row.name);
    EXPECT_EQ(value.origin, Origin::kDefault) << row.name;
    EXPECT_EQ(value.source, "default");
    if (value.name == "name") continue;  // host:pid
    EXPECT_EQ(value.value, row.default_text) << row.name;
  }
}

TEST(OptionTable, DefaultsOfStructAndTableAgree) {
  Loaded loaded = load({});
  EngineOptions fresh;
  const EngineOptions& got = loaded.config.options;
  EXPECT_EQ(got.chunk_bytes, fresh.chunk_bytes);
  EXPECT_EQ(got.chunk_bytes, 512u << 10);
  EXPECT_EQ(got.window, 16u);
  EXPECT_EQ(got.deadline, 30 * kSecond);
  EXPECT_TRUE(got.auth);
  EXPECT_TRUE(got.adaptive_striping);
  EXPECT_FALSE(got.pacing);
  EXPECT_EQ(got.log_level, TCPX_LOG_INFO);
  EXPECT_EQ(got.name.substr(got.name.rfind(':') + 1), std::to_string(getpid()));
  EXPECT_LE(got.name.size(), 63u);
}

TEST(OptionTable, EveryDefaultCanBeSetExplicitly) {
  for (const OptionRow& row : option_table()) {
    if (std::string_view(row.default_text).empty()) continue;
    Loaded loaded = load({{row.name, row.default_text}});
    EXPECT_TRUE(loaded.status.ok()) << loaded.status.text();
    EXPECT_EQ(loaded.value(row.name).origin, Origin::kApi);
  }
}

TEST(OptionTable, NumericRangesHoldAtBothEnds) {
  for (const OptionRow& row : option_table()) {
    std::string_view range = row.range;
    size_t dots = range.find("..");
    if (dots == std::string_view::npos) continue;
    NameValues low{{row.name, std::string(range.substr(0, dots))}};
    NameValues high{{row.name, std::string(range.substr(dots + 2))}};
    // Neighbours that the rules between rows need.
    if (low[0].first == "peer_timeout" || low[0].first == "lane_timeout") {
      low.push_back({"keepalive", "10ms"});
    }
    if (high[0].first == "keepalive") {
      high.push_back({"peer_timeout", "24h"});
      high.push_back({"lane_timeout", "24h"});
    }
    Status s = load(low).status;
    EXPECT_TRUE(s.ok()) << s.text();
    s = load(high).status;
    EXPECT_TRUE(s.ok()) << s.text();
    std::string beyond = "1" + high[0].second;
    s = load({{row.name, beyond}}).status;
    EXPECT_THAT(s.text(), AllOf(HasSubstr(row.name), HasSubstr(beyond), HasSubstr(row.range),
                                HasSubstr("e.g. ")));
  }
}

// ---- values ---------------------------------------------------------------------------------

struct GoodValue {
  const char *name, *text, *canonical;
};

TEST(OptionValues, AreTakenAndShownCanonically) {
  const GoodValue cases[] = {
      {"name", "worker-3", "worker-3"},
      {"interfaces", "eth1,eth2", "eth1,eth2"},
      {"interfaces", "10.0.0.0/8,fd00::/8", "10.0.0.0/8,fd00::/8"},
      {"listen", "::", "::"},
      {"listen", "", ""},
      {"port_range", "20000", "20000"},
      {"port_range", "1-65535", "1-65535"},
      {"advertise", "203.0.113.9", "203.0.113.9"},
      {"lanes", "64", "64"},
      {"chunk_bytes", "524288", "512K"},
      {"chunk_bytes", "1MiB", "1M"},
      {"striping", "round_robin", "round_robin"},
      {"pacing", "on", "on"},
      {"pacing", "1", "on"},
      {"pacing", "true", "on"},
      {"auth", "no", "off"},
      {"spin", "0", "0"},
      {"deadline", "1500ms", "1500ms"},
      {"deadline", "60s", "1m"},
      {"auth_key", "hunter2 hunter2 hunter2", "(set)"},
      {"auth_key_file", "/etc/tcpx/key", "/etc/tcpx/key"},
      {"auth_key_file", "/k/new,/k/old", "/k/new,/k/old"},
      {"require_path", "tcp", "tcp"},
      {"allow_path", "ipc,tcp", "ipc,tcp"},
      {"log_level", "trace", "trace"},
  };
  for (auto& c : cases) {
    Loaded loaded = load({{c.name, c.text}});
    EXPECT_TRUE(loaded.status.ok()) << loaded.status.text();
    EXPECT_EQ(loaded.value(c.name).value, c.canonical) << c.name;
  }
}

TEST(OptionValues, ReachTheStruct) {
  Loaded loaded = load({{"striping", "round_robin"},
                        {"auth", "off"},
                        {"pacing", "on"},
                        {"log_level", "error"},
                        {"window", "3"},
                        {"socket_buffer", "4M"}});
  ASSERT_TRUE(loaded.status.ok()) << loaded.status.text();
  const EngineOptions& o = loaded.config.options;
  EXPECT_FALSE(o.adaptive_striping);
  EXPECT_FALSE(o.auth);
  EXPECT_TRUE(o.pacing);
  EXPECT_EQ(o.log_level, TCPX_LOG_ERROR);
  EXPECT_EQ(o.window, 3u);
  EXPECT_EQ(o.socket_buffer, 4u << 20);
}

struct BadValue {
  const char* name;
  std::string text;
};

TEST(Options, ASocketBufferThatTheKernelCannotUseIsRefused) {
  Config config;
  const char* const none[] = {nullptr};
  Status status = load_config({{"socket_buffer", "16K"}}, none, &config);
  EXPECT_EQ(status.code(), TCPX_BAD_CONFIG);
  EXPECT_NE(status.text().find("32K"), std::string::npos) << status.text();
  EXPECT_TRUE(load_config({{"socket_buffer", "32K"}}, none, &config).ok());
}

TEST(OptionValues, BadOnesAreErrorsThatNameRowValueRangeAndExample) {
  const BadValue cases[] = {
      {"lanes", ""},
      {"lanes", "x"},
      {"lanes", "-1"},
      {"lanes", "65"},
      {"lanes", "4 "},
      {"lanes", "4294967297"},
      {"lanes", "4K"},
      {"chunk_bytes", "4095"},
      {"chunk_bytes", "17M"},
      {"chunk_bytes", "1KB"},
      {"window", "0"},
      {"spin", "50"},
      {"spin", "2s"},
      {"deadline", "0"},
      {"deadline", "-1s"},
      {"striping", "1"},
      {"striping", ""},
      {"auth", "ON"},
      {"auth", "maybe"},
      {"auth", ""},
      {"log_level", "verbose"},
      {"log_level", "2"},
      {"name", std::string(64, 'n')},
      {"name", "two words"},
      {"name", "a\nb"},
      {"name", "\xff"},
      {"interfaces", ""},
      {"interfaces", "eth1,,eth2"},
      {"interfaces", "auto,eth1"},
      {"interfaces", "eth1,"},
      {"interfaces", "eth1 eth2"},
      {"listen", "localhost"},
      {"listen", "[::1]"},
      {"listen", "10.0.0.1:5"},
      {"listen", "10.0.0"},
      {"listen", std::string("10.0.0.1\0x", 10)},
      {"advertise", "0.0.0.0"},
      {"advertise", "::"},
      {"advertise", "fe80::1%eth0"},
      {"port_range", ""},
      {"port_range", "65536"},
      {"port_range", "0-5"},
      {"port_range", "9-8"},
      {"port_range", "1-"},
      {"port_range", "-1"},
      {"port_range", "1-2-3"},
      {"port_range", "1,2"},
      {"auth_key", ""},
      {"auth_key", "fifteen-bytes--"},
      {"auth_key", "kkkkkkkkkkkkkkkkkkkkkkkk"},
      {"auth_key", "1234567123456712345671234567"},
      {"auth_key_file", ""},
      {"auth_key_file", "/k,"},
      {"auth_key_file", "/a,/b,/c,/d,/e"},
      {"require_path", "tpc"},
      {"require_path", "tcp,ipc"},
      {"allow_path", ""},
      {"allow_path", "tcp,"},
      {"allow_path", "tcp,rdma"},
  };
  for (auto& c : cases) {
    Status s = load({{c.name, c.text}}).status;
    EXPECT_EQ(s.code(), TCPX_BAD_CONFIG) << c.name << "=" << c.text;
    EXPECT_THAT(s.text(), AllOf(HasSubstr("option " + std::string(c.name)), HasSubstr("e.g. "),
                                HasSubstr(find_option(c.name)->range)));
  }
}

TEST(OptionValues, LongAndHostileTextIsCutAndEscaped) {
  Status s = load({{"lanes", std::string(1 << 20, 'x')}}).status;
  EXPECT_LT(s.text().size(), 400u);
  s = load({{"log_level", "\x1b[2J"}}).status;
  EXPECT_THAT(s.text(), AllOf(HasSubstr("\\x1b[2J"), Not(HasSubstr("\x1b"))));
}

TEST(OptionValues, SecretsAreNeverShown) {
  std::string key = "s3cret-key-of-some-length";
  Loaded loaded = load({{"auth_key", key}});
  EXPECT_EQ(loaded.config.options.auth_key, key);
  EXPECT_THAT(loaded.config.to_text(),
              AllOf(HasSubstr("auth_key=(set) (api)\n"), Not(HasSubstr(key))));
  std::string huge = "s3cret" + std::string(5000, 'k');
  EXPECT_THAT(load({{"auth_key", huge}}).status.text(), Not(HasSubstr("s3cret")));
  std::string variable = "TCPX_AUTH_KEY=" + huge;
  EXPECT_THAT(load({}, {variable.c_str()}).status.text(), Not(HasSubstr("s3cret")));
  Status s = load({{"auth_key", key}, {"auth_key_file", "/k"}}).status;
  EXPECT_THAT(s.text(), Not(HasSubstr(key)));
}

TEST(OptionValues, FailureLeavesTheOutputAlone) {
  Config config;
  config.options.lanes = 7;
  EXPECT_FALSE(load_config({{"window", "4"}, {"lanes", "x"}}, nullptr, &config).ok());
  EXPECT_EQ(config.options.lanes, 7u);
  EXPECT_EQ(config.options.window, 16u);
}

// ---- names ----------------------------------------------------------------------------------

TEST(OptionNames, UnknownOnesNameTheNearest) {
  const std::pair<const char*, const char*> cases[] = {
      {"lane", "\"lanes\""},
      {"LANES", "\"lanes\""},
      {"chunk-bytes", "\"chunk_bytes\""},
      {"chunk_size", "\"chunk_bytes\""},
      {"keep_alive", "\"keepalive\""},
      {"ahtu", "\"auth\""},
      {"peer_timeuot", "\"peer_timeout\""},
      {"adaptive_striping", "\"striping\""},
  };
  for (auto& [name, want] : cases) {
    Status s = load({{name, "1"}}).status;
    EXPECT_EQ(s.code(), TCPX_BAD_CONFIG);
    EXPECT_THAT(s.text(), AllOf(HasSubstr(name), HasSubstr(want))) << name;
  }
  for (std::string name : {std::string(), std::string(1 << 16, 'z'), std::string("\0\n", 2)}) {
    Status s = load({{name, "1"}}).status;
    EXPECT_EQ(s.code(), TCPX_BAD_CONFIG);
    EXPECT_LT(s.text().size(), 400u);
  }
}

TEST(OptionNames, TwiceIsAnError) {
  EXPECT_THAT(load({{"lanes", "1"}, {"lanes", "2"}}).status.text(), HasSubstr("twice"));
}

TEST(OptionNames, NearestHandlesTheEdges) {
  EXPECT_EQ(nearest("x", {}), "");
  std::vector<std::string> words{"alpha", "beta"};
  EXPECT_EQ(nearest("", words), "beta");
  EXPECT_EQ(nearest("lapha", words), "alpha");
}

// ---- the environment ------------------------------------------------------------------------

TEST(OptionEnvironment, OwnVariablesAreReadAndEchoed) {
  for (const OptionRow& row : option_table()) {
    if (std::string_view(row.default_text).empty()) continue;
    std::string variable = environment_name(row.name) + "=" + row.default_text;
    Loaded loaded = load({}, {"PATH=/bin", variable.c_str()});
    EXPECT_TRUE(loaded.status.ok()) << loaded.status.text();
    EXPECT_EQ(loaded.value(row.name).origin, Origin::kEnvironment) << variable;
    EXPECT_EQ(loaded.value(row.name).source, environment_name(row.name));
  }
  EXPECT_EQ(environment_name("chunk_bytes"), "TCPX_CHUNK_BYTES");
}

TEST(OptionEnvironment, ExplicitThenOwnThenAliasThenDefault) {
  std::vector<const char*> both{"UCCL_TCPX_NUM_CHANNELS=3", "TCPX_LANES=5"};
  EXPECT_EQ(load({{"lanes", "7"}}, both).config.options.lanes, 7u);
  EXPECT_EQ(load({}, both).config.options.lanes, 5u);
  EXPECT_EQ(load({}, {both[0]}).config.options.lanes, 3u);
  EXPECT_EQ(load({}).config.options.lanes, 0u);
}

TEST(OptionEnvironment, UnknownOwnVariablesAreErrorsWithTheNearestName) {
  const std::pair<const char*, const char*> cases[] = {
      {"TCPX_LANE=4", "TCPX_LANES"},
      {"TCPX_CHUNK_SIZE=1M", "TCPX_CHUNK_BYTES"},
      {"TCPX_lanes=4", "TCPX_LANES"},
      {"TCPX_=", "TCPX_"},
      {"TCPX_LOGLEVEL=info", "TCPX_LOG_LEVEL"},
      {"TCPX_EMU=1", "TCPX_"},
  };
  for (auto& [variable, want] : cases) {
    Status s = load({}, {variable}).status;
    EXPECT_EQ(s.code(), TCPX_BAD_CONFIG) << variable;
    EXPECT_THAT(s.text(), HasSubstr("did you mean " + std::string(want)));
  }
}

TEST(OptionEnvironment, ForeignAndOddVariablesArePassedOver) {
  Loaded loaded = load({}, {"TCPX_EMU_FAULT=x", "TCPX_TEST_PEER=/x", "TCPXLANES=4", "XTCPX_LANES=4",
                            "tcpx_lanes=4", "no equals sign", "=odd", "", "UCCL_TCPX_VERBOSE=1"});
  EXPECT_TRUE(loaded.status.ok()) << loaded.status.text();
}

TEST(OptionEnvironment, BadValuesAreErrorsEvenIfSomethingHidesThem) {
  Status s = load({{"lanes", "2"}}, {"TCPX_LANES=many"}).status;
  EXPECT_THAT(s.text(), AllOf(HasSubstr("TCPX_LANES"), HasSubstr("many"), HasSubstr("0..64")));
  EXPECT_FALSE(load({}, {"TCPX_LANES="}).status.ok());
  EXPECT_FALSE(load({}, {"TCPX_AUTH_KEY="}).status.ok()) << "an empty key is a lost key";
}

TEST(OptionEnvironment, FirstOfTwoEqualNamesCounts) {
  EXPECT_EQ(load({}, {"TCPX_LANES=2", "TCPX_LANES=3"}).config.options.lanes, 2u);
}

TEST(OptionEnvironment, NoneIsFine) {
  Config config;
  EXPECT_TRUE(load_config({}, nullptr, &config).ok());
}

// ---- aliases --------------------------------------------------------------------------------

struct AliasCase {
  std::vector<const char*> environment;
  const char *option, *value, *source;
};

TEST(OptionAliases, SetTheirOption) {
  const AliasCase cases[] = {
      {{"UCCL_TCPX_NUM_CHANNELS=8"}, "lanes", "8", "UCCL_TCPX_NUM_CHANNELS"},
      {{"UCCL_TCPX_CHUNK_BYTES=1048576"}, "chunk_bytes", "1M", "UCCL_TCPX_CHUNK_BYTES"},
      {{"NCCL_P2P_NET_CHUNKSIZE=262144"}, "chunk_bytes", "256K", "NCCL_P2P_NET_CHUNKSIZE"},
      {{"NCCL_P2P_NET_CHUNKSIZE=262144", "UCCL_TCPX_CHUNK_BYTES=65536"},
       "chunk_bytes",
       "64K",
       "UCCL_TCPX_CHUNK_BYTES"},
      {{"UCCL_TCPX_WINDOW_SIZE=4"}, "window", "4", "UCCL_TCPX_WINDOW_SIZE"},
      {{"UCCL_TCPX_MAX_RECV_INFLIGHT=16", "UCCL_TCPX_MAX_SEND_INFLIGHT=12"},
       "window",
       "12",
       "UCCL_TCPX_MAX_SEND_INFLIGHT"},
      {{"UCCL_TCPX_MAX_RECV_INFLIGHT=9"}, "window", "9", "UCCL_TCPX_MAX_RECV_INFLIGHT"},
      {{"UCCL_TCPX_BOOTSTRAP_PORT_BASE=20000"},
       "port_range",
       "20000",
       "UCCL_TCPX_BOOTSTRAP_PORT_BASE"},
      {{"UCCL_TCPX_CTRL_PORT=28900"}, "port_range", "28900", "UCCL_TCPX_CTRL_PORT"},
      {{"UCCL_TCPX_OOB_PORT=28900", "UCCL_TCPX_PORT_RETRIES=16"},
       "port_range",
       "28900-28916",
       "UCCL_TCPX_OOB_PORT, UCCL_TCPX_PORT_RETRIES"},
      {{"UCCL_TCPX_OOB_PORT=28900", "UCCL_TCPX_PORT_RETRIES=0"},
       "port_range",
       "28900",
       "UCCL_TCPX_OOB_PORT, UCCL_TCPX_PORT_RETRIES"},
      {{"UCCL_TCPX_PORT_RETRIES=16"}, "port_range", "0", "default"},
      {{"TCPX_PORT_RANGE=5", "UCCL_TCPX_PORT_RETRIES=16"}, "port_range", "5", "TCPX_PORT_RANGE"},
      {{"UCCL_TCPX_CTRL_IP=10.1.2.3"}, "advertise", "10.1.2.3", "UCCL_TCPX_CTRL_IP"},
      {{"UCCL_TCPX_NET_DEVICE=eth1,eth2"}, "interfaces", "eth1,eth2", "UCCL_TCPX_NET_DEVICE"},
      {{"UCCL_TCPX_DEBUG=1"}, "log_level", "debug", "UCCL_TCPX_DEBUG"},
      {{"TCPX_DEBUG=1"}, "log_level", "debug", "TCPX_DEBUG"},
      {{"UCCL_TCPX_DEBUG=0"}, "log_level", "info", "default"},
      {{"UCCL_TCPX_DEBUG=1", "TCPX_LOG_LEVEL=warn"}, "log_level", "warn", "TCPX_LOG_LEVEL"},
      {{"UCCL_TCPX_NUM_CHANNELS="}, "lanes", "0", "default"},
      // NCCL's own grammar says nothing to us.
      {{"NCCL_GPUDIRECTTCPX_SOCKET_IFNAME=^lo"}, "interfaces", "auto", "default"},
      {{"NCCL_GPUDIRECTTCPX_SOCKET_IFNAME==lo"}, "interfaces", "auto", "default"},
      {{"NCCL_GPUDIRECTTCPX_SOCKET_IFNAME=lo,nosuch"}, "interfaces", "auto", "default"},
      {{"NCCL_GPUDIRECTTCPX_SOCKET_IFNAME=lo"},
       "interfaces",
       "lo",
       "NCCL_GPUDIRECTTCPX_SOCKET_IFNAME"},
  };
  for (auto& c : cases) {
    Loaded loaded = load({}, c.environment);
    EXPECT_TRUE(loaded.status.ok()) << loaded.status.text();
    EXPECT_EQ(loaded.value(c.option).value, c.value) << c.environment[0];
    EXPECT_EQ(loaded.value(c.option).source, c.source) << c.environment[0];
    std::string_view source = c.source;
    bool is_alias =
        source.starts_with("UCCL_") || source.starts_with("NCCL_") || source == "TCPX_DEBUG";
    EXPECT_EQ(loaded.value(c.option).origin == Origin::kAlias, is_alias) << source;
  }
}

TEST(OptionAliases, BadValuesNameTheAliasAndTheOption) {
  const std::pair<std::vector<const char*>, std::pair<const char*, const char*>> cases[] = {
      {{"UCCL_TCPX_NUM_CHANNELS=many"}, {"UCCL_TCPX_NUM_CHANNELS", "option lanes"}},
      {{"UCCL_TCPX_NUM_CHANNELS=-1"}, {"UCCL_TCPX_NUM_CHANNELS", "0..64"}},
      {{"NCCL_P2P_NET_CHUNKSIZE=1G"}, {"NCCL_P2P_NET_CHUNKSIZE", "4K..16M"}},
      {{"UCCL_TCPX_OOB_PORT=70000"}, {"UCCL_TCPX_OOB_PORT", "1..65535"}},
      {{"UCCL_TCPX_OOB_PORT=65530", "UCCL_TCPX_PORT_RETRIES=16"},
       {"UCCL_TCPX_PORT_RETRIES", "1..65535"}},
      {{"UCCL_TCPX_OOB_PORT=1", "UCCL_TCPX_PORT_RETRIES=x"}, {"UCCL_TCPX_PORT_RETRIES", "\"x\""}},
      {{"UCCL_TCPX_OOB_PORT=1", "UCCL_TCPX_PORT_RETRIES=18446744073709551615"},
       {"UCCL_TCPX_PORT_RETRIES", "1..65535"}},
      {{"UCCL_TCPX_CTRL_IP=node7"}, {"UCCL_TCPX_CTRL_IP", "option advertise"}},
      {{"UCCL_TCPX_DEBUG=yes"}, {"UCCL_TCPX_DEBUG", "option log_level"}},
      {{"UCCL_TCPX_NET_DEVICE=eth1,,"}, {"UCCL_TCPX_NET_DEVICE", "option interfaces"}},
  };
  for (auto& [environment, want] : cases) {
    Status s = load({}, environment).status;
    EXPECT_EQ(s.code(), TCPX_BAD_CONFIG) << environment[0];
    EXPECT_THAT(s.text(), AllOf(HasSubstr(want.first), HasSubstr(want.second), HasSubstr("e.g. ")));
  }
}

TEST(OptionAliases, BenchVariablesAreLookedUpByTheBench) {
  const char* environment[] = {"UCCL_TCPX_PERF_SIZE=64M", "UCCL_TCPX_PERF_ITERS=", nullptr};
  auto size = alias_value("size", environment);
  ASSERT_TRUE(size.has_value());
  EXPECT_EQ(size->variable, "UCCL_TCPX_PERF_SIZE");
  EXPECT_EQ(size->value, "64M");
  EXPECT_FALSE(alias_value("iters", environment).has_value());
  EXPECT_FALSE(alias_value("size", nullptr).has_value());
  EXPECT_FALSE(alias_value("lanes", environment).has_value());
  EXPECT_TRUE(load({}, {environment[0]}).status.ok());
}

// ---- rules between rows ---------------------------------------------------------------------

TEST(OptionRules, ContradictionsAreErrorsThatNameBothSides) {
  const std::pair<NameValues, std::vector<const char*>> cases[] = {
      {{{"auth_key", "0123456789abcdef"}, {"auth_key_file", "/k"}}, {"auth_key", "auth_key_file"}},
      {{{"auth", "off"}, {"auth_key", "0123456789abcdef"}}, {"auth=off", "auth_key"}},
      {{{"auth", "off"}, {"auth_key_file", "/k"}}, {"auth=off", "auth_key_file"}},
      {{{"keepalive", "15s"}, {"lane_timeout", "1m"}}, {"peer_timeout=15s", "keepalive=15s"}},
      {{{"peer_timeout", "500ms"}}, {"peer_timeout=500ms", "keepalive=1s"}},
      {{{"lane_timeout", "1s"}}, {"lane_timeout=1s", "keepalive=1s"}},
      {{{"require_path", "ipc"}}, {"require_path=ipc", "allow_path=tcp"}},
  };
  for (auto& [values, wanted] : cases) {
    Status s = load(values).status;
    EXPECT_EQ(s.code(), TCPX_BAD_CONFIG);
    for (auto text : wanted) EXPECT_THAT(s.text(), HasSubstr(text));
  }
  EXPECT_TRUE(load({{"require_path", "ipc"}, {"allow_path", "tcp,ipc"}}).status.ok());
  EXPECT_TRUE(load({{"peer_timeout", "500ms"}, {"keepalive", "100ms"}}).status.ok());
}

TEST(OptionRules, HoldAcrossSources) {
  EXPECT_FALSE(load({{"auth_key", "k"}}, {"TCPX_AUTH_KEY_FILE=/k"}).status.ok());
}

TEST(ConfigText, HasOneLinePerRowWithOrigin) {
  Loaded loaded = load({{"lanes", "4"}}, {"TCPX_WINDOW=8", "UCCL_TCPX_CHUNK_BYTES=64K"});
  EXPECT_THAT(loaded.config.to_text(),
              AllOf(HasSubstr("lanes=4 (api)\n"), HasSubstr("window=8 (TCPX_WINDOW)\n"),
                    HasSubstr("chunk_bytes=64K (UCCL_TCPX_CHUNK_BYTES)\n"),
                    HasSubstr("spin=200us (default)\n")));
}

}  // namespace
}  // namespace tcpx
