#!/usr/bin/env python3
"""Stock NCCL (PyTorch's) over the emulator, in UNPACK mode, two ranks on one GPU.

The proof that the emulator tells the truth. Each rank has its own NCCL_HOSTID, so NCCL takes them for
two hosts and uses the network. Checked, for several fragment plans and numbers of sockets: send/recv of 1 B
to 256 MiB and all-reduce, by content, several iterations; a second communicator after the first is destroyed;
the log shows our plugin, UNPACK and GPUDirect; the emulator's counters show that all data came through its
bounce pool, every receive was consumed and no rule of strict mode was broken.

    nccl_over_emulator.py PLUGIN [RESULTS]

RESULTS gets a line per configuration, for tests/summarize.py.
"""
import faulthandler
import os
import struct
import subprocess
import sys
import tempfile
import time

SIZES = [1, 17, 4095, 4096, 4097, 65536, 1 << 20, (1 << 20) + 3, 16 << 20, 256 << 20]
FEW_SIZES = [1, 4097, (1 << 20) + 3, 16 << 20]
ITERATIONS = 3
PATIENCE = 150  # seconds, for one configuration

# name, sizes, what the emulator is told beyond NCCL's own settings
CONFIGURATIONS = [
    ("pages_1_socket", SIZES, {}),
    ("packets_4_sockets", FEW_SIZES, {"TCPX_EMU_FRAGMENTS": "mtu", "NCCL_NSOCKS_PERTHREAD": "4"}),
    ("random_shuffled_8_sockets", FEW_SIZES,
     {"TCPX_EMU_FRAGMENTS": "random", "TCPX_EMU_SHUFFLE": "1", "NCCL_NSOCKS_PERTHREAD": "8",
      "NCCL_DYNAMIC_CHUNK_SIZE": "524288", "NCCL_BUFFSIZE": str(2 << 20)}),
]

# What the contract asks of NCCL: only Simple unpacks; no PAT, no registered user buffers. Kernels are loaded
# at the start, as loading one waits for those that run, and NCCL's wait for the copies of the emulator.
# NCCL 2.28 forgets the name of a plugin it has unloaded, so the second communicator would be without it;
# NCCL_NET_PLUGIN_REF_COUNT keeps it.
NCCL = {
    "NCCL_PROTO": "Simple", "NCCL_ALGO": "Ring", "NCCL_PAT_ENABLE": "0", "NCCL_LOCAL_REGISTER": "0",
    "NCCL_GRAPH_REGISTER": "0", "NCCL_NET_GDR_LEVEL": "SYS", "NCCL_P2P_DISABLE": "1",
    "NCCL_SHM_DISABLE": "1", "NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET",
    "NCCL_SOCKET_IFNAME": "lo", "NCCL_GPUDIRECTTCPX_SOCKET_IFNAME": "lo",
    "NCCL_DYNAMIC_CHUNK_SIZE": str(4 << 20), "CUDA_MODULE_LOADING": "EAGER",
    "NCCL_NET_PLUGIN_REF_COUNT": "1",
}
SHOWN_IN_LOG = ["Loaded net plugin TCPX_EMU", "Using NCCL_NET_DEVICE_UNPACK net plugin version 7",
                "via NET/TCPX_EMU/0/GDRDMA"]

# struct tcpx_emu_counters_file of plugins/tcpx_emu/tcpx_emu.h
COUNTERS = ("rx_devmem_pkts rx_devmem_bytes rx_host_bytes tx_bytes sends receives consumed comms_open "
            "requests_live requests_live_max misuses").split()


# ---- one rank ------------------------------------------------------------------------------------

def pattern(torch, size, rank, iteration):
    at = torch.arange(size, dtype=torch.int64, device="cuda")
    return ((at * 2654435761 + rank * 97 + iteration * 31) >> 7).to(torch.uint8)


def send_and_receive(torch, dist, rank, size, iteration):
    mine = pattern(torch, size, rank, iteration)
    expected = pattern(torch, size, 1 - rank, iteration)
    theirs = torch.full((size,), 0xEE, dtype=torch.uint8, device="cuda")
    torch.cuda.synchronize()
    for work in dist.batch_isend_irecv(
            [dist.P2POp(dist.isend, mine, 1 - rank), dist.P2POp(dist.irecv, theirs, 1 - rank)]):
        work.wait()
    torch.cuda.synchronize()
    assert torch.equal(theirs, expected), f"send/recv of {size} bytes, iteration {iteration}: wrong content"


def all_reduce(torch, dist, rank, size, iteration):
    count = max(1, size // 4)
    places = torch.arange(count, dtype=torch.float32, device="cuda") % 1000
    numbers = places + rank + iteration
    expected = places * 2 + 1 + 2 * iteration
    torch.cuda.synchronize()
    dist.all_reduce(numbers)
    torch.cuda.synchronize()
    assert torch.equal(numbers, expected), f"all-reduce of {count} floats, iteration {iteration}: wrong content"


def run_rank(rank, store, sizes):
    faulthandler.dump_traceback_later(PATIENCE - 10, exit=True)
    import torch
    import torch.distributed as dist
    torch.cuda.set_device(0)
    for generation in range(2):
        dist.init_process_group("nccl", init_method=f"file://{store}.{generation}", rank=rank,
                                world_size=2)
        for size in sizes:
            started = time.monotonic()
            for iteration in range(ITERATIONS):
                send_and_receive(torch, dist, rank, size, iteration)
                all_reduce(torch, dist, rank, size, iteration)
            print(f"rank {rank}: {size} bytes: {time.monotonic() - started:.2f} s", flush=True)
        dist.barrier()
        dist.destroy_process_group()
        print(f"rank {rank}: communicator {generation + 1} done", flush=True)


# ---- both ranks, and what they leave -------------------------------------------------------------

def check_counters(path, sizes):
    """What is wrong with the counters a rank left, and a line of the figures."""
    with open(path, "rb") as file:
        magic, _, each, _ = struct.unpack("<8sIIQ104x", file.read(128))
        assert magic == b"TCPXEMU1" and each >= 8 * len(COUNTERS), f"{path}: no counters"
        c = dict(zip(COUNTERS, struct.unpack(f"<{len(COUNTERS)}Q", file.read(8 * len(COUNTERS)))))
    least = 2 * ITERATIONS * sum(sizes)  # send/recv alone, of two communicators
    problems = [
        f"{c['rx_devmem_bytes']} bytes through the bounce pool, expected at least {least}"
        if c["rx_devmem_bytes"] < least else "",
        f"{c['rx_host_bytes']} bytes not through the bounce pool" if c["rx_host_bytes"] else "",
        f"{c['misuses']} rules of strict mode broken" if c["misuses"] else "",
        f"{c['receives']} receives, {c['consumed']} consumed" if c["receives"] != c["consumed"] else "",
        f"{c['comms_open']} comms left open" if c["comms_open"] else "",
    ]
    figures = (f"{c['receives']} receives, {c['rx_devmem_pkts']} fragments, {c['rx_devmem_bytes'] / 1e9:.2f} GB "
               f"unpacked, {c['requests_live_max']} requests at most")
    return [p for p in problems if p], figures


def run_configuration(plugin, name, sizes, settings, folder):
    logs = [os.path.join("build", "logs", f"nccl-rank{rank}.log") for rank in range(2)]
    counters = [os.path.join(folder, f"counters{rank}") for rank in range(2)]
    ranks = []
    for rank in range(2):
        env = dict(os.environ, **{**NCCL, **settings}, NCCL_NET_PLUGIN=plugin, NCCL_HOSTID=f"host{rank}",
                   TCPX_EMU_COUNTERS=counters[rank])
        arguments = ["--rank", str(rank), os.path.join(folder, "store"), ",".join(map(str, sizes))]
        with open(logs[rank], "w") as log:
            ranks.append(subprocess.Popen([sys.executable, os.path.abspath(__file__), *arguments], env=env,
                                          stdout=log, stderr=subprocess.STDOUT))
    problems, figures = [], []
    deadline = time.monotonic() + PATIENCE
    for rank, process in enumerate(ranks):
        try:
            if process.wait(timeout=max(1, deadline - time.monotonic())) != 0:
                problems.append(f"rank {rank} ended with {process.returncode}")
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            problems.append(f"rank {rank} was not done after {PATIENCE} s")
    for rank in range(2):
        with open(logs[rank], errors="replace") as log:
            text = log.read()
        problems += [f"rank {rank}: the log does not show \"{needed}\"" for needed in SHOWN_IN_LOG
                     if needed not in text]
        if os.path.exists(counters[rank]):
            wrong, line = check_counters(counters[rank], sizes)
            problems += [f"rank {rank}: {problem}" for problem in wrong]
            figures.append(f"  rank {rank}: {line}")
        if problems:
            print(f"--- rank {rank}\n{text[-4000:]}")
    print(f"{'FAILED' if problems else 'passed'}: NCCL over {os.path.basename(plugin)}, {name}: send/recv and "
          f"all-reduce of {len(sizes)} sizes, {ITERATIONS} iterations, two communicators")
    print("\n".join(figures + [f"  {problem}" for problem in problems]), flush=True)
    return problems


def main():
    if sys.argv[1] == "--rank":
        return run_rank(int(sys.argv[2]), sys.argv[3], [int(size) for size in sys.argv[4].split(",")])
    os.makedirs(os.path.join("build", "logs"), exist_ok=True)
    results = []
    for name, sizes, settings in CONFIGURATIONS:
        with tempfile.TemporaryDirectory() as folder:
            problems = run_configuration(os.path.abspath(sys.argv[1]), name, sizes, settings, folder)
        results.append(f"failed {name} {'; '.join(problems)}" if problems else f"passed {name}")
    if len(sys.argv) > 2:
        with open(sys.argv[2], "w") as file:
            file.write("\n".join(results) + "\n")
    return 1 if any(line.startswith("failed") for line in results) else 0


if __name__ == "__main__":
    sys.exit(main())
