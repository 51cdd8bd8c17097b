#!/usr/bin/env python3
"""Stock NCCL (PyTorch's) over the emulator, in UNPACK mode, two ranks on one GPU.

The proof that the emulator tells the truth. Each rank has its own NCCL_HOSTID, so NCCL takes them for
two hosts and uses the network. Checks: the log shows our plugin and a GDR connection; send/recv of 1 B to
256 MiB and all-reduce, content checked, several iterations; a second communicator after the first.

    nccl_over_emulator.py PLUGIN
"""
import os
import subprocess
import sys
import tempfile

SIZES = [1, 17, 4095, 4096, 4097, 65536, 1 << 20, (1 << 20) + 3, 16 << 20, 256 << 20]
ITERATIONS = 3
# What the contract asks of NCCL: only Simple unpacks; no PAT, no registered user buffers.
NCCL = {
    "NCCL_PROTO": "Simple", "NCCL_ALGO": "Ring", "NCCL_PAT_ENABLE": "0", "NCCL_LOCAL_REGISTER": "0",
    "NCCL_GRAPH_REGISTER": "0", "NCCL_NET_GDR_LEVEL": "SYS", "NCCL_P2P_DISABLE": "1",
    "NCCL_SHM_DISABLE": "1", "NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET",
    "NCCL_SOCKET_IFNAME": "lo", "NCCL_GPUDIRECTTCPX_SOCKET_IFNAME": "lo",
    "NCCL_DYNAMIC_CHUNK_SIZE": str(4 << 20),
}


def pattern(torch, size, rank, iteration):
    at = torch.arange(size, dtype=torch.int64, device="cuda")
    return ((at * 2654435761 + rank * 97 + iteration * 31) >> 7).to(torch.uint8)


def communicate(torch, dist, rank):
    for size in SIZES:
        for iteration in range(ITERATIONS):
            mine = pattern(torch, size, rank, iteration)
            theirs = torch.full((size,), 0xEE, dtype=torch.uint8, device="cuda")
            ops = [dist.P2POp(dist.isend, mine, 1 - rank), dist.P2POp(dist.irecv, theirs, 1 - rank)]
            for work in dist.batch_isend_irecv(ops):
                work.wait()
            torch.cuda.synchronize()
            assert torch.equal(theirs, pattern(torch, size, 1 - rank, iteration)), \
                f"send/recv of {size} bytes, iteration {iteration}: wrong content"
            count = max(1, size // 4)
            numbers = torch.arange(count, dtype=torch.float32, device="cuda") % 1000 + rank + iteration
            dist.all_reduce(numbers)
            expected = (torch.arange(count, dtype=torch.float32, device="cuda") % 1000) * 2 + 1 + 2 * iteration
            torch.cuda.synchronize()
            assert torch.equal(numbers, expected), f"all-reduce of {count} floats: wrong content"


def run_rank(rank, store):
    import torch
    import torch.distributed as dist
    torch.cuda.set_device(0)
    for generation in range(2):
        dist.init_process_group("nccl", init_method=f"file://{store}.{generation}", rank=rank,
                                world_size=2)
        communicate(torch, dist, rank)
        dist.barrier()
        dist.destroy_process_group()
        print(f"rank {rank}: communicator {generation + 1} done", flush=True)


def main():
    if sys.argv[1] == "--rank":
        return run_rank(int(sys.argv[2]), sys.argv[3])
    plugin = os.path.abspath(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        logs = [open(os.path.join(folder, f"rank{r}.log"), "w+") for r in range(2)]
        ranks = []
        for rank in range(2):
            env = dict(os.environ, **NCCL, NCCL_NET_PLUGIN=plugin, NCCL_HOSTID=f"host{rank}")
            ranks.append(subprocess.Popen(
                [sys.executable, __file__, "--rank", str(rank), os.path.join(folder, "store")],
                env=env, stdout=logs[rank], stderr=subprocess.STDOUT))
        failed = False
        for rank, process in enumerate(ranks):
            try:
                failed |= process.wait(timeout=300) != 0
            except subprocess.TimeoutExpired:
                process.kill()
                failed = True
            logs[rank].seek(0)
            text = logs[rank].read()
            for needed in ("TCPX_EMU", "GDRDMA"):
                if needed not in text:
                    print(f"rank {rank}: the log does not show {needed}")
                    failed = True
            if failed:
                print(f"--- rank {rank}\n" + text[-6000:])
        if failed:
            return 1
        print(f"stock NCCL over {os.path.basename(plugin)}: send/recv and all-reduce of {len(SIZES)} sizes, "
              f"{ITERATIONS} iterations, two communicators: content right")
        return 0


if __name__ == "__main__":
    sys.exit(main() or 0)
