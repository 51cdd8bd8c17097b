#!/usr/bin/env python3
"""`tcpx topo` on copies of /sys: the map of an A3-high, answers with exit codes, bindings, JSON."""
import json
import os
import subprocess
import sys
import tempfile
import unittest

TCPX = os.environ["TCPX_TEST_CLI"]
FIRST_BUS = [0x01, 0x07, 0x81, 0x87]


class Sysfs:
    """Folders, small files and relative links, as the kernel lays them out."""

    def __init__(self, root):
        self.root = root

    def file(self, path, text):
        path = os.path.join(self.root, path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="ascii") as out:
            out.write(text + "\n")

    def link(self, name, target):
        name, target = os.path.join(self.root, name), os.path.join(self.root, target)
        os.makedirs(os.path.dirname(name), exist_ok=True)
        os.symlink(os.path.relpath(target, os.path.dirname(name)), name)

    def device(self, where, kind, vendor, node):
        for name, text in (("class", kind), ("vendor", vendor), ("numa_node", str(node))):
            self.file(f"devices/{where}/{name}", text)
        self.link(f"bus/pci/devices/{os.path.basename(where)}", f"devices/{where}")

    def nic(self, name, where, node):
        self.device(where, "0x020000", "0x1ae0", node)
        self.file(f"devices/{where}/net/{name}/mtu", "8244")
        self.link(f"devices/{where}/net/{name}/device", f"devices/{where}")
        self.link(f"class/net/{name}", f"devices/{where}/net/{name}")

    def a3_high(self):
        self.nic("eth0", "pci0000:00/0000:00:0c.0", 0)
        for i, bus in enumerate(FIRST_BUS):
            above = f"pci0000:{bus:02x}/0000:{bus:02x}:00.0/0000:{bus + 1:02x}:00.0"
            for gpu in range(2):
                self.device(f"{above}/0000:{bus + 2:02x}:0{gpu}.0/0000:{bus + 3 + gpu:02x}:00.0", "0x030200",
                            "0x10de", i // 2)
            self.nic(f"eth{i + 1}", f"{above}/0000:{bus + 2:02x}:02.0/0000:{bus + 5:02x}:00.0", i // 2)
        self.file("devices/virtual/net/lo/mtu", "65536")
        self.link("class/net/lo", "devices/virtual/net/lo")
        self.file("devices/system/cpu/online", "0-207")
        self.file("devices/system/node/node0/cpulist", "0-51,104-155")
        self.file("devices/system/node/node1/cpulist", "52-103,156-207")


def topo(*args, **more):
    env = {name: value for name, value in os.environ.items() if not name.startswith(("TCPX_", "NCCL_"))}
    env.update(more)
    return subprocess.run([TCPX, "topo", *args], env=env, text=True, capture_output=True, timeout=60)


class A3High(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.sysfs = f"--sysfs={cls.folder.name}"
        Sysfs(cls.folder.name).a3_high()

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def test_the_table_shows_gpus_nics_and_why_pairs_are_not_allowed(self):
        done = topo(self.sysfs)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"(?m)^5 +0000:85:00\.0 +pci0000:81 +1 +eth3$")
        self.assertRegex(done.stdout, r"(?m)^eth2 +0000:0c:00\.0 +pci0000:07 +0 +0-51,104-155 +- +- +2,3$")
        self.assertRegex(done.stdout, r"(?m)^0 +eth1 +yes +both below PCIe root pci0000:01")
        self.assertRegex(done.stdout, r"(?m)^0 +eth3 +no +GPU 0 is below PCIe root pci0000:01, eth3 below pci0000:81.*"
                                      r"use eth1$")
        self.assertIn("not on PCI: lo", done.stdout)

    def test_json_has_every_pair(self):
        done = topo(self.sysfs, "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        found = json.loads(done.stdout)
        self.assertEqual([gpu["nic"] for gpu in found["gpus"]],
                         ["eth1", "eth1", "eth2", "eth2", "eth3", "eth3", "eth4", "eth4"])
        pairs = {(pair["gpu"], pair["nic"]): pair for pair in found["pairs"]}
        self.assertEqual(len(pairs), 8 * 6)
        for (gpu, nic), pair in pairs.items():
            self.assertEqual(pair["allowed"], nic == f"eth{gpu // 2 + 1}", pair)
            self.assertTrue(pair["reason"])

    def test_a_question_is_answered_with_reason_and_exit_code(self):
        for gpu in range(8):
            for nic in range(1, 5):
                done = topo(self.sysfs, "--gpu", str(gpu), "--nic", f"eth{nic}")
                allowed = nic == gpu // 2 + 1
                self.assertEqual(done.returncode, 0 if allowed else 3, done.stdout + done.stderr)
                self.assertTrue(done.stdout.startswith("yes: " if allowed else "no: "), done.stdout)
        done = topo(self.sysfs, "--gpu", "0000:04:00.0", "--nic", "eth1,eth2")
        self.assertEqual(done.returncode, 3)
        for part in ("2 NICs (eth1, eth2)", "pci0000:01", "eth2 is below pci0000:07", "use eth1 alone"):
            self.assertIn(part, done.stdout)

    def test_what_is_not_there_is_a_usage_error(self):
        for args, part in ((("--gpu", "8", "--nic", "eth1"), "no GPU 8"), (("--gpu", "0", "--nic", "eth9"), "no NIC eth9"),
                           (("--gpu", "0"), "--nic"), (("--nic", "eth1"), "--gpu")):
            done = topo(self.sysfs, *args)
            self.assertEqual(done.returncode, 2, args)
            self.assertIn(part, done.stderr)
        done = topo("--sysfs", self.folder.name + "/nowhere")
        self.assertEqual(done.returncode, 2)
        self.assertIn("/nowhere is no folder", done.stderr)

    def test_bindings_are_checked_against_the_machine_and_shown(self):
        done = topo(self.sysfs, "--json", "--net-rx-bindings", "eth1:22-35,126-139",
                    NCCL_GPUDIRECTTCPX_TX_BINDINGS="eth1:8-21,112-125;eth3:50-60")
        self.assertEqual(done.returncode, 0, done.stderr)
        found = json.loads(done.stdout)
        eth1 = next(nic for nic in found["nics"] if nic["name"] == "eth1")
        self.assertEqual((eth1["tx_cpus"], eth1["rx_cpus"], eth1["worker_cpus"]),
                         ("8-21,112-125", "22-35,126-139", "8-35,112-139"))
        self.assertEqual(len(found["warnings"]), 1)
        self.assertIn("CPUs 50-51 of eth3 are not on its NUMA node 1", found["warnings"][0])
        for text, part in (("eth1:8", "write 8-8"), ("eth7:8-9", 'no interface "eth7"'),
                           ("eth1:200-208", "CPUs 208 of eth1 are not online")):
            done = topo(self.sysfs, "--net-tx-bindings", text)
            self.assertEqual(done.returncode, 2, text)
            self.assertIn(part, done.stderr)


class ThisMachine(unittest.TestCase):
    def test_has_a_map(self):
        done = topo("--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("lo", [nic["name"] for nic in json.loads(done.stdout)["nics"]])


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], "-v"])
