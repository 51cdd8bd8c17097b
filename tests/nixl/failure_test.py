"""Peers that die, stop and come back; requests that are given up while under way."""
import time

from harness import WAIT, Failure, case, in_threads, refusal, require
from transfer_test import pair

MIB = 1 << 20
BIG = 64 * MIB


def in_flight(initiator, op, here, there, size=BIG):
    """A request that has been posted and is most likely still moving."""
    request = initiator.request(op, [(here, size)], [(there, size)], "target")
    return request, initiator.post(request)


def until_ended(initiator, request, state, within):
    """(how it ended, seconds)"""
    started = time.monotonic()
    if state == "PROC":
        state = initiator.wait(request, within)
    return state, time.monotonic() - started


def some_under_way(turn, usual, most=40):
    """Calls turn(0), turn(1), ...: `usual` times, and on until one of them says that its transfer was
    under way when it was interrupted. A case of which none was has shown nothing."""
    hits = 0
    for index in range(most):
        hits += turn(index % usual)
        if hits and index + 1 >= usual:
            return
    raise Failure(f"not one of {most} transfers was still under way")


def some_at_once(turn, bound, what, most=5):
    """Calls turn(), which says how long something took, until it took less than `bound` seconds. One
    that waits for what a stopped peer does not do takes longer every time, a busy machine only now
    and then."""
    times = []
    for _ in range(most):
        times.append(turn())
        if times[-1] < bound:
            return
    raise Failure(f"{what} took {', '.join(f'{took:.2f}' for took in times)} s")


def forget(initiator, name):
    """Cores before 1.5 drop a dead peer by themselves, later ones leave that to the application."""
    if initiator.knows(name):
        initiator.unload(name)
    require(not initiator.knows(name), f"{name} is still known")


def killed_while(op, test):
    initiator, target, here, there = pair(test, "two processes", BIG)
    initiator.move("WRITE", [(here, 1000)], [(there, 1000)], "target")
    request, state = in_flight(initiator, op, here, there)
    target.kill()
    state, took = until_ended(initiator, request, state, 10)
    # All of it may have arrived before the signal did.
    while state == "DONE":
        state, took = until_ended(initiator, request, initiator.post(request), 10)
    require(state == "RemoteDisconnect", f"ended with {state}")
    require(took < 5, f"it took {took:.1f} s")
    forget(initiator, "target")
    initiator.release(request)


@case(core=True, places=())
def peer_killed_during_write(test):
    killed_while("WRITE", test)


@case(core=True, places=())
def peer_killed_during_read(test):
    killed_while("READ", test)


@case(places=())
def peer_killed_before_the_first_post(test):
    """Loaded, never reached: the first post finds out, in time."""
    initiator, target, here, there = pair(test, "two processes", 5000)
    request = initiator.request("WRITE", [(here, 5000)], [(there, 5000)], "target", b"?")
    target.kill()
    state, took = until_ended(initiator, request, initiator.post(request), 15)
    require(state == "RemoteDisconnect", f"ended with {state}")


@case(places=(), ucx="it crashes now and then")
def peer_killed_between_posts(test):
    initiator, target, here, there = pair(test, "two processes", 5000)
    request = initiator.request("READ", [(here, 5000)], [(there, 5000)], "target")
    for _ in range(3):
        initiator.done(request)
    target.kill()
    state, took = until_ended(initiator, request, initiator.post(request), 10)
    require(state == "RemoteDisconnect", f"ended with {state} after {took:.1f} s")
    forget(initiator, "target")
    require(refusal(lambda: initiator.request("READ", [(here, 1)], [(there, 1)], "target")) == "NotFound",
            "the dead peer is forgotten")


@case(places=(), peers=2)
def death_of_one_peer_is_no_news_for_another(test):
    size = 8 * MIB
    victim, survivor = test.peer("target"), test.peer("survivor")
    doomed, there = victim.alloc("b", size), survivor.alloc("b", size)
    initiator = test.here("initiator")
    here = initiator.alloc("b", size)
    for peer in (victim, survivor):
        initiator.load(peer.metadata())
    initiator.fill("b", 1)
    good = initiator.request("WRITE", [(here, size)], [(there, size)], "survivor", b"here")
    bad = initiator.request("WRITE", [(here, size)], [(doomed, size)], "target")
    initiator.done(bad)
    state = initiator.post(good)
    victim.kill()
    bad_state = initiator.run(bad, within=10)
    require(state in ("PROC", "DONE") and initiator.wait(good) == "DONE", "the survivor's transfer")
    require(bad_state == "RemoteDisconnect", f"the victim's ended with {bad_state}")
    survivor.check("b", 1)
    survivor.expect("initiator", b"here")
    for seed in range(5):
        initiator.fill("b", seed)
        initiator.done(good)
        survivor.check("b", seed)


@case(places=(), peers=2)
def death_of_an_initiator(test):
    """The target goes on serving others and itself."""
    size = 16 * MIB
    victim, other = test.peer("victim"), test.peer("other")
    target = test.here("target")
    there = target.alloc("b", size)
    quiet = target.alloc("c", 5000)
    blob = target.metadata()
    for peer in (victim, other):
        peer.alloc("b", size)
        peer.load(blob)
    doomed = victim.address("b")
    victim.order("move", "WRITE", [(doomed, size)], [(there, size)], "target")
    victim.answer()
    request = victim.request("WRITE", [(doomed, size)], [(there, size)], "target", b"maybe")
    victim.order("run", request)
    victim.kill()
    address = other.address("b")
    other.fill("b", 3, 0, 5000)
    other.move("WRITE", [(address, 5000)], [(quiet, 5000)], "target", b"still here")
    target.expect("other", b"still here")
    target.check("c", 3)


@case(core=True, places=(), peers=2)
def peer_restarted_under_the_same_name(test):
    """The core holds on to the old one until told (or until a transfer finds it dead); then the new
    one is served, and nothing meant for the old one reaches it."""
    initiator, target, here, there = pair(test, "two processes", 5000)
    initiator.fill("b", 1)
    initiator.move("WRITE", [(here, 5000)], [(there, 5000)], "target")
    target.kill()
    again = test.peer("target")
    new_there = again.alloc("b", 5000)
    blob = again.metadata()
    require(refusal(lambda: initiator.load(blob)) == "NotAllowed", "another one of the same name")
    forget(initiator, "target")
    require(initiator.load(blob) == "target", "the new one is taken")
    for seed in range(3):
        initiator.fill("b", seed)
        initiator.move("WRITE", [(here, 5000)], [(new_there, 5000)], "target", b"new %d" % seed)
        again.check("b", seed)
        again.expect("initiator", b"new %d" % seed)
        initiator.move("READ", [(here, 5000)], [(new_there, 5000)], "target")
        initiator.check("b", seed)
    again.expect_none()


@case(core=True, places=(), peers=2, ucx="it crashes now and then")
def peer_restarted_after_its_death_was_seen(test):
    """A transfer found it dead; a request of that time is still there when the new one is served."""
    initiator, target, here, there = pair(test, "two processes", 5000)
    request = initiator.request("WRITE", [(here, 5000)], [(there, 5000)], "target")
    initiator.done(request)
    target.kill()
    require(initiator.run(request, within=10) == "RemoteDisconnect", "found dead")
    forget(initiator, "target")
    again = test.peer("target")
    new_there = again.alloc("b", 5000)
    require(initiator.load(again.metadata()) == "target", "the new one is taken")
    initiator.fill("b", 5)
    initiator.move("WRITE", [(here, 5000)], [(new_there, 5000)], "target", b"hello again")
    again.check("b", 5)
    again.expect("initiator", b"hello again")
    initiator.release(request)


@case(core=True, places=(), ucx="it waits for ever")
def peer_stopped(test):
    """A stopped process is not a dead one: transfers end at their deadline, with another error, and
    work again when it goes on."""
    target = test.peer("target")
    there = target.alloc("b", BIG)
    initiator = test.here("initiator", params=test.params(deadline="700ms", peer_timeout="60s",
                                                          lane_timeout="50s"))
    here = initiator.alloc("b", BIG)
    initiator.load(target.metadata())
    initiator.move("WRITE", [(here, 1000)], [(there, 1000)], "target")
    for op in ("WRITE", "READ"):
        target.stop()
        initiator.fill("b", 1, 0, MIB)
        request, state = in_flight(initiator, op, here, there)
        state, took = until_ended(initiator, request, state, 10)
        require(state not in ("DONE", "RemoteDisconnect"), f"{op} ended with {state}")
        require(took < 3, f"{op} took {took:.1f} s with a deadline of 0.7 s")
        initiator.release(request)
        target.go_on()
        ends = time.monotonic() + WAIT
        while True:  # it has a backlog to work off first
            small = initiator.request(op, [(here, 5000)], [(there, 5000)], "target")
            state = initiator.run(small)
            initiator.release(small)
            if state == "DONE":
                break
            require(time.monotonic() < ends and state != "RemoteDisconnect", f"then it ended with {state}")
    initiator.fill("b", 7, 0, 5000)
    initiator.move("WRITE", [(here, 5000)], [(there, 5000)], "target", b"works again")
    target.expect("initiator", b"works again")
    target.check("b", 7, 0, 5000)


@case(places=(), ucx="it waits for ever")
def peer_silent_for_too_long_is_dead(test):
    """Stopped for longer than peer_timeout: given up, and that is what the core hears."""
    target = test.peer("target")
    there = target.alloc("b", BIG)
    initiator = test.here("initiator", params=test.params(
        deadline="20s", peer_timeout="900ms", lane_timeout="600ms", keepalive="200ms"))
    here = initiator.alloc("b", BIG)
    initiator.load(target.metadata())
    initiator.move("WRITE", [(here, 1000)], [(there, 1000)], "target")
    target.stop()
    request, state = in_flight(initiator, "WRITE", here, there)
    state, took = until_ended(initiator, request, state, 10)
    require(state == "RemoteDisconnect" and took < 4, f"ended with {state} after {took:.1f} s")


@case(places=(), ucx="it waits for ever")
def peer_stopped_before_the_first_post(test):
    target = test.peer("target")
    there = target.alloc("b", 5000)
    initiator = test.here("initiator", params=test.params(deadline="700ms", connect_timeout="50s",
                                                          handshake_timeout="50s"))
    here = initiator.alloc("b", 5000)
    blob = target.metadata()
    target.stop()

    def turn():
        """How long the first post took. It waits for nobody, not even until its deadline."""
        initiator.load(blob)
        request = initiator.request("WRITE", [(here, 5000)], [(there, 5000)], "target")
        started = time.monotonic()
        state = initiator.post(request)
        posting = time.monotonic() - started
        state, took = until_ended(initiator, request, state, 10)
        require(state not in ("DONE", "RemoteDisconnect"), f"ended with {state} after {took:.1f} s")
        initiator.release(request)
        initiator.unload("target")
        return posting
    some_at_once(turn, 0.5, "a post with a deadline of 0.7 s")
    target.go_on()


@case(places=(), peers=2, ucx="it waits for ever")
def stopped_peer_is_forgotten_at_once(test):
    """The agent is not held up by a goodbye that nobody answers, and the name is free for another one."""
    initiator, target, here, there = pair(test, "two processes", 5000)
    again = test.peer("target")
    new_there = again.alloc("b", 5000)
    old_blob, blob = target.metadata(), again.metadata()

    def turn():
        """How long it took to forget the stopped one and load the other."""
        initiator.move("WRITE", [(here, 5000)], [(there, 5000)], "target")
        target.stop()
        started = time.monotonic()
        initiator.unload("target")
        initiator.load(blob)
        took = time.monotonic() - started
        initiator.fill("b", 3)
        initiator.move("WRITE", [(here, 5000)], [(new_there, 5000)], "target", b"another")
        again.check("b", 3)
        again.expect("initiator", b"another")
        target.go_on()
        initiator.unload("target")
        initiator.load(old_blob)
        return took
    # The engine itself is patient with a goodbye for half a second.
    some_at_once(turn, 0.4, "to forget one and load the other")


# ---- release -------------------------------------------------------------------------------------

def drain(initiator, here, there):
    """What was under way on the connection has passed when this has."""
    initiator.move("WRITE", [(here, 1)], [(there, 1)], "target")
    initiator.move("READ", [(here, 1)], [(there, 1)], "target")


@case(core=True, ucx="what was released may still write")
def released_read_never_writes_again(test, place):
    size = 24 * MIB
    initiator, target, here, there = pair(test, place, size)
    spare = initiator.alloc("spare", 4096)
    target.fill("b", 1)
    under_way = 0
    for turn in range(12):
        request = initiator.request("READ", [(here, size)], [(there, size)], "target", b"no")
        under_way += initiator.post(request) == "PROC"
        time.sleep(turn * 0.0004)
        initiator.release_quietly(request)
        initiator.poison("b")
        drain(initiator, spare, there)
        initiator.check_poison("b")
    require(under_way > 0, "not one of them was released while under way")
    initiator.move("READ", [(here, size)], [(there, size)], "target")
    initiator.check("b", 1, 1)  # drain() wrote the first byte


@case(ucx="what was released may still be sent")
def released_write_never_reads_again(test, place):
    """The source is used for something else right after the release: none of that arrives. (What the
    target finds in the range of a write that was given up is otherwise undefined.)"""
    size = 24 * MIB
    initiator, target, here, there = pair(test, place, size)
    spare, spare_there = initiator.alloc("spare", 4096), target.alloc("spare", 4096)
    initiator.load(target.metadata())

    def turn(index):
        initiator.poison("b")
        target.poison("b")
        request, _ = in_flight(initiator, "WRITE", here, there, size)
        time.sleep(index * 0.0005)
        under_way = initiator.state(request) == "PROC"
        initiator.release_quietly(request)
        initiator.fill_byte("b", 0x5A)
        drain(initiator, spare, spare_there)
        target.check_lacks("b", 0x5A)
        return under_way
    some_under_way(turn, 6)


@case(places=("two processes",), ucx="what was released may still write")
def released_and_unmapped(test, place):
    """The memory of a released request may go at once: whoever touched it would crash."""
    size = 16 * MIB
    initiator, target, here, there = pair(test, place, size)
    sink = target.alloc("sink", size)  # what was under way may land there for a while
    initiator.load(target.metadata())
    target.fill("b", 2)
    for turn in range(8):
        where = initiator.alloc("gone", size, register=False)
        token = initiator.register("gone")
        op, remote = (("READ", there), ("WRITE", sink))[turn % 2]
        request = initiator.request(op, [(where, size)], [(remote, size)], "target")
        initiator.post(request)
        initiator.release_quietly(request)
        initiator.deregister(token)
        initiator.free("gone")
    initiator.move("READ", [(here, size)], [(there, size)], "target")
    initiator.check("b", 2)


@case(core=True, places=("two processes",), ucx="it waits for the peer")
def released_while_the_peer_is_stopped(test, place):
    """Release does not wait for the peer, and what the peer sends when it goes on hits nothing."""
    initiator, target, here, there = pair(test, place, BIG)
    spare = initiator.alloc("spare", 4096)
    target.fill("b", 1)
    initiator.move("READ", [(here, 1000)], [(there, 1000)], "target")
    for delay in (0, 0.005):
        request = initiator.request("READ", [(here, BIG)], [(there, BIG)], "target")
        state = initiator.post(request)
        time.sleep(delay)
        target.stop()
        started = time.monotonic()
        initiator.release_quietly(request)
        took = time.monotonic() - started
        require(took < 1, f"release took {took:.2f} s")
        initiator.poison("b")
        target.go_on()
        drain(initiator, spare, there)
        initiator.check_poison("b")
        require(state in ("PROC", "DONE"), f"the post answered {state}")


@case(core=True, places=("two processes",), ucx="it follows pointers into freed metadata")
def forgotten_while_under_way(test, place):
    """The peer's metadata goes while a transfer runs: it ends one way or the other, the memory is
    safe after its release, and the peer can be loaded again."""
    size = 24 * MIB
    initiator, target, here, there = pair(test, place, size)
    sink = target.alloc("sink", size)
    blob = target.metadata()
    initiator.load(blob)
    target.fill("b", 1)

    def turn(op, remote, index):
        request, _ = in_flight(initiator, op, here, remote, size)
        time.sleep(index * 0.001)
        under_way = initiator.state(request) == "PROC"
        initiator.unload("target")
        # Some cores answer NOT_FOUND themselves, so the end does not say whether it was under way.
        state, _ = until_ended(initiator, request, initiator.state(request), 10)
        require(state in ("DONE", "Cancelled", "NotFound"), f"ended with {state}")
        initiator.release_quietly(request)
        initiator.poison("b")
        require(initiator.load(blob) == "target", "loaded again")
        initiator.check_poison("b")
        return under_way
    some_under_way(lambda index: turn("READ", there, index), 3)
    some_under_way(lambda index: turn("WRITE", sink, index), 3)
    initiator.move("READ", [(here, size)], [(there, size)], "target")
    initiator.check("b", 1)


@case(places=("two processes",), ucx="its memory must stay registered")
def deregistered_while_under_way(test, place):
    """The local memory of a running transfer is deregistered: a fence, as by release."""
    size = 24 * MIB
    initiator, target, here, there = pair(test, place, size)
    target.fill("b", 1)

    def turn(index):
        where = initiator.alloc("c", size, register=False)
        token = initiator.register("c")
        request, _ = in_flight(initiator, "READ", where, there, size)
        time.sleep(index * 0.0005)
        initiator.deregister(token)
        initiator.poison("c")
        state, _ = until_ended(initiator, request, initiator.state(request), 10)
        require(state in ("DONE", "Cancelled"), f"ended with {state}")
        initiator.release_quietly(request)
        initiator.check_poison("c")
        initiator.free("c")
        return state != "DONE"
    some_under_way(turn, 6)
    initiator.move("READ", [(here, size)], [(there, size)], "target")
    initiator.check("b", 1)


@case(places=("two processes",), ucx="the target's memory must stay registered")
def target_deregisters_under_way(test, place):
    """The target takes its memory back while peers write into it: a fence there, an error here."""
    size = 24 * MIB
    target = test.target(place)
    there = target.alloc("b", size, register=False)
    initiator = test.here("initiator")
    here = initiator.alloc("b", size)
    initiator.fill("b", 1)

    def turn(_):
        token = target.register("b")
        initiator.load(target.metadata())  # the same bytes every time
        initiator.move("WRITE", [(here, 1)], [(there, 1)], "target")  # connected
        request, state = in_flight(initiator, "WRITE", here, there, size)
        target.deregister(token)
        target.poison("b")
        state, _ = until_ended(initiator, request, state, 10)
        require(state in ("DONE", "NotFound"), f"ended with {state}")
        initiator.release_quietly(request)
        target.check_poison("b")
        return state != "DONE"
    some_under_way(turn, 5)


@case(places=(), peers=4, ucx="the target's memory must stay registered")
def target_leaves_under_way(test):
    """An agent that ends takes its memory back first. Its peers hear that it has ended, not that they
    named memory which is not there."""
    initiator = test.here("initiator")
    here = initiator.alloc("b", BIG)
    for op in ("WRITE", "READ") * 2:
        target = test.peer("target")
        there = target.alloc("b", BIG)
        initiator.load(target.metadata())
        initiator.move("WRITE", [(here, 1)], [(there, 1)], "target")  # connected
        request, state = in_flight(initiator, op, here, there)
        target.order("close")
        state, took = until_ended(initiator, request, state, 10)
        while state == "DONE":
            state, took = until_ended(initiator, request, initiator.post(request), 10)
        require(state == "RemoteDisconnect", f"{op} ended with {state} after {took:.1f} s")
        forget(initiator, "target")
        initiator.release_quietly(request)
        target.answer()


@case(places=(), ucx="it crashes now and then")
def agents_end_with_requests_under_way(test):
    """The application forgets its requests: the end of the agent ends them, and in time."""
    size = 24 * MIB
    target = test.peer("target")
    there = target.alloc("b", size)
    blob = target.metadata()
    target.fill("b", 1)
    for turn in range(4):
        initiator = test.here("initiator")
        here = initiator.alloc("b", size)
        initiator.load(blob)
        for op in ("READ", "WRITE"):
            in_flight(initiator, op, here, there, size // 2)
        if turn % 2:
            initiator.abandon_requests()
        started = time.monotonic()
        initiator.close()
        took = time.monotonic() - started
        require(took < 5, f"the end of the agent took {took:.1f} s")
        test.sides.remove(initiator)


@case(places=())
def initiators_come_and_go(test):
    """Many short-lived agents against one target, some at the same time."""
    target = test.peer("target")
    there = target.alloc("b", 8 * 5000)
    blob = target.metadata()

    def one(index):
        for turn in range(3):
            agent = test.here(f"agent {index} {turn}")
            here = agent.alloc("b", 5000)
            agent.load(blob)
            agent.fill("b", 10 * index + turn)
            agent.move("WRITE", [(here, 5000)], [(there + index * 5000, 5000)], "target", b"%d" % index)
            agent.poison("b")
            agent.move("READ", [(here, 5000)], [(there + index * 5000, 5000)], "target")
            agent.check("b", 10 * index + turn)
            agent.close()
            test.sides.remove(agent)
    in_threads(*[lambda index=index: one(index) for index in range(3)])
    target.expect_all([(f"agent {index} {turn}", b"%d" % index) for index in range(3) for turn in range(3)])
