// load_config with a made-up environment. Each line of the input is NAME=value for the environment,
// or @name=value for a value given by the application.
#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "config/options.h"
#include "fuzz_check.h"

namespace {

using namespace tcpx;

struct Input {
  NameValues explicit_values;
  std::vector<std::string> environment;
};

Input parse(std::string_view text) {
  Input input;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (!line.starts_with('@')) {
      // A C string ends at its NUL; the loader never sees what is behind it.
      input.environment.emplace_back(line.substr(0, line.find('\0')));
      continue;
    }
    const std::string_view pair = line.substr(1);
    const size_t equals = std::min(pair.find('='), pair.size());
    input.explicit_values.emplace_back(pair.substr(0, equals),
                                       pair.substr(std::min(equals + 1, pair.size())));
  }
  return input;
}

Status load(const NameValues& values, const std::vector<std::string>& environment, Config* out) {
  std::vector<const char*> pointers;
  for (const std::string& entry : environment) pointers.push_back(entry.c_str());
  pointers.push_back(nullptr);
  return load_config(values, pointers.data(), out);
}

// The canonical text of a value is itself valid and means the same.
void check_canonical(const Config& config) {
  NameValues again;
  for (const OptionValue& value : config.values) {
    // Secrets are not shown, so their text is not their value.
    if (value.origin != Origin::kDefault && value.name != "auth_key") {
      again.emplace_back(value.name, value.value);
    }
  }
  Config second;
  const Status status = load(again, {}, &second);
  FUZZ_CHECK(status.ok());
  for (size_t i = 0; i < config.values.size(); ++i) {
    if (config.values[i].name == "auth_key") continue;
    FUZZ_CHECK(second.values[i].value == config.values[i].value);
  }
}

void check_config(const Config& config) {
  const auto table = option_table();
  FUZZ_CHECK(config.values.size() == table.size());
  for (size_t i = 0; i < table.size(); ++i) FUZZ_CHECK(config.values[i].name == table[i].name);
  FUZZ_CHECK(!config.to_text().empty());
  FUZZ_CHECK(config.options.auth_key.empty() ||
             config.to_text().find(config.options.auth_key) == std::string::npos ||
             config.options.auth_key.size() < 16);
  FUZZ_CHECK(config.options.chunk_bytes > 0 && config.options.window > 0);
  FUZZ_CHECK(config.options.deadline >= 0 && config.options.connect_timeout >= 0);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const Input input = parse({reinterpret_cast<const char*>(data), size});
  Config config;
  const Status status = load(input.explicit_values, input.environment, &config);
  if (!status.ok()) {
    FUZZ_CHECK(status.code() == TCPX_BAD_CONFIG);
    FUZZ_CHECK(!status.text().empty());
    return 0;
  }
  check_config(config);
  check_canonical(config);
  return 0;
}
