"""What every NIXL test needs: agents here and in other processes, patterns, deadlines.

A test is a function with @case; run.py finds and runs them. It gets a Test, from which it takes
sides. A side is one agent with its buffers. test.here(...) is one in this process, test.peer(...)
one in another; both understand the same calls, so most tests run with their target in either place.

Processes are forked before the first agent exists and wait for orders: NIXL and its backends have
threads, and a process with threads is not forked. Every wait has a deadline.
"""
import contextlib
import ctypes
import dataclasses
import faulthandler
import gc
import importlib.metadata
import mmap
import multiprocessing.connection
import os
import signal
import sys
import threading
import time
import traceback
import types

# Before 1.4.0 NIXL's Python API imports torch to recognise tensors. There are none here.
if "torch" not in sys.modules:
    sys.modules["torch"] = types.ModuleType("torch")
    sys.modules["torch"].Tensor = type("Tensor", (), {})

import numpy as np  # noqa: E402
import cuda  # noqa: E402
from nixl import _api, _bindings  # noqa: E402

NIXL_VERSION = tuple(int(part) for part in importlib.metadata.version("nixl").split(".")[:2])
WAIT = 20.0  # seconds; long for a busy machine, short for a person
GUARD = 4096  # bytes before and after each buffer that nobody may touch
HUGE_PAGE = 2 << 20
POISON = 0xEE
NOTHING = b""
MAP_NORESERVE = 0x4000  # Python has the name since 3.13


class Failure(AssertionError):
    """A promise that was not kept."""


class Skip(Exception):
    """The reason why this test cannot run here."""


def require(condition, text):
    if not condition:
        raise Failure(text)


# ---- patterns ------------------------------------------------------------------------------------

def pattern(seed, start, size):
    """Bytes [start, start + size) of the pattern `seed`: every 8-byte word differs from all others
    of the pattern and from the same word of another seed."""
    first = start // 8
    words = np.arange(first, (start + size + 7) // 8, dtype=np.uint64)
    words *= np.uint64(0x9E3779B97F4A7C15)
    words += np.uint64((seed + 1) * 0xBF58476D1CE4E5B9 % 2**64)
    return words.view(np.uint8)[start - first * 8:start - first * 8 + size]


def first_difference(found, expected):
    """None, or words about the first byte that is wrong."""
    if np.array_equal(found, expected):
        return None
    wrong = np.flatnonzero(found != expected)
    at = int(wrong[0])
    return (f"{len(wrong)} of {len(found)} bytes wrong, first at {at}: "
            f"{found[at:at + 8].tobytes().hex()} instead of {expected[at:at + 8].tobytes().hex()}")


class Buffer:
    """Poisoned memory between guards. Sparse: untouched pages that read as zeros, without guards.
    Huge: in huge pages where there are any, as `tcpx bench` has its memory."""

    def __init__(self, size, sparse=False, huge=False):
        mapped = used = size + (0 if sparse else 2 * GUARD)
        if huge:  # whole ones, or the kernel does not align them
            mapped = -(-used // HUGE_PAGE) * HUGE_PAGE
        self.map = mmap.mmap(-1, mapped,
                             flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_NORESERVE)
        if huge:
            self.map.madvise(mmap.MADV_HUGEPAGE)
        whole = np.frombuffer(self.map, dtype=np.uint8)[:used]
        self.guards = () if sparse else (whole[:GUARD], whole[-GUARD:])
        self.bytes = whole if sparse else whole[GUARD:-GUARD]
        self.address = self.bytes.ctypes.data
        self.size = size
        if not sparse:
            whole[:] = POISON

    memory = "host"
    device = 0

    def guard_damage(self):
        return any((guard != POISON).any() for guard in self.guards)

    def free(self):
        mapping = self.map
        self.map = self.bytes = self.guards = None
        mapping.close()


class GpuBuffer:
    """The same in memory of a GPU: `memory` is one of cuda.KINDS. Beginnings are odd."""

    def __init__(self, size, memory, device, sparse=False):
        self.memory, self.device, self.size = memory, device, size
        self.lead = GUARD + (13 if memory == "vmm" else 0)
        self.block = cuda.allocate(memory, self.lead + size + GUARD, device)
        self.address = self.block.address + self.lead
        self.poison_guards()
        if not sparse:
            self.block.fill(self.lead, size, POISON)

    def poison_guards(self):
        self.block.fill(0, self.lead, POISON)
        self.block.fill(self.lead + self.size, GUARD, POISON)

    def read(self, offset, size):
        return self.block.read(self.lead + offset, size)

    def write(self, offset, data):
        self.block.write(self.lead + offset, data)

    def size(self):
        return self.size

    def guard_damage(self):
        guards = (self.block.read(0, self.lead), self.block.read(self.lead + self.size, GUARD))
        return any((guard != POISON).any() for guard in guards)

    def free(self):
        self.block.free()


def segment(memory):
    """NIXL's word for it."""
    return "DRAM" if memory == "host" else "VRAM"


# ---- one agent -----------------------------------------------------------------------------------

def status_name(error):
    """nixlRemoteDisconnectError -> RemoteDisconnect"""
    return type(error).__name__.removeprefix("nixl").removesuffix("Error")


NIXL_ERRORS = tuple(kind for name, kind in vars(_bindings).items()
                    if name.startswith("nixl") and name.endswith("Error"))


@contextlib.contextmanager
def chosen_sync(mode, options):
    """Sets the sync mode of the agent that is made inside. The API of 1.0 has no choice, it takes
    NONE: there that name stands for the wanted mode for a while."""
    if mode is None:
        yield
    elif hasattr(_api, "nixl_thread_sync_t"):
        options["sync_mode"] = getattr(_api.nixl_thread_sync_t, f"NIXL_THREAD_SYNC_{mode}")
        yield
    elif not hasattr(_bindings, f"NIXL_THREAD_SYNC_{mode}"):
        raise Skip(f"this NIXL has no sync mode {mode} for Python")
    else:
        usual = _bindings.NIXL_THREAD_SYNC_NONE
        _bindings.NIXL_THREAD_SYNC_NONE = getattr(_bindings, f"NIXL_THREAD_SYNC_{mode}")
        try:
            yield
        finally:
            _bindings.NIXL_THREAD_SYNC_NONE = usual


class Side:
    """An agent, its buffers and requests. Arguments and results travel between processes, so they
    are plain values: buffers and requests go by a key."""

    def __init__(self, backend, memory="host", cuda_library="", device=0):
        self.backend = backend
        self.memory, self.device = memory, device  # of buffers and pieces, unless told
        self.cuda_library = cuda_library
        self.agent = None
        self.name = None
        self.buffers = {}
        self.registrations = {}
        self.requests = {}
        self.lists = {}
        self.seen = []  # (sender, message) that came and nobody has asked for yet
        self.next_key = 0

    # -- life

    def start(self, name, params=None, progress_thread=True, sync=None, port=None, gpu=False):
        if gpu or self.memory != "host":
            self.use_cuda()
        options = {"backends": [], "enable_prog_thread": progress_thread}
        if port is not None:
            options.update(enable_listen_thread=True, listen_port=port)
        with chosen_sync(sync, options):
            self.agent = _api.nixl_agent(name, _api.nixl_agent_config(**options))
        self.agent.create_backend(self.backend, params or {})
        self.name = name

    def use_cuda(self):
        """As an application that uses CUDA: usually before it makes an agent."""
        if not self.cuda_library:
            raise Skip("no CUDA driver to test with (--fake-cuda)")
        cuda.load(self.cuda_library)

    def start_plain(self, name):
        """As most users do: a backend by name, nothing else."""
        if self.memory != "host":
            self.use_cuda()
        self.agent = _api.nixl_agent(name, _api.nixl_agent_config(backends=[self.backend]))
        require(self.backend in self.agent.backends, f"no backend {self.backend}")
        self.name = name

    def environment(self, variables):
        os.environ.update(variables)

    def close(self):
        for handle in (*self.requests.values(), *self.lists.values()):
            try:
                handle.release()
            except NIXL_ERRORS:
                pass  # still under way; the agent's end is what ends it
        self.requests.clear()
        self.lists.clear()
        self.registrations.clear()
        self.agent = None
        gc.collect()
        damaged = [key for key, buffer in self.buffers.items() if buffer.guard_damage()]
        for buffer in self.buffers.values():
            if isinstance(buffer, GpuBuffer):
                buffer.free()
        self.buffers.clear()
        require(not damaged, f"{self.name}: bytes beside the buffers {damaged} were written")

    def key(self):
        self.next_key += 1
        return self.next_key

    # -- memory

    def alloc(self, key, size, register=True, sparse=False, huge=False, memory=None, device=None):
        """Returns the address."""
        memory, device = memory or self.memory, self.device if device is None else device
        if memory == "host":
            self.buffers[key] = Buffer(size, sparse, huge)
        else:
            self.buffers[key] = GpuBuffer(size, memory, device, sparse)
        if register:
            self.register(key)
        return self.buffers[key].address

    def address(self, key):
        return self.buffers[key].address

    def register(self, key, *ranges, device=None, kind=None, backends=()):
        """All of the buffer, or (offset, size) ranges as one list. Returns what deregister takes."""
        buffer = self.buffers[key]
        ranges = ranges or [(0, buffer.size)]
        device = buffer.device if device is None else device
        descs = [(buffer.address + offset, size, device, "") for offset, size in ranges]
        token = self.key()
        self.registrations[token] = self.agent.register_memory(descs, kind or segment(buffer.memory), list(backends))
        return token

    def deregister(self, token):
        self.agent.deregister_memory(self.registrations.pop(token))

    def chunk(self, key, index, device=None):
        """The memory behind one chunk of VMM goes, and other memory comes (of that GPU); None: none comes."""
        block = self.buffers[key].block
        block.unmap(index * cuda.CHUNK)
        if device is not None:
            block.map(index * cuda.CHUNK, device)

    def poison_guards(self, key):
        """After the memory that they lay in went."""
        self.buffers[key].poison_guards()

    def gpus(self):
        return cuda.devices()

    def uses_cuda(self):
        """Whether there is a driver's library in this process."""
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
            return any(name in line for line in maps for name in ("libcuda.so", "libtcpx_fake_cuda"))

    def free(self, key):
        """Unmaps it: whoever touches it afterwards dies."""
        self.buffers.pop(key).free()

    def fill(self, key, seed, offset=0, size=None, start=None):
        """`start`: which part of the pattern; the offset unless told."""
        view = self.view(key, offset, size, copied=False)
        view[:] = pattern(seed, offset if start is None else start, len(view))
        self.put(key, offset, view)

    def poison(self, key, offset=0, size=None):
        view = self.view(key, offset, size, copied=False)
        view[:] = POISON
        self.put(key, offset, view)

    def view(self, key, offset=0, size=None, copied=True):
        """Of host memory the bytes themselves; of a GPU's a copy, or room for what put() brings there."""
        buffer = self.buffers[key]
        if isinstance(buffer, GpuBuffer):
            size = buffer.size - offset if size is None else size
            return buffer.read(offset, size) if copied else np.empty(size, np.uint8)
        return buffer.bytes[offset:] if size is None else buffer.bytes[offset:offset + size]

    def put(self, key, offset, view):
        if isinstance(self.buffers[key], GpuBuffer):
            self.buffers[key].write(offset, view)

    def difference(self, key, seed, offset=0, size=None, start=None):
        view = self.view(key, offset, size)
        return first_difference(view, pattern(seed, offset if start is None else start, len(view)))

    def check(self, key, seed, offset=0, size=None, start=None):
        wrong = self.difference(key, seed, offset, size, start)
        require(wrong is None, f"{self.name}, buffer {key} at {offset}: {wrong}")

    def fill_blocks(self, key, seed, blocks):
        """blocks: (offset, size) in the order of the pattern's bytes."""
        data, whole, start = pattern(seed, 0, sum(size for _, size in blocks)), self.view(key), 0
        for offset, size in blocks:
            whole[offset:offset + size] = data[start:start + size]
            start += size
        self.put(key, 0, whole)

    def check_blocks(self, key, seed, blocks, rest_poisoned=True):
        """The blocks hold the pattern one after the other, all other bytes are as poisoned."""
        sizes = [size for _, size in blocks]
        data = pattern(seed, 0, sum(sizes))
        found = self.view(key)
        expected = np.full(len(found), POISON, np.uint8)
        start = 0
        for offset, size in blocks:
            expected[offset:offset + size] = data[start:start + size]
            start += size
        if not rest_poisoned:
            keep = np.zeros(len(found), bool)
            for offset, size in blocks:
                keep[offset:offset + size] = True
            found, expected = found[keep], expected[keep]
        wrong = first_difference(found, expected)
        require(wrong is None, f"{self.name}, buffer {key}: {wrong}")

    def check_lacks(self, key, byte):
        require(not (self.view(key) == byte).any(), f"{self.name}, buffer {key}: holds bytes {byte:#x}")

    def fill_byte(self, key, byte):
        view = self.view(key, copied=False)
        view[:] = byte
        self.put(key, 0, view)

    def check_poison(self, key, offset=0, size=None):
        view = self.view(key, offset, size)
        if not (view == POISON).all():
            wrong = np.flatnonzero(view != POISON)
            raise Failure(f"{self.name}, buffer {key}: {len(wrong)} bytes written where nothing should be, "
                          f"between {wrong[0]} and {wrong[-1]}: {view[wrong[:8]].tobytes().hex()}")

    # -- metadata

    def metadata(self):
        return self.agent.get_agent_metadata()

    def partial_metadata(self, ranges, connection):
        descs = self.agent.get_reg_descs([(address, size, 0, "") for address, size in ranges],
                                         segment(self.memory)) \
            if ranges else _bindings.nixlRegDList(_bindings.DRAM_SEG)
        return self.agent.get_partial_agent_metadata(descs, connection, [self.backend])

    def load(self, blob):
        name = self.agent.add_remote_agent(blob)
        return name.decode() if isinstance(name, bytes) else name

    def unload(self, name):
        self.agent.remove_remote_agent(name)

    def knows(self, name):
        return self.agent.check_remote_metadata(name)

    def fetch_metadata(self, name, port):
        """Asks another agent's listen thread."""
        self.agent.fetch_remote_metadata(name, "127.0.0.1", port)
        wait_until(lambda: self.knows(name), f"{self.name} has the metadata of {name}")

    def connect(self, name):
        self.agent.make_connection(name, [self.backend])

    def mem_types(self):
        return (list(map(str, self.agent.get_plugin_mem_types(self.backend))),
                list(map(str, self.agent.get_backend_mem_types(self.backend))))

    def plugin_params(self):
        return dict(self.agent.get_plugin_params(self.backend))

    # -- transfers

    def descs(self, pieces, memory=None):
        """pieces: (address, length), or with the device's number behind it."""
        kind = segment(memory or self.memory)
        if len(pieces) > 100:
            rows = np.full((len(pieces), 3), self.device, np.uint64)
            rows[:, :len(pieces[0])] = pieces
            return self.agent.get_xfer_descs(rows, kind)
        return self.agent.get_xfer_descs([(*piece, self.device)[:3] for piece in pieces], kind)

    def request(self, op, local, remote, peer, message=NOTHING, memories=None):
        """local and remote: (address, length) pieces. memories: the kinds of both. Returns the request's key."""
        key = self.key()
        ends = zip((local, remote), memories) if memories else ((local,), (remote,))
        here, there = (self.descs(*end) for end in ends)
        self.requests[key] = self.agent.initialize_xfer(op, here, there, peer, message, [self.backend])
        return key

    def prepare(self, peer, pieces, memory=None):
        """A prepared list; peer None: the local side."""
        key = self.key()
        self.lists[key] = self.agent.prep_xfer_dlist(peer or "NIXL_INIT_AGENT", self.descs(pieces, memory),
                                                     backends=[self.backend])
        return key

    def prepared_request(self, op, local, local_indices, remote, remote_indices, message=NOTHING, **more):
        key = self.key()
        self.requests[key] = self.agent.make_prepped_xfer(
            op, self.lists[local], local_indices, self.lists[remote], remote_indices, message,
            [self.backend], **more)
        return key

    def release_list(self, key):
        self.lists.pop(key).release()

    def post(self, key, message=NOTHING):
        """DONE, PROC or the name of the error."""
        return self.state_of(lambda: self.agent.transfer(self.requests[key], message))

    def state(self, key):
        return self.state_of(lambda: self.agent.check_xfer_state(self.requests[key]))

    @staticmethod
    def state_of(call):
        try:
            return call()
        except NIXL_ERRORS as error:
            return status_name(error)

    def wait(self, key, within=WAIT):
        """How it ended: DONE or the name of the error."""
        ends = time.monotonic() + within
        while True:
            state = self.state(key)
            if state != "PROC":
                return state
            if time.monotonic() > ends:
                raise Failure(f"a transfer of {self.name} is still in progress after {within} s")

    def run(self, key, message=NOTHING, within=WAIT):
        state = self.post(key, message)
        return self.wait(key, within) if state == "PROC" else state

    def done(self, key, message=NOTHING):
        """Posts and sees it done."""
        state = self.run(key, message)
        require(state == "DONE", f"a transfer of {self.name} ended with {state}")

    def move(self, op, local, remote, peer, message=NOTHING, memories=None):
        """One transfer from beginning to end."""
        key = self.request(op, local, remote, peer, message, memories)
        self.done(key)
        self.release(key)

    def release(self, key):
        self.requests.pop(key).release()

    def release_quietly(self, key):
        """What the API says on release of a request in progress is the core's business."""
        handle = self.requests.pop(key)
        try:
            handle.release()
        except NIXL_ERRORS:
            handle.release()

    def abandon_requests(self):
        """As a C++ program that forgets them: never released, and the agent ends all the same."""
        for handle in self.requests.values():
            handle._released = True
        self.requests.clear()

    def cost(self, key):
        """(microseconds, margin, whether the backend says how it knows). The Python API compares a number with
        an enum and so calls every method unknown."""
        duration, margin, method = self.agent.agent.estimateXferCost(self.requests[key]._handle)
        return duration, margin, int(method) == int(_bindings.NIXL_COST_ANALYTICAL_BACKEND)

    # -- notifications

    def send(self, peer, message):
        self.agent.send_notif(peer, message)

    def poll(self):
        """Takes what has come: (sender, message) of all so far that nobody took."""
        for sender, messages in self.agent.get_new_notifs().items():
            self.seen += [(sender, bytes(message)) for message in messages]
        taken, self.seen = self.seen, []
        return taken

    def expect(self, sender, message, within=WAIT):
        """Waits for this one; others stay."""
        self.expect_all([(sender, message)], within)

    def expect_all(self, wanted, within=WAIT):
        wanted, others, ends = list(wanted), [], time.monotonic() + within
        while wanted:
            for item in self.poll():
                if item in wanted:
                    wanted.remove(item)
                else:
                    others.append(item)
            if wanted and time.monotonic() > ends:
                raise Failure(f"{self.name}: no notification {shorten(wanted[0])} in {within} s "
                              f"({len(wanted)} missing; others: {[shorten(o) for o in others[:3]]})")
        self.seen = others

    def expect_none(self, for_seconds=0.05):
        """Nothing (more) comes."""
        ends = time.monotonic() + for_seconds
        while time.monotonic() < ends:
            came = self.poll()
            require(not came, f"{self.name}: unexpected notifications {[shorten(c) for c in came[:3]]}")

    def watch(self, sender, count, key, size, within=WAIT):
        """Message b"i" belongs to slot i of the buffer, which then holds pattern i. Looks at the slot
        the moment the message is seen. Each message once, nothing else."""
        waiting, ends = set(range(count)), time.monotonic() + within
        while waiting:
            for who, message in self.poll():
                slot = int(message)
                self.check(key, slot, slot * size, size)
                require(who == sender and slot in waiting, f"unexpected or again: {(who, message)}")
                waiting.remove(slot)
            require(time.monotonic() < ends, f"{self.name}: {len(waiting)} notifications missing")
        self.expect_none()

    def poison_when_read(self, sender, count, key, size, within=WAIT):
        """The moment message b"i" is seen slot i may be used again."""
        waiting, ends = set(range(count)), time.monotonic() + within
        while waiting:
            for who, message in self.poll():
                slot = int(message)
                require(who == sender and slot in waiting, f"unexpected or again: {(who, message)}")
                waiting.remove(slot)
                self.poison(key, slot * size, size)
            require(time.monotonic() < ends, f"{self.name}: {len(waiting)} notifications missing")


def shorten(item):
    sender, message = item
    return sender[:40], message[:40] + (b"..." if len(message) > 40 else b"")


def refusal(call):
    """The name of the error that it must raise, here or in another process."""
    try:
        call()
    except NIXL_ERRORS as error:
        return status_name(error)
    except RemoteError as error:
        return error.status
    raise Failure("that should have been refused")


def wait_until(condition, what, within=WAIT):
    ends = time.monotonic() + within
    while not condition():
        if time.monotonic() > ends:
            raise Failure(f"not within {within} s: {what}")
        time.sleep(0.001)


# ---- other processes -----------------------------------------------------------------------------

class Peer:
    """A process that waits for orders and has one side. Calls are those of that side."""

    def __init__(self, side):
        self.pipe, theirs = multiprocessing.connection.Pipe()
        self.pid = os.fork()
        if self.pid == 0:
            self.pipe.close()
            serve(side, theirs)
        theirs.close()

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)

        def call(*args, **more):
            self.order(name, *args, **more)
            return self.answer()
        return call

    def order(self, name, *args, **more):
        """Begins a call; answer() ends it."""
        self.pipe.send((name, args, more))

    def answer(self, within=3 * WAIT):
        try:
            if not self.pipe.poll(within):
                raise Failure(f"the process {self.pid} did not answer in {within} s")
            kind, value = self.pipe.recv()
        except EOFError:
            raise Failure(f"the process {self.pid} is gone") from None
        if kind == "error":
            raise value
        return value

    def kill(self):
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        self.pid = None

    def stop(self):
        os.kill(self.pid, signal.SIGSTOP)
        wait_until(lambda: process_state(self.pid) == "T", "the peer is stopped")

    def go_on(self):
        os.kill(self.pid, signal.SIGCONT)

    def answers(self):
        return self.pid is not None and process_state(self.pid) not in "ZXT"

    def end(self):
        self.pipe.close()
        if self.pid is not None:
            self.kill()


def process_state(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
        return file.read().rsplit(")", 1)[1].split()[0]


def serve(side, pipe):
    """The other process. Never returns."""
    die_with_parent()
    code = 0
    try:
        while True:
            name, args, more = pipe.recv()
            try:
                pipe.send(("value", getattr(side, name)(*args, **more)))
            except BaseException as error:  # also Skip and errors of the bindings
                if not isinstance(error, (Failure, Skip)):
                    traceback.print_exc()
                    error = RemoteError(status_name(error), str(error))
                pipe.send(("error", error))
    except EOFError:
        pass
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


class RemoteError(Exception):
    """An exception of the other process, by name: those of the bindings cannot travel."""

    def __init__(self, status, text):
        super().__init__(status, text)
        self.status = status


def die_with_parent():
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


# ---- tests ---------------------------------------------------------------------------------------

@dataclasses.dataclass
class Setup:
    """Where a test runs: chosen on the command line of run.py."""
    backend: str = "TCPX"
    path: str = "tcp"
    net_plugin: str = ""
    long: bool = False
    memory: str = "host"  # or one of cuda.KINDS, at both ends
    cuda: str = ""  # the driver's library


@dataclasses.dataclass
class Case:
    name: str
    body: types.FunctionType
    core: bool
    places: tuple
    peers: int
    ucx: object
    limit: float


CASES = {}


def case(core=False, places=("two processes", "one process"), peers=1, ucx=True, limit=60):
    """core: also run on the oldest and the newest NIXL. places: where the target is; () when the
    test makes its own sides. ucx: True, or why NIXL's own backend does not do this."""
    def add(body):
        CASES[body.__name__] = Case(body.__name__, body, core, places, peers, ucx, limit)
        return body
    return add


class Test:
    """One run of one case in one place."""

    def __init__(self, setup, peers):
        self.setup = setup
        self.spare = [Peer(self.new_side()) for _ in range(peers)]
        self.peers = list(self.spare)
        self.sides = []

    def new_side(self):
        return Side(self.setup.backend, self.setup.memory, self.setup.cuda)

    @property
    def ours(self):
        return self.setup.backend != "UCX"

    def params(self, **more):
        """Of a backend on the path under test."""
        if not self.ours:
            return {}
        params = {"require_path": self.setup.path}
        if self.setup.path == "net":
            params["net_plugin"] = self.setup.net_plugin
        params.update(more)
        return params

    def here(self, name=None, *, params=None, **options):
        side = self.new_side()
        self.sides.append(side)
        if name:
            side.start(name, self.params() if params is None else params, **options)
        return side

    def peer(self, name=None, *, params=None, **options):
        peer = self.spare.pop(0)
        if name:
            peer.start(name, self.params() if params is None else params, **options)
        return peer

    def target(self, place, name="target", **options):
        return self.peer(name, **options) if place == "two processes" else self.here(name, **options)

    def end(self, failed):
        """Closes what is left; after a success also looks at the guards."""
        try:
            if not failed:
                for peer in self.peers:
                    if peer.answers():
                        peer.close()
                while self.sides:
                    self.sides.pop().close()
        finally:
            for peer in self.peers:
                peer.end()


def run_case(setup, one):
    """All places of a case, in this process. Raises Failure or Skip."""
    if not isinstance(one.ucx, bool) and setup.backend == "UCX":
        raise Skip(f"UCX: {one.ucx}")
    faulthandler.enable()
    faulthandler.dump_traceback_later(one.limit, exit=True)
    places = one.places or (None,)
    # All peers of all places now: afterwards this process has threads.
    tests = [Test(setup, one.peers if place != "one process" else 0) for place in places]
    for place, test in zip(places, tests):
        failed = True
        try:
            one.body(test, *([place] if place else []))
            failed = False
        except AssertionError as error:
            raise Failure(f"{place}: {error}" if place else str(error)) from error
        finally:
            test.end(failed)
    faulthandler.cancel_dump_traceback_later()


def in_threads(*bodies):
    """Runs them side by side; the first exception of any comes out."""
    errors = []

    def guarded(body):
        try:
            body()
        except BaseException as error:
            errors.append(error)
    threads = [threading.Thread(target=guarded, args=(body,), daemon=True) for body in bodies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(3 * WAIT)
        require(not thread.is_alive(), "a thread does not end")
    if errors:
        raise errors[0]
