// How a row's text becomes a field of EngineOptions and back. The row's `range` text is the one
// place that says what is allowed: it is shown to users and parsed here.
#pragma once

#include <string>
#include <string_view>
#include <variant>

#include "base/status.h"
#include "config/options.h"

namespace tcpx::config {

struct Count {
  uint32_t EngineOptions::*field;
};
struct Size {
  uint64_t EngineOptions::*field;
};
struct Time {
  Nanos EngineOptions::*field;
};
struct Choice {  // range "a|b": a is true, b is false
  bool EngineOptions::*field;
};
struct Level {
  tcpx_log_level EngineOptions::*field;
};
struct Text {
  std::string EngineOptions::*field;
  Status (*check)(std::string_view text);
  bool secret = false;
};
using Field = std::variant<Count, Size, Time, Choice, Level, Text>;

struct Row {
  OptionRow option;
  const char* example;
  Field field;
};

// A failure's text says what is wrong with the value and shows a right one.
Status set_field(const Row& row, std::string_view text, EngineOptions* options);
// Canonical text; a secret is "(set)" or "".
std::string field_text(const Row& row, const EngineOptions& options);

// Checks for Text rows.
Status check_name(std::string_view text);
Status check_interfaces(std::string_view text);
Status check_listen(std::string_view text);
Status check_advertise(std::string_view text);
Status check_port_range(std::string_view text);
Status check_key(std::string_view text);
Status check_key_file(std::string_view text);
Status check_key_files(std::string_view text);
Status check_require_path(std::string_view text);
Status check_allow_path(std::string_view text);
Status check_devices(std::string_view text);
Status check_bindings(std::string_view text);

std::vector<std::string_view> split(std::string_view text, char separator);

}  // namespace tcpx::config
