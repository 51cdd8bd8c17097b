"""Registered memory: overlapping, repeated, tiny, gone."""
from harness import case, refusal, require
from transfer_test import at_address, pair


@case()
def overlapping_registrations(test, place):
    size = 100_000
    target = test.target(place)
    there = target.alloc("b", size, register=False)
    tokens = [target.register("b", (0, 60_000)), target.register("b", (40_000, 60_000)),
              target.register("b", (50_000, 5_000)), target.register("b", (0, size))]
    initiator = test.here("initiator")
    here = initiator.alloc("b", size)
    initiator.register("b", (10, 50_000))
    initiator.load(target.metadata())
    blocks = [(0, 30_000), (45_000, 8_000), (90_000, 10_000)]
    initiator.fill_blocks("b", 1, blocks)
    initiator.move("WRITE", at_address(here, blocks), at_address(there, blocks), "target")
    target.check_blocks("b", 1, blocks)
    # With one of them gone the others still hold.
    target.deregister(tokens.pop(2))
    target.poison("b")
    initiator.unload("target")
    initiator.load(target.metadata())
    initiator.move("WRITE", at_address(here, blocks), at_address(there, blocks), "target")
    target.check_blocks("b", 1, blocks)
    initiator.poison("b")
    initiator.move("READ", at_address(here, blocks), at_address(there, blocks), "target")
    initiator.check_blocks("b", 1, blocks)


@case(core=True)
def repeated_registrations(test, place):
    size = 50_000
    target = test.target(place)
    there = target.alloc("b", size, register=False)
    tokens = [target.register("b") for _ in range(3)]
    initiator = test.here("initiator")
    here = initiator.alloc("b", size)
    initiator.register("b")
    initiator.load(target.metadata())
    for seed in range(3):
        initiator.fill("b", seed)
        initiator.move("WRITE", [(here, size)], [(there, size)], "target")
        target.check("b", seed)
        initiator.poison("b")
        initiator.move("READ", [(here, size)], [(there, size)], "target")
        initiator.check("b", seed)
        if len(tokens) > 1:  # what is left of them is enough
            target.deregister(tokens.pop())


@case()
def a_thousand_tiny_registrations(test, place):
    """As many small ones as there are objects, in one list each."""
    count, size = 1000, 40
    target = test.target(place)
    there = target.alloc("b", count * 64, register=False)
    blocks = [(i * 64 + i % 8, size) for i in range(count)]
    target.register("b", *blocks)
    initiator = test.here("initiator")
    here = initiator.alloc("b", count * 64, register=False)
    initiator.register("b", *blocks)
    initiator.load(target.metadata())
    initiator.fill_blocks("b", 1, blocks)
    initiator.move("WRITE", at_address(here, blocks), at_address(there, blocks), "target")
    target.check_blocks("b", 1, blocks)
    initiator.poison("b")
    initiator.move("READ", at_address(here, blocks), at_address(there, blocks), "target")
    initiator.check_blocks("b", 1, blocks)


@case()
def unregistered_memory_is_refused(test, place):
    initiator, target, here, there = pair(test, place, 5000)
    for local, remote in (((here, 5001), (there, 5001)), ((here - 1, 10), (there, 10)),
                          ((here, 10), (there + 4991, 10)), ((here, 10), (there + 10_000, 10))):
        wrong = refusal(lambda: initiator.request("WRITE", [local], [remote], "target"))
        require(wrong == "NotFound", f"{wrong} instead of NotFound")
    target.check_poison("b")


@case(core=True, places=("two processes",), ucx="the target's memory stays reachable")
def deregistered_memory_is_not_touched(test, place):
    """The owner takes its memory back; a peer with old metadata gets an error, not a disconnect, and
    the connection works on."""
    initiator, target, here, there = pair(test, place, 5000)
    gone = target.alloc("c", 5000, register=False)
    token = target.register("c")
    initiator.load(target.metadata())
    write = initiator.request("WRITE", [(here, 5000)], [(gone, 5000)], "target", b"should not come")
    read = initiator.request("READ", [(here, 5000)], [(gone, 5000)], "target")
    initiator.fill("b", 1)
    initiator.done(write, b"came")
    target.expect("initiator", b"came")
    target.deregister(token)
    target.poison("c")
    initiator.fill("b", 2)
    for request in (write, read):
        state = initiator.run(request)
        require(state not in ("DONE", "RemoteDisconnect"), f"ended with {state}")
    target.check_poison("c")
    target.expect_none()
    initiator.check("b", 2)
    initiator.move("WRITE", [(here, 5000)], [(there, 5000)], "target")
    target.check("b", 2)


@case(places=("two processes",))
def register_and_deregister_many_times(test, place):
    initiator, target, here, there = pair(test, place, 5000)
    for seed in range(30):
        key = f"c{seed}"
        where = initiator.alloc(key, 100_000, register=False)
        token = initiator.register(key, (0, 40_000), (50_000, 50_000))
        initiator.fill(key, seed)
        initiator.move("WRITE", [(where + 60_000, 5000)], [(there, 5000)], "target")
        target.check("b", seed, 0, 5000, 60_000)
        initiator.deregister(token)
        wrong = refusal(lambda: initiator.request("WRITE", [(where, 10)], [(there, 10)], "target"))
        require(wrong == "NotFound", f"{wrong} instead of NotFound")
        initiator.free(key)
