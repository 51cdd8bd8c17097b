"""Metadata: exchange, repeat, parts, invalidation, the listen thread."""
import socket
import struct
import time

from harness import NIXL_ERRORS, case, refusal, require
from transfer_test import pair


def exchange_one(initiator, target, here, there, seed, size=5000):
    """One verified transfer each way."""
    initiator.fill("b", seed, 0, size)
    initiator.move("WRITE", [(here, size)], [(there, size)], "target", b"%d" % seed)
    target.check("b", seed, 0, size)
    target.expect("initiator", b"%d" % seed)
    target.fill("b", seed + 1000, 0, size)
    initiator.move("READ", [(here, size)], [(there, size)], "target")
    initiator.check("b", seed + 1000, 0, size)


@case(core=True)
def invalidate_and_reload(test, place):
    initiator, target, here, there = pair(test, place, 5000)
    blob = target.metadata()
    for seed in range(5):
        exchange_one(initiator, target, here, there, seed)
        initiator.unload("target")
        require(not initiator.knows("target"), "forgotten")
        wrong = refusal(lambda: initiator.request("WRITE", [(here, 10)], [(there, 10)], "target"))
        require(wrong == "NotFound", f"a transfer to nobody: {wrong}")
        require(initiator.load(blob) == "target", "loaded again")
    exchange_one(initiator, target, here, there, 9)


@case(core=True)
def requests_outlive_their_metadata(test, place):
    """A finished and a fresh request of a peer that is forgotten and loaded again: any status is
    right but a wrong DONE, and nothing breaks. (Cores up to 1.4 still pass such a post on.)"""
    initiator, target, here, there = pair(test, place, 5000)
    blob = target.metadata()
    old = initiator.request("WRITE", [(here, 5000)], [(there, 5000)], "target")
    fresh = initiator.request("READ", [(here, 5000)], [(there, 5000)], "target")
    initiator.fill("b", 1)
    initiator.done(old)
    initiator.unload("target")
    require(initiator.state(old) == "DONE", "what was done stays done")
    initiator.load(blob)
    if test.ours:  # up to 1.4 UCX would follow pointers into freed metadata here
        initiator.fill("b", 2)
        if initiator.run(old) == "DONE":
            target.check("b", 2)
        target.fill("b", 3)
        if initiator.run(fresh) == "DONE":
            initiator.check("b", 3)
    initiator.release(old)
    initiator.release(fresh)
    exchange_one(initiator, target, here, there, 4)


@case(places=("two processes",))
def load_again_and_more(test, place):
    """The same metadata twice, then with another registration in it."""
    initiator, target, here, there = pair(test, place, 5000)
    initiator.load(target.metadata())
    exchange_one(initiator, target, here, there, 1)
    more = target.alloc("more", 9000)
    wrong = refusal(lambda: initiator.request("WRITE", [(here, 10)], [(more, 10)], "target"))
    require(wrong == "NotFound", f"memory that is not in the metadata yet: {wrong}")
    initiator.load(target.metadata())
    initiator.fill("b", 2)
    initiator.move("WRITE", [(here, 5000)], [(more + 100, 5000)], "target")
    target.check("more", 2, 100, 5000, 0)
    exchange_one(initiator, target, here, there, 3)


@case(core=True, places=("two processes",))
def metadata_in_parts(test, place):
    target = test.target(place)
    there = target.alloc("b", 5000)
    other = target.alloc("c", 5000)
    initiator = test.here("initiator")
    here = initiator.alloc("b", 5000)
    part = target.partial_metadata([(there, 5000)], False)
    wrong = refusal(lambda: initiator.load(part))
    require(wrong == "NotFound", f"memory of an agent whose connection info nobody has seen: {wrong}")
    initiator.load(target.partial_metadata([], True))
    initiator.send("target", b"connected without memory")
    target.expect("initiator", b"connected without memory")
    initiator.load(part)
    exchange_one(initiator, target, here, there, 1)
    wrong = refusal(lambda: initiator.request("WRITE", [(here, 10)], [(other, 10)], "target"))
    require(wrong == "NotFound", f"memory that is not in the part: {wrong}")
    initiator.load(target.partial_metadata([(other, 5000)], True))
    initiator.fill("b", 2)
    initiator.move("WRITE", [(here, 5000)], [(other, 5000)], "target")
    target.check("c", 2)


@case(places=())
def metadata_is_stable(test):
    """Asked twice, or after memory was registered again: the same bytes."""
    agent = test.here("agent")
    agent.alloc("b", 5000, register=False)
    agent.alloc("c", 5000)
    first = agent.register("b")
    before = agent.metadata()
    require(agent.metadata() == before, "the same when asked again")
    agent.deregister(first)
    require(agent.metadata() != before, "without the memory it is different")
    agent.register("b")
    require(len(agent.metadata()) == len(before), "the same size when registered again")
    if test.ours:
        require(agent.metadata() == before, "the same when registered again")


@case(core=True, places=("two processes",))
def registered_again_under_a_peer(test, place):
    """The target deregisters and registers the same range; a peer with the old metadata goes on,
    and may load the new one without an error."""
    initiator, target, here, there = pair(test, place, 5000)
    target.alloc("c", 6000, register=False)
    token = target.register("c")
    initiator.load(target.metadata())
    second = target.address("c")
    for seed in range(3):
        initiator.fill("b", seed)
        initiator.move("WRITE", [(here, 5000)], [(second + 500, 5000)], "target")
        target.check("c", seed, 500, 5000, 0)
        target.deregister(token)
        token = target.register("c")
        require(initiator.load(target.metadata()) == "target", "the new metadata is taken")
    exchange_one(initiator, target, here, there, 7)


@case(places=("two processes",), ucx="its metadata has no check")
def a_flipped_bit_is_refused_or_harmless(test, place):
    """Bits of what an agent's metadata says about us, each wrong once: it is not loaded, or nothing wrong is read with it.
    Not those of NIXL's own frame: its core (1.4) follows a wrong memory type into nowhere."""
    initiator, target, here, there = pair(test, place, 5000)
    blob = target.metadata()
    initiator.unload("target")
    target.fill("b", 1)
    place_at = blob.index(struct.pack("<QQ", there, 5000))  # then the device
    parts = [(place_at, 24, 1), (blob.index(b"TCPR"), 112, 3), (blob.index(b"TCPI"), 100, 7)]
    for start, size, step in parts:
        for bit in range(start * 8, (start + size) * 8, step):
            wrong = bytearray(blob)
            wrong[bit // 8] ^= 1 << bit % 8
            try:
                name = initiator.load(bytes(wrong))
            except NIXL_ERRORS:
                continue
            initiator.poison("b")
            try:
                key = initiator.request("READ", [(here, 5000)], [(there, 5000)], name)
            except NIXL_ERRORS:
                key = None
            if key is not None:
                if initiator.run(key) == "DONE":
                    initiator.check("b", 1)
                initiator.release(key)
            initiator.unload(name)
    initiator.load(blob)
    exchange_one(initiator, target, here, there, 2)


@case(places=("two processes",), peers=2)
def a_stopped_stranger_changes_nothing(test, place):
    """A peer that has used the memory, and was refused once, is stopped: the memory comes back as it was, and
    others go on with the metadata they have."""
    initiator, target, here, there = pair(test, place, 5000)
    target.alloc("c", 6000, register=False)
    token = target.register("c")
    second, blob = target.address("c"), target.metadata()
    stranger = test.peer("stranger")
    theirs = stranger.alloc("b", 5000)
    for who in (initiator, stranger):
        who.load(blob)
    stranger.fill("b", 1)
    stranger.move("WRITE", [(theirs, 5000)], [(second, 5000)], "target")
    target.deregister(token)
    refused = stranger.run(stranger.request("WRITE", [(theirs, 5000)], [(second, 5000)], "target"))
    require(refused != "DONE", "the memory is not registered")
    stranger.stop()
    for seed in range(3):
        token = target.register("c")
        if test.ours:
            require(target.metadata() == blob, "the same bytes")
        initiator.fill("b", seed)
        initiator.move("WRITE", [(here, 5000)], [(second + 500, 5000)], "target")
        target.check("c", seed, 500, 5000, 0)
        target.deregister(token)
    stranger.go_on()


@case(core=True, places=())
def listen_thread(test):
    """Metadata by NIXL's own sockets: fetched, sent, invalidated; transfers both ways."""
    left_port, right_port = free_ports(2)
    right = test.peer("target", port=right_port)
    there = right.alloc("b", 5000)
    left = test.here("initiator", port=left_port)
    here = left.alloc("b", 5000)
    left.fetch_metadata("target", right_port)
    exchange_one(left, right, here, there, 1)
    right.fetch_metadata("initiator", left_port)
    right.fill("b", 5)
    right.move("WRITE", [(there, 5000)], [(here, 5000)], "initiator", b"back")
    left.check("b", 5)
    left.expect("target", b"back")
    left.unload("target")
    left.fetch_metadata("target", right_port)
    exchange_one(left, right, here, there, 2)


@case(places=("two processes",))
def make_connection_is_optional(test, place):
    initiator, target, here, there = pair(test, place, 5000)
    initiator.connect("target")
    initiator.connect("target")
    exchange_one(initiator, target, here, there, 1)


@case(places=("two processes",), peers=2, ucx="loading connects, and may wait")
def load_never_waits_for_the_peer(test, place):
    """A stopped and a dead one: their metadata is taken at once, and another peer is served meanwhile.
    Who waited for either would do so for connect_timeout."""
    stopped, dead = test.peer("stopped"), test.peer("dead")
    blobs = [peer.metadata() for peer in (stopped, dead)]
    stopped.stop()
    dead.kill()
    initiator = test.here("initiator", params=test.params(connect_timeout="20s", handshake_timeout="20s"))
    for blob in blobs:
        started = time.monotonic()
        initiator.load(blob)
        took = time.monotonic() - started
        require(took < 3, f"load took {took:.2f} s")
    here = initiator.alloc("b", 5000)
    other = test.here("target")
    there = other.alloc("b", 5000)
    initiator.load(other.metadata())
    exchange_one(initiator, other, here, there, 1)
    for name in ("stopped", "dead"):
        started = time.monotonic()
        initiator.unload(name)
        took = time.monotonic() - started
        require(took < 3, f"unload took {took:.2f} s")
    stopped.go_on()


def free_ports(count):
    """Ports nobody has now; below the range from which the system gives ports away."""
    held = []
    port = 18_000 + time.time_ns() % 10_000
    while len(held) < count:
        port += 1
        probe = socket.socket()
        try:
            probe.bind(("0.0.0.0", port))
            held.append(probe)
        except OSError:
            probe.close()
    ports = [probe.getsockname()[1] for probe in held]
    for probe in held:
        probe.close()
    return ports
