#include "config/fields.h"

#include <arpa/inet.h>

#include <algorithm>
#include <array>

#include "base/log.h"
#include "base/units.h"
#include "config/bindings.h"
#include "config/key_material.h"

namespace tcpx::config {
namespace {

constexpr size_t kMaxNameBytes = 63;  // the wire's name field less its terminator
constexpr size_t kMaxKeyFiles = 4;
constexpr std::string_view kPaths[] = {"tcp", "net", "ipc"};

Status bad(std::string text) {
  return bad_call(TCPX_BAD_CONFIG, std::move(text));
}

// A value as errors show it: escaped, and not a screenful.
std::string shown(std::string_view text) {
  constexpr size_t kShown = 80;
  std::string out = "\"" + escaped(text.substr(0, kShown)) + "\"";
  return text.size() > kShown ? out + "..." : out;
}

// "lo..hi" of the row, by the same parser as its value.
template <class T>
Status set_number(const Row& row, std::string_view text, Status (*parse)(std::string_view, T*),
                  T* out) {
  T value{}, low{}, high{};
  if (Status s = parse(text, &value); !s) return s;
  std::string_view range = row.option.range;
  size_t dots = range.find("..");
  Status s = parse(range.substr(0, dots), &low);
  if (s) s = parse(range.substr(dots + 2), &high);
  if (!s) return Status(TCPX_INTERNAL, TCPX_BLAST_NOTHING, "bad range in the option table");
  if (value < low || value > high) {
    return bad(strf("{} is outside {}, e.g. {}", shown(text), range, row.example));
  }
  *out = value;
  return {};
}

Status set_choice(const Row& row, std::string_view text, size_t* out) {
  auto choices = split(row.option.range, '|');
  // Switches are written in several ways; "1" is no striping mode, so only on|off takes them.
  if (choices[0] == "on") {
    if (text == "1" || text == "true" || text == "yes") text = "on";
    if (text == "0" || text == "false" || text == "no") text = "off";
  }
  auto found = std::find(choices.begin(), choices.end(), text);
  if (found == choices.end()) {
    return bad(strf("{} is not one of {}, e.g. {}", shown(text), row.option.range, row.example));
  }
  *out = static_cast<size_t>(found - choices.begin());
  return {};
}

struct Setter {
  const Row& row;
  std::string_view text;
  EngineOptions* options;

  Status operator()(const Count& count) const {
    uint64_t value = 0;
    if (Status s = set_number(row, text, parse_count, &value); !s) return s;
    options->*count.field = static_cast<uint32_t>(value);
    return {};
  }
  Status operator()(const Size& size) const {
    return set_number(row, text, parse_size, &(options->*size.field));
  }
  Status operator()(const Time& time) const {
    return set_number(row, text, parse_time, &(options->*time.field));
  }
  Status operator()(const Choice& choice) const {
    size_t index = 0;
    if (Status s = set_choice(row, text, &index); !s) return s;
    options->*choice.field = index == 0;
    return {};
  }
  Status operator()(const Level& level) const {
    size_t index = 0;
    if (Status s = set_choice(row, text, &index); !s) return s;
    options->*level.field = static_cast<tcpx_log_level>(index);
    return {};
  }
  Status operator()(const Text& field) const {
    if (Status s = field.check(text); !s) return s;
    options->*field.field = text;
    return {};
  }
};

struct Getter {
  const Row& row;
  const EngineOptions& options;

  std::string operator()(const Count& count) const { return std::to_string(options.*count.field); }
  std::string operator()(const Size& size) const { return format_size(options.*size.field); }
  std::string operator()(const Time& time) const { return format_time(options.*time.field); }
  std::string operator()(const Choice& choice) const {
    return std::string(split(row.option.range, '|')[options.*choice.field ? 0 : 1]);
  }
  std::string operator()(const Level& level) const {
    return std::string(split(row.option.range, '|')[options.*level.field]);
  }
  std::string operator()(const Text& text) const {
    const std::string& value = options.*text.field;
    return text.secret && !value.empty() ? "(set)" : value;
  }
};

bool printable(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c > 0x20 && c < 0x7f; });
}

// An IP address without port; `any` says whether it is 0.0.0.0 or ::.
bool parse_ip_literal(std::string_view text, bool* any) {
  std::string name(text);
  if (name.size() != std::string_view(name.c_str()).size()) return false;  // NUL inside
  std::array<uint8_t, 16> bytes{};
  if (inet_pton(AF_INET6, name.c_str(), bytes.data()) != 1 &&
      inet_pton(AF_INET, name.c_str(), bytes.data()) != 1) {
    return false;
  }
  *any = bytes == std::array<uint8_t, 16>{};
  return true;
}

Status check_path_name(std::string_view text) {
  if (std::find(std::begin(kPaths), std::end(kPaths), text) != std::end(kPaths)) return {};
  std::vector<std::string> names(std::begin(kPaths), std::end(kPaths));
  return bad(
      strf("{} is no path (there are tcp, net, ipc), e.g. {}", shown(text), nearest(text, names)));
}

Status not_an_address(std::string_view text) {
  return bad(
      strf("{} is not an IP address (without brackets or port; ports are "
           "port_range), e.g. 10.0.0.1 or fd00::1",
           shown(text)));
}

}  // namespace

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (;;) {
    size_t end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

Status set_field(const Row& row, std::string_view text, EngineOptions* options) {
  return std::visit(Setter{row, text, options}, row.field);
}

std::string field_text(const Row& row, const EngineOptions& options) {
  return std::visit(Getter{row, options}, row.field);
}

Status check_name(std::string_view text) {
  if (text.size() > kMaxNameBytes) {
    return bad(strf("{} has {} bytes, at most {} are allowed, e.g. worker-3", shown(text),
                    text.size(), kMaxNameBytes));
  }
  if (printable(text)) return {};
  return bad(strf("{} has a space, control or non-ASCII character, e.g. worker-3", shown(text)));
}

Status check_interfaces(std::string_view text) {
  for (std::string_view item : split(text, ',')) {
    if (item.empty() || !printable(item)) {
      return bad(
          strf("{} has an empty or unprintable item, e.g. auto, eth1,eth2 or "
               "10.0.0.0/16",
               shown(text)));
    }
    if (item == "auto" && text != "auto") {
      return bad(strf("{} mixes auto with other items, e.g. auto or eth1,eth2", shown(text)));
    }
  }
  return {};
}

Status check_listen(std::string_view text) {
  bool any = false;
  if (text.empty() || parse_ip_literal(text, &any)) return {};
  return not_an_address(text);
}

Status check_advertise(std::string_view text) {
  bool any = false;
  if (text.empty()) return {};
  if (!parse_ip_literal(text, &any)) return not_an_address(text);
  if (!any) return {};
  return bad(strf("{} cannot be connected to, e.g. 10.0.0.1", shown(text)));
}

Status check_port_range(std::string_view text) {
  uint64_t first = 0, last = 0;
  size_t dash = text.find('-');
  Status s = parse_count(text.substr(0, dash), &first);
  last = first;
  if (s && dash != std::string_view::npos) s = parse_count(text.substr(dash + 1), &last);
  bool any_port = text == "0";
  if (s && (any_port || (first >= 1 && first <= last && last <= 65535))) return {};
  return bad(
      strf("{} is neither 0 (any port), a port nor a range of ports within "
           "1..65535, e.g. 20000 or 20000-20099",
           shown(text)));
}

// The texts about keys do not show them.
Status check_key(std::string_view text) {
  const std::string weakness = key_weakness(text);
  if (weakness.empty()) return {};
  return bad(strf("the key {}; e.g. the output of `head -c 32 /dev/urandom | base64`", weakness));
}

Status check_key_files(std::string_view text) {
  const auto paths = split(text, ',');
  for (std::string_view path : paths) {
    if (Status s = check_key_file(path); !s) return s;
  }
  if (paths.size() <= kMaxKeyFiles) return {};
  return bad(strf("{} names {} files, at most {} are read, e.g. /etc/tcpx/new,/etc/tcpx/old",
                  shown(text), paths.size(), kMaxKeyFiles));
}

Status check_key_file(std::string_view text) {
  if (!text.empty() && text.find('\0') == std::string_view::npos) return {};
  return bad(strf("{} is not a file name, e.g. /etc/tcpx/key", shown(text)));
}

Status check_require_path(std::string_view text) {
  return text.empty() ? Status() : check_path_name(text);
}

Status check_allow_path(std::string_view text) {
  for (std::string_view item : split(text, ',')) {
    if (Status s = check_path_name(item); !s) return s;
  }
  return {};
}

Status check_devices(std::string_view text) {
  for (std::string_view item : split(text, ',')) {
    if (item.empty()) return bad(strf("{} names an empty device, e.g. eth1,eth2", shown(text)));
  }
  return text.empty() ? bad("no devices are named, e.g. auto") : Status();
}

Status check_bindings(std::string_view text) {
  Bindings bindings;
  return parse_bindings(text, &bindings);
}

}  // namespace tcpx::config
