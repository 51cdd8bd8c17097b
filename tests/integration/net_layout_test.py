#!/usr/bin/env python3
"""Several processes on each NIC of one host, as on an A3-high: eight pairs, two per NIC, at once (S84, and one
layout of S16; net_layout_test.cc has the other). The emulator pretends four NICs and counts what went through
each. test_tcpx_api checks the content. A pair that asks for a NIC that is not there is told so."""
import glob
import os
import struct
import subprocess
import sys
import tempfile
import unittest

BUILD = os.environ["TCPX_TEST_BUILD_DIR"]
PROGRAM = os.path.join(BUILD, "tests/test_tcpx_api")
PLUGIN = os.path.join(BUILD, "plugins/tcpx_emu/libnccl-net-tcpx-emu.so")
# GPU index -> NIC index: one NIC for each pair of GPUs on its PCIe root.
NIC_OF_GPU = [0, 0, 1, 1, 2, 2, 3, 3]
NICS = 4
# What test_tcpx_api moves, there and back.
MOVED = 5_000_001 + 8 * 1024 * 1024
# struct tcpx_emu_counters_file of plugins/tcpx_emu/tcpx_emu.h: magic, devices, bytes of a NIC's counters, pid.
HEAD = struct.Struct("8sIIQ104x")
TX_BYTES, MISUSES = 3, 10


class Pair:
    """Two processes that move data over the emulator, with counters of their own."""

    def __init__(self, *options):
        self.folder = tempfile.TemporaryDirectory()
        env = dict(os.environ, NCCL_GPUDIRECTTCPX_SOCKET_IFNAME="lo", TCPX_EMU_DEVICES=str(NICS),
                   TCPX_EMU_FRAGMENTS="mixed", TCPX_EMU_COUNTERS=os.path.join(self.folder.name, "%p"))
        self.process = subprocess.Popen([PROGRAM, "require_path=net", f"net_plugin={PLUGIN}", *options], env=env,
                                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def finish(self):
        """Returns the output and, for each NIC, the sum of a counter over both processes."""
        out, _ = self.process.communicate(timeout=100)
        tables = [self.read(file) for file in glob.glob(os.path.join(self.folder.name, "*"))]
        self.folder.cleanup()
        return out, lambda counter: [sum(table[nic][counter] for table in tables) for nic in range(NICS)]

    @staticmethod
    def read(file):
        with open(file, "rb") as source:
            data = source.read()
        magic, devices, size, _ = HEAD.unpack_from(data)
        assert magic == b"TCPXEMU1" and devices == NICS, (magic, devices)
        return [struct.unpack_from(f"{size // 8}Q", data, HEAD.size + nic * size) for nic in range(NICS)]


class Layout(unittest.TestCase):
    def expect_passed(self, pair, what, nics):
        """The pair moved all its data, right, over these NICs and no others."""
        out, counted = pair.finish()
        self.assertEqual(pair.process.returncode, 0, f"{what}: {out}")
        self.assertIn("path net", out)
        sent = counted(TX_BYTES)
        self.assertEqual([nic for nic in range(NICS) if sent[nic] > 0], nics, f"{what}: {sent}")
        self.assertGreaterEqual(sum(sent), MOVED)
        self.assertEqual(sum(counted(MISUSES)), 0)

    def test_eight_pairs_of_processes_two_per_nic_at_once(self):
        pairs = [Pair(f"net_devices=emu{nic}", "lanes=2") for nic in NIC_OF_GPU]
        for gpu, pair in enumerate(pairs):
            nic = NIC_OF_GPU[gpu]
            self.expect_passed(pair, f"pair {gpu} on emu{nic}", [nic])

    def test_each_nic_alone(self):
        for nic in range(NICS):
            self.expect_passed(Pair(f"net_devices=emu{nic}", "lanes=1"), f"emu{nic}", [nic])

    def test_lanes_of_one_pair_spread_over_all_nics(self):
        self.expect_passed(Pair("net_devices=auto", "lanes=8"), "8 lanes on 4 NICs", [0, 1, 2, 3])

    def test_a_nic_that_is_not_there_is_named_with_those_that_are(self):
        pair = Pair("net_devices=emu7")
        out, _ = pair.finish()
        self.assertNotEqual(pair.process.returncode, 0)
        self.assertIn("emu7", out)
        self.assertIn("emu3", out)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], "-v"])
