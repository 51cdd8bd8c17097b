"""A victim, two honest clients beside it, and what the victim holds, from /proc."""
import json
import os
import pathlib
import resource
import select
import signal
import subprocess
import threading
import time

import wire

BUILD = pathlib.Path(os.environ.get("TCPX_TEST_BUILD_DIR", "build/release"))
VICTIM = BUILD / "tests/tcpx_test_peer"
CLIENT = BUILD / "tests/tcpx_hostile_client"
REGION_BYTES = 1 << 20  # of the honest clients; client.cc knows it too
READ_ACCESS, WRITE_ACCESS = 1, 2


class Failed(Exception):
    """Something that must never happen: the run is over."""


def environment():
    """Ours without anything that would configure an engine."""
    keep = ("TCPX_TEST_LOG",)
    return {name: value for name, value in os.environ.items()
            if name in keep or not name.startswith(("TCPX_", "UCCL_TCPX_", "NCCL_"))}


class Program:
    """A program that answers each line with a line."""

    def __init__(self, path, low_fds=None):
        def limits():
            resource.setrlimit(resource.RLIMIT_NOFILE, (low_fds, low_fds))

        self.name = path.name
        self.process = subprocess.Popen([str(path), "--peer"], env=environment(), stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, preexec_fn=limits if low_fds else None)
        self.pid = self.process.pid
        self.buffer = b""
        self.lock = threading.Lock()

    def send(self, line):
        try:
            self.process.stdin.write(line.encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise Failed(self.end_text()) from None

    def receive(self, seconds=60):
        end = time.monotonic() + seconds
        out = self.process.stdout.fileno()
        while b"\n" not in self.buffer:
            left = end - time.monotonic()
            if left <= 0 or not select.select([out], [], [], left)[0]:
                raise Failed(f"{self.name} does not answer for {seconds} s")
            part = os.read(out, 1 << 16)
            if not part:
                raise Failed(self.end_text())
            self.buffer += part
        line, self.buffer = self.buffer.split(b"\n", 1)
        return line.decode()

    def ask(self, line, seconds=60):
        with self.lock:
            self.send(line)
            return self.receive(seconds)

    def end_text(self):
        try:
            return f"{self.name} has ended, exit code {self.process.wait(5)}"
        except subprocess.TimeoutExpired:
            return f"{self.name} has closed its output"

    def alive(self):
        return self.process.poll() is None

    def stop(self, last_line):
        """Exit code; a program that does not end in 20 s is killed, which is a failure."""
        try:
            self.send(last_line)
            self.process.stdin.close()
            return self.process.wait(20)
        except (Failed, subprocess.TimeoutExpired, OSError):
            self.process.kill()
            return self.process.wait()

    def signal(self, number):
        os.kill(self.pid, number)


class Victim(Program):
    """tcpx_test_peer with an engine and regions."""

    def __init__(self, options=(), low_fds=None):
        super().__init__(VICTIM, low_fds)
        rows = dict(interfaces="127.0.0.1", allow_path="tcp")
        rows.update(options)
        self.must("create " + " ".join(f"{k}={v}" for k, v in rows.items()))
        self.info_blob = bytes.fromhex(self.must("info"))
        self.info = wire.Info.decode(self.info_blob)
        self.described = {}
        for name, access in (("lasting", 3), ("anew", 3), ("readable", READ_ACCESS), ("writable", WRITE_ACCESS)):
            self.memory(name, REGION_BYTES, access)
        # One that is gone, and one of which nobody was told that may have taken its place.
        self.memory("gone", REGION_BYTES, 3)
        self.must("deregister gone")
        self.memory("untold", REGION_BYTES, 3)
        self.serve("all")

    def must(self, line, seconds=60):
        answer = self.ask(line, seconds)
        if not answer.startswith("ok"):
            raise Failed(f"victim: {line.split()[0]}: {answer}")
        return answer[3:]

    def memory(self, name, size, access, seed=5):
        self.described[name] = self.must(f"memory {name} host {size} {access} {seed} 0")
        return self.region(name)

    def region(self, name):
        return wire.Region.decode(bytes.fromhex(self.described[name]))

    def serve(self, what):
        self.must(f"serve {what}")

    def counters(self):
        return json.loads(self.must("counters"))["engine"]


class Client(Program):
    def __init__(self, mode, victim, options="interfaces=127.0.0.1 allow_path=tcp lanes=2 io_threads=1"):
        super().__init__(CLIENT)
        self.send(f"{mode} {options}")
        self.send(f"{victim.info_blob.hex()} {victim.described[mode]}")

    def mark(self):
        return json.loads(self.ask("mark"))


# ---- /proc ---------------------------------------------------------------------------------------
PAGE = os.sysconf("SC_PAGESIZE")
TICK = os.sysconf("SC_CLK_TCK")


def held(pid):
    """(RSS in MiB, fds, threads, CPU seconds) of a process; None where it is gone."""
    try:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(stat[21]) * PAGE / 2**20, len(os.listdir(f"/proc/{pid}/fd")), int(stat[17]),
                (int(stat[11]) + int(stat[12])) / TICK)
    except OSError:
        return None


class Sampler(threading.Thread):
    """The largest values seen from start to stop."""

    def __init__(self, pid, step=0.02):
        super().__init__(daemon=True)
        self.pid, self.step = pid, step
        self.done = threading.Event()
        self.first = self.last = self.worst = held(pid) or (0, 0, 0, 0)
        self.start()

    def run(self):
        while not self.done.wait(self.step):
            now = held(self.pid)
            if now is None:
                return
            self.last = now
            self.worst = tuple(max(a, b) for a, b in zip(self.worst, now))

    def stop(self):
        self.done.set()
        self.join()
        return self.worst

    @property
    def cpu(self):
        return self.last[3] - self.first[3]


def stop_process(program):
    """SIGSTOP, and wait until every thread of it stands."""
    program.signal(signal.SIGSTOP)
    end = time.monotonic() + 5
    while time.monotonic() < end:
        state = pathlib.Path(f"/proc/{program.pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        if state == "T":
            return
        time.sleep(0.01)
