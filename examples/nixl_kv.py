#!/usr/bin/env python3
"""A KV cache moved through stock NIXL: prefill in one process, decode in another, or so many of each (--ranks 8:
as serving engines do it that have a process per GPU, each with its part of the cache).

Both have a cache of LAYERS x BLOCKS blocks. Prefill has filled some blocks for a request; decode has
free blocks elsewhere in its own cache, pulls the request's blocks of all layers with one READ, and the
notification of that READ tells prefill that its blocks are free again.

  pip install nixl numpy
  NIXL_PLUGIN_DIR=/folder/of/libplugin_TCPX.so python nixl_kv.py
  python nixl_kv.py --ranks 8              # eight processes on either side
  python nixl_kv.py --backend UCX          # the same with another backend

Host memory. What the two processes exchange over a pipe here (one blob of metadata, the numbers of
the blocks) a serving system sends through its own control plane.
"""
import argparse
import multiprocessing
import sys
import time

import numpy as np

try:
    from nixl._api import nixl_agent, nixl_agent_config
except ModuleNotFoundError as error:
    sys.exit(f"nixl_kv.py: {error}; NIXL before 1.4 also wants torch")


class KvCache:
    """One array per layer, registered with NIXL. The block is the unit that is moved."""

    def __init__(self, agent, shape):
        self.shape = shape
        self.layers = [np.zeros((shape.blocks, shape.block_bytes), np.uint8) for _ in range(shape.layers)]
        agent.register_memory([(layer.ctypes.data, layer.nbytes, 0, "") for layer in self.layers], "DRAM")

    def descriptors(self):
        """(address, length, device) of every block, layer by layer."""
        rows = np.zeros((self.shape.layers * self.shape.blocks, 3), np.uint64)
        rows[:, 0] = np.concatenate([layer.ctypes.data + np.arange(self.shape.blocks) * self.shape.block_bytes
                                     for layer in self.layers])
        rows[:, 1] = self.shape.block_bytes
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
    agent = nixl_agent(name, nixl_agent_config(backends=[shape.backend]))
    if shape.backend not in agent.backends:
        sys.exit(f"nixl_kv.py: NIXL has no backend {shape.backend}; is NIXL_PLUGIN_DIR the folder of "
                 f"libplugin_{shape.backend}.so? NIXL_LOG_LEVEL=INFO shows why it was not loaded")
    return agent


def prefill(pipe, results, rank, shape):
    """Owns the blocks; does nothing while they are read."""
    agent = make_agent(f"prefill-{rank}", shape)
    cache = KvCache(agent, shape)
    blocks = np.random.default_rng(1).permutation(shape.blocks)[:shape.request_blocks].tolist()
    pipe.send((agent.get_agent_metadata(), cache.descriptors(), blocks))
    for turn in range(shape.turns):
        for layer, array in enumerate(cache.layers):
            for position, block in enumerate(blocks):
                array[block] = content(shape, layer, position, turn)
        pipe.send("filled")
        wait_for_notification(agent, f"decode-{rank}", f"request {turn} fetched".encode())
        for array in cache.layers:  # nobody needs them any more
            array[blocks] = 0xEE
        pipe.recv()


def wait_for_notification(agent, sender, message, seconds=60):
    ends = time.monotonic() + seconds
    while not agent.check_remote_xfer_done(sender, message):
        if time.monotonic() > ends:
            sys.exit(f"nixl_kv.py: no notification {message} in {seconds} s")
        time.sleep(0.0005)


def decode(pipe, results, rank, shape):
    """Pulls, and tells the seconds of each turn."""
    agent = make_agent(f"decode-{rank}", shape)
    cache = KvCache(agent, shape)
    metadata, remote_rows, remote_blocks = pipe.recv()
    agent.add_remote_agent(metadata)
    # Once: every block of both sides. A request is then only a list of numbers.
    local = agent.prep_xfer_dlist("NIXL_INIT_AGENT", cache.descriptors(), "DRAM", [shape.backend])
    remote = agent.prep_xfer_dlist(f"prefill-{rank}", remote_rows, "DRAM", [shape.backend])
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
        for layer, array in enumerate(cache.layers):
            for position, block in enumerate(blocks):
                if not np.array_equal(array[block], content(shape, layer, position, turn)):
                    sys.exit(f"nixl_kv.py: wrong bytes in layer {layer}, block {block}, turn {turn}")
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
    print(f"{shape.backend}: {count} blocks of {shape.block_bytes} bytes ({size / 1e6:.0f} MB) per request, "
          f"content checked {sum(len(turns) for turns in seconds.values())} times")
    for rank, turns in sorted(seconds.items()):
        print(f"rank {rank}: first {turns[0] * 1e3:.1f} ms, best {min(turns) * 1e3:.1f} ms = "
              f"{size / min(turns) / 1e9:.2f} GB/s")


if __name__ == "__main__":
    main()
