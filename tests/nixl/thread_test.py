"""Progress thread on and off, every sync mode, several threads on one agent."""
import contextlib
import threading

from harness import case, in_threads, require

THREADS = 4
ROUNDS = 12
SIZE = 60_000


def busy(test, place, lock, **options):
    """Several threads with requests of their own, one that takes notifications, all on one agent;
    lock: what the application does itself when the agent has no locks."""
    target = test.target(place)
    there = target.alloc("b", THREADS * SIZE)
    initiator = test.here("initiator", **options)
    here = initiator.alloc("b", THREADS * SIZE)
    initiator.load(target.metadata())
    target.load(initiator.metadata())

    def wait(request):
        while True:
            with lock:
                state = initiator.state(request)
            if state != "PROC":
                return state

    def worker(index):
        local, remote = [(here + index * SIZE, SIZE)], [(there + index * SIZE, SIZE)]
        with lock:
            write = initiator.request("WRITE", local, remote, "target")
            read = initiator.request("READ", local, remote, "target")
        for turn in range(ROUNDS):
            seed = 100 * index + turn
            initiator.fill("b", seed, index * SIZE, SIZE)
            for request, message in ((write, b"w%d" % seed), (read, b"r%d" % seed)):
                with lock:
                    state = initiator.post(request, message)
                state = wait(request) if state == "PROC" else state
                require(state == "DONE", f"ended with {state}")
                if request == write:
                    initiator.poison("b", index * SIZE, SIZE)
            initiator.check("b", seed, index * SIZE, SIZE)

    def registrar():
        """Metadata and registrations change while transfers run."""
        for turn in range(ROUNDS):
            with lock:
                initiator.alloc(f"r{turn}", 5000)
                initiator.metadata()
                initiator.send("target", b"s%d" % turn)
    in_threads(*[lambda index=index: worker(index) for index in range(THREADS)], registrar)
    kinds = [b"%c%d" % (kind, 100 * index + turn) for kind in b"wr" for index in range(THREADS)
             for turn in range(ROUNDS)] + [b"s%d" % turn for turn in range(ROUNDS)]
    target.expect_all([("initiator", message) for message in kinds])
    target.expect_none()
    for index in range(THREADS):
        target.check("b", 100 * index + ROUNDS - 1, index * SIZE, SIZE)


@case(core=True)
def sync_none_with_several_threads(test, place):
    """No locks in the agent: the application has one."""
    busy(test, place, threading.Lock(), sync="NONE")


@case(core=True)
def sync_strict_with_several_threads(test, place):
    busy(test, place, contextlib.nullcontext(), sync="STRICT")


@case(core=True)
def sync_rw_with_several_threads(test, place):
    busy(test, place, contextlib.nullcontext(), sync="RW")


@case()
def default_sync_with_several_threads(test, place):
    """What the Python API takes unless told."""
    busy(test, place, threading.Lock())


@case(core=True, ucx="without its thread the target must poll")
def progress_thread_off(test, place):
    """A target without the thread whose application sleeps is written, read and notified all the same."""
    size = 2_000_000
    target = test.target(place, progress_thread=False)
    there = target.alloc("b", size)
    initiator = test.here("initiator", progress_thread=False)
    here = initiator.alloc("b", size)
    initiator.load(target.metadata())
    for seed in range(5):
        initiator.fill("b", seed)
        initiator.move("WRITE", [(here, size)], [(there, size)], "target", b"%d" % seed)
        target.check("b", seed)
        initiator.poison("b")
        initiator.move("READ", [(here, size)], [(there, size)], "target")
        initiator.check("b", seed)
    target.expect_all([("initiator", b"%d" % seed) for seed in range(5)])


@case(places=("two processes",))
def progress_thread_on_one_side(test, place):
    """On at the target, off at the initiator."""
    target = test.target(place, progress_thread=True)
    there = target.alloc("b", 100_000)
    initiator = test.here("initiator", progress_thread=False)
    here = initiator.alloc("b", 100_000)
    initiator.load(target.metadata())
    initiator.fill("b", 1)
    initiator.move("WRITE", [(here, 100_000)], [(there, 100_000)], "target", b"done")
    target.expect("initiator", b"done")
    target.check("b", 1)
