#!/usr/bin/env python3
"""Runs the NIXL tests of this folder against a NIXL wheel.

  run.py --venv build/venv-nixl-1.4.1 --plugin-dir build/release/plugins/nixl [NAME...]
  run.py --list ...               names of the cases that would run; needs neither wheel nor plugin

A case runs in a process of its own, forked from one that has imported NIXL already. One line per
case; what a failed one printed follows. Exit: 0 all passed, 1 some failed, 77 nothing could run.
"""
import argparse
import ast
import fnmatch
import os
import pathlib
import signal
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree

HERE = pathlib.Path(__file__).resolve().parent
SKIPPED = 77


def listed_cases():
    """(name, core, file) by reading the sources, so that a build can list them before the wheel is there."""
    for path in sorted(HERE.glob("*_test.py")):
        for node in ast.parse(path.read_text()).body:
            for mark in getattr(node, "decorator_list", []):
                if isinstance(mark, ast.Call) and getattr(mark.func, "id", "") == "case":
                    core = any(k.arg == "core" and k.value.value for k in mark.keywords)
                    yield node.name, core, path.stem


def is_wanted(arguments, name, core, file):
    names = arguments.names or ["*"]
    return ((core or not arguments.core) and arguments.file in (None, file)
            and any(fnmatch.fnmatch(name, n) for n in names))


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="cases, also with * (default: all)")
    parser.add_argument("--venv", help="made by venv.sh; default: the Python that runs this")
    parser.add_argument("--backend", default="TCPX", help="TCPX (default) or UCX")
    parser.add_argument("--plugin-dir", help="folder of libplugin_TCPX.so")
    parser.add_argument("--path", choices=("tcp", "net"), default="tcp")
    parser.add_argument("--net-plugin", default="", help="an NCCL net plugin, such as the emulator")
    parser.add_argument("--memory", choices=("host", "cuda", "vmm", "pool"), default="host",
                        help="of all buffers that a case says nothing of")
    parser.add_argument("--fake-cuda", default="", help="the fake CUDA driver; with TCPX_TEST_CUDA=real a GPU's is used")
    parser.add_argument("--file", help="only the cases of this one, such as transfer_test")
    parser.add_argument("--core", action="store_true", help="only the core set")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--junit", help="write results to this file")
    parser.add_argument("-v", "--verbose", action="store_true", help="show what passing cases print")
    return parser.parse_args()


def skip_all(reason):
    print(f"SKIP: {reason}")
    sys.exit(SKIPPED)


def into_venv(venv):
    """Goes on with the virtual environment's Python."""
    if not venv or pathlib.Path(sys.prefix) == pathlib.Path(venv).resolve():
        return
    python = pathlib.Path(venv).resolve() / "bin" / "python"
    if not (python.exists() and (python.parent.parent / "stamp").exists()):
        skip_all(f"no NIXL in {venv}; tests/nixl/venv.sh makes it")
    os.execv(python, [str(python), *sys.argv])


def set_environment(arguments):
    """What configures the libraries comes from our arguments only."""
    for name in list(os.environ):
        keep = ("TCPX_TEST_LONG", "TCPX_TEST_CLI", "TCPX_TEST_CUDA")
        if name.startswith(("TCPX_", "UCCL_TCPX_", "NCCL_", "NIXL_", "UCX_")) and name not in keep:
            if name != "NIXL_LOG_LEVEL":
                del os.environ[name]
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # no threads before the forks
    if arguments.backend == "UCX":
        os.environ["UCX_TLS"] = "tcp"
        return
    plugin = pathlib.Path(arguments.plugin_dir or ".", f"libplugin_{arguments.backend}.so")
    if not plugin.exists():
        skip_all(f"there is no {plugin}")
    os.environ["NIXL_PLUGIN_DIR"] = str(plugin.resolve().parent)
    if arguments.fake_cuda:
        arguments.fake_cuda = str(pathlib.Path(arguments.fake_cuda).resolve())
    if arguments.memory != "host" and not driver_to_use(arguments):
        skip_all(f"--memory {arguments.memory} needs --fake-cuda, or TCPX_TEST_CUDA=real")
    if arguments.net_plugin:
        arguments.net_plugin = str(pathlib.Path(arguments.net_plugin).resolve())
    if arguments.path == "net":
        if not os.path.isfile(arguments.net_plugin):
            skip_all(f"--path net needs --net-plugin; there is no \"{arguments.net_plugin}\"")
        os.environ["NCCL_GPUDIRECTTCPX_SOCKET_IFNAME"] = "lo"


def driver_to_use(arguments):
    """The CUDA driver's library; empty: there is none to use."""
    return "libcuda.so.1" if os.environ.get("TCPX_TEST_CUDA") == "real" else arguments.fake_cuda


def load_cases(arguments):
    sys.path.insert(0, str(HERE))
    import harness
    for path in sorted(HERE.glob("*_test.py")):
        __import__(path.stem)
    wanted = {name for name, core, file in listed_cases() if is_wanted(arguments, name, core, file)}
    cases = [one for one in harness.CASES.values() if one.name in wanted]
    return harness, cases


def in_child(harness, setup, one, output):
    """Body of the case's process; exit code 0, 1 or 77."""
    os.setpgid(0, 0)  # everything the case starts ends with it
    os.dup2(output.fileno(), 1)
    os.dup2(output.fileno(), 2)
    code = 1
    try:
        harness.die_with_parent()
        harness.run_case(setup, one)
        code = 0
    except harness.Skip as reason:
        print(f"SKIP: {reason}")
        code = SKIPPED
    except BaseException:
        import traceback
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def wait_for(pid, seconds):
    """The exit code, or None after killing it."""
    ends = time.monotonic() + seconds
    pause = 0.002
    while time.monotonic() < ends:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(pause)
        pause = min(2 * pause, 0.02)
    os.killpg(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return None


def run_one(harness, setup, one):
    """(outcome, seconds, output)"""
    started = time.monotonic()
    with tempfile.TemporaryFile("w+", errors="replace") as output:
        sys.stdout.flush()
        pid = os.fork()
        if pid == 0:
            in_child(harness, setup, one, output)
        code = wait_for(pid, one.limit + 10)
        try:
            os.killpg(pid, signal.SIGKILL)  # peers that are left, also stopped ones
        except ProcessLookupError:
            pass
        output.seek(0)
        text = output.read()
    if code is None or code < 0:
        text += f"\nended by {'the time limit' if code is None else signal.Signals(-code).name}\n"
    outcome = {0: "passed", SKIPPED: "skipped"}.get(code, "failed")
    return outcome, time.monotonic() - started, text


def last_line(text, prefix=""):
    lines = [line for line in text.splitlines() if line.startswith(prefix) and line.strip()]
    return lines[-1] if lines else ""


def write_junit(path, results):
    suite = ElementTree.Element("testsuite", name="nixl", tests=str(len(results)))
    for name, outcome, seconds, text in results:
        item = ElementTree.SubElement(suite, "testcase", name=name, time=f"{seconds:.3f}")
        if outcome == "failed":
            ElementTree.SubElement(item, "failure", message=last_line(text)).text = text
        elif outcome == "skipped":
            ElementTree.SubElement(item, "skipped", message=last_line(text, "SKIP"))
    ElementTree.ElementTree(suite).write(path)


def main():
    arguments = parse_arguments()
    if arguments.list:
        print("\n".join(one[0] for one in listed_cases() if is_wanted(arguments, *one)))
        return 0
    into_venv(arguments.venv)
    set_environment(arguments)
    harness, cases = load_cases(arguments)
    if not cases:
        sys.exit(f"run.py: no such case: {' '.join(arguments.names)}")
    setup = harness.Setup(arguments.backend, arguments.path, arguments.net_plugin,
                          bool(os.environ.get("TCPX_TEST_LONG")), arguments.memory, driver_to_use(arguments))
    results = []
    for one in cases:
        outcome, seconds, text = run_one(harness, setup, one)
        results.append((one.name, outcome, seconds, text))
        why = f"  {last_line(text, 'SKIP')}" if outcome == "skipped" else ""
        print(f"{outcome:8}{one.name:42} {seconds:6.2f} s{why}", flush=True)
        if outcome == "failed" or arguments.verbose:
            print("    " + text.strip().replace("\n", "\n    "), flush=True)
    if arguments.junit:
        write_junit(arguments.junit, results)
    counts = {kind: sum(r[1] == kind for r in results) for kind in ("passed", "failed", "skipped")}
    print(", ".join(f"{count} {kind}" for kind, count in counts.items()),
          f"({sum(r[2] for r in results):.1f} s)")
    return 1 if counts["failed"] else 0 if counts["passed"] else SKIPPED


if __name__ == "__main__":
    sys.exit(main())
