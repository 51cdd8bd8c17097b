// The rows themselves. Inside src/config only; others use option_table().
#pragma once

#include <span>

#include "config/fields.h"

namespace tcpx::config {

std::span<const Row> rows();
const Row* find_row(std::string_view name);

}  // namespace tcpx::config
