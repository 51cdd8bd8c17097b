// Variables of the earlier project and of NCCL that set an option of ours.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"

namespace tcpx::config {

// "NAME=value" strings, split; the first one of a name counts, as with getenv.
class Environment {
 public:
  explicit Environment(const char* const* strings);
  std::optional<std::string_view> find(std::string_view name) const;
  const std::vector<std::pair<std::string_view, std::string_view>>& all() const { return all_; }

 private:
  std::vector<std::pair<std::string_view, std::string_view>> all_;
};

struct Translated {
  std::string value;   // in our option's own terms
  std::string source;  // the variables it came from
};

// The value a set, non-empty `variable` gives its option. Nothing (with ok) when it says nothing to
// us, e.g. an interface pattern that only NCCL understands.
Status translate_alias(const std::string& variable, std::string_view value, const Environment& env,
                       std::optional<Translated>* out);

}  // namespace tcpx::config
