#include "config/aliases.h"

#include <net/if.h>

#include "base/log.h"
#include "base/units.h"
#include "config/fields.h"

namespace tcpx::config {
namespace {

using Result = std::optional<Translated>;
using Translate = Status (*)(const std::string&, std::string_view, const Environment&, Result*);

// 0 says nothing, another number turns debug lines on.
Status debug_switch(const std::string& variable, std::string_view value, const Environment&,
                    Result* out) {
  uint64_t number = 0;
  if (Status s = parse_count(value, &number); !s) return s;
  if (number != 0) *out = Translated{"debug", variable};
  return {};
}

// A port, and with UCCL_TCPX_PORT_RETRIES=n also the n after it.
Status port_and_retries(const std::string& variable, std::string_view value, const Environment& env,
                        Result* out) {
  constexpr char kRetries[] = "UCCL_TCPX_PORT_RETRIES";
  auto retries = env.find(kRetries);
  if (!retries || retries->empty()) {
    *out = Translated{std::string(value), variable};
    return {};
  }
  uint64_t port = 0, more = 0;
  if (Status s = parse_count(value, &port); !s) return s;
  if (Status s = parse_count(*retries, &more); !s) {
    return bad_call(TCPX_BAD_CONFIG, strf("{}: {}", kRetries, s.text()));
  }
  if (port < 1 || port > 65535 || more > 65535 - port) {
    return bad_call(TCPX_BAD_CONFIG,
                    strf("port {} and the next {} ({}) do not lie within 1..65535, e.g. "
                         "{}=20000 {}=16",
                         port, more, kRetries, variable, kRetries));
  }
  std::string range = more == 0 ? strf("{}", port) : strf("{}-{}", port, port + more);
  *out = Translated{range, strf("{}, {}", variable, kRetries)};
  return {};
}

// NCCL's names are prefixes, with ^ and = in front for others. Only a list of interfaces that exist
// under exactly these names means the same to us.
Status existing_interfaces(const std::string& variable, std::string_view value, const Environment&,
                           Result* out) {
  for (std::string_view name : split(value, ',')) {
    if (if_nametoindex(std::string(name).c_str()) == 0) return {};
  }
  *out = Translated{std::string(value), variable};
  return {};
}

Status as_it_is(const std::string& variable, std::string_view value, const Environment&,
                Result* out) {
  *out = Translated{std::string(value), variable};
  return {};
}

constexpr std::pair<std::string_view, Translate> kTranslations[] = {
    {"UCCL_TCPX_DEBUG", debug_switch},
    {"TCPX_DEBUG", debug_switch},
    {"UCCL_TCPX_BOOTSTRAP_PORT_BASE", port_and_retries},
    {"UCCL_TCPX_OOB_PORT", port_and_retries},
    {"UCCL_TCPX_CTRL_PORT", port_and_retries},
    {"NCCL_GPUDIRECTTCPX_SOCKET_IFNAME", existing_interfaces},
};

}  // namespace

Environment::Environment(const char* const* strings) {
  for (; strings != nullptr && *strings != nullptr; ++strings) {
    std::string_view text = *strings;
    size_t equals = text.find('=');
    if (equals == std::string_view::npos || find(text.substr(0, equals))) continue;
    all_.emplace_back(text.substr(0, equals), text.substr(equals + 1));
  }
}

std::optional<std::string_view> Environment::find(std::string_view name) const {
  for (const auto& [key, value] : all_) {
    if (key == name) return value;
  }
  return std::nullopt;
}

Status translate_alias(const std::string& variable, std::string_view value, const Environment& env,
                       std::optional<Translated>* out) {
  for (const auto& [name, translate] : kTranslations) {
    if (name == variable) return translate(variable, value, env, out);
  }
  return as_it_is(variable, value, env, out);
}

}  // namespace tcpx::config
