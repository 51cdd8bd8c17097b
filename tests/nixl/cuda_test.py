"""Memory of GPUs, on the fake CUDA driver (--fake-cuda) or a real one (TCPX_TEST_CUDA=real).

The other files' cases run with all their buffers in GPU memory, too (--memory cuda). Here is what is only
about GPUs: both kinds of memory together, whose memory it is, where it came from, when it is advertised.
"""
import ctypes
import os
import subprocess
import sys
import tempfile

import cuda
from backend_test import captured_stderr
from harness import Skip, case, refusal, require
from transfer_test import at_address, same_sizes_elsewhere, scattered

MIB = 1 << 20
PAIRS = [("cuda", "cuda"), ("cuda", "host"), ("host", "cuda")]
NO_UCX = "the wheel's needs a real GPU"


def both(test, place, size, kinds=("host", "cuda"), device=0):
    """An initiator that knows the target. Each has a registered buffer of each kind, named by it, as SGLang has (cache and
    state). Returns also {kind: address} of each."""
    target = test.target(place, gpu=True)
    initiator = test.here("initiator", gpu=True)
    there, here = ({kind: side.alloc(kind, size, memory=kind, device=device) for kind in kinds}
                   for side in (target, initiator))
    initiator.load(target.metadata())
    return initiator, target, here, there


def refused_with(words, register):
    """A registration fails and the log says why, with one of these."""
    with captured_stderr() as log:
        wrong, text = refusal(register), log()
    words = [words] if isinstance(words, str) else words
    require(wrong == "Backend" and any(word in text for word in words), f"not \"{words}\" but {wrong}: {text}")


@case(core=True, ucx=NO_UCX)
def every_pair_of_kinds(test, place):
    size = 4 * MIB
    initiator, target, here, there = both(test, place, size)
    seed = 0
    for mine, theirs in [*PAIRS, ("host", "host")]:
        for length in (1, 7, 4095, 4096, 65_537, MIB + 3, size - 8):
            seed += 1
            left, right = seed % 5, (3 * seed + 1) % 5
            pieces = [(here[mine] + left, length)], [(there[theirs] + right, length)]
            initiator.fill(mine, seed, left, length, 0)
            target.poison(theirs)
            initiator.move("WRITE", *pieces, "target", b"w%d" % seed, (mine, theirs))
            target.expect("initiator", b"w%d" % seed)
            target.check_blocks(theirs, seed, [(right, length)])
            initiator.poison(mine)
            initiator.move("READ", *pieces, "target", b"r%d" % seed, (mine, theirs))
            target.expect("initiator", b"r%d" % seed)
            initiator.check_blocks(mine, seed, [(left, length)])
    target.expect_none()


@case(core=True, ucx=NO_UCX)
def lists_of_both_kinds(test, place):
    space, room = {}, 0
    for count, largest in ((1, 90_000), (10, 9000), (1000, 3000), (10_000, 600)):
        blocks, one = scattered(count, largest, 50, count)
        elsewhere, other = same_sizes_elsewhere(blocks, 50, count + 1)
        space[count], room = (blocks, elsewhere), max(room, one, other)
    initiator, target, here, there = both(test, place, room)
    for seed, (mine, theirs) in enumerate(PAIRS):
        for count, (blocks, elsewhere) in space.items():
            lists = at_address(here[mine], blocks), at_address(there[theirs], elsewhere)
            initiator.fill_blocks(mine, seed, blocks)
            target.poison(theirs)
            initiator.move("WRITE", *lists, "target", b"", (mine, theirs))
            target.check_blocks(theirs, seed, elsewhere)
            initiator.poison(mine)
            initiator.move("READ", *lists, "target", b"", (mine, theirs))
            initiator.check_blocks(mine, seed, blocks)


@case(core=True, ucx=NO_UCX)
def kinds_mixed_in_one_agent(test, place):
    """As SGLang does it: prepared lists of the cache in GPU memory and of its state in host memory, parts of both under way
    together, a notification for each."""
    count, size = 64, 8192
    initiator, target, here, there = both(test, place, count * size)
    blocks = [(i * size, size) for i in range(count)]
    lists = {kind: (initiator.prepare(None, at_address(here[kind], blocks), kind),
                    initiator.prepare("target", at_address(there[kind], blocks), kind)) for kind in here}
    for kind in here:
        initiator.fill(kind, 1)
        target.poison(kind)
    order = [(5 * i + 3) % count for i in range(count)]
    requests, messages = [], []
    for part in range(0, count, 8):
        for kind in ("cuda", "host"):
            indices = order[part:part + 8]
            messages.append(f"{kind} {part}".encode())
            requests.append(initiator.prepared_request("WRITE", lists[kind][0], indices, lists[kind][1], indices,
                                                       messages[-1]))
            require(initiator.post(requests[-1]) in ("PROC", "DONE"), "posted")
    target.expect_all([("initiator", message) for message in messages])
    for kind in here:
        target.check(kind, 1)
    for request in requests:
        require(initiator.wait(request) == "DONE", "done")
    target.expect_none()


@case(core=True, ucx=NO_UCX, places=("two processes",))
def gpu_memory_is_there_when_its_notification_is(test, place):
    """And a copy of the application's own that begins then sees it."""
    count, size = 20, 300_001
    initiator, target, here, there = both(test, place, count * size)
    target.order("watch", "initiator", count, "cuda", size)
    for slot in range(count):
        initiator.fill("cuda", slot, slot * size, size)
        piece = slot * size
        initiator.move("WRITE", [(here["cuda"] + piece, size)], [(there["cuda"] + piece, size)], "target",
                       b"%d" % slot, ("cuda", "cuda"))
    target.answer()
    # A READ's: the owner may use the memory again at once.
    target.fill("cuda", 77)
    target.order("poison_when_read", "initiator", count, "cuda", size)
    requests = [initiator.request("READ", [(here["cuda"] + slot * size, size)], [(there["cuda"] + slot * size, size)],
                                  "target", b"%d" % slot, ("cuda", "cuda")) for slot in range(count)]
    for request in requests:
        initiator.post(request)
    for request in requests:
        require(initiator.wait(request) == "DONE", "done")
    target.answer()
    initiator.check("cuda", 77)


@case(core=True, places=(), ucx=NO_UCX)
def self_transfers_in_gpu_memory(test):
    size = MIB + 17
    agent = test.here("agent", gpu=True)
    at = {name: agent.alloc(name, size, memory="host" if name == "host" else "cuda") for name in ("a", "b", "host")}
    seed = 0
    for source, sink in (("a", "b"), ("a", "host"), ("host", "b"), ("b", "a")):
        kinds = ["host" if name == "host" else "cuda" for name in (source, sink)]
        for op in ("WRITE", "READ"):
            seed += 1
            agent.fill(source, seed)
            agent.poison(sink)
            ends = [(at[source], size)], [(at[sink], size)]
            if op == "READ":
                ends, ordered = ends[::-1], kinds[::-1]
            else:
                ordered = kinds
            agent.move(op, *ends, "agent", b"%d" % seed, tuple(ordered))
            agent.check(sink, seed)
            agent.expect("agent", b"%d" % seed)


@case(core=True, ucx=NO_UCX)
def two_gpus_in_one_request(test, place):
    target = test.target(place, gpu=True)
    if target.gpus() < 2:
        raise Skip("there is one GPU")
    initiator = test.here("initiator", gpu=True)
    size = 100_000
    there, here = ({gpu: side.alloc(f"gpu {gpu}", size, memory="cuda", device=gpu) for gpu in (0, 1)}
                   for side in (target, initiator))
    initiator.load(target.metadata())
    # Crosswise, with the number of a descriptor being its own end's.
    local = [(here[0], size, 0), (here[1], size, 1)]
    remote = [(there[1], size, 1), (there[0], size, 0)]
    for op, source, sink in (("WRITE", initiator, target), ("READ", target, initiator)):
        for gpu in (0, 1):
            source.fill(f"gpu {gpu}", gpu)
            sink.poison(f"gpu {gpu}")
        initiator.move(op, local, remote, "target", b"", ("cuda", "cuda"))
        for gpu in (0, 1):
            sink.check(f"gpu {gpu}", 1 - gpu)


# ---- where it comes from -------------------------------------------------------------------------

@case(core=True, ucx=NO_UCX)
def expandable_segments(test, place):
    """One range of many physical chunks, with borders where no chunk has one."""
    size = 4 * cuda.CHUNK + 12_345
    initiator, target, here, there = both(test, place, size, ("vmm",))
    here, there = here["vmm"], there["vmm"]
    borders = [(i * cuda.CHUNK - 5000, 9000 + i) for i in range(1, 5)]
    for seed, blocks in enumerate(([(0, size)], borders, borders[::-1])):
        initiator.fill_blocks("vmm", seed, blocks)
        target.poison("vmm")
        pieces = at_address(here, blocks), at_address(there, blocks)
        initiator.move("WRITE", *pieces, "target", b"", ("vmm", "vmm"))
        target.check_blocks("vmm", seed, blocks)
        initiator.poison("vmm")
        initiator.move("READ", *pieces, "target", b"", ("vmm", "vmm"))
        initiator.check_blocks("vmm", seed, blocks)


@case(core=True, places=(), ucx=NO_UCX)
def a_hole_in_a_segment_is_refused(test):
    """It would fault the context for good when it is touched."""
    agent = test.here("agent", gpu=True)
    agent.alloc("good", 5000, memory="cuda")
    agent.alloc("segment", 3 * cuda.CHUNK, register=False, memory="vmm")
    agent.chunk("segment", 1)
    # What a driver says of addresses without memory is its business.
    refused_with(("register each part by itself", "cannot tell whose memory"), lambda: agent.register("segment"))
    agent.buffers["segment"].block.map(cuda.CHUNK)
    agent.register("segment")


@case(core=True, ucx=NO_UCX)
def memory_of_a_pool(test, place):
    """cudaMallocAsync: nothing that could be given to another process."""
    size = 3 * MIB + 1
    initiator, target, here, there = both(test, place, size, ("pool",))
    initiator.fill("pool", 1)
    pieces = [(here["pool"], size)], [(there["pool"], size)]
    initiator.move("WRITE", *pieces, "target", b"", ("pool", "pool"))
    target.check("pool", 1)
    initiator.poison("pool")
    initiator.move("READ", *pieces, "target", b"", ("pool", "pool"))
    initiator.check("pool", 1)


@case(core=True, ucx=NO_UCX)
def freed_and_allocated_again(test, place):
    """Other memory at the same address, under a peer that keeps its metadata."""
    size = 3 * MIB
    target = test.target(place, gpu=True)
    initiator = test.here("initiator", gpu=True)
    here = initiator.alloc("cuda", size, memory="cuda")
    there = target.alloc("cuda", size, register=False, memory="cuda")
    token = target.register("cuda")
    metadata = target.metadata()
    initiator.load(metadata)
    write = initiator.request("WRITE", [(here, size)], [(there, size)], "target", b"", ("cuda", "cuda"))
    for turn in range(2):
        initiator.fill("cuda", turn)
        initiator.done(write)
        target.check("cuda", turn)
        target.deregister(token)
        require(initiator.run(write) != "DONE", "nothing is registered there")
        target.free("cuda")
        again = target.alloc("cuda", size, register=False, memory="cuda")
        if again != there:
            raise Skip("this driver gives another address")
        token = target.register("cuda")
        require(target.metadata() == metadata, "the same range has the same description")


@case(core=True, ucx=NO_UCX)
def other_chunks_behind_the_same_addresses(test, place):
    """The allocator of an engine that sleeps and wakes up: the addresses stay, the memory does not. On another GPU it is another range,
    and peers with old metadata do not reach it."""
    size = 2 * cuda.CHUNK
    target = test.target(place, gpu=True)
    initiator = test.here("initiator", gpu=True)
    here = initiator.alloc("cuda", size, memory="cuda")
    there = target.alloc("vmm", size, register=False, memory="vmm")  # three chunks
    token = target.register("vmm")
    metadata = target.metadata()
    initiator.load(metadata)
    initiator.fill("cuda", 1)
    write = initiator.request("WRITE", [(here, size)], [(there, size)], "target", b"", ("cuda", "vmm"))
    initiator.done(write)
    target.deregister(token)
    for chunk in (0, 1, 2):
        target.chunk("vmm", chunk, 0)
    token = target.register("vmm")
    require(target.metadata() == metadata, "the same range has the same description")
    initiator.done(write)
    target.check("vmm", 1)
    target.deregister(token)
    other = min(1, target.gpus() - 1)
    for chunk in (0, 1, 2):
        target.chunk("vmm", chunk, other)
    if other == 1:
        require(refusal(lambda: target.register("vmm")) == "Backend", "it is the memory of cuda:1")
        token = target.register("vmm", device=1)
        require(initiator.run(write) not in ("DONE", "RemoteDisconnect"), "the old range is gone")
        target.poison("vmm")
        initiator.unload("target")
        initiator.load(target.metadata())
        initiator.move("WRITE", [(here, size)], [(there, size, 1)], "target", b"", ("cuda", "vmm"))
        target.check("vmm", 1)
        target.deregister(token)
        for chunk in (0, 1, 2):
            target.chunk("vmm", chunk, 0)
    target.register("vmm")
    initiator.unload("target")
    initiator.load(metadata)
    target.poison("vmm")
    initiator.fill("cuda", 2)
    initiator.move("WRITE", [(here, size)], [(there, size)], "target", b"", ("cuda", "vmm"))
    target.check("vmm", 2)
    # The guards lay in the chunks that went.
    target.poison_guards("vmm")


# ---- whose it is ---------------------------------------------------------------------------------

@case(core=True, places=(), ucx=NO_UCX)
def memory_is_what_it_is_said_to_be(test):
    agent, other = (test.here(name, gpu=True) for name in ("agent", "other"))
    agent.alloc("gpu", 5000, register=False, memory="cuda")
    agent.alloc("host", 5000, register=False, memory="host")
    for key, kind, device, words in (("gpu", "VRAM", 1, "cuda:0, not of cuda:1"), ("gpu", "VRAM", 70_000, "no GPU has"),
                                     ("gpu", "VRAM", 31, "cuda:0, not of cuda:31"), ("gpu", "VRAM", 1 << 40, "no GPU has"),
                                     ("host", "VRAM", 0, "not of cuda:0"), ("gpu", "DRAM", 0, "register it as VRAM")):
        refused_with(words, lambda: agent.register(key, device=device, kind=kind))
    # None of that does any harm. The number of host memory is the user's own: LMCache gives its rank.
    agent.register("gpu")
    agent.register("host", device=7)
    there = other.alloc("gpu", 5000, memory="cuda")
    other.load(agent.metadata())
    agent.load(other.metadata())
    host, gpu = agent.address("host"), agent.address("gpu")
    agent.fill("host", 1)
    agent.move("WRITE", [(host, 5000, 7)], [(there, 5000)], "other", b"", ("host", "cuda"))
    other.check("gpu", 1)
    other.move("WRITE", [(there, 5000)], [(gpu, 5000)], "agent", b"", ("cuda", "cuda"))
    agent.check("gpu", 1)
    agent.poison("host")
    other.move("WRITE", [(there, 5000)], [(host, 5000, 7)], "agent", b"", ("cuda", "host"))
    agent.check("host", 1)


@case(core=True, places=("two processes",), ucx=NO_UCX)
def a_peer_without_cuda(test, place):
    """It reads and writes another's GPU memory, and no driver comes to its process."""
    size = 2 * MIB + 5
    target = test.target(place, gpu=True)
    initiator = test.here("initiator")
    there = target.alloc("cuda", size, memory="cuda")
    here = initiator.alloc("host", size, memory="host")
    initiator.load(target.metadata())
    target.load(initiator.metadata())
    initiator.fill("host", 1)
    initiator.move("WRITE", [(here, size)], [(there, size)], "target", b"written", ("host", "cuda"))
    target.expect("initiator", b"written")
    target.check("cuda", 1)
    initiator.poison("host")
    initiator.move("READ", [(here, size)], [(there, size)], "target", b"", ("host", "cuda"))
    initiator.check("host", 1)
    # The other way round.
    target.fill("cuda", 2)
    target.move("WRITE", [(there, size)], [(here, size)], "initiator", b"", ("cuda", "host"))
    initiator.check("host", 2)
    initiator.fill("host", 3)
    target.move("READ", [(there, size)], [(here, size)], "initiator", b"", ("cuda", "host"))
    target.check("cuda", 3)
    require(not initiator.uses_cuda(), "a driver was loaded")


# ---- when it is advertised -----------------------------------------------------------------------

def advertised(agent):
    return [[kind.removesuffix("_SEG") for kind in kinds] for kinds in agent.mem_types()]


@case(core=True, places=(), ucx=NO_UCX)
def advertised_where_cuda_is(test):
    agent = test.here("agent", gpu=True)
    require(advertised(agent) == [["DRAM", "VRAM"]] * 2, f"{advertised(agent)}")
    off = test.here("off", params=test.params(gpu_memory="off"))
    require(advertised(off)[1] == ["DRAM"], f"switched off: {advertised(off)}")
    off.alloc("gpu", 5000, register=False, memory="cuda")
    refused_with("gpu_memory", lambda: off.register("gpu", backends=["TCPX"]))
    off.alloc("host", 5000, memory="host")


HOST_ONLY = """
import harness, sys
setup = harness.Setup(*sys.argv[1:])
test = harness.Test(setup, 0)
side = test.here("agent", progress_thread=False)
here, there = side.alloc("a", 5000), side.alloc("b", 5000)
side.plugin_params(), side.mem_types()
side.fill("a", 1)
side.move("WRITE", [(here, 5000)], [(there, 5000)], "agent")
side.check("b", 1)
harness.require(not side.uses_cuda(), "a driver was loaded")
test.end(False)
"""


@case(core=True, places=(), ucx=NO_UCX)
def a_process_without_cuda_stays_one(test):
    """Where a driver could be loaded: its library is found by its name, and nobody asks for it."""
    if not test.setup.cuda:
        raise Skip("no CUDA driver to test with (--fake-cuda)")
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        if os.path.exists(test.setup.cuda):
            os.symlink(test.setup.cuda, os.path.join(folder, "libcuda.so.1"))
            environment["LD_LIBRARY_PATH"] = folder
        found = "import ctypes; ctypes.CDLL('libcuda.so.1')"
        require(subprocess.run([sys.executable, "-c", found], env=environment, timeout=20).returncode == 0, "findable")
        run = subprocess.run([sys.executable, "-c", HOST_ONLY, test.setup.backend, test.setup.path], env=environment,
                             timeout=40, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    require(run.returncode == 0, run.stdout)


@case(core=True, places=(), ucx=NO_UCX)
def cuda_is_never_begun_by_us(test):
    """A library that is there (UCX loads it) and unused stays so."""
    side = test.here()
    if not side.cuda_library:
        side.use_cuda()  # which skips
    library = ctypes.CDLL(side.cuda_library, mode=ctypes.RTLD_GLOBAL)
    side.start("agent", test.params())
    here, there = side.alloc("a", 5000, memory="host"), side.alloc("b", 5000, memory="host")
    side.fill("a", 1)
    side.move("WRITE", [(here, 5000)], [(there, 5000)], "agent", b"", ("host", "host"))
    side.check("b", 1)
    count = ctypes.c_int()
    require(library.cuDeviceGetCount(ctypes.byref(count)) == 3, "CUDA_ERROR_NOT_INITIALIZED is what it should say")


@case(core=True, places=(), ucx=NO_UCX)
def cuda_begun_after_the_agent(test):
    """NIXL asked what can be registered when there was no CUDA: who names the backend can register all the same."""
    side = test.here("agent")
    before = "VRAM" in advertised(side)[1]
    side.use_cuda()
    here = side.alloc("a", 5000, register=False, memory="cuda")
    if not before:
        require(refusal(lambda: side.register("a")) == "NotFound", "NIXL knows no backend for it")
    side.register("a", backends=["TCPX"])
    there = side.alloc("b", 5000, memory="host")
    side.fill("a", 1)
    side.move("WRITE", [(here, 5000)], [(there, 5000)], "agent", b"", ("cuda", "host"))
    side.check("b", 1)
