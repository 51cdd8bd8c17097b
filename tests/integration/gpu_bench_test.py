#!/usr/bin/env python3
"""The benchmarks of GPU memory, on the CUDA driver of the tests: that they run, check content and say what is wrong.

How fast anything is there says nothing.
"""
import json
import os
import pathlib
import subprocess
import sys
import unittest

BUILD = pathlib.Path(os.environ.get("TCPX_TEST_BUILD_DIR", "build/release"))
SOURCE = pathlib.Path(__file__).resolve().parent.parent.parent
FAKE_CUDA = BUILD / "tests/libtcpx_fake_cuda.so"
RING, SOCKETS, NEIGHBOURS = (BUILD / f"bench/tcpx_gpu_{name}" for name in ("ring", "sockets", "neighbours"))


def run(*command, **env):
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("TCPX_", "FAKE_CUDA"))}
    return subprocess.run(list(map(str, command)), env={**clean, "TCPX_TEST_CUDA_LIBRARY": str(FAKE_CUDA), **env}, timeout=120,
                          text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


class Ring(unittest.TestCase):
    SMALL = ("--lanes", "1,3", "--sizes", "1000001", "--chunks", "64K,1M", "--seconds", "0.02")

    def test_every_kind_of_run_is_checked(self):
        result = run(RING, *self.SMALL)
        self.assertEqual(result.returncode, 0, result.stderr)
        seen = [json.loads(line) for line in result.stdout.splitlines()]
        self.assertEqual(sorted((one["op"], one["lanes"], one["chunk"]) for one in seen),
                         sorted((op, lanes, chunk) for op in ("write", "read") for lanes in (1, 3) for chunk in (65536, 1 << 20)))
        for one in seen:
            self.assertGreater(one["gb_per_s"], 0)

    def test_an_error_of_cuda_ends_it(self):
        for call in ("cuMemcpyDtoHAsync_v2@20+=700", "cuMemcpyHtoDAsync_v2@20+=700", "cuMemAlloc_v2@1=2"):
            result = run(RING, *self.SMALL, FAKE_CUDA_PLAN=f"fail:{call}")
            self.assertEqual(result.returncode, 1, result.stdout)
            self.assertIn("CUDA error", result.stderr)


class Sockets(unittest.TestCase):
    SMALL = ("--lanes", "1,2", "--chunk", "64K", "--slots", "1,3", "--seconds", "0.02")

    def test_every_kind_of_memory_is_timed(self):
        result = run(SOCKETS, *self.SMALL)
        self.assertEqual(result.returncode, 0, result.stderr)
        seen = [json.loads(line) for line in result.stdout.splitlines()]
        self.assertEqual({one["kind"] for one in seen}, {"ring", "walk", "pinned", "dma", "dma-huge", "dma-combined", "dma-out",
                                                         "dma-in", "beside", "warm"})
        self.assertEqual({one["lanes"] for one in seen}, {1, 2})
        for one in seen:
            self.assertGreater(one["gb_per_s"], 0, one)
            if one["kind"] == "dma":
                self.assertGreater(one["send_gpu_us"] + one["recv_gpu_us"], 1, one)  # copies are waited for
            if one["kind"] == "dma-in":
                self.assertLess(one["send_gpu_us"], 1, one)  # there are none at that end

    def test_an_error_of_cuda_ends_it(self):
        for call in ("cuMemcpyDtoHAsync_v2@3+=700", "cuMemcpyHtoDAsync_v2@3+=700", "cuMemHostRegister_v2@1=2"):
            result = run(SOCKETS, *self.SMALL, FAKE_CUDA_PLAN=f"fail:{call}")
            self.assertEqual(result.returncode, 1, result.stdout)
            self.assertIn("CUDA error", result.stderr)

    def test_kinds_and_buffers_can_be_chosen(self):
        result = run(SOCKETS, *self.SMALL, "--kinds", "dma-out,ring", "--buffer", "0,256K")
        self.assertEqual(result.returncode, 0, result.stderr)
        seen = {(one["kind"], one["buffer"]) for one in map(json.loads, result.stdout.splitlines())}
        self.assertEqual(seen, {(kind, size) for kind in ("dma-out", "ring") for size in (0, 256 << 10)})
        misspelt = run(SOCKETS, *self.SMALL, "--kinds", "dma,rnig")
        self.assertEqual(misspelt.returncode, 1, misspelt.stdout)
        self.assertIn("rnig", misspelt.stderr)

    def test_ordinary_memory_needs_no_gpu(self):
        result = run(SOCKETS, *self.SMALL, "--no-gpu", "1", TCPX_TEST_CUDA_LIBRARY="/nonexistent")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual({json.loads(line)["kind"] for line in result.stdout.splitlines()}, {"ring", "walk"})


class Neighbours(unittest.TestCase):
    def rows(self, *names):
        result = run(NEIGHBOURS, "--bytes", "1M", "--seconds", "0.1", *names)
        self.assertEqual(result.returncode, 0, result.stderr)
        return [json.loads(line) for line in result.stdout.splitlines()]

    def test_all_of_them(self):
        rows = self.rows()
        names = " ".join(row["name"] for row in rows)
        for word in ("SM held, contiguous WRITE", "SM held, scattered READ", "cuMemAlloc", "both directions", "one stopped",
                     "CUDA loaded", "matrix products"):
            self.assertIn(word, names)
        for row in rows:
            self.assertNotIn("WRONG", row.get("note", ""))
            if "ceiling" not in row and "receipt" not in row and "skipped" not in row:
                self.assertTrue(row["ok"], row)


class Table(unittest.TestCase):
    def test_sections_make_one_table(self):
        result = run(sys.executable, SOURCE / "bench/gpu_bench.py", BUILD, "latency", "--small")
        self.assertIn(result.returncode, (0, 1), result.stderr)  # a bar is missed on this driver
        self.assertRegex(result.stdout, r"(?m)^latency +WRITE 4K, median +[\d.]+ us +host memory [\d.]+ .*(ok|LOW)$")
        self.assertRegex(result.stdout.splitlines()[-1], r"^\d+ (ok|LOW)")

    def test_a_section_that_fails_is_a_row_and_exit_1(self):
        result = run(sys.executable, SOURCE / "bench/gpu_bench.py", BUILD, "latency", "--small",
                     TCPX_TEST_CUDA_LIBRARY="/nonexistent")
        self.assertEqual(result.returncode, 1)
        self.assertRegex(result.stdout, r"(?m)^latency .*needs a GPU and its driver.*FAILED$")

    def test_content_that_is_wrong_is_a_failure(self):
        result = run(sys.executable, SOURCE / "bench/gpu_bench.py", BUILD, "latency", "--small", TCPX_TEST_CORRUPT="1")
        self.assertEqual(result.returncode, 1)
        self.assertRegex(result.stdout, r"(?m)^latency .*verification failed.*FAILED$")


class Sweep(unittest.TestCase):
    def sweep(self, *more):
        return run(sys.executable, SOURCE / "bench/gpu_sweep.py", BUILD, "--lanes", "2", "--sizes", "1M", "--ms", "10", "--rounds", "1",
                   *more)

    def test_every_combination_is_a_row_beside_host_memory(self):
        result = self.sweep("--set", "chunk_bytes=128K,256K", "--set", "gpu_staging=8M,16M", "--tcpx", f"other={BUILD}/tools/tcpx")
        self.assertEqual(result.returncode, 0, result.stderr)
        rows = result.stdout.splitlines()[1:]
        self.assertEqual(len(rows), 2 * (1 + 2 * 2 * 2), result.stdout)
        labels = [row.split("  ")[-1].strip() for row in rows]
        for label in ("host memory", "chunk_bytes=128K gpu_staging=16M", "other chunk_bytes=256K gpu_staging=8M"):
            self.assertEqual(labels.count(label), 2, result.stdout)  # WRITE and READ

    def test_what_fails_is_told_and_exit_1(self):
        result = self.sweep("--set", "chunk_bytes=128K,nonsense")
        self.assertEqual(result.returncode, 1, result.stdout)
        self.assertIn("FAILED: 2 lanes, chunk_bytes=nonsense", result.stdout)
        self.assertEqual(sum(row.endswith("chunk_bytes=128K") for row in result.stdout.splitlines()), 2)


if __name__ == "__main__":
    if not all(path.exists() for path in (FAKE_CUDA, RING, SOCKETS, NEIGHBOURS)):
        print("SKIP: the benchmarks or the fake CUDA driver are not built")
        sys.exit(77)
    unittest.main(verbosity=2)
