#!/usr/bin/env python3
"""Two hosts with four NICs each: two network namespaces joined by four shaped veth pairs.

What it shows: lanes spread over the interfaces and their rates add up; a slow link costs its share
and no more; a link that goes down mid-transfer costs a lane, not the transfer; IPv6; listening only
where asked; the port range. No traffic leaves the namespaces.

    netns_test.py [--strict] [unittest arguments]

The rates are benchmarks, so by default only 0.6 of the ceiling is asked for; --strict asks for 0.95.
Programs: TCPX_TEST_CLI (or TCPX_BIN) is the tcpx command, TCPX_TEST_PEER the line-driven peer of
tests/support/peer_program.h. Needs root, ip and tc; says so and exits 77 otherwise.
Standard library only.
"""
import atexit
import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

TCPX = os.environ.get("TCPX_TEST_CLI") or os.environ.get("TCPX_BIN") or "tcpx"
PEER = os.environ.get("TCPX_TEST_PEER") or "tcpx_test_peer"
STRICT = "--strict" in sys.argv
BAR = 0.95 if STRICT else 0.6
SKIPPED = 77

LINKS = 4
GBIT = 1e9 / 8  # bytes per second
# Of each 1514-byte Ethernet frame that tbf counts (MTU 1500 and its header), TCP with timestamps
# carries so many bytes of ours.
SHARE_V4 = 1448 / 1514
SHARE_V6 = 1428 / 1514
PREFIX = "tcpxt"


def environment():
    """Ours without anything that would configure an engine."""
    return {name: value for name, value in os.environ.items()
            if not name.startswith(("TCPX_", "UCCL_TCPX_", "NCCL_"))}


def command(*args, check=True):
    done = subprocess.run(args, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          timeout=30)
    if check and done.returncode != 0:
        raise RuntimeError(f"{' '.join(args)}: {done.stdout}")
    return done.stdout


def remove_namespaces(pid):
    for side in "ab":
        name = f"{PREFIX}-{pid}-{side}"
        if os.path.exists(f"/run/netns/{name}"):
            command("ip", "netns", "del", name, check=False)


def remove_stale():
    """Namespaces of runs that were killed."""
    for name in os.listdir("/run/netns") if os.path.isdir("/run/netns") else []:
        parts = name.split("-")
        if len(parts) == 3 and parts[0] == PREFIX and not os.path.exists(f"/proc/{parts[1]}"):
            command("ip", "netns", "del", name, check=False)


class Net:
    """Host a has 10.77.<i>.1 and fd77:<i>::1 on a<i>, host b has .2 and ::2 on b<i>."""

    def __init__(self):
        self.a = f"{PREFIX}-{os.getpid()}-a"
        self.b = f"{PREFIX}-{os.getpid()}-b"
        for name in (self.a, self.b):
            command("ip", "netns", "add", name)
            command("ip", "-n", name, "link", "set", "lo", "up")
        for i in range(LINKS):
            command("ip", "link", "add", f"a{i}", "netns", self.a, "type", "veth",
                    "peer", "name", f"b{i}", "netns", self.b)
            for side, name, last in (("a", self.a, 1), ("b", self.b, 2)):
                device = f"{side}{i}"
                command("ip", "-n", name, "addr", "add", f"10.77.{i}.{last}/24", "dev", device)
                command("ip", "-n", name, "addr", "add", f"fd77:{i}::{last}/64", "dev", device,
                        "nodad")
                command("ip", "-n", name, "link", "set", device, "up")
            self.shape(i, "1gbit")

    def shape(self, link, rate):
        for side, name in (("a", self.a), ("b", self.b)):
            command("ip", "netns", "exec", name, "tc", "qdisc", "replace", "dev", f"{side}{link}",
                    "root", "tbf", "rate", rate, "burst", "256kb", "latency", "50ms")

    def set_down(self, link):
        command("ip", "-n", self.a, "link", "set", f"a{link}", "down")

    def close(self):
        remove_namespaces(os.getpid())


class Peer:
    """A line-driven engine in one of the namespaces."""

    def __init__(self, namespace, **options):
        self.process = subprocess.Popen(["ip", "netns", "exec", namespace, PEER, "--peer"],
                                        env=environment(), text=True, bufsize=1,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.lines = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()
        self.ok("create", *(f"{name}={value}" for name, value in options.items()))

    def _read(self):
        for line in self.process.stdout:
            self.lines.put(line.rstrip("\n"))
        self.lines.put(None)

    def call(self, *words, timeout=60):
        """(True, result) or (False, "CODE text")."""
        self.process.stdin.write(" ".join(str(word) for word in words) + "\n")
        self.process.stdin.flush()
        line = self.lines.get(timeout=timeout)
        if line is None:
            raise RuntimeError(f"the peer died at '{words[0]}'")
        state, _, rest = line.partition(" ")
        return state == "ok", rest

    def ok(self, *words, timeout=60):
        good, rest = self.call(*words, timeout=timeout)
        if not good:
            raise RuntimeError(f"{words[0]}: {rest}")
        return rest

    def close(self):
        self.process.kill()
        self.process.wait(10)
        self.process.stdin.close()
        self.process.stdout.close()


def interfaces(side, links=range(LINKS)):
    return ",".join(f"{side}{i}" for i in links)


class Netns(unittest.TestCase):
    def setUp(self):
        self.net = Net()
        self.addCleanup(self.net.close)
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.key = os.path.join(self.folder.name, "key")
        with open(self.key, "w", opener=lambda path, flags: os.open(path, flags, 0o600)) as out:
            out.write("a key for the namespaces, long enough\n")

    # ---- rates ----
    def bench(self, connect, listen_on, connect_from, *more):
        """One bench run from a to b; the records of its JSON document."""
        errors = tempfile.TemporaryFile(mode="w+")
        self.addCleanup(errors.close)
        common = ["--auth-key-file", self.key]
        server = subprocess.Popen(
            ["ip", "netns", "exec", self.net.b, TCPX, "bench", "--listen", ":20000", "--once",
             "--interfaces", listen_on, *common],
            env=environment(), stdout=subprocess.DEVNULL, stderr=errors)
        try:
            self.wait_for_listener(server, errors)
            done = subprocess.run(
                ["ip", "netns", "exec", self.net.a, TCPX, "bench", "--connect", connect,
                 "--interfaces", connect_from, "--lanes", str(LINKS), "--baseline", "none",
                 "--json", *common, *more],
                env=environment(), text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                timeout=120)
        finally:
            server.kill()
            server.wait(10)
        errors.seek(0)
        self.assertEqual(done.returncode, 0, done.stderr + errors.read())
        return json.loads(done.stdout)["records"]

    def wait_for_listener(self, server, errors):
        deadline = time.monotonic() + 20
        while True:
            errors.seek(0)
            text = errors.read()
            if "listening on" in text:
                return
            if server.poll() is not None or time.monotonic() > deadline:
                self.fail("the listener did not start: " + text)
            time.sleep(0.05)

    def expect_rate(self, what, measure, ceiling):
        """The best of three attempts: on a busy machine one may be cut short by others."""
        for attempt in range(3):
            records = measure()
            worst = min(r["gb_per_s"]["median"] * 1e9 / ceiling for r in records)
            if worst >= BAR:
                break
        for record in records:
            rate = record["gb_per_s"]["median"] * 1e9
            print(f"\n  {what}: {record['op']} {record['bytes'] >> 20} MiB, "
                  f"{rate / 1e6:.1f} MB/s = {rate / ceiling:.3f} of the {ceiling / 1e6:.1f} MB/s "
                  f"that the links can carry", end="", flush=True)
            self.assertTrue(record["verified"])
            self.assertEqual(record["lanes"], LINKS)
            self.assertGreaterEqual(rate / ceiling, BAR, what)
            self.assertLess(rate / ceiling, 1.02, "faster than the links: the shaping is not there")

    def test_lanes_spread_over_four_nics_and_their_rates_add_up(self):
        self.expect_rate("4 x 1 Gbit/s",
                         lambda: self.bench("10.77.0.2:20000", interfaces("b"), interfaces("a"),
                                            "--op", "write,read", "--size", "256M", "--iters", "3"),
                         LINKS * GBIT * SHARE_V4)

    def test_a_link_at_a_quarter_of_the_rate_costs_no_more_than_its_share(self):
        self.net.shape(2, "250mbit")
        self.expect_rate("3 x 1 Gbit/s + 250 Mbit/s",
                         lambda: self.bench("10.77.0.2:20000", interfaces("b"), interfaces("a"),
                                            "--op", "write,read", "--size", "256M", "--iters", "3"),
                         3.25 * GBIT * SHARE_V4)

    def test_ipv6_carries_the_same(self):
        here = ",".join(f"fd77:{i}::1" for i in range(LINKS))
        there = ",".join(f"fd77:{i}::2" for i in range(LINKS))
        self.expect_rate("4 x 1 Gbit/s over IPv6",
                         lambda: self.bench("[fd77:0::2]:20000", there, here,
                                            "--op", "write,read", "--size", "256M", "--iters", "2"),
                         LINKS * GBIT * SHARE_V6)

    # ---- a link that goes down (B11) ----
    def pair(self, **more):
        """Engines on both hosts, 256 MiB on each; a is connected to b as peer 'us'."""
        options = {"lanes": LINKS, "keepalive": "200ms", "lane_timeout": "1s",
                   "peer_timeout": "10s", "deadline": "40s", **more}
        a = Peer(self.net.a, interfaces=interfaces("a"), **options)
        self.addCleanup(a.close)
        b = Peer(self.net.b, interfaces=interfaces("b"), **options)
        self.addCleanup(b.close)
        size = 256 << 20
        a.ok("memory", "m", "host", size, 0, 1, 0)
        a.ok("import", "r", b.ok("memory", "m", "host", size, 3, 2, 0))
        peer = a.ok("connect", b.ok("info"))
        a.ok("wait_peer", peer, 10000)
        state, lanes, _, names = a.ok("peer_info", peer).split(" ", 3)
        self.assertEqual((state, int(lanes)), ("0", LINKS))
        self.assertEqual(sorted(names.split(",")), sorted(interfaces("a").split(",")))
        return a, b, peer, size

    def survives_a_cut(self, op, link):
        a, b, peer, size = self.pair()
        a.ok("prepare", "t", op, peer, "m", 0, "r", 0, size)
        a.ok("post", "t", -1, b"cut".hex())
        time.sleep(0.25)  # of at least 0.56 s
        good, text = a.call("poll", "t")
        self.assertFalse(good)
        self.assertTrue(text.startswith("1 "), f"not in progress any more: {text}")
        cut = time.monotonic()
        self.net.set_down(link)
        a.ok("wait", "t", 40000)
        took = time.monotonic() - cut
        receipt = json.loads(a.ok("receipt", "t"))
        print(f"\n  {op}, link {link} cut at 0.25 s: done {took:.2f} s later, "
              f"lanes_lost {receipt['lanes_lost']}, retries {receipt['retries']}", end="", flush=True)
        (b if op == "write" else a).ok("check", "m", 0, size, 1 if op == "write" else 2, 0, 0)
        self.assertEqual(receipt["lanes_lost"], 1)
        self.assertGreater(receipt["retries"], 0)
        self.assertEqual(receipt["bytes"], size)
        self.assertLess(took, 8)
        self.assertIn(b"cut".hex(), b.ok("next", 5000))
        self.assertFalse(b.call("next", 100)[0], "a notification came twice")
        # The rest keeps working, at the rate of the three links that are left.
        rates = []
        for _ in range(3):
            start = time.monotonic()
            a.ok("post", "t", -1, "none")
            a.ok("wait", "t", 40000)
            rates.append(size / (time.monotonic() - start))
        rate = sorted(rates)[1] if STRICT else max(rates)  # a shared machine has bad moments
        print(f"; then {rate / (3 * GBIT * SHARE_V4):.3f} of three links", end="", flush=True)
        self.assertGreaterEqual(rate / (3 * GBIT * SHARE_V4), BAR)

    def test_write_survives_a_link_that_goes_down(self):
        self.survives_a_cut("write", 3)

    def test_read_survives_a_link_that_goes_down(self):
        self.survives_a_cut("read", 2)

    def test_the_first_lane_may_be_the_one_that_goes_down(self):
        self.survives_a_cut("write", 0)

    def test_all_links_down_end_the_peer_in_time(self):
        a, _, peer, size = self.pair(peer_timeout="3s")
        a.ok("prepare", "t", "write", peer, "m", 0, "r", 0, size)
        a.ok("post", "t", -1, "none")
        time.sleep(0.1)
        for link in range(LINKS):
            self.net.set_down(link)
        start = time.monotonic()
        good, text = a.call("wait", "t", 40000)
        self.assertFalse(good)
        self.assertIn(text.split(" ")[0], ("11", "13"), text)  # disconnected or timed out
        self.assertLess(time.monotonic() - start, 8)

    # ---- where it listens ----
    def listening(self, namespace):
        """(address, port) of every TCP listener there, IPv4."""
        out = set()
        for line in command("ip", "netns", "exec", namespace, "cat", "/proc/net/tcp").split("\n")[1:]:
            words = line.split()
            if len(words) > 3 and words[3] == "0A":
                address, port = words[1].split(":")
                octets = [str(int(address[i:i + 2], 16)) for i in (6, 4, 2, 0)]
                out.add((".".join(octets), int(port, 16)))
        return out

    def connects(self, address, port):
        code = (f"import socket\ntry: socket.create_connection(('{address}', {port}), 3)\n"
                "except ConnectionRefusedError: raise SystemExit(3)\n")
        done = subprocess.run(["ip", "netns", "exec", self.net.a, sys.executable, "-c", code],
                              timeout=30, env=environment())
        self.assertIn(done.returncode, (0, 3))
        return done.returncode == 0

    def test_listens_on_the_asked_interface_only(self):
        for option, value in (("interfaces", "b1"), ("listen", "10.77.1.2"),
                              ("interfaces", "10.77.1.0/24")):
            with self.subTest(option=option, value=value):
                peer = Peer(self.net.b, port_range="23000", **{option: value})
                try:
                    self.assertEqual(self.listening(self.net.b), {("10.77.1.2", 23000)})
                    self.assertTrue(self.connects("10.77.1.2", 23000))
                    for other in ("10.77.0.2", "10.77.2.2"):
                        self.assertFalse(self.connects(other, 23000), other)
                finally:
                    peer.close()

    def test_port_range_is_honoured_and_an_exhausted_one_is_a_clear_error(self):
        for expected in (23100, 23101):
            peer = Peer(self.net.b, interfaces="10.77.0.2", port_range="23100-23101")
            self.addCleanup(peer.close)
            self.assertIn(("10.77.0.2", expected), self.listening(self.net.b))
        with self.assertRaises(RuntimeError) as caught:
            peer = Peer(self.net.b, interfaces="10.77.0.2", port_range="23100-23101")
            peer.close()
        self.assertIn("23100", str(caught.exception))


def reason_to_skip():
    if os.geteuid() != 0:
        return "network namespaces need root"
    for tool in ("ip", "tc"):
        if shutil.which(tool) is None:
            return f"{tool} is not installed (iproute2)"
    for program in (TCPX, PEER):
        if shutil.which(program) is None:
            return f"{program} is not there; set TCPX_TEST_CLI and TCPX_TEST_PEER"
    try:
        net = Net()
        net.close()
    except RuntimeError as error:
        remove_namespaces(os.getpid())
        return f"namespaces, veth or tbf do not work here: {error}"
    return None


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    remove_stale()
    reason = reason_to_skip()
    if reason is not None:
        print(f"SKIPPED: {reason}")
        return SKIPPED
    atexit.register(remove_namespaces, os.getpid())
    arguments = [word for word in sys.argv if word != "--strict"]
    print(f"bar: {BAR} of the ceiling{' (--strict)' if STRICT else ''}")
    program = unittest.main(argv=arguments, exit=False, verbosity=2)
    return 0 if program.result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
