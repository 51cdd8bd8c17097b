"""Notifications: after the data, exactly once, only when asked, any bytes, with the sender's name.

An empty message bound to a transfer cannot be asked for through NIXL's Python API (it means "none");
an empty one that stands alone can."""
import random
import time

from harness import NIXL_ERRORS, NOTHING, case, require, status_name
from transfer_test import pair

MIB = 1 << 20


def slots(initiator, op, here, there, count, size):
    return [initiator.request(op, [(here + i * size, size)], [(there + i * size, size)], "target",
                              b"%d" % i) for i in range(count)]


def finish(initiator, requests):
    for request in requests:
        state = initiator.wait(request)
        require(state == "DONE", f"a transfer ended with {state}")


@case(core=True, places=("two processes",))
def write_is_visible_when_its_notification_is(test, place):
    """All posted at once, in several sizes; the target looks the moment it sees a message."""
    initiator, target, here, there = pair(test, place, 24 * MIB)
    for count, size in ((200, 1000), (60, 200_000), (8, 3 * MIB)):
        target.poison("b")
        requests = slots(initiator, "WRITE", here, there, count, size)
        for index in range(count):
            initiator.fill("b", index, index * size, size)
        target.order("watch", "initiator", count, "b", size)
        for request in requests:
            state = initiator.post(request)
            require(state in ("PROC", "DONE"), f"post answered {state}")
        finish(initiator, requests)
        target.answer()
        for request in requests:
            initiator.release(request)


@case(core=True, places=("two processes",))
def read_is_over_when_its_notification_comes(test, place):
    """The target poisons the source the moment it sees the message; the reader has the old bytes."""
    initiator, target, here, there = pair(test, place, 24 * MIB)
    for count, size in ((200, 1000), (60, 200_000), (8, 3 * MIB)):
        for index in range(count):
            target.fill("b", index, index * size, size)
        requests = slots(initiator, "READ", here, there, count, size)
        target.order("poison_when_read", "initiator", count, "b", size)
        for request in requests:
            state = initiator.post(request)
            require(state in ("PROC", "DONE"), f"post answered {state}")
        finish(initiator, requests)
        target.answer()
        for index, request in enumerate(requests):
            initiator.check("b", index, index * size, size)
            initiator.release(request)
    target.expect_none()


@case(core=True)
def notified_exactly_once(test, place):
    """Hundreds, some of them by repost, some alone: each arrives, none twice."""
    initiator, target, here, there = pair(test, place, 4096)
    wanted = []
    request = initiator.request("WRITE", [(here, 100)], [(there, 100)], "target")
    for index in range(200):
        message = b"repost %d" % index
        initiator.done(request, message)
        wanted.append(("initiator", message))
    for index in range(200):
        message = b"alone %d" % index
        initiator.send("target", message)
        wanted.append(("initiator", message))
    for _ in range(20):  # equal ones are counted as well
        initiator.done(request, b"same")
        wanted.append(("initiator", b"same"))
    for _ in range(20):
        require(initiator.state(request) == "DONE", "asking again changes nothing")
    target.expect_all(wanted)
    target.expect_none()
    initiator.expect_none()


@case(ucx="its receiver takes without a bound")
def a_target_that_reads_late_gets_what_was_sent(test, place):
    """Its inbox is full: messages wait at the sender, and one that it does not take either is an error."""
    small = {"inbox_bytes": "2M", "max_notify_bytes": "256K", "outbox_bytes": "4M"}
    target = test.target(place, params=test.params(**small))
    initiator = test.here("initiator", params=test.params(**small))
    initiator.load(target.metadata())
    body, sent, refused = bytes(64 << 10), [], 0
    for index in range(150):
        message = b"%d " % index + body
        try:
            initiator.send("target", message)
            sent.append(("initiator", message))
        except NIXL_ERRORS as error:
            require(status_name(error) == "NotAllowed", error)
            refused += 1
    require(refused > 0, "all of them were taken; nothing was held back")
    require(len(sent) > 20, f"only {len(sent)} were taken")
    target.expect_all(sent)
    target.expect_none()
    initiator.send("target", b"again")
    target.expect("initiator", b"again")


@case(core=True)
def notified_only_when_asked(test, place):
    initiator, target, here, there = pair(test, place, 100_000)
    for op in ("WRITE", "READ"):
        request = initiator.request(op, [(here, 50_000)], [(there, 50_000)], "target")
        for _ in range(20):
            initiator.done(request)
    target.expect_none(0.02)
    initiator.move("WRITE", [(here, 10)], [(there, 10)], "target", b"now")
    target.expect("initiator", b"now")
    target.expect_none()
    initiator.expect_none(0.02)


@case()
def message_of_a_repost(test, place):
    """The newest message counts, and is kept by a post that brings none."""
    initiator, target, here, there = pair(test, place, 4096)
    request = initiator.request("WRITE", [(here, 10)], [(there, 10)], "target", b"made")
    for message, arrives in ((NOTHING, b"made"), (b"posted", b"posted"), (NOTHING, b"posted"),
                             (b"again", b"again")):
        initiator.done(request, message)
        target.expect("initiator", arrives)
        target.expect_none(0.01)


@case(core=True)
def any_bytes_are_a_message(test, place):
    initiator, target, here, there = pair(test, place, 4096)
    rng = random.Random(1)
    messages = [b"\0", b"a\0b\0", bytes(range(256)), "Grüße".encode(), b" ", rng.randbytes(5000),
                rng.randbytes(300_000)]
    for message in messages:
        initiator.move("WRITE", [(here, 10)], [(there, 10)], "target", message)
        target.expect("initiator", message)
        initiator.move("READ", [(here, 10)], [(there, 10)], "target", message)
        target.expect("initiator", message)
        initiator.send("target", message)
        target.expect("initiator", message)
    initiator.send("target", b"")
    target.expect("initiator", b"")
    target.expect_none()


@case(places=())
def sender_is_named(test):
    """Any name an agent may have: long, with spaces and other letters; two senders are told apart."""
    target = test.peer("target with a name")
    there = target.alloc("b", 4096)
    blob = target.metadata()
    for name in ("x", "decode/7 [pod-3] ☃", "n" * 200, "9f1c2d3e-0000-4000-8000-123456789abc"):
        agent = test.here(name)
        here = agent.alloc("b", 4096)
        agent.load(blob)
        agent.move("WRITE", [(here, 4096)], [(there, 4096)], "target with a name", b"it is me")
        agent.send("target with a name", b"again")
        target.expect_all([(name, b"it is me"), (name, b"again")])
    target.expect_none()


@case(places=())
def answer_to_the_sender(test):
    """Both know each other; messages cross."""
    left, right = test.here("left"), test.peer("right")
    left.alloc("b", 4096)
    right.alloc("b", 4096)
    left.load(right.metadata())
    right.load(left.metadata())
    for turn in range(20):
        left.send("right", b"ping %d" % turn)
        right.expect("left", b"ping %d" % turn)
        right.send("left", b"pong %d" % turn)
        left.expect("right", b"pong %d" % turn)


@case(places=("two processes",), ucx="it sends the notification when the initiator polls")
def notified_without_polling(test, place):
    """The initiator posts and does nothing more."""
    initiator, target, here, there = pair(test, place, 8 * MIB)
    initiator.move("WRITE", [(here, 1)], [(there, 1)], "target")  # connected
    for op in ("WRITE", "READ"):
        initiator.fill("b", 1)
        request = initiator.request(op, [(here, 8 * MIB)], [(there, 8 * MIB)], "target", op.encode())
        initiator.post(request)
        target.expect("initiator", op.encode())
        if op == "WRITE":
            target.check("b", 1)
        require(initiator.state(request) in ("DONE", "PROC"), "and it went well")
        initiator.wait(request)
        target.expect_none(0.01)


@case(places=("two processes",), ucx="it sends the notification when the initiator polls")
def first_post_needs_no_polling_either(test, place):
    """Not even when the connection is still to be made."""
    initiator, target, here, there = pair(test, place, MIB)
    initiator.fill("b", 3)
    started = time.monotonic()
    request = initiator.request("WRITE", [(here, MIB)], [(there, MIB)], "target", b"first")
    initiator.post(request)
    took = time.monotonic() - started
    require(took < 1, f"the post took {took:.2f} s")
    target.expect("initiator", b"first")
    target.check("b", 3)
