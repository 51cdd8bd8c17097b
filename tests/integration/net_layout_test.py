#!/usr/bin/env python3
"""Several processes on each NIC of one host, as on an A3-high: eight pairs, two per NIC, at once (S84, and the
host-memory half of S6 and S16). The emulator pretends four NICs. A pair that asks for a NIC that is not there is
told so."""
import os
import subprocess
import sys
import unittest

BUILD = os.environ["TCPX_TEST_BUILD_DIR"]
PROGRAM = os.path.join(BUILD, "tests/test_tcpx_api")
PLUGIN = os.path.join(BUILD, "plugins/tcpx_emu/libnccl-net-tcpx-emu.so")
# GPU index -> NIC index: one NIC for each pair of GPUs on its PCIe root.
NIC_OF_GPU = [0, 0, 1, 1, 2, 2, 3, 3]


def start(*options):
    env = dict(os.environ, NCCL_GPUDIRECTTCPX_SOCKET_IFNAME="lo", TCPX_EMU_DEVICES="4",
               TCPX_EMU_FRAGMENTS="mixed")
    return subprocess.Popen([PROGRAM, "require_path=net", f"net_plugin={PLUGIN}", *options], env=env,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


class Layout(unittest.TestCase):
    def expect_passed(self, process, what):
        out, _ = process.communicate(timeout=100)
        self.assertEqual(process.returncode, 0, f"{what}: {out}")
        self.assertIn("path net", out)

    def test_eight_pairs_of_processes_two_per_nic_at_once(self):
        pairs = [start(f"net_devices=emu{nic}", "lanes=2") for nic in NIC_OF_GPU]
        for gpu, process in enumerate(pairs):
            self.expect_passed(process, f"pair {gpu} on emu{NIC_OF_GPU[gpu]}")

    def test_each_nic_alone(self):
        for nic in range(4):
            self.expect_passed(start(f"net_devices=emu{nic}", "lanes=1"), f"emu{nic}")

    def test_lanes_of_one_pair_spread_over_all_nics(self):
        self.expect_passed(start("net_devices=auto", "lanes=8"), "8 lanes on 4 NICs")

    def test_a_nic_that_is_not_there_is_named_with_those_that_are(self):
        process = start("net_devices=emu7")
        out, _ = process.communicate(timeout=100)
        self.assertNotEqual(process.returncode, 0)
        self.assertIn("emu7", out)
        self.assertIn("emu3", out)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], "-v"])
