#!/usr/bin/env python3
"""GPU memory beside its ceilings, one table: every row with what it is compared to in the same run, its bar, ok or LOW.

  gpu_bench.py BUILD [SECTION...] [--small] [--turns N] [--json FILE]

SECTIONs, each within about two minutes; without one the first four:
  rates       VRAM -> VRAM, 64 MiB and 1 GiB, 1, 4, 8 lanes: host memory, raw TCP, a naive pinned ring; READ / WRITE; CPU
  latency     4 KiB
  pieces      1024 x 16 KiB, 50,000 x 16 KiB, 112,000 x 45 KB scattered; the time of post
  neighbours  held SMs, cudaMalloc in another thread, GEMM, both ways, a stopped peer, two pairs, CUDA beside host memory
  nccl        256 MiB beside NCCL's Socket transport (PyTorch's)
  nixl        under NIXL beside UCX_TLS=tcp,cuda_copy (a NIXL that Python finds, or build/deps/nixl)
  sockets     microseconds in send() and recv() for chunks in ordinary memory and in memory that a GPU writes and reads
--small: sizes and times for trying it out, on the CUDA driver of the tests (TCPX_TEST_CUDA_LIBRARY).
"""
import argparse
import glob
import json
import os
import pathlib
import statistics
import subprocess
import sys
import sysconfig
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
SECTIONS = ("rates", "latency", "pieces", "neighbours", "nccl", "nixl", "sockets")
UNLESS_TOLD = SECTIONS[:4]
PATIENCE = 240  # seconds, for one program


class Trouble(Exception):
    """A program that failed; the section goes on without its rows."""


class Table:
    """Rows as they are measured; printed as one at the end."""
    HEADS = ("section", "what", "seen", "ceiling in the same run", "ratio", "bar", "")

    def __init__(self):
        self.rows, self.section = [], ""

    def add(self, what, seen, ceiling="", ratio="", bar="", verdict="", **figures):
        self.rows.append({"section": self.section, "what": what, "seen": seen, "ceiling": ceiling, "ratio": ratio,
                          "bar": bar, "verdict": verdict, **figures})
        print("  " + "  ".join(filter(None, (what + ":", seen, ceiling, ratio, bar, verdict))), file=sys.stderr, flush=True)

    def least(self, what, seen, ceiling_name, ceiling, bar, unit="GB/s", note=""):
        """More is better."""
        ratio = seen / ceiling if ceiling else 0
        self.add(what, f"{seen:.2f} {unit}{note}", f"{ceiling_name} {ceiling:.2f}", f"{ratio:.3f}", f">= {bar:g}",
                 "ok" if ratio >= bar else "LOW", value=seen, ceiling_value=ceiling)

    def most(self, what, seen, ceiling_name, ceiling, bar, unit):
        """Less is better."""
        ratio = seen / ceiling if ceiling else float("inf")
        self.add(what, f"{seen:.3f} {unit}", f"{ceiling_name} {ceiling:.3f}", f"{ratio:.3f}", f"<= {bar:g}",
                 "ok" if ratio <= bar else "LOW", value=seen, ceiling_value=ceiling)

    def show(self):
        cells = [self.HEADS] + [tuple(row[name] for name in ("section", "what", "seen", "ceiling", "ratio", "bar", "verdict"))
                                for row in self.rows]
        widths = [max(len(line[i]) for line in cells) for i in range(len(self.HEADS))]
        for line in cells:
            print("  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip())
        counts = {word: sum(row["verdict"] == word for row in self.rows) for word in ("ok", "LOW", "FAILED", "skipped")}
        print(", ".join(f"{count} {word}" for word, count in counts.items() if count) or "nothing was measured")
        return counts["LOW"] + counts["FAILED"]


# ---- programs ------------------------------------------------------------------------------------

def run(command, patience=PATIENCE, env=None, accept=(0,)):
    """What it prints. A program that hangs is ended."""
    command = [str(part) for part in command]
    began = time.monotonic()
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=patience,
                              env=env)
    except subprocess.TimeoutExpired:
        raise Trouble(f"{pathlib.Path(command[0]).name}: not done after {patience} s") from None
    if done.returncode not in accept:
        words = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:] or ["nothing said"]
        raise Trouble(f"{pathlib.Path(command[0]).name} ended with {done.returncode}: {words[0][:300]}")
    if done.returncode != 0:
        print(done.stderr[-2000:], file=sys.stderr)
    print(f"  [{time.monotonic() - began:.0f} s] {' '.join(command)[-150:]}", file=sys.stderr, flush=True)
    return done.stdout


class Bench:
    def __init__(self, arguments):
        self.build, self.small = pathlib.Path(arguments.build), arguments.small
        self.turns = arguments.turns
        self.table = Table()

    def command(self, memory, sizes, lanes, *more, ops="write,read", raw=False, ms=500, rounds=3):
        return [self.build / "tools/tcpx", "bench", "--loopback", "--json", "--memory", memory, "--size",
                ",".join(map(str, sizes)), "--lanes", lanes, "--op", ops, "--baseline", "raw" if raw else "none",
                "--duration", f"{20 if self.small else ms}ms", "--rounds", rounds, *more]

    def tcpx(self, *command, **more):
        """{(op, bytes): record} of one run of the command; content is checked by it."""
        return records_of(run(self.command(*command, **more)))

    def attempt(self, what, part, *arguments):
        """What fails is a row, and the rest goes on."""
        try:
            part(self, *arguments)
        except (Trouble, KeyError, ValueError, OSError) as trouble:
            words = str(trouble) if isinstance(trouble, Trouble) else f"{type(trouble).__name__}: {trouble}"
            self.table.add(what, words, verdict="FAILED")

    def in_turns(self, kinds, measure):
        """{kind: [result of each turn]}; every other turn begins with the other kind."""
        out = {kind: [] for kind in kinds}
        for turn in range(self.turns):
            for kind in kinds if turn % 2 == 0 else kinds[::-1]:
                out[kind].append(measure(kind))
        return out


def machine():
    """What figures of another machine may differ by."""
    def read(path, found=lambda text: text.strip()):
        try:
            return found(pathlib.Path(path).read_text())
        except (OSError, IndexError):
            return "?"
    model = read("/proc/cpuinfo", lambda text: text.split("model name")[1].split(":")[1].splitlines()[0].strip())
    cache = read("/sys/devices/system/cpu/cpu0/cache/index3/size")
    shared_by = read("/sys/devices/system/cpu/cpu0/cache/index3/shared_cpu_list")
    nodes = read("/sys/devices/system/node/online")
    return (f"{model}, {os.cpu_count()} CPUs, L3 {cache} for CPUs {shared_by}, NUMA nodes {nodes}, Linux {os.uname().release}, "
            f"driver {read('/sys/module/nvidia/version')}")


def records_of(text):
    return {(record["op"], record["bytes"]): record for record in json.loads(text)["records"]}


def middle(turns, key, figure):
    return statistics.median(figure(records[key]) for records in turns)


def rate(record):
    return record["gb_per_s"]["median"]


def cpu(record):
    return record["cpu_s_per_gb"]


def size_name(size):
    for unit, name in ((GIB, "G"), (MIB, "M"), (KIB, "K")):
        if size % unit == 0:
            return f"{size // unit}{name}"
    return str(size)


# ---- sections ------------------------------------------------------------------------------------

def rates(bench):
    sizes = (4 * MIB, 16 * MIB) if bench.small else (64 * MIB, GIB)
    ring = {}
    bench.attempt("naive ring", ring_figures, sizes, ring)
    for lanes in (1, 4, 8):
        bench.attempt(f"{lanes} lanes", rates_of, sizes, lanes, ring)


def rates_of(bench, sizes, lanes, ring):
    seen = bench.in_turns(("cuda", "host"), lambda kind: bench.tcpx(kind, sizes, lanes, raw=kind == "cuda"))
    for size in sizes:
        for op in ("write", "read"):
            rate_rows(bench.table, seen, ring.get((op, size, lanes)), op, size, lanes)
        name = f"READ / WRITE {size_name(size)}, {lanes} lane{'s' * (lanes > 1)}"
        write, read = (middle(seen["cuda"], (op, size), rate) for op in ("write", "read"))
        bench.table.add(name, f"{read:.2f} GB/s", f"WRITE {write:.2f}", f"{read / write:.3f}", "0.95 to 1.05",
                        "ok" if 0.95 <= read / write <= 1.05 else "LOW")


def rate_rows(table, seen, ring, op, size, lanes):
    ours, host = seen["cuda"], seen["host"]
    name = f"{op.upper()} {size_name(size)}, {lanes} lane{'s' * (lanes > 1)}"
    fast, slow = middle(ours, (op, size), rate), middle(host, (op, size), rate)
    table.least(name, fast, "host memory", slow, 0.95)
    table.least(name, fast, "raw TCP", middle(ours, (op, size), lambda record: record["raw_gb_per_s"]), 0.85)
    spent, host_spent = middle(ours, (op, size), cpu), middle(host, (op, size), cpu)
    if ring:
        table.least(name, fast, f"naive ring of {size_name(ring['chunk'])}", ring["gb_per_s"], 1.0)
        table.most(name, spent, "CPU of the ring", ring["cpu_s_per_gb"], 1.0, "CPU s/GB")
    table.most(name, spent, "CPU, host memory", host_spent, 1.15, "CPU s/GB")


def ring_figures(bench, sizes, best):
    """Into `best`: {(op, bytes, lanes): the better chunk's document}"""
    command = [bench.build / "bench/tcpx_gpu_ring", "--lanes", "1,4,8", "--sizes", ",".join(map(str, sizes)),
               "--chunks", "512K,4M", "--seconds", 0.05 if bench.small else 0.4]
    for line in run(command).splitlines():
        record = json.loads(line)
        key = record["op"], record["bytes"], record["lanes"]
        if record["gb_per_s"] > best.get(key, record)["gb_per_s"] or key not in best:
            best[key] = record


def latency(bench):
    turns = bench.turns
    bench.turns = max(3, turns)
    size = 4 * KIB
    seen = bench.in_turns(("cuda", "host"), lambda kind: bench.tcpx(kind, (size,), 1, ms=600, rounds=5))
    bench.turns = turns
    for op in ("write", "read"):
        median, host = (middle(seen[kind], (op, size), lambda record: record["latency_us"]["p50"])
                        for kind in ("cuda", "host"))
        worst = middle(seen["cuda"], (op, size), lambda record: record["latency_us"]["p99"])
        bench.table.add(f"{op.upper()} 4K, median", f"{median:.1f} us", f"host memory {host:.1f}", f"+{median - host:.1f} us",
                        "<= +18 us", "ok" if median <= host + 18 else "LOW")
        bench.table.add(f"{op.upper()} 4K, p99", f"{worst:.1f} us", f"its median {median:.1f}", f"{worst / median:.2f}", "<= 3",
                        "ok" if worst <= 3 * median else "LOW")
    for memory in ("cuda,host", "host,cuda"):
        one = bench.tcpx(memory, (size,), 1, ms=300)
        for op in ("write", "read"):
            record = one[op, size]
            bench.table.add(f"{op.upper()} 4K, {memory}", f"{record['latency_us']['p50']:.1f} us", "", "", "",
                            p99=record["latency_us"]["p99"])


def pieces(bench):
    lanes = 4
    plans = ((1024, 16 * KIB), (50_000, 16 * KIB), (112_000, 45_000))
    if bench.small:
        plans = ((64, 16 * KIB), (500, 16 * KIB))
    for count, piece in plans:
        bench.attempt(f"{count:,} x {size_name(piece)}", pieces_of, count, piece, lanes)


def pieces_of(bench, count, piece, lanes):
    size = count * piece
    ms, rounds = (500, 3) if size < GIB else (1500, 2)
    # Kernels of two processes take turns on a GPU, those of one do not; a peer has a GPU of its own.
    # The whole has been checked by other rows; pieces are, with every gap between them.
    whole = bench.tcpx("cuda", (size,), lanes, "--one-process", "--no-verify", ms=ms, rounds=rounds)
    cut = bench.tcpx("cuda", (size,), lanes, "--one-process", "--pieces", count, ms=ms, rounds=rounds)
    for op in ("write", "read"):
        name = f"{op.upper()} {count:,} x {size_name(piece)}"
        record = cut[op, size]
        bench.table.least(name, rate(record), "contiguous", rate(whole[op, size]), 0.8)
        longest, usual = record["post_us"]["max"] / 1e3, record["post_us"]["p50"] / 1e3
        bench.table.add(f"{name}: post", f"{usual:.2f} ms, longest {longest:.2f}", "", "", "< 20 ms",
                        "ok" if longest < 20 else "LOW")


def neighbours(bench):
    bench.attempt("neighbours", beside_neighbours)
    bench.attempt("two pairs of processes", two_pairs)


def beside_neighbours(bench):
    command = [bench.build / "bench/tcpx_gpu_neighbours", "--bytes", "4M" if bench.small else "64M", "--seconds",
               0.2 if bench.small else 1]
    library = find_library("libcublas.so.*")
    if library:
        command += ["--cublas", library]
    for line in run(command, accept=(0, 1)).splitlines():
        neighbour_row(bench.table, json.loads(line))


def neighbour_row(table, row):
    if "skipped" in row:
        table.add(row["name"], row["skipped"], verdict="skipped")
    elif "receipt" in row:
        waits = {name: value for name, value in flat(row["receipt"]) if "gpu" in name or "wait" in name}
        table.add(row["name"], ", ".join(f"{name} {value}" for name, value in waits.items()) or "nothing about a wait",
                  bar="names the wait", verdict="ok" if waits else "LOW")
    elif "ceiling" in row:
        table.least(row["name"], row["seen"], row["ceiling_name"], row["ceiling"], row["least"],
                    unit="/s" if "GEMM" in row["name"] else "GB/s", note=f"; {row['note']}" if row["note"] else "")
    else:
        table.add(row["name"], row["note"], verdict="ok" if row["ok"] else "FAILED")


def flat(document, front=""):
    """(name, value) of everything inside that is no list."""
    for name, value in (document or {}).items():
        if isinstance(value, dict):
            yield from flat(value, f"{front}{name}.")
        elif not isinstance(value, list):
            yield front + name, value


def two_pairs(bench):
    """Two benches at the same time on one GPU, four processes: each checks its content."""
    size = 4 * MIB if bench.small else 64 * MIB
    command = [str(part) for part in bench.command("cuda", (size,), 4, ms=3000)]
    alone = bench.tcpx("cuda", (size,), 4, ms=1000)
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) for _ in range(2)]
    try:
        both = [records_of(process.communicate(timeout=PATIENCE)[0]) for process in running]
    except (subprocess.TimeoutExpired, ValueError, KeyError) as error:
        raise Trouble(f"two benches at once: {error}") from None
    finally:
        for process in running:
            process.kill()
    for op in ("write", "read"):
        together = sum(rate(records[op, size]) for records in both)
        bench.table.least(f"two pairs of processes, {op.upper()}, sum", together, "one pair", rate(alone[op, size]), 0.9,
                          note="; content right")


def find_library(name):
    """PyTorch's, else CUDA's. None: there is none."""
    folders = [sysconfig.get_paths()["purelib"], *sys.path]
    places = [f"{folder}/nvidia/*/lib/{name}" for folder in folders if folder] + [f"/usr/local/cuda/lib64/{name}"]
    for place in places:
        found = sorted(glob.glob(place))
        if found:
            return found[-1]
    return None


def nccl(bench):
    size = 256 * MIB
    output = run([sys.executable, ROOT / "bench/gpu_nccl.py", "--bytes", size], accept=(0, 77))
    settings = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    good = [one for one in settings if "gb_per_s" in one]
    if not good:
        return bench.table.add("256M beside NCCL Socket", settings[-1].get("error", "?") if settings else "no GPU, or no PyTorch",
                               verdict="skipped")
    for one in settings:
        bench.table.add(f"NCCL Socket, {one['sockets']} sockets x {one['threads']} threads",
                        f"{one['gb_per_s']:.2f} GB/s" if one in good else one["error"])
    best = max(good, key=lambda one: one["gb_per_s"])
    ours = {lanes: bench.tcpx("cuda", (size,), lanes, ms=800) for lanes in (4, 8)}
    for op in ("write", "read"):
        lanes = max(ours, key=lambda lanes: rate(ours[lanes][op, size]))
        bench.table.least(f"{op.upper()} 256M, {lanes} lanes", rate(ours[lanes][op, size]), "NCCL Socket, best setting",
                          best["gb_per_s"], 2.5)


def nixl_bar(record, tuned):
    """What is demanded of the ratio of times."""
    if record["pieces"] > 1:
        return 20
    if tuned:
        return 5
    return 1 if record["bytes"] < MIB else 15 if record["bytes"] < 16 * MIB else 20


def nixl(bench):
    env = dict(os.environ)
    # UCX's hooks of CUDA calls want the runtime, which PyTorch brings.
    runtime = find_library("libcudart.so.13")
    if runtime:
        env["LD_LIBRARY_PATH"] = os.pathsep.join([os.path.dirname(runtime), *filter(None, [env.get("LD_LIBRARY_PATH")])])
    carried = ROOT / "build/deps/nixl"
    if carried.exists():
        env["PYTHONPATH"] = os.pathsep.join([str(carried), *filter(None, [env.get("PYTHONPATH")])])
    # The slow ones of UCX take seconds each, so the longest is measured once.
    plans = [("UCX tcp", ["--sizes", "4K,64K,1M,16M,64M", "--pieces", "16K", "--rounds", "2", "--seconds", "0.3"], False),
             ("UCX tcp", ["--sizes", "1G", "--pieces", "0", "--rounds", "1", "--seconds", "0.1"], False),
             ("UCX tcp, 512k segments", ["--sizes", "16M,64M", "--pieces", "0", "--rounds", "2", "--seconds", "0.3", "--ucx",
                                         "UCX_TCP_TX_SEG_SIZE=512k", "--ucx", "UCX_TCP_RX_SEG_SIZE=512k"], True)]
    if bench.small:
        plans = [("UCX tcp", ["--sizes", "4K,1M", "--pieces", "16K", "--rounds", "1", "--seconds", "0.05", "--backends", "TCPX"],
                  False)]
    for name, more, tuned in plans:
        bench.attempt(f"beside {name}", nixl_of, more, env, name, tuned)


def nixl_of(bench, more, env, name, tuned):
    output = run([sys.executable, ROOT / "bench/nixl_bench.py", "--memory", "cuda", "--json", "-", "--plugin-dir",
                  bench.build / "plugins/nixl", *more], env=env)
    for record in json.loads(output[output.index('{\n "schema"'):])["records"]:
        nixl_row(bench.table, record, name, tuned)


def nixl_row(table, record, name, tuned):
    ours = record["backends"]["TCPX"]
    count = record["pieces"]
    what = f"{record['op']} {f'{count} x ' if count > 1 else ''}{size_name(record['bytes'] // count)}"
    seen = f"{ours['median_us']:.1f} us, {ours['gb_per_s']:.2f} GB/s"
    if "ratio" not in record:
        return table.add(what, seen)
    theirs, bar = record["backends"]["UCX"], nixl_bar(record, tuned)
    return table.add(what, seen, f"{name} {theirs['median_us']:.1f} us, {theirs['gb_per_s']:.2f}", f"{record['ratio']:.2f}",
                     f"{'>' if bar == 1 else '>='} {bar}", "ok" if record["ratio"] >= bar else "LOW")


def sockets(bench):
    more = ("--lanes", "1,2", "--slots", "1,4", "--seconds", 0.05) if bench.small else ("--seconds", 0.15)
    for chunk in ("512K",) if bench.small else ("512K", "2M"):
        bench.attempt(f"chunks of {chunk}", sockets_of, chunk, more)


def sockets_of(bench, chunk, more):
    for line in run([bench.build / "bench/tcpx_gpu_sockets", "--chunk", chunk, *more]).splitlines():
        one = json.loads(line)
        waits = one["send_gpu_us"], one["recv_gpu_us"]
        bench.table.add(f"{one['kind']}, {one['lanes']} lane{'s' * (one['lanes'] > 1)}, {one['slots']} slot{'s' * (one['slots'] > 1)} of {chunk}",
                        f"{one['gb_per_s']:.2f} GB/s, a chunk: send {one['send_us']:.0f} us, recv {one['recv_us']:.0f}",
                        f"waits for the GPU {waits[0]:.0f} / {waits[1]:.0f} us" if any(waits) else "", **one)


# ---- main ----------------------------------------------------------------------------------------

def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", help="folder with tools/tcpx and bench/")
    parser.add_argument("sections", nargs="*", metavar="SECTION")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--turns", type=int, default=1, help="of each point of `rates`; figures are their medians")
    parser.add_argument("--json", metavar="FILE")
    arguments = parser.parse_intermixed_args()
    unknown = set(arguments.sections) - set(SECTIONS)
    if unknown:
        parser.error(f"unknown section {', '.join(sorted(unknown))}; there are {', '.join(SECTIONS)}")
    bench = Bench(arguments)
    bench.table.add("machine", machine())
    for name in arguments.sections or UNLESS_TOLD:
        bench.table.section = name
        began = time.monotonic()
        print(f"== {name}", file=sys.stderr, flush=True)
        bench.attempt(name, globals()[name])
        print(f"== {name}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
        if arguments.json:  # after each: the time on such a machine may end before the last
            pathlib.Path(arguments.json).write_text(json.dumps(bench.table.rows, indent=1) + "\n")
    return 1 if bench.table.show() else 0


if __name__ == "__main__":
    sys.exit(main())
