// Receipts and counters as structs and JSON.
#pragma once

#include <string>

#include <tcpx/tcpx.h>

namespace tcpx {

class Peer;
struct TransferState;

// Of all lanes that carry something, e.g. "net+tcp"; of those that are open.
std::string path_of(Peer& peer);
std::string interfaces_of(Peer& peer);

tcpx_receipt receipt_of(TransferState& transfer);
std::string receipt_json_of(TransferState& transfer);

}  // namespace tcpx
