// Receipts and counters as structs and JSON.
#pragma once

#include <string>

#include <tcpx/tcpx.h>

namespace tcpx {

struct Transfer;

tcpx_receipt receipt_of(Transfer& transfer);
std::string receipt_json_of(Transfer& transfer);

}  // namespace tcpx
