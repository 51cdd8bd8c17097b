#!/usr/bin/env python3
"""The tcpx command as its users meet it: help, errors, exit codes, JSON, two processes with a key.

The binary is TCPX_TEST_CLI. Standard library only.
"""
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

TCPX = os.environ.get("TCPX_TEST_CLI") or os.environ.get("TCPX_BIN") or "tcpx"
TIMEOUT = 120
RECORD_KEYS = {"op", "path", "memory", "bytes", "pieces", "lanes", "gb_per_s", "latency_us",
               "raw_gb_per_s", "raw_latency_us", "ratio_to_raw", "cpu_s_per_gb", "verified"}
QUICK = ["--duration", "20ms", "--rounds", "2", "--warmup", "2"]


def environment(**more):
    """Ours without anything that would configure the command."""
    env = {name: value for name, value in os.environ.items()
           if not name.startswith(("TCPX_", "UCCL_TCPX_", "NCCL_"))}
    env.update(more)
    return env


def tcpx(*args, timeout=TIMEOUT, **env):
    return subprocess.run([TCPX, *args], env=environment(**env), timeout=timeout, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def free_port(family=socket.AF_INET, address="127.0.0.1"):
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.bind((address, 0))
        return probe.getsockname()[1]


def has_ipv6_loopback():
    try:
        free_port(socket.AF_INET6, "::1")
        return True
    except OSError:
        return False


class Listener:
    """A `tcpx bench --listen` in the background."""

    def __init__(self, address, *args, **env):
        self.address = address
        self.errors = tempfile.TemporaryFile(mode="w+")
        self.process = subprocess.Popen([TCPX, "bench", "--listen", address, *args],
                                        env=environment(**env), stdout=subprocess.DEVNULL,
                                        stderr=self.errors)
        deadline = time.monotonic() + 30
        while "listening on" not in self.output():
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.process.kill()
                raise AssertionError("the listener did not start: " + self.output())
            time.sleep(0.05)

    def output(self):
        self.errors.seek(0)
        return self.errors.read()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait(10)
        self.errors.close()


class Case(unittest.TestCase):
    def assert_ended(self, result, code, *texts):
        self.assertEqual(result.returncode, code, result.stderr + result.stdout)
        for text in texts:
            self.assertIn(text, result.stderr)

    def document(self, result, code=0):
        self.assertEqual(result.returncode, code, result.stderr)
        return json.loads(result.stdout)  # one document and nothing else

    def make_key(self, text="a key for this test only\n"):
        file = tempfile.NamedTemporaryFile(mode="w", suffix=".key")
        file.write(text)
        file.flush()
        self.addCleanup(file.close)
        return file.name


class Usage(Case):
    def test_help_names_commands_and_exit_codes(self):
        for args in (["--help"], ["help"]):
            result = tcpx(*args)
            self.assert_ended(result, 0)
            for word in ("bench", "demo", "config", "version", "Exit codes", "verification"):
                self.assertIn(word, result.stdout)

    def test_help_of_bench_has_every_option_of_the_table(self):
        table = self.document(tcpx("config", "--json"))["options"]
        self.assertGreater(len(table), 20)
        for args in (["bench", "--help"], ["help", "bench"]):
            text = tcpx(*args).stdout
            for row in table:
                self.assertIn(row["flag"], text)

    def test_no_command_is_a_usage_error(self):
        self.assert_ended(tcpx(), 2, "Usage")

    def test_version(self):
        self.assertRegex(tcpx("version").stdout, r"^tcpx \d+\.\d+\.\d+\n$")
        self.assertRegex(tcpx("--version").stdout, r"\d+\.\d+\.\d+")

    def test_unknown_names_are_errors_with_the_nearest_one(self):
        self.assert_ended(tcpx("bench", "--loopback", "--lnaes", "2"), 2, "--lnaes", "'--lanes'")
        self.assert_ended(tcpx("bench", "--loopback", "--peices", "2"), 2, "'--pieces'")
        self.assert_ended(tcpx("bench", "--lopback"), 2)
        self.assert_ended(tcpx("bnech"), 2, "'bench'")
        self.assert_ended(tcpx("config", TCPX_LNES="2"), 2, "TCPX_LNES", "TCPX_LANES")
        self.assert_ended(tcpx("bench", "--loopback", TCPX_CHUNK_BYTE="4K"), 2, "TCPX_CHUNK_BYTES")

    def test_bad_values_are_usage_errors(self):
        for args in (["--lanes", "many"], ["--lanes", "65"], ["--size", "4Q"], ["--size", "0"],
                     ["--size", "1M..4K"], ["--op", "copy"], ["--pieces", "0"],
                     ["--duration", "5"], ["--iters", "0"], ["--memory", "gpu"],
                     ["--baseline", "best"], ["--iters", "3", "--duration", "1s"], ["--once"]):
            with self.subTest(args=args):
                self.assert_ended(tcpx("bench", "--loopback", *args), 2, "tcpx: ")
        self.assert_ended(tcpx("bench", "--loopback", UCCL_TCPX_PERF_SIZE="big"), 2,
                          "UCCL_TCPX_PERF_SIZE")
        self.assert_ended(tcpx("bench", "--loopback", UCCL_TCPX_PERF_ITERS="few"), 2,
                          "UCCL_TCPX_PERF_ITERS")
        self.assert_ended(tcpx("bench", "--loopback", TCPX_LANES="many"), 2, "TCPX_LANES")

    def test_exactly_one_place(self):
        self.assert_ended(tcpx("bench"), 2, "--loopback")
        self.assert_ended(tcpx("bench", "--loopback", "--connect", "localhost:1"), 2)

    def test_two_hosts_need_a_key(self):
        for args in (["--listen", "127.0.0.1:20000"], ["--connect", "127.0.0.1:20000"]):
            self.assert_ended(tcpx("bench", *args), 2, "head -c 32 /dev/urandom | base64 > key",
                              "--auth off")

    def test_bad_addresses(self):
        for address in ("[::1:2", "1:2:3", "host:0", "host:70000", "host:x"):
            with self.subTest(address=address):
                self.assert_ended(tcpx("bench", "--connect", address), 2, address)


class Config(Case):
    def test_value_and_origin(self):
        result = tcpx("config", "--window", "8", TCPX_LANES="3", UCCL_TCPX_CHUNK_BYTES="64K")
        self.assert_ended(result, 0)
        rows = {line.split()[0]: line.split()[1:] for line in result.stdout.splitlines()}
        self.assertEqual(rows["lanes"], ["3", "TCPX_LANES"])
        self.assertEqual(rows["chunk_bytes"], ["64K", "UCCL_TCPX_CHUNK_BYTES"])
        self.assertEqual(rows["window"], ["8", "command", "line"])
        self.assertEqual(rows["deadline"][-1], "default")

    def test_markdown_has_a_row_per_option(self):
        table = self.document(tcpx("config", "--json"))["options"]
        text = tcpx("config", "--markdown").stdout
        for row in table:
            self.assertIn(f"| `{row['name']}` | `{row['variable']}` |", text)

    def test_a_key_is_not_taken_from_the_command_line(self):
        for command in (["config"], ["bench", "--listen", "127.0.0.1:0"]):
            for flag in (["--auth-key", "do-not-print-this-key"], ["--auth-key=do-not-print-this-key"]):
                result = tcpx(*command, *flag)
                self.assert_ended(result, 2, "--auth-key-file")
                self.assertIn("TCPX_AUTH_KEY", result.stderr)
                self.assertNotIn("do-not-print-this-key", result.stdout + result.stderr)
        self.assertNotIn("`--auth-key`", tcpx("config", "--markdown").stdout)

    def test_secret_is_not_shown(self):
        for args in ([], ["--json"]):
            result = tcpx("config", *args, TCPX_AUTH_KEY="do-not-print-this-key")
            self.assert_ended(result, 0)
            self.assertNotIn("do-not-print-this-key", result.stdout + result.stderr)


class Loopback(Case):
    def check_record(self, record):
        self.assertLessEqual(RECORD_KEYS, set(record))
        self.assertIn(record["op"], ("write", "read"))
        self.assertEqual((record["path"], record["memory"]), ("tcp", "host"))
        rates, latency = record["gb_per_s"], record["latency_us"]
        for number in (record["bytes"], record["pieces"], record["lanes"], rates["median"],
                       rates["p10"], rates["p90"], latency["p50"], latency["p99"],
                       record["raw_gb_per_s"], record["raw_latency_us"], record["ratio_to_raw"],
                       record["cpu_s_per_gb"], record["post_us"]["p50"], record["post_us"]["max"]):
            self.assertIsInstance(number, (int, float))
            self.assertNotIsInstance(number, bool)
            self.assertGreaterEqual(number, 0)
        self.assertLessEqual(rates["p10"], rates["median"])
        self.assertLessEqual(rates["median"], rates["p90"])
        self.assertLessEqual(latency["p50"], latency["p99"])
        self.assertGreater(rates["median"], 0)

    def test_json_schema(self):
        document = self.document(tcpx("bench", "--loopback", "--json", "--size", "4K..16K,1M",
                                      "--lanes", "2", *QUICK))
        self.assertEqual(document["schema"], 1)
        config = document["config"]
        self.assertEqual(config["gb"], 10**9)
        for key in ("version", "host", "cores", "kernel", "options", "peer"):
            self.assertIn(key, config)
        self.assertEqual(config["options"]["lanes"], {"value": "2", "origin": "command line"})
        self.assertEqual(config["options"]["interfaces"]["origin"], "this command")
        self.assertEqual(config["options"]["window"]["origin"], "default")
        sizes = [4096, 8192, 16384, 1 << 20]
        self.assertEqual([(r["op"], r["bytes"]) for r in document["records"]],
                         [(op, size) for op in ("write", "read") for size in sizes])
        for record in document["records"]:
            self.check_record(record)
            self.assertIs(record["verified"], True)
            self.assertGreaterEqual(record["verified_iters"], 2)
            self.assertEqual((record["lanes"], record["pieces"]), (2, 1))

    def test_table_and_compatibility_line(self):
        result = tcpx("bench", "--loopback", "--size", "64K", "--op", "read", *QUICK)
        self.assert_ended(result, 0)
        self.assertIn("10^9", result.stdout)
        self.assertRegex(result.stdout, r"(?m)^read +64K ")
        self.assertRegex(result.stdout, r"(?m)^\[PERF\] Avg: [\d.]+ ms, BW: [\d.]+ GB/s")
        self.assertNotIn("[STAGED]", result.stdout)
        self.assertNotIn("\r", result.stderr)  # progress is for terminals

    def test_pieces_are_not_joined(self):
        for pieces, size in ((7, "100001"), (1000, "1M")):
            document = self.document(tcpx("bench", "--loopback", "--json", "--size", size,
                                          "--pieces", str(pieces), *QUICK))
            for record in document["records"]:
                self.assertIs(record["verified"], True)
                self.assertEqual(record["pieces"], pieces)
                self.assertEqual(record["receipt"]["runs"], pieces)

    def test_iters_rounds_and_switches(self):
        document = self.document(tcpx("bench", "--loopback", "--json", "--op", "write", "--iters",
                                      "7", "--size", "4K", "--no-verify", "--baseline", "none"))
        record = document["records"][0]
        self.assertEqual(record["iters"], 7)
        self.assertIs(record["verified"], False)
        self.assertIsNone(record["raw_gb_per_s"])
        self.assertIsNone(record["ratio_to_raw"])

    def test_older_names_give_size_and_iters(self):
        document = self.document(tcpx("bench", "--loopback", "--json", "--op", "read",
                                      UCCL_TCPX_PERF_SIZE="8192", UCCL_TCPX_PERF_ITERS="5"))
        self.assertEqual([(r["bytes"], r["iters"]) for r in document["records"]], [(8192, 5)])

    def test_damaged_data_is_exit_4(self):
        for op in ("write", "read"):
            for pieces in ("1", "3"):
                result = tcpx("bench", "--loopback", "--json", "--op", op, "--size", "64K",
                              "--pieces", pieces, *QUICK, TCPX_TEST_CORRUPT="1")
                document = self.document(result, 4)
                self.assertIn("verification failed", result.stderr)
                self.assertIs(document["records"][-1]["verified"], False)
                self.assertEqual(document["error"]["exit"], 4)

    def test_without_verification_damage_goes_unseen(self):
        self.assert_ended(tcpx("bench", "--loopback", "--no-verify", "--size", "4K", *QUICK,
                               TCPX_TEST_CORRUPT="1"), 0)

    def test_too_much_memory_is_exit_3(self):
        self.assert_ended(tcpx("bench", "--loopback", "--size", "1024G", "--iters", "1"), 3,
                          "smaller --size")

    def test_demo_prints_table_and_receipt(self):
        result = tcpx("demo", "--size", "16M")
        self.assert_ended(result, 0)
        for text in ("WRITE", "READ", "raw TCP", "ratio", "CPU s per GB", "verified", "Receipt", "moving"):
            self.assertIn(text, result.stdout)


FAKE_CUDA = os.path.join(os.environ.get("TCPX_TEST_BUILD_DIR", "build/release"), "tests/libtcpx_fake_cuda.so")


@unittest.skipUnless(os.path.exists(FAKE_CUDA), "the fake CUDA driver is not built")
class GpuMemory(Case):
    """On a CUDA driver without a GPU, two devices."""

    def bench(self, *args, **env):
        return tcpx("bench", "--loopback", "--json", *args, *QUICK,
                    **{"TCPX_TEST_CUDA_LIBRARY": FAKE_CUDA, **env})

    def test_kinds_at_either_end_are_moved_checked_and_named(self):
        for asked, named in (("cuda", "cuda:0"), ("cuda:1,cuda:0", "cuda:1,cuda:0"), ("cuda,host", "cuda:0,host"),
                             ("host,cuda:1", "host,cuda:1"), ("auto", "cuda:0")):
            with self.subTest(memory=asked):
                result = self.bench("--memory", asked, "--size", "4K,1000001", "--baseline", "none")
                document = self.document(result)
                self.assertEqual(document["config"]["memory"], named)
                self.assertEqual(len(document["records"]), 4)
                for record in document["records"]:
                    self.assertEqual(record["memory"], named)
                    self.assertIs(record["verified"], True)
                    receipt, ends = record["receipt"], (named.split(",") * 2)[:2]
                    self.assertEqual([receipt["local_memory"], receipt["remote_memory"]],
                                     [end.split(":")[0] for end in ends])
                    self.assertEqual(receipt["staged_out"] + receipt["staged_in"],
                                     0 if ends[0] == "host" else record["bytes"])
                for end in set(named.split(",")) - {"host"}:
                    self.assertIn(f"{end} (Fake GPU", result.stderr)  # whose staging the engine has opened

    def test_pieces_raw_and_text(self):
        result = tcpx("bench", "--loopback", "--memory", "cuda:1", "--size", "100001", "--pieces", "7", *QUICK,
                      TCPX_TEST_CUDA_LIBRARY=FAKE_CUDA)
        self.assert_ended(result, 0)
        self.assertIn("memory cuda:1,", result.stdout)
        self.assertRegex(result.stdout, r"(?m)^read +100001 +7 .* yes$")
        self.assertRegex(result.stdout, r"(?m)^\[STAGED\] the last one: 100001 bytes in, by \d+ copies and \d+ kernels")

    def test_both_ends_in_one_process(self):
        for memory in ("cuda,cuda:1", "host"):
            result = self.bench("--one-process", "--memory", memory, "--size", "64K", "--pieces", "9", "--baseline", "raw")
            for record in self.document(result)["records"]:
                self.assertIs(record["verified"], True)
                self.assertGreater(record["cpu_s_per_gb"], 0)
        self.assert_ended(tcpx("bench", "--one-process", "--connect", "127.0.0.1:1"), 2, "--loopback")
        broken = self.bench("--one-process", "--memory", "host,cuda:9", "--size", "64K")
        self.assert_ended(broken, 3, "cuda:9: there are 2 GPU(s) here")

    def test_damaged_data_is_exit_4(self):
        for op in ("write", "read"):
            result = self.bench("--memory", "cuda", "--op", op, "--size", "64K", TCPX_TEST_CORRUPT="1")
            self.assertIs(self.document(result, 4)["records"][-1]["verified"], False)

    def test_a_copy_of_the_tool_that_fails_is_said(self):
        result = self.bench("--memory", "host,cuda", "--op", "write", "--size", "64K",
                            FAKE_CUDA_PLAN="fail:cuMemcpyDtoH_v2@1+=1")
        self.assert_ended(result, 1, "copying content from the GPU", "CUDA error 1")

    def test_what_is_missing_is_said(self):
        nowhere = self.bench("--memory", "cuda", "--size", "4K", TCPX_TEST_CUDA_LIBRARY="/nonexistent/libcuda.so.1")
        self.assert_ended(nowhere, 3, "needs a GPU and its driver", "/nonexistent/libcuda.so.1")
        self.assert_ended(self.bench("--memory", "cuda:7", "--size", "4K"), 3, "cuda:7", "2 GPU(s)")
        self.assert_ended(self.bench("--memory", "cuda:0,cuda:7", "--size", "4K"), 3, "cuda:7", "2 GPU(s)")
        full = self.bench("--memory", "cuda", "--size", "64M", FAKE_CUDA_PLAN="device_memory:1048576")
        self.assert_ended(full, 3, "allocating 66 MiB on cuda:0")
        off = self.bench("--memory", "cuda", "--size", "4K", TCPX_GPU_MEMORY="off")
        self.assert_ended(off, 1, "memory of cuda:0", "gpu_memory")

    def test_bad_kinds_are_usage_errors(self):
        for kind in ("cuda:", "cuda:x", "cuda:-1", "cuda,", "host,gpu", "host,host,host", "", "vram"):
            with self.subTest(memory=kind):
                self.assert_ended(tcpx("bench", "--loopback", "--memory", kind), 2, "--memory")

    def test_demo_takes_the_gpu_where_there_is_one(self):
        gpu = {"TCPX_TEST_CUDA_LIBRARY": FAKE_CUDA}
        result = tcpx("demo", "--size", "1M", **gpu)
        self.assert_ended(result, 0)
        self.assertIn("memory cuda:0.", result.stdout)
        # Where it is host memory, a bench that chooses as the demo does says so sooner.
        for env in ({"TCPX_TEST_CUDA_LIBRARY": "/nonexistent"}, {**gpu, "FAKE_CUDA_DEVICES": "0"},
                    {**gpu, "TCPX_GPU_MEMORY": "off"}):
            with self.subTest(env=env):
                document = self.document(self.bench("--memory", "auto", "--size", "4K", "--baseline", "none", **env))
                self.assertEqual(document["config"]["memory"], "host")


def child_of(pid, timeout=20):
    """The bench's server process."""
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
            children = file.read().split()
        if children:
            return int(children[0])
        time.sleep(0.02)
    raise AssertionError("no server process")


class Interrupted(Case):
    def start(self):
        process = subprocess.Popen([TCPX, "bench", "--loopback", "--json", "--size", "1M",
                                    "--duration", "60s"], env=environment(), text=True,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.kill)
        return process

    def end(self, process):
        output, errors = process.communicate(timeout=30)
        return subprocess.CompletedProcess([], process.returncode, output, errors)

    def test_dead_server_is_named_and_exit_1(self):
        process = self.start()
        server = child_of(process.pid)
        time.sleep(2)
        os.kill(server, signal.SIGKILL)
        result = self.end(process)
        document = self.document(result, 1)
        self.assertIn("signal 9", result.stderr)
        self.assertEqual(document["error"]["exit"], 1)

    def test_interrupt_ends_both_processes(self):
        process = self.start()
        server = child_of(process.pid)
        time.sleep(2)
        process.send_signal(signal.SIGINT)
        self.document(self.end(process), 130)
        with self.assertRaises(ProcessLookupError):
            os.kill(server, 0)


class TwoProcesses(Case):
    def connect(self, address, *args, **env):
        return tcpx("bench", "--connect", address, "--json", "--size", "4K,1M", *QUICK, *args, **env)

    def check_run(self, result):
        document = self.document(result)
        self.assertEqual(len(document["records"]), 4)
        for record in document["records"]:
            self.assertIs(record["verified"], True)
            self.assertGreater(record["raw_gb_per_s"], 0)

    def test_ipv4_with_key_file(self):
        key, address = self.make_key(), f"127.0.0.1:{free_port()}"
        with Listener(address, "--auth-key-file", key, "--once") as server:
            self.check_run(self.connect(address, "--auth-key-file", key))
            self.assertEqual(server.process.wait(20), 0, server.output())

    @unittest.skipUnless(has_ipv6_loopback(), "no ::1")
    def test_ipv6_with_key_file(self):
        key, address = self.make_key(), f"[::1]:{free_port(socket.AF_INET6, '::1')}"
        with Listener(address, "--auth-key-file", key, "--once") as server:
            self.check_run(self.connect(address, "--auth-key-file", key))
            self.assertEqual(server.process.wait(20), 0, server.output())

    def test_key_from_the_environment_and_one_client_after_another(self):
        key, address = self.make_key(), f"127.0.0.1:{free_port()}"
        with Listener(address, TCPX_AUTH_KEY_FILE=key) as server:
            self.check_run(self.connect(address, TCPX_AUTH_KEY_FILE=key))
            self.check_run(self.connect(address, TCPX_AUTH_KEY="a key for this test only"))
            self.assertIsNone(server.process.poll())
            server.process.send_signal(signal.SIGINT)
            self.assertEqual(server.process.wait(20), 0, server.output())

    def test_wrong_key_is_exit_1_and_the_server_goes_on(self):
        key, wrong = self.make_key(), self.make_key("another key that is long enough\n")
        address = f"127.0.0.1:{free_port()}"
        with Listener(address, "--auth-key-file", key) as server:
            self.assert_ended(self.connect(address, "--auth-key-file", wrong), 1, "auth")
            self.check_run(self.connect(address, "--auth-key-file", key))
            self.assertIsNone(server.process.poll())

    def test_second_client_is_told_that_the_server_is_busy(self):
        key, address = self.make_key(), f"127.0.0.1:{free_port()}"
        with Listener(address, "--auth-key-file", key) as server:
            first = subprocess.Popen(
                [TCPX, "bench", "--connect", address, "--auth-key-file", key, "--size", "4K",
                 "--duration", "60s"], env=environment(), stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL)
            self.addCleanup(first.kill)
            deadline = time.monotonic() + 20
            while "client " not in server.output() and time.monotonic() < deadline:
                time.sleep(0.05)
            self.assert_ended(self.connect(address, "--auth-key-file", key), 1, "another client")
            first.send_signal(signal.SIGINT)
            self.assertEqual(first.wait(30), 130)
            self.check_run(self.connect(address, "--auth-key-file", key))

    def test_bench_protocol_mismatch_names_both_versions(self):
        key, address = self.make_key(), f"127.0.0.1:{free_port()}"
        with Listener(address, "--auth-key-file", key):
            result = self.connect(address, "--auth-key-file", key, TCPX_TEST_BENCH_PROTOCOL="77")
            self.assert_ended(result, 2, "server 2", "client 77")

    def test_open_needs_auth_off_on_both_sides(self):
        address = f"127.0.0.1:{free_port()}"
        with Listener(address, "--auth", "off"):
            self.check_run(self.connect(address, "--auth", "off"))
            self.assert_ended(self.connect(address, "--auth-key-file", self.make_key()), 1)

    def test_nobody_listens(self):
        result = self.connect(f"127.0.0.1:{free_port()}", "--auth-key-file", self.make_key(),
                              "--connect-timeout", "2s")
        self.assert_ended(result, 1, "cannot connect")

    def test_killed_server_ends_the_client(self):
        key, address = self.make_key(), f"127.0.0.1:{free_port()}"
        with Listener(address, "--auth-key-file", key) as server:
            client = subprocess.Popen(
                [TCPX, "bench", "--connect", address, "--auth-key-file", key, "--size", "1M",
                 "--duration", "60s"], env=environment(), text=True, stdout=subprocess.PIPE,
                stderr=subprocess.PIPE)
            self.addCleanup(client.kill)
            time.sleep(2)
            server.process.kill()
            _, errors = client.communicate(timeout=60)
            self.assertEqual(client.returncode, 1, errors)
            self.assertTrue(re.search("peer|server|other side|raw", errors), errors)


if __name__ == "__main__":
    if not os.access(TCPX, os.X_OK):
        print(f"{TCPX} is not there: set TCPX_TEST_CLI to the tcpx command")
        sys.exit(77)
    unittest.main(verbosity=2)
