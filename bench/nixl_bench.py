#!/usr/bin/env python3
"""The TCPX backend beside UCX (tcp) under the same NIXL, host or GPU memory, two processes over loopback.

  nixl_bench.py                     sizes 4K to 1G, WRITE and READ, one descriptor and 1024 scattered
  nixl_bench.py --quick             the same with fewer sizes and shorter
  nixl_bench.py library             TCPX under NIXL, from C and from Python, beside `tcpx bench` on the same path and sizes
  nixl_bench.py many                50,000 scattered descriptors of 16K beside one of the same bytes

Both backends are measured by the same code: a request is made once and posted again and again; the
initiator polls its state and lets other threads run in between (--poll), the target's application
does nothing. With --memory cuda[:N] all of it is on that GPU, and UCX has UCX_TLS=tcp,cuda_copy. Point by point the
backends take turns; the agents of the one that waits do not exist, so that its threads take no time.
A ratio is UCX's time by TCPX's: above 1 TCPX is faster. cpu: seconds of both processes per GB, the
polling included. GB = 10^9 bytes.
"""
import argparse
import json
import os
import pathlib
import platform
import re
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
TESTS = ROOT / "tests" / "nixl"
KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
GAP = 4096 + 64  # between scattered pieces: nothing to merge, and not all on one cache line
FULL_SIZES = [4 * KIB, 64 * KIB, MIB, 4 * MIB, 16 * MIB, 64 * MIB, 256 * MIB, GIB]
FULL_PIECES = [4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB]
QUICK_SIZES = [4 * KIB, 64 * KIB, MIB, 16 * MIB]
QUICK_PIECES = [16 * KIB]
BATCH = 1024
LIBRARY_SIZES = [4 * KIB, MIB, 16 * MIB, 64 * MIB]
MANY = 50_000
MANY_PIECE = 16 * KIB
POST_LIMIT_MS = 20
WARM_UP = 2
# What the initiator does between two polls.
PAUSES = {"spin": lambda: None, "yield": os.sched_yield, "sleep": lambda: time.sleep(50e-6)}
LAST_MESSAGE = b"that was all"
EXIT_WRONG_BYTES = 4
EXIT_BELOW_BARS = 5


def parse_size(text):
    units = {"K": KIB, "M": MIB, "G": GIB}
    return int(text[:-1]) * units[text[-1].upper()] if text[-1:].upper() in units else int(text)


def size_name(size):
    for unit, name in ((GIB, "G"), (MIB, "M"), (KIB, "K")):
        if size >= unit and size % unit == 0:
            return f"{size // unit}{name}"
    return str(size)


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mode", nargs="?", choices=("compare", "library", "many"), default="compare")
    parser.add_argument("--venv", help="made by tests/nixl/venv.sh; default: the Python that runs this")
    parser.add_argument("--plugin-dir", default=str(ROOT / "build/release/plugins/nixl"),
                        help="folder of libplugin_TCPX.so")
    parser.add_argument("--backends", default=None, help="default TCPX,UCX (compare) or TCPX")
    parser.add_argument("--sizes", help="of the one descriptor, e.g. 4K,1M,1G")
    parser.add_argument("--pieces", help=f"sizes of each of {BATCH} scattered descriptors, e.g. 16K; 0: none")
    parser.add_argument("--ops", default="WRITE,READ")
    parser.add_argument("--rounds", type=int, help="turns of each backend per point (default 3, library 15, quick 2)")
    parser.add_argument("--seconds", type=float, help="per turn and operation (default 0.4, quick 0.15)")
    parser.add_argument("--path", choices=("tcp", "net"), default="tcp", help="of TCPX")
    parser.add_argument("--net-plugin", default=str(ROOT / "build/release/plugins/tcpx_emu/libnccl-net-tcpx-emu.so"))
    parser.add_argument("--memory", default="host", help="host, cuda or cuda:N")
    parser.add_argument("--ucx", action="append", default=[], metavar="NAME=VALUE", help="in the environment of UCX")
    parser.add_argument("--param", action="append", default=[], metavar="NAME=VALUE", help="of TCPX")
    parser.add_argument("--tcpx", default=str(ROOT / "build/release/tools/tcpx"), help="for library")
    parser.add_argument("--nixl-c", default=str(ROOT / "build/release/bench/tcpx_nixl_c"), help="for library")
    parser.add_argument("--poll", choices=PAUSES,
                        help="between two polls: nothing (default of library: `tcpx bench` does not pause either), "
                             "sched_yield (default otherwise) or 50 us of sleep")
    parser.add_argument("--notify", action="store_true",
                        help="a notification with every transfer, and a target that asks for them all the time")
    parser.add_argument("--no-progress-thread", action="store_true")
    parser.add_argument("--no-verify", action="store_true")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", metavar="FILE", help="write the figures there; - for standard output")
    parser.add_argument("--check", action="store_true", help=f"exit {EXIT_BELOW_BARS} when a bar is missed")
    arguments = parser.parse_args()
    arguments.backends = (arguments.backends or
                          ("TCPX,UCX" if arguments.mode == "compare" else "TCPX")).split(",")
    arguments.ops = arguments.ops.upper().split(",")
    if arguments.memory != "host" and not re.fullmatch(r"cuda(:\d+)?", arguments.memory):
        parser.error("--memory: host, cuda or cuda:N")
    if arguments.memory != "host" and arguments.mode == "library":
        parser.error("library: host memory only")
    if arguments.mode == "library" and arguments.notify:
        parser.error("library: `tcpx bench` sends no notifications")
    arguments.poll = arguments.poll or ("spin" if arguments.mode == "library" else "yield")
    arguments.rounds = arguments.rounds or (2 if arguments.quick else 15 if arguments.mode == "library" else 3)
    arguments.seconds = arguments.seconds or (0.15 if arguments.quick else 0.4)
    return arguments


def into_venv(venv):
    if venv and pathlib.Path(sys.prefix) != pathlib.Path(venv).resolve():
        python = str(pathlib.Path(venv).resolve() / "bin" / "python")
        os.execv(python, [python, *sys.argv])


# ---- one measurement, in the initiator's process -------------------------------------------------

def make_bench_side(harness):
    """A side of the tests with a stopwatch. Made late: the harness needs the wheel."""
    class BenchSide(harness.Side):
        def cpu_seconds(self):
            times = os.times()
            return times.user + times.system

        def measure(self, op, local, remote, peer, seconds, least, pause, message):
            """Seconds of each post up to DONE, and of each call that posts."""
            pause = PAUSES[pause]
            handle = self.agent.initialize_xfer(op, self.descs(local), self.descs(remote), peer, b"",
                                                [self.backend])
            post, poll, number = self.agent.agent.postXferReq, self.agent.agent.getXferStatus, handle._handle
            busy = harness._bindings.NIXL_IN_PROG
            now, times, posts = time.perf_counter, [], []
            cpu = self.cpu_seconds()
            for _ in range(WARM_UP):
                self.one(post, poll, number, busy, now, pause, message)
            ends = now() + seconds
            while len(times) < least or (now() < ends and len(times) < 20_000):
                took, posted = self.one(post, poll, number, busy, now, pause, message)
                times.append(took)
                posts.append(posted)
            cpu = self.cpu_seconds() - cpu
            handle.release()
            if message:
                self.send(peer, LAST_MESSAGE)
            return times, posts, cpu

        def count_messages(self, pause):
            """Asks for notifications as a server does, until the last one."""
            pause, count, last = PAUSES[pause], 0, False
            take, ends = self.agent.agent.getNotifs, time.monotonic() + 60
            while not last:
                for messages in take({}).values():
                    last = last or LAST_MESSAGE in messages
                    count += len(messages)
                harness.require(time.monotonic() < ends, "the last notification is missing")
                pause()
            return count - 1

        @staticmethod
        def one(post, poll, number, busy, now, pause, message=b""):
            """The loop both backends are measured by."""
            began = now()
            state = post(number, message)
            posted = now()
            while state == busy:
                pause()
                state = poll(number)
            return now() - began, posted - began

        def fill_large(self, key, seed, size):
            for at in range(0, size, 16 * MIB):
                self.fill(key, seed, at, min(16 * MIB, size - at))

        def check_large(self, key, seed, size):
            for at in range(0, size, 16 * MIB):
                self.check(key, seed, at, min(16 * MIB, size - at))

        def fill_rows(self, key, seed, offsets, size):
            whole = self.view(key)  # at once: each copy of a GPU's memory takes its time
            for index, offset in enumerate(offsets):
                whole[offset:offset + size] = harness.pattern(seed, index * size, size)
            self.put(key, 0, whole)

        def check_rows(self, key, seed, offsets, size):
            whole = self.view(key)
            for index, offset in enumerate(offsets):
                wrong = harness.first_difference(whole[offset:offset + size], harness.pattern(seed, index * size, size))
                harness.require(wrong is None, f"{self.name}, piece {index} at {offset}: {wrong}")
    return BenchSide


class Pair:
    """Initiator and target of one backend, each a process; agents exist only inside `with`."""

    def __init__(self, harness, backend, environment, params, progress_thread, cuda):
        side = make_bench_side(harness)
        self.backend, self.params, self.progress_thread = backend, params, progress_thread
        self.environment = environment
        self.initiator, self.target = (harness.Peer(side(backend, *cuda)) for _ in range(2))
        for process in (self.initiator, self.target):
            process.environment(environment)

    def open(self, space):
        """Fresh agents with one registered buffer each."""
        addresses = []
        for process, name in ((self.target, "target"), (self.initiator, "initiator")):
            process.start(name, self.params, self.progress_thread)
            addresses.append(process.alloc("b", space, huge=True))
        self.initiator.load(self.target.metadata())
        self.there, self.here = addresses

    def close(self):
        self.initiator.close()
        self.target.close()

    def end(self):
        self.initiator.end()
        self.target.end()


class Point:
    """One size: a single descriptor, or a number of scattered ones of that size each."""

    def __init__(self, size, pieces=1):
        self.size, self.pieces, self.bytes = size, pieces, size * pieces
        stride = size + GAP
        self.space = size if pieces == 1 else pieces * stride
        # Both sides in their own order: neighbours here are strangers there.
        self.local = [i * stride for i in permuted(pieces, 7)]
        self.remote = [i * stride for i in permuted(pieces, 11)]

    def name(self):
        return size_name(self.size) if self.pieces == 1 else f"{self.pieces} x {size_name(self.size)}"

    def lists(self, pair):
        return ([(pair.here + offset, self.size) for offset in self.local],
                [(pair.there + offset, self.size) for offset in self.remote])

    def verify(self, pair, op):
        """One transfer with known bytes into poisoned memory."""
        source, sink = (pair.initiator, pair.target) if op == "WRITE" else (pair.target, pair.initiator)
        rows = (self.local, self.remote) if op == "WRITE" else (self.remote, self.local)
        seed = self.bytes % 1000
        sink.poison("b")
        if self.pieces == 1:
            source.fill_large("b", seed, self.size)
        else:
            source.fill_rows("b", seed, rows[0], self.size)
        pair.initiator.move(op, *self.lists(pair), "target")
        if self.pieces == 1:
            sink.check_large("b", seed, self.size)
        else:
            sink.check_rows("b", seed, rows[1], self.size)


def permuted(count, step):
    """0..count-1 in an order in which no two neighbours follow each other."""
    while any(count % d == 0 and step % d == 0 for d in range(2, step + 1)):
        step += 1
    return [i * step % count for i in range(count)]


class Figures:
    """All samples of one backend, operation and point."""

    def __init__(self):
        self.times, self.posts, self.cpu, self.bytes = [], [], 0.0, 0

    def add(self, times, posts, cpu, moved):
        self.times += times
        self.posts += posts
        self.cpu += cpu
        self.bytes += moved

    def record(self, point_bytes):
        ordered = sorted(self.times)
        median = statistics.median(ordered)
        return {"iters": len(ordered), "median_us": median * 1e6,
                "p99_us": ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))] * 1e6,
                "gb_per_s": point_bytes / median / 1e9,
                "cpu_s_per_gb": self.cpu / max(self.bytes, 1) * 1e9,
                "post_us": statistics.median(self.posts) * 1e6, "post_us_max": max(self.posts) * 1e6}


def turn(pair, point, arguments, verify, into):
    """One backend's turn at one point."""
    pair.open(point.space)
    try:
        for op in arguments.ops:
            measure_op(pair, point, op, arguments, verify, into[op])
    finally:
        pair.close()


def measure_op(pair, point, op, arguments, verify, figures):
    if verify:
        point.verify(pair, op)
    least = 3 if point.bytes >= 256 * MIB else 5
    before = pair.target.cpu_seconds()
    if arguments.notify:
        pair.target.order("count_messages", arguments.poll)
    times, posts, cpu = pair.initiator.measure(op, *point.lists(pair), "target", arguments.seconds, least,
                                               arguments.poll, b"done" if arguments.notify else b"")
    if arguments.notify:
        seen, sent = pair.target.answer(), len(times) + WARM_UP
        if seen != sent:
            sys.exit(f"nixl_bench.py: {pair.backend}: {seen} notifications arrived, {sent} were sent")
    cpu += pair.target.cpu_seconds() - before
    figures.add(times, posts, cpu, point.bytes * (len(times) + WARM_UP))


def measure_point(pairs, point, arguments):
    """{backend: {op: Figures}}; the backends take turns, each round another one first."""
    figures = {pair.backend: {op: Figures() for op in arguments.ops} for pair in pairs}
    for number in range(arguments.rounds):
        order = pairs if number % 2 == 0 else pairs[::-1]
        for pair in order:
            turn(pair, point, arguments, number == 0 and not arguments.no_verify, figures[pair.backend])
    return figures


# ---- compare -------------------------------------------------------------------------------------

def bar(op, point):
    """What the project demands of the ratio of medians."""
    if point.pieces > 1:
        return 2.0 if point.size == 16 * KIB else 1.0
    return 2.0 if op == "READ" and point.size >= MIB else 1.0


def points_of(arguments):
    sizes = QUICK_SIZES if arguments.quick else FULL_SIZES
    pieces = QUICK_PIECES if arguments.quick else FULL_PIECES
    if arguments.sizes:
        sizes = [parse_size(text) for text in arguments.sizes.split(",")]
    if arguments.pieces is not None:
        pieces = [parse_size(text) for text in arguments.pieces.split(",")]
    return [Point(size) for size in sizes] + [Point(size, BATCH) for size in pieces if size]


def compare(pairs, arguments):
    records = []
    ours, other = (arguments.backends + [None])[:2]
    head = f"{'op':6}{'size':>12} |{ours + ' us':>10}{'p99':>9}{'GB/s':>7}{'cpu':>8} |"
    if other:
        head += f"{other + ' us':>10}{'p99':>9}{'GB/s':>7}{'cpu':>8} |{'ratio':>7}{'p99':>7}{'bar':>5}"
    print(head, flush=True)
    for point in points_of(arguments):
        figures = measure_point(pairs, point, arguments)
        for op in arguments.ops:
            record = {"op": op, "bytes": point.bytes, "pieces": point.pieces,
                      "backends": {name: of[op].record(point.bytes) for name, of in figures.items()}}
            line = f"{op:6}{point.name():>12} |" + columns(record["backends"][ours])
            if other:
                mine, theirs = record["backends"][ours], record["backends"][other]
                record["ratio"] = theirs["median_us"] / mine["median_us"]
                record["ratio_p99"] = theirs["p99_us"] / mine["p99_us"]
                record["bar"] = bar(op, point)
                record["bar_met"] = record["ratio"] >= record["bar"] and record["ratio_p99"] >= 1
                line += columns(theirs) + (f"{record['ratio']:7.2f}{record['ratio_p99']:7.2f}"
                                           f"{record['bar']:5.1f}{'' if record['bar_met'] else '  below'}")
            records.append(record)
            print(line, flush=True)
    return records


def columns(record):
    return (f"{record['median_us']:10.1f}{record['p99_us']:9.0f}{record['gb_per_s']:7.2f}"
            f"{record['cpu_s_per_gb']:8.2f} |")


# ---- beside the library --------------------------------------------------------------------------

def library_figures(arguments, sizes):
    """{(op, bytes): seconds} of `tcpx bench`, the same path and the same option values."""
    command = [arguments.tcpx, "bench", "--loopback", "--json", "--op", ",".join(arguments.ops).lower(),
               "--size", ",".join(size_name(size) for size in sizes), "--baseline", "none",
               "--require-path", arguments.path, "--duration", f"{int(arguments.seconds * 1000)}ms"]
    if arguments.path == "net":
        command += ["--net-plugin", arguments.net_plugin]
    for item in arguments.param:
        name, value = item.split("=", 1)
        command += ["--" + name.replace("_", "-"), value]
    output = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True,
                            timeout=600).stdout
    return {(record["op"].upper(), record["bytes"]): record["latency_us"]["p50"] / 1e6
            for record in json.loads(output)["records"]}


def c_library():
    """NIXL's C functions, which the wheel brings. None: another wheel."""
    found = sorted(pathlib.Path(sys.prefix, "lib").glob("python*/site-packages/.nixl*/libnixl_capi.so"))
    return found[0] if found else None


def c_figures(pair, arguments, sizes):
    """{(op, bytes): seconds} of the same transfers from a C++ program; as `tcpx bench`, one process after another."""
    command = [arguments.nixl_c, str(c_library()), pair.backend, ",".join(arguments.ops),
               ",".join(map(str, sizes)), str(arguments.seconds), *(f"{k}={v}" for k, v in pair.params.items())]
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            env={**os.environ, **pair.environment}, timeout=600)
    if result.returncode != 0:
        sys.exit(f"nixl_bench.py: {arguments.nixl_c}: {result.stderr.strip().splitlines()[-1:]}")
    lines = [line.split() for line in result.stdout.splitlines() if line.startswith(tuple(arguments.ops))]
    return {(op, int(size)): float(us) / 1e6 for op, size, us in lines}


def python_figures(pair, arguments, points, verify):
    """{(op, bytes): seconds} of fresh agents that go through all points."""
    taken = {}
    pair.open(max(point.space for point in points))
    try:
        for op in arguments.ops:
            for point in points:
                figures = Figures()
                measure_op(pair, point, op, arguments, verify, figures)
                taken[op, point.bytes] = statistics.median(figures.times)
    finally:
        pair.close()
    return taken


def beside_library(pairs, arguments):
    """Fresh memory and connections are 10 % faster or slower for as long as they live: all have new ones in each
    round, and what counts is the median of the rounds' medians. What a connection has carried before matters as
    much (16M over one that has seen 4K and 1M: 2.0 ms, over a new one 2.5), so all go through the same points in
    the same order. The bar is for NIXL, by its C functions; what the interpreter adds shows beside it."""
    sizes = [parse_size(text) for text in arguments.sizes.split(",")] if arguments.sizes else LIBRARY_SIZES
    points = [Point(size) for size in sizes]
    turns = {"tcpx": lambda number: library_figures(arguments, sizes),
             "c": lambda number: c_figures(pairs[0], arguments, sizes),
             "python": lambda number: python_figures(pairs[0], arguments, points,
                                                     number == 0 and not arguments.no_verify)}
    judged = "c" if c_library() and pathlib.Path(arguments.nixl_c).exists() else "python"
    if judged == "python":
        print("nixl_bench.py: no libnixl_capi.so in this wheel, or no tcpx_nixl_c: the bar is for Python", file=sys.stderr)
        del turns["c"]
    seen = {who: {(op, size): [] for op in arguments.ops for size in sizes} for who in turns}
    for number in range(arguments.rounds):
        for who, measure in turns.items():
            for key, seconds in measure(number).items():
                seen[who][key].append(seconds)
    print(f"{'op':6}{'size':>8} |{'tcpx us':>10}{'GB/s':>7} |" +
          "".join(f"{'NIXL, ' + who + ' us':>16}{'ratio':>7} |" for who in turns if who != "tcpx") +
          f" bar 0.95, {judged}")
    records = []
    for point in points:
        for op in arguments.ops:
            us = {who: statistics.median(of[op, point.bytes]) * 1e6 for who, of in seen.items()}
            record = {"op": op, "bytes": point.bytes, "pieces": 1, "us": us,
                      "ratios": {who: us["tcpx"] / us[who] for who in us if who != "tcpx"}, "judged": judged, "bar": 0.95}
            record["ratio"] = record["ratios"][judged]
            record["bar_met"] = record["ratio"] >= record["bar"]
            records.append(record)
            print(f"{op:6}{point.name():>8} |{us['tcpx']:10.1f}{point.bytes / us['tcpx'] / 1e3:7.2f} |" +
                  "".join(f"{us[who]:16.1f}{ratio:7.2f} |" for who, ratio in record["ratios"].items()) +
                  ("" if record["bar_met"] else " below"), flush=True)
    return records


# ---- many descriptors ----------------------------------------------------------------------------

def many(pairs, arguments):
    count = 5000 if arguments.quick else MANY
    scattered, contiguous = Point(MANY_PIECE, count), Point(MANY_PIECE * count)
    records = []
    print(f"{'op':6}{'descriptors':>16} |{'post ms':>8}{'max':>7} |{'GB/s':>7}{'contiguous':>11} |{'ratio':>6}"
          f"  bar 0.8, post < {POST_LIMIT_MS} ms")
    for pair in pairs:
        both = [{op: Figures() for op in arguments.ops} for _ in range(2)]
        for number in range(arguments.rounds):
            for point, into in zip((scattered, contiguous), both):
                turn(pair, point, arguments, number == 0 and not arguments.no_verify, into)
        for op in arguments.ops:
            pieces, one = (figures[op].record(scattered.bytes) for figures in both)
            record = {"op": op, "bytes": scattered.bytes, "pieces": count, "backends": {pair.backend: pieces},
                      "contiguous_gb_per_s": one["gb_per_s"], "ratio": pieces["gb_per_s"] / one["gb_per_s"],
                      "bar": 0.8}
            record["bar_met"] = record["ratio"] >= 0.8 and pieces["post_us"] < POST_LIMIT_MS * 1000
            records.append(record)
            print(f"{op:6}{scattered.name():>16} |{pieces['post_us'] / 1000:8.2f}{pieces['post_us_max'] / 1000:7.1f} |"
                  f"{pieces['gb_per_s']:7.2f}{one['gb_per_s']:11.2f} |{record['ratio']:6.2f}"
                  f"{'' if record['bar_met'] else '  below'}", flush=True)
    return records


# ---- main ----------------------------------------------------------------------------------------

def make_pairs(harness, arguments, cuda):
    pairs = []
    for backend in arguments.backends:
        environment = {"UCX_TLS": "tcp,cuda_copy" if cuda else "tcp",
                       **dict(item.split("=", 1) for item in arguments.ucx)}
        params = {}
        if backend != "UCX":
            plugin = pathlib.Path(arguments.plugin_dir, f"libplugin_{backend}.so")
            if not plugin.exists():
                sys.exit(f"nixl_bench.py: there is no {plugin}")
            environment = {"NIXL_PLUGIN_DIR": str(plugin.resolve().parent)}
            params = {"require_path": arguments.path}
            if arguments.path == "net":
                environment["NCCL_GPUDIRECTTCPX_SOCKET_IFNAME"] = "lo"
                params["net_plugin"] = arguments.net_plugin
            if arguments.mode == "library":
                params["interfaces"] = "lo"  # what the command takes for --loopback
            params.update(item.split("=", 1) for item in arguments.param)
        pairs.append(Pair(harness, backend, environment, params, not arguments.no_progress_thread, cuda))
    return pairs


def nixl_version():
    import importlib.metadata
    try:
        return importlib.metadata.version("nixl")
    except importlib.metadata.PackageNotFoundError:
        return "?"


def main():
    arguments = parse_arguments()
    into_venv(arguments.venv)
    cuda = ()  # what a side wants to know of it
    if arguments.memory != "host":
        library = os.environ.get("TCPX_TEST_CUDA_LIBRARY", "libcuda.so.1")
        cuda = ("cuda", library, int(arguments.memory.partition(":")[2] or 0))
    for name in list(os.environ):
        if name.startswith(("TCPX_", "UCCL_TCPX_", "NCCL_", "NIXL_", "UCX_")):
            del os.environ[name]
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    os.environ.setdefault("NIXL_LOG_LEVEL", "ERROR")
    sys.path.insert(0, str(TESTS))
    import harness
    import logging
    logging.disable(logging.INFO)  # a line per agent would drown the table
    pairs = make_pairs(harness, arguments, cuda)
    print(f"NIXL {nixl_version()}, memory {arguments.memory}, {os.cpu_count()} cores, {platform.release()}; "
          f"{arguments.rounds} turns of {arguments.seconds} s per backend, size and operation; "
          f"{'not verified' if arguments.no_verify else 'content verified'}"
          f"{', a notification with every transfer' if arguments.notify else ''}")
    records, code = [], 0
    try:
        mode = {"compare": compare, "library": beside_library, "many": many}[arguments.mode]
        records = mode(pairs, arguments)
    except harness.Failure as error:
        print(f"nixl_bench.py: {error}", file=sys.stderr)
        code = EXIT_WRONG_BYTES
    finally:
        for pair in pairs:
            pair.end()
    missed = sum(not record.get("bar_met", True) for record in records)
    if any("bar" in record for record in records):
        print(f"{len(records) - missed} of {len(records)} points meet their bar")
    if arguments.json:
        document = {"schema": 1, "mode": arguments.mode, "nixl": nixl_version(), "cores": os.cpu_count(),
                    "path": arguments.path, "memory": arguments.memory, "ucx": arguments.ucx, "params": arguments.param, "poll": arguments.poll,
                    "notify": arguments.notify, "gb": 10**9,
                    "records": records}
        text = json.dumps(document, indent=1) + "\n"
        if arguments.json == "-":
            print(text, end="")
        else:
            pathlib.Path(arguments.json).write_text(text)
    return code or (EXIT_BELOW_BARS if arguments.check and missed else 0)


if __name__ == "__main__":
    sys.exit(main())
