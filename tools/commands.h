// The subcommands. Each adds itself to the command line and returns what runs it.
#pragma once

#include <functional>

namespace CLI {
class App;
}

namespace tcpx::tool {

struct Command {
  CLI::App* app;
  std::function<int()> run;  // an exit code, or throws Failure
};

Command add_bench(CLI::App& app);
Command add_demo(CLI::App& app);
Command add_config(CLI::App& app);
Command add_topo(CLI::App& app);

}  // namespace tcpx::tool
