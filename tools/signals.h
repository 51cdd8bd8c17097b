// SIGINT and SIGTERM ask the command to end; a second one ends it at once.
#pragma once

namespace tcpx::tool {

void handle_signals();
bool interrupted();
void check_interrupted();  // throws Failure

}  // namespace tcpx::tool
