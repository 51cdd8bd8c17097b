// Receipts and counters as structs and JSON.
#pragma once

#include <string>

#include <tcpx/tcpx.h>

namespace tcpx {

struct TransferState;

tcpx_receipt receipt_of(TransferState& transfer);
std::string receipt_json_of(TransferState& transfer);

}  // namespace tcpx
