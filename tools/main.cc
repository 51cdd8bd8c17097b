// The tcpx command.
#include <cstdio>
#include <exception>
#include <string>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>
#include "print.h"

#include <tcpx/tcpx.h>

#include "commands.h"
#include "engine_options.h"
#include "failure.h"

namespace tcpx::tool {
namespace {

constexpr const char* kFooter =
    "Exit codes:\n"
    "  0    success\n"
    "  1    a transfer failed, or the other side did\n"
    "  2    bad command line or bad configuration\n"
    "  3    this machine cannot run what was asked (memory, system limits, topology)\n"
    "  4    data failed verification\n"
    "  130  interrupted by SIGINT or SIGTERM\n"
    "Results go to stdout; logs, progress and errors to stderr.";

// What could have been meant by a word nobody understands.
[[noreturn]] void unknown_argument(const CLI::App& app, const std::string& word) {
  std::vector<std::string> candidates;
  const bool flag = word.starts_with("-");
  for (auto* option : app.get_options())
    for (auto& name : option->get_lnames())
      if (flag) candidates.push_back("--" + name);
  for (auto* group : app.get_subcommands({})) {
    if (!group->get_name().empty() && !flag) candidates.push_back(group->get_name());
    if (!group->get_name().empty() || !flag) continue;
    for (auto* option : group->get_options())  // an option group
      for (auto& name : option->get_lnames()) candidates.push_back("--" + name);
  }
  const std::string name = word.substr(0, word.find('='));
  const std::string where = app.get_parent() == nullptr ? "tcpx" : "tcpx " + app.get_name();
  const std::string hint = nearest_name(name, candidates);
  throw Failure(kExitUsage,
                strf("unknown {} '{}'; {}see {} --help", flag ? "option" : "argument", name,
                     hint.empty() ? "" : "did you mean '" + hint + "'? Else ", where));
}

void check_leftovers(const CLI::App& app) {
  for (auto& word : app.remaining(false))
    if (word.starts_with("-")) unknown_argument(app, word);
  if (!app.remaining(false).empty()) unknown_argument(app, app.remaining(false).front());
}

int show_help(CLI::App& app, const std::string& topic) {
  const CLI::App* about = topic.empty() ? &app : nullptr;
  for (auto* command : app.get_subcommands({}))
    if (command->get_name() == topic) about = command;
  if (about == nullptr) unknown_argument(app, topic);
  print(stdout, "{}", about->help("tcpx"));
  return kExitOk;
}

int parse_and_run(int argc, char** argv) {
  CLI::App app{"tcpx: one-sided transfers between processes over TCP"};
  app.name("tcpx");
  app.footer(kFooter);
  app.allow_extras();
  app.set_version_flag("--version", std::string("tcpx ") + tcpx_version());
  std::vector<Command> commands = {add_bench(app), add_demo(app), add_config(app), add_topo(app)};
  commands.push_back({app.add_subcommand("version", "print the version"), [] {
                        print(stdout, "tcpx {}\n", tcpx_version());
                        return static_cast<int>(kExitOk);
                      }});
  app.add_subcommand("help", "print help, also of a command: tcpx help bench");
  for (auto& command : commands) {
    command.app->allow_extras();
    command.app->footer(kFooter);
  }
  if (argc > 1 && std::string_view(argv[1]) == "help")
    return show_help(app, argc > 2 ? argv[2] : "");
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& wanted) {  // --help, --version
    return app.exit(wanted);
  }
  for (auto& command : commands) {
    if (!command.app->parsed()) continue;
    check_leftovers(*command.app);
    return command.run();
  }
  check_leftovers(app);
  print(stderr, "{}", app.help());
  return kExitUsage;
}

}  // namespace
}  // namespace tcpx::tool

int main(int argc, char** argv) {
  using namespace tcpx::tool;
  try {
    return parse_and_run(argc, argv);
  } catch (const CLI::Error& error) {
    print(stderr, "tcpx: {}\n", error.what());
    return kExitUsage;
  } catch (const Failure& failure) {
    print(stderr, "tcpx: {}\n", failure.what());
    return failure.code();
  } catch (const std::bad_alloc&) {
    print(stderr, "tcpx: out of memory\n");
    return kExitEnvironment;
  } catch (const std::exception& error) {
    print(stderr, "tcpx: {}\n", error.what());
    return kExitFailed;
  }
}
