#!/usr/bin/env python3
"""A client in a control group that gives it few CPUs, beside a server with a group of its own: rates beside raw TCP's.

  container.py TCPX [--cpus 2] [--size 4K,1M,16M,64M] [--lanes 1,2,4] [--runs 3] [--duration 2s] [--least 0.8]

Both in network namespaces of their own with a veth pair between them where that can be had (root, iproute2), else over
loopback. The limit is the quota of cgroup v2 (cpu.max) or v1 (cpu.cfs_quota_us), so that both may run on any core.
raw runs in the same processes, under the same limit. Rounds (a fifth of --duration) are several of the limit's periods of 100 ms: within one,
what uses more CPUs than it may runs on credit. Exits with 1 if a point lies below --least, 77 without control groups.
"""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

PERIOD_US = 100000
NAMES = ("tcpxa", "tcpxb")


def quota_group(name, cpus):
    """A control group's folder, or None where none can be made."""
    for root, settings in (("/sys/fs/cgroup", {"cpu.max": f"{cpus * PERIOD_US} {PERIOD_US}"}),
                           ("/sys/fs/cgroup/cpu", {"cpu.cfs_period_us": f"{PERIOD_US}",
                                                   "cpu.cfs_quota_us": f"{cpus * PERIOD_US}"})):
        if not os.path.exists(f"{root}/cgroup.procs"):
            continue
        folder = f"{root}/tcpx-bench-{os.getpid()}-{name}"
        try:
            if "cpu.max" in settings:
                with open(f"{root}/cgroup.subtree_control", "w") as control:
                    control.write("+cpu")
            os.mkdir(folder)
            for file, value in settings.items():
                with open(f"{folder}/{file}", "w") as setting:
                    setting.write(value)
            return folder
        except OSError as error:
            print(f"{root}: {error}", file=sys.stderr)
    return None


def ip(*arguments):
    subprocess.run(["ip", *arguments], check=True, stdout=subprocess.DEVNULL)


def make_namespaces():
    """Commands to run in front of each side's, and the server's address."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        return [[], []], "127.0.0.1"
    try:
        for name in NAMES:
            subprocess.run(["ip", "netns", "del", name], stderr=subprocess.DEVNULL)
            ip("netns", "add", name)
        ip("link", "add", "veth0", "netns", NAMES[0], "type", "veth", "peer", "name", "veth0", "netns", NAMES[1])
        for number, name in enumerate(NAMES):
            ip("-n", name, "addr", "add", f"10.77.0.{number + 1}/24", "dev", "veth0")
            ip("-n", name, "link", "set", "veth0", "up")
            ip("-n", name, "link", "set", "lo", "up")
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"no namespaces, over loopback: {error}", file=sys.stderr)
        return [[], []], "127.0.0.1"
    return [["ip", "netns", "exec", name] for name in NAMES], "10.77.0.1"


def one_run(tcpx, arguments, lanes, fronts, address, folder, key):
    def enter():
        with open(f"{folder}/cgroup.procs", "w") as procs:
            procs.write(str(os.getpid()))
    listen = f"{address}:20077"
    server = subprocess.Popen(fronts[0] + [tcpx, "bench", "--listen", listen, "--auth-key-file", key],
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        time.sleep(0.5)
        text = subprocess.run(fronts[1] + [tcpx, "bench", "--connect", listen, "--auth-key-file", key, "--op", "write,read",
                                           "--size", arguments.size, "--lanes", lanes, "--duration", arguments.duration,
                                           "--json"],
                              check=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=300, preexec_fn=enter).stdout
        return [(record["bytes"], record["op"], record["gb_per_s"]["median"], record["ratio_to_raw"],
                 record["latency_us"]["p99"]) for record in json.loads(text)["records"]]
    finally:
        server.terminate()
        server.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tcpx")
    parser.add_argument("--cpus", type=int, default=2)
    parser.add_argument("--size", default="4K,1M,16M,64M")
    parser.add_argument("--lanes", default="1,2,4")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--duration", default="2s")
    parser.add_argument("--least", type=float, default=0.8)
    arguments = parser.parse_args()
    folder = quota_group("client", arguments.cpus)
    if folder is None:
        print("no control group can be made here")
        return 77
    fronts, address = make_namespaces()
    seen = {}
    with tempfile.NamedTemporaryFile("w") as key:
        key.write(os.urandom(32).hex())
        key.flush()
        try:
            for _ in range(arguments.runs):
                for lanes in arguments.lanes.split(","):
                    for size, op, *figures in one_run(arguments.tcpx, arguments, lanes, fronts, address, folder, key.name):
                        seen.setdefault((lanes, size, op), []).append(figures)
        finally:
            if fronts[0]:
                for name in NAMES:
                    subprocess.run(["ip", "netns", "del", name])
            os.rmdir(folder)
    low = 0
    print(f"{arguments.cpus} CPUs for the client, {'two namespaces' if fronts[0] else 'loopback'}; medians of {arguments.runs} runs")
    print(f"{'lanes':>5} {'op':>5} {'bytes':>10}  {'GB/s':>7}  {'x raw':>6}  {'p99 us':>8}")
    for (lanes, size, op), rows in sorted(seen.items()):
        rate, ratio, p99 = (statistics.median(row[column] for row in rows) for column in range(3))
        bad = size >= 1 << 20 and ratio < arguments.least
        low += bad
        print(f"{lanes:>5} {op:>5} {size:>10}  {rate:>7.3f}  {ratio:>6.3f}  {p99:>8.1f}{'  LOW' if bad else ''}")
    print(f"{low} point(s) of 1 MiB and more below {arguments.least}")
    return 1 if low else 0


if __name__ == "__main__":
    sys.exit(main())
