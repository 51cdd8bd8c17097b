#!/usr/bin/env python3
"""A KV cache moved through stock NIXL: prefill in one process, decode in another, or so many of each (--ranks 8:
as serving engines do it that have a process per GPU, each with its part of the cache).

Both have a cache of LAYERS x BLOCKS blocks. Prefill has filled some blocks for a request; decode has
free blocks elsewhere in its own cache, pulls the request's blocks of all layers with one READ, and the
notification of that READ tells prefill that its blocks are free again.

  pip install nixl numpy
  NIXL_PLUGIN_DIR=/folder/of/libplugin_TCPX.so python nixl_kv.py
  python nixl_kv.py --ranks 8              # eight processes on either side
  python nixl_kv.py --memory cuda          # the caches in GPU memory, rank N on GPU N (modulo the GPUs there are)
  python nixl_kv.py --backend UCX          # the same with another backend

GPU memory is PyTorch's where that is installed, else the CUDA driver's own. What the two processes exchange over a pipe here (one blob of metadata, the numbers of
the blocks) a serving system sends through its own control plane.
"""
import argparse
import ctypes
import multiprocessing
import sys
import time

import numpy as np

try:
    import torch
except ModuleNotFoundError:
    torch = None
try:
    from nixl._api import nixl_agent, nixl_agent_config
except ModuleNotFoundError as error:
    sys.exit(f"nixl_kv.py: {error}; NIXL before 1.4 also wants torch")


class HostLayer:
    """One layer of a cache: blocks of bytes, to be put and looked at one by one."""

    def __init__(self, shape, device):
        self.array = np.zeros((shape.blocks, shape.block_bytes), np.uint8)
        self.address = self.array.ctypes.data

    def put(self, block, data):
        self.array[block] = data

    def get(self, block):
        return self.array[block]

    @staticmethod
    def finish(device):
        """What was put is there. A transfer may be posted only when the work that made its data has ended."""


class TorchLayer:
    """The same in a tensor on a GPU."""

    def __init__(self, shape, device):
        self.array = torch.zeros((shape.blocks, shape.block_bytes), dtype=torch.uint8, device=f"cuda:{device}")
        self.address = self.array.data_ptr()

    def put(self, block, data):
        self.array[block] = torch.from_numpy(np.ascontiguousarray(data)).to(self.array.device)

    def get(self, block):
        return self.array[block].cpu().numpy()

    @staticmethod
    def finish(device):
        torch.cuda.synchronize(device)

    @staticmethod
    def devices():
        return torch.cuda.device_count()


class DriverLayer:
    """The same by the CUDA driver's functions, for those who have no PyTorch."""

    driver = None

    def __init__(self, shape, device):
        self.block_bytes = shape.block_bytes
        self.enter(device)
        address = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(shape.blocks * shape.block_bytes))
        self.address = address.value

    @classmethod
    def call(cls, name, *arguments):
        if cls.driver is None:
            cls.driver = ctypes.CDLL("libcuda.so.1", mode=ctypes.RTLD_GLOBAL)
            cls.call("cuInit", 0)
        result = getattr(cls.driver, name)(*arguments)
        if result != 0:
            sys.exit(f"nixl_kv.py: {name}: CUDA error {result}")

    @classmethod
    def enter(cls, device):
        context = ctypes.c_void_p()
        cls.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        cls.call("cuCtxSetCurrent", context)

    @classmethod
    def devices(cls):
        count = ctypes.c_int()
        cls.call("cuDeviceGetCount", ctypes.byref(count))
        return count.value

    def put(self, block, data):
        data = np.ascontiguousarray(data)
        self.call("cuMemcpyHtoD_v2", ctypes.c_uint64(self.address + block * self.block_bytes),
                  ctypes.c_void_p(data.ctypes.data), ctypes.c_size_t(data.nbytes))

    def get(self, block):
        data = np.empty(self.block_bytes, np.uint8)
        self.call("cuMemcpyDtoH_v2", ctypes.c_void_p(data.ctypes.data),
                  ctypes.c_uint64(self.address + block * self.block_bytes), ctypes.c_size_t(data.nbytes))
        return data

    @classmethod
    def finish(cls, device):
        cls.call("cuCtxSynchronize")


def layers_of(memory):
    if memory == "host":
        return HostLayer
    return TorchLayer if torch is not None and torch.cuda.is_available() else DriverLayer


class KvCache:
    """Layers of blocks in the memory of one device, registered with NIXL. The block is the unit that is moved."""

    def __init__(self, shape, rank):
        kind = layers_of(shape.memory)
        self.shape = shape
        self.segment = "DRAM" if shape.memory == "host" else "VRAM"
        self.device = 0 if shape.memory == "host" else rank % kind.devices()  # CUDA's number of the GPU
        self.layers = [kind(shape, self.device) for _ in range(shape.layers)]
        self.finish = lambda: kind.finish(self.device)

    def register(self, agent):
        size = self.shape.blocks * self.shape.block_bytes
        agent.register_memory([(layer.address, size, self.device, "") for layer in self.layers], self.segment)

    def descriptors(self):
        """(address, length, device) of every block, layer by layer."""
        rows = np.zeros((self.shape.layers * self.shape.blocks, 3), np.uint64)
        offsets = np.arange(self.shape.blocks, dtype=np.uint64) * np.uint64(self.shape.block_bytes)
        rows[:, 0] = np.concatenate([np.uint64(layer.address) + offsets for layer in self.layers])
        rows[:, 1] = self.shape.block_bytes
        rows[:, 2] = self.device
        return rows

    def indices(self, blocks):
        """Where these blocks of all layers are in descriptors()."""
        first = np.arange(self.shape.layers)[:, None] * self.shape.blocks
        return (first + np.asarray(blocks)[None, :]).ravel().astype(np.int32)


def content(shape, layer, position, turn):
    """What block number `position` of the request holds: differs by layer, position, byte and turn."""
    words = np.arange(shape.block_bytes // 8, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    return (words + np.uint64(layer * 1_000_003 + position * 257 + turn)).view(np.uint8)


def make_agent(name, shape):
    """After CUDA was begun: only then NIXL hears that GPU memory can be registered."""
    agent = nixl_agent(name, nixl_agent_config(backends=[shape.backend]))
    if shape.backend not in agent.backends:
        sys.exit(f"nixl_kv.py: NIXL has no backend {shape.backend}; is NIXL_PLUGIN_DIR the folder of "
                 f"libplugin_{shape.backend}.so? NIXL_LOG_LEVEL=INFO shows why it was not loaded")
    return agent


def prefill(pipe, results, rank, shape):
    """Owns the blocks; does nothing while they are read."""
    cache = KvCache(shape, rank)
    agent = make_agent(f"prefill-{rank}", shape)
    cache.register(agent)
    blocks = np.random.default_rng(1).permutation(shape.blocks)[:shape.request_blocks].tolist()
    pipe.send((agent.get_agent_metadata(), cache.segment, cache.descriptors(), blocks))
    for turn in range(shape.turns):
        for number, layer in enumerate(cache.layers):
            for position, block in enumerate(blocks):
                layer.put(block, content(shape, number, position, turn))
        cache.finish()
        pipe.send("filled")
        wait_for_notification(agent, f"decode-{rank}", f"request {turn} fetched".encode())
        for layer in cache.layers:  # nobody needs them any more
            for block in blocks:
                layer.put(block, np.full(shape.block_bytes, 0xEE, np.uint8))
        pipe.recv()


def wait_for_notification(agent, sender, message, seconds=60):
    ends = time.monotonic() + seconds
    while not agent.check_remote_xfer_done(sender, message):
        if time.monotonic() > ends:
            sys.exit(f"nixl_kv.py: no notification {message} in {seconds} s")
        time.sleep(0.0005)


def decode(pipe, results, rank, shape):
    """Pulls, and tells the seconds of each turn."""
    cache = KvCache(shape, rank)
    agent = make_agent(f"decode-{rank}", shape)
    cache.register(agent)
    metadata, remote_segment, remote_rows, remote_blocks = pipe.recv()
    agent.add_remote_agent(metadata)
    # Once: every block of both sides. A request is then only a list of numbers.
    local = agent.prep_xfer_dlist("NIXL_INIT_AGENT", cache.descriptors(), cache.segment, [shape.backend])
    remote = agent.prep_xfer_dlist(f"prefill-{rank}", remote_rows, remote_segment, [shape.backend])
    blocks = np.random.default_rng(2).permutation(shape.blocks)[:shape.request_blocks].tolist()
    seconds = []
    for turn in range(shape.turns):
        pipe.recv()
        began = time.perf_counter()
        handle = agent.make_prepped_xfer("READ", local, cache.indices(blocks), remote,
                                         cache.indices(remote_blocks), f"request {turn} fetched".encode(),
                                         [shape.backend])
        wait_for_transfer(agent, handle)
        seconds.append(time.perf_counter() - began)
        agent.release_xfer_handle(handle)
        for number, layer in enumerate(cache.layers):
            for position, block in enumerate(blocks):
                if not np.array_equal(layer.get(block), content(shape, number, position, turn)):
                    sys.exit(f"nixl_kv.py: wrong bytes in layer {number}, block {block}, turn {turn}")
        pipe.send("next")
    results.put((rank, seconds))


def wait_for_transfer(agent, handle, seconds=60):
    """An error is an exception of NIXL's, e.g. nixlRemoteDisconnectError when prefill died."""
    ends = time.monotonic() + seconds
    state = agent.transfer(handle)
    while state == "PROC":
        if time.monotonic() > ends:
            sys.exit(f"nixl_kv.py: the transfer took longer than {seconds} s")
        state = agent.check_xfer_state(handle)
    if state != "DONE":
        sys.exit(f"nixl_kv.py: the transfer ended with {state}")


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", default="TCPX")
    parser.add_argument("--memory", choices=("host", "cuda"), default="host", help="where the caches are")
    parser.add_argument("--ranks", type=int, default=1, help="processes on either side")
    parser.add_argument("--layers", type=int, default=32)
    parser.add_argument("--blocks", type=int, default=128, help="in each layer of each cache")
    parser.add_argument("--block-bytes", type=int, default=32768, help="a multiple of 8")
    parser.add_argument("--request-blocks", type=int, default=64, help="per layer, of one request")
    parser.add_argument("--turns", type=int, default=5)
    return parser.parse_args()


def run_workers(shape):
    """{rank: seconds of each turn}."""
    context = multiprocessing.get_context("spawn")  # NIXL has threads: never fork it
    results = context.SimpleQueue()
    workers = []
    for rank in range(shape.ranks):
        for side, pipe in zip((prefill, decode), context.Pipe()):
            workers.append(context.Process(target=side, args=(pipe, results, rank, shape), daemon=True))
            workers[-1].start()
            pipe.close()
    seconds = {}
    while len(seconds) < shape.ranks or any(worker.is_alive() for worker in workers):
        if any(worker.exitcode for worker in workers):
            sys.exit("nixl_kv.py: a worker failed")  # what of it, it has said; the others end with us
        if results.empty():
            time.sleep(0.02)
        else:
            rank, turns = results.get()
            seconds[rank] = turns
    return seconds


def main():
    shape = parse_arguments()
    seconds = run_workers(shape)
    count, size = shape.layers * shape.request_blocks, shape.layers * shape.request_blocks * shape.block_bytes
    where = "" if shape.memory == "host" else ", GPU memory"
    print(f"{shape.backend}{where}: {count} blocks of {shape.block_bytes} bytes ({size / 1e6:.0f} MB) per request, "
          f"content checked {sum(len(turns) for turns in seconds.values())} times")
    for rank, turns in sorted(seconds.items()):
        print(f"rank {rank}: first {turns[0] * 1e3:.1f} ms, best {min(turns) * 1e3:.1f} ms = "
              f"{size / min(turns) / 1e9:.2f} GB/s")


if __name__ == "__main__":
    main()
