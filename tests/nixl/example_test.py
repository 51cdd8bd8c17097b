"""The example and the benchmark, as a user starts them."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

from harness import NIXL_VERSION, Skip, case, require

ROOT = pathlib.Path(__file__).resolve().parents[2]


def run(script, *arguments):
    result = subprocess.run([sys.executable, str(ROOT / script), *arguments], timeout=50, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    require(result.returncode == 0, f"{script}: exit {result.returncode}\n{result.stdout}\n{result.stderr}")
    return result.stdout


def run_example(test, *arguments):
    if NIXL_VERSION < (1, 4):
        raise Skip("the Python API of NIXL before 1.4 wants torch")
    if test.ours and test.setup.path == "net":
        os.environ.update(TCPX_NET_PLUGIN=test.setup.net_plugin, TCPX_REQUIRE_PATH="net")
    return run("examples/nixl_kv.py", "--backend", test.setup.backend, "--block-bytes", "4096", *arguments)


@case(places=())
def example_moves_a_kv_cache(test):
    output = run_example(test, "--layers", "4", "--turns", "3")
    require("content checked 3 times" in output and "GB/s" in output, output)


@case(places=())
def example_with_eight_processes_on_either_side(test):
    output = run_example(test, "--ranks", "8", "--layers", "2", "--turns", "2")
    require("content checked 16 times" in output and "rank 7: first" in output, output)


@case(places=(), ucx="the fake driver knows it not")
def example_in_gpu_memory(test):
    """By the driver's functions; with PyTorch where the tests' Python has it."""
    if not test.setup.cuda or test.setup.path != "tcp":
        raise Skip("no CUDA driver to test with (--fake-cuda)")
    with tempfile.TemporaryDirectory() as folder:
        if os.path.exists(test.setup.cuda):  # the fake, found by the name that programs look for
            os.symlink(test.setup.cuda, pathlib.Path(folder, "libcuda.so.1"))
            os.environ["LD_LIBRARY_PATH"] = folder
        output = run_example(test, "--memory", "cuda", "--layers", "4", "--turns", "3", "--ranks", "2")
    require("TCPX, GPU memory" in output and "content checked 6 times" in output, output)


def run_benchmark(test, *arguments):
    """The records of a short run."""
    arguments = [*arguments, "--plugin-dir", os.environ["NIXL_PLUGIN_DIR"], "--path", test.setup.path,
                 "--sizes", "4K,1M", "--rounds", "1", "--seconds", "0.02", "--json", "-"]
    if test.setup.path == "net":
        arguments += ["--net-plugin", test.setup.net_plugin]
    output = run("bench/nixl_bench.py", *arguments)
    return json.loads(output[output.index("\n{") + 1:])["records"]


@case(places=(), ucx="it compares with UCX anyway")
def benchmark_measures_both_backends(test):
    records = run_benchmark(test, "--pieces", "4K")
    points = [(r["op"], r["bytes"], r["pieces"]) for r in records]
    require(points == [(op, size, pieces) for size, pieces in ((4096, 1), (1 << 20, 1), (4096 * 1024, 1024))
                       for op in ("WRITE", "READ")], f"{points}")
    for record in records:
        require(set(record["backends"]) == {"TCPX", "UCX"} and record["ratio"] > 0, f"{record}")


@case(places=(), ucx="the folder of ours is what it gets")
def benchmark_counts_notifications(test):
    """It ends with an error if one is missing or came twice."""
    records = run_benchmark(test, "--pieces", "0", "--notify", "--backends", "TCPX")
    require(len(records) == 4, f"{records}")


@case(places=(), ucx="the library is not UCX's")
def benchmark_compares_with_the_library(test):
    tools = pathlib.Path(os.environ["TCPX_TEST_CLI"])
    program = tools.parent.parent / "bench" / "tcpx_nixl_c"
    records = run_benchmark(test, "library", "--tcpx", str(tools), "--nixl-c", str(program))
    require([(r["op"], r["bytes"]) for r in records] ==
            [(op, size) for size in (4096, 1 << 20) for op in ("WRITE", "READ")], f"{records}")
    for record in records:
        require(set(record["us"]) == {"tcpx", "c", "python"} and min(record["us"].values()) > 0, f"{record}")
