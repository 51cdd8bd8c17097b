#!/usr/bin/env python3
"""What NCCL's Socket transport (PyTorch's) makes of a send from GPU memory to GPU memory, on one GPU.

  gpu_nccl.py [--bytes 268435456] [--settings 1x1,1x4,4x2,...] [--seconds 1] [--patience 100]

Two ranks share the GPU, each with a NCCL_HOSTID of its own, so that NCCL takes them for two hosts; P2P and shared memory
are off and the sockets are loopback's. A setting is NCCL_NSOCKS_PERTHREAD x NCCL_SOCKET_NTHREADS. Content is checked once
for each. A JSON document per setting: sockets, threads, gb_per_s (median) or error. Exits with 77 without a GPU or PyTorch.
"""
import argparse
import glob
import json
import multiprocessing
import os
import statistics
import sys
import tempfile
import time

# The best of them was 7.8 GB/s when it was tried; the product may not exceed 64.
SETTINGS = "1x1,4x1,8x1,1x4,2x4,4x4,8x4,4x8,8x8"
ENVIRONMENT = {
    "NCCL_NET": "Socket", "NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1", "NCCL_IB_DISABLE": "1",
    "NCCL_SOCKET_IFNAME": "lo", "NCCL_DEBUG": "WARN", "NCCL_NET_PLUGIN": "none",
}


def pattern(torch, size):
    at = torch.arange(size // 8, dtype=torch.int64, device="cuda")
    return (at * 2654435761 + 97).view(torch.uint8)


def run_rank(rank, store, size, seconds, setting, results):
    """A process's whole life."""
    try:
        sockets, threads = setting.split("x")
        os.environ.update(ENVIRONMENT, NCCL_HOSTID=f"host{rank}", NCCL_NSOCKS_PERTHREAD=sockets,
                          NCCL_SOCKET_NTHREADS=threads)
        import torch
        import torch.distributed as dist
        torch.cuda.set_device(0)
        dist.init_process_group("nccl", init_method=f"file://{store}", rank=rank, world_size=2)
        outcome = measure(torch, dist, rank, size, seconds)
        dist.destroy_process_group()
    except Exception as error:  # noqa: BLE001  # the other process is told, whatever it was
        outcome = {"error": f"rank {rank}: {type(error).__name__}: {(str(error).strip() or '?').splitlines()[0]}"}
    results.put((rank, outcome))


def measure(torch, dist, rank, size, seconds):
    """Rank 0 sends; rank 1 takes the time of each, from when both are ready until the bytes are in its memory."""
    content = pattern(torch, size)
    buffer = content.clone() if rank == 0 else torch.full((size,), 0xEE, dtype=torch.uint8, device="cuda")
    answer = torch.zeros(1, dtype=torch.uint8, device="cuda")

    def one():
        torch.cuda.synchronize()
        began = time.perf_counter()
        if rank == 0:
            dist.send(buffer, 1)
            dist.recv(answer, 1)
        else:
            dist.recv(buffer, 0)
            torch.cuda.synchronize()
            took = time.perf_counter() - began
            dist.send(answer, 0)
            torch.cuda.synchronize()
            return took
        torch.cuda.synchronize()
        return time.perf_counter() - began

    for _ in range(3):
        one()
    if rank == 1 and not torch.equal(buffer, content):
        return {"error": "wrong content"}
    # Both make as many, so the sender decides how many.
    each = torch.tensor([one()], dtype=torch.float64, device="cuda")
    dist.broadcast(each, 0)
    count = max(5, min(200, int(seconds / max(each.item(), 1e-6))))
    return {"times": [one() for _ in range(count)]}


def try_setting(setting, arguments):
    context = multiprocessing.get_context("fork")  # torch is read once, and no CUDA call has been made
    results = context.Queue()
    with tempfile.TemporaryDirectory() as folder:
        store = os.path.join(folder, "store")
        ranks = [context.Process(target=run_rank, daemon=True,
                                 args=(rank, store, arguments.bytes, arguments.seconds, setting, results))
                 for rank in range(2)]
        for rank in ranks:
            rank.start()
        outcomes = {}
        try:
            while len(outcomes) < 2:
                rank, outcome = results.get(timeout=arguments.each)
                outcomes[rank] = outcome
                if "error" in outcome:
                    break  # the other one waits for it
        except Exception:  # noqa: BLE001  # queue.Empty
            outcomes[-1] = {"error": f"not done after {arguments.each} s"}
        for rank in ranks:
            rank.join(5 if len(outcomes) == 2 else 0.1)
            if rank.is_alive():
                rank.kill()
                rank.join()
    errors = [outcome["error"] for outcome in outcomes.values() if "error" in outcome]
    sockets, threads = setting.split("x")
    document = {"sockets": int(sockets), "threads": int(threads)}
    if errors:
        return {**document, "error": errors[0]}
    # The sender's time includes a small answer, the receiver's the sender's delay: the better one counts, for NCCL.
    median = min(statistics.median(outcome["times"]) for outcome in outcomes.values())
    return {**document, "gb_per_s": arguments.bytes / median / 1e9}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bytes", type=int, default=256 << 20)
    parser.add_argument("--settings", default=SETTINGS)
    parser.add_argument("--seconds", type=float, default=1)
    parser.add_argument("--patience", type=float, default=100, help="for all settings together; the rest is left out")
    parser.add_argument("--each", type=float, default=40, help="for one setting")
    arguments = parser.parse_args()
    try:
        import torch  # noqa: F401
        import torch.distributed  # noqa: F401
    except ImportError as error:
        print(json.dumps({"error": f"no PyTorch: {error}"}))
        return 77
    if not glob.glob("/dev/nvidia*"):  # is_available() would call CUDA in the process that forks
        print(json.dumps({"error": "there is no GPU"}))
        return 77
    ends = time.monotonic() + arguments.patience
    for setting in arguments.settings.split(","):
        if time.monotonic() > ends:
            break
        print(json.dumps(try_setting(setting, arguments)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
