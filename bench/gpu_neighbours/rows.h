// The rows that are printed: a JSON document per line. Each goes out at once, so that those of a
// scenario that is killed later are there.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

namespace tcpx::bench {

using Json = nlohmann::ordered_json;

void print_row(const Json& row);

// `seen` against a ceiling of the same run.
void compare(const std::string& name, double seen, const std::string& ceiling_name, double ceiling,
             double least, const std::string& note = "");
void state(const std::string& name, bool ok, const std::string& note);
void skip(const std::string& name, const std::string& why);

}  // namespace tcpx::bench
