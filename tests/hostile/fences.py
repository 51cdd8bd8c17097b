"""Bytes that come too late, and peers that stand still. These run beside the victim's command line."""
import signal
import socket
import threading
import time

import scene as scenes
import wire
from attack import FENCE, attack

BYTES = 1 << 20


def half_a_write(scene, name):
    """A session that has sent the first half of a WRITE of the whole region."""
    session = wire.Session(scene.victim.info)
    region = scene.victim.memory(name, BYTES, 3)
    session.lane.sock.sendall(wire.header(wire.WRITE, transfer=1, size=BYTES, pieces=1, region=region.id,
                                          aux=session.epoch) + b"\xaa" * (BYTES // 2))
    session.lane.sequence = 1
    time.sleep(0.1)
    return session, region


def rest_of_it(session):
    session.lane.sock.sendall(b"\xaa" * (BYTES // 2) + wire.trailer(0))


def next_chunk(session, region):
    session.lane.send(wire.WRITE, payload=b"\xbb" * 4096, transfer=1, chunk=1, pieces=1, region=region.id, aux=session.epoch)


def landed(scene, name, seed):
    answer = scene.victim.ask(f"check {name} 0 {BYTES} {seed} 0 0")
    return "" if answer.startswith("ok") else f"a late byte landed ({answer})"


def answers(session, count):
    codes = []
    try:
        for _ in range(count):
            codes.append(session.lane.answer(wire.ACK, seconds=3)[1])
    except (OSError, TimeoutError):
        codes.append("closed")
    return codes


@attack(FENCE, short=True, sanitized=True, inside=True)
def late_after_deregister(scene):
    """Half a WRITE, the region is deregistered and its memory used for something else; then the rest comes, and one more
    chunk."""
    session, region = half_a_write(scene, "gone")
    start = time.monotonic()
    scene.victim.must("deregister gone")
    took = time.monotonic() - start
    scene.victim.must(f"fill gone 0 {BYTES} 70 0 0")
    rest_of_it(session)
    next_chunk(session, region)
    codes = answers(session, 2)
    broken = landed(scene, "gone", 70)
    session.close()
    return dict(did=f"deregister took {took * 1e3:.0f} ms, answers {codes}", broken=broken)


@attack(FENCE, short=True, sanitized=True, inside=True)
def late_after_resume(scene):
    """Half a WRITE, the region is suspended and resumed at once and its memory filled anew; then the rest comes, and the
    next chunk of the same old transfer."""
    session, region = half_a_write(scene, "back")
    scene.victim.must("suspend back")
    scene.victim.must(f"fill back 0 {BYTES} 71 0 0")
    resumed = scene.victim.ask("resume back")
    rest_of_it(session)
    next_chunk(session, region)
    codes = answers(session, 2)
    broken = landed(scene, "back", 71)
    session.close()
    scene.victim.ask("deregister back")
    return dict(did=f"resume: {resumed[:40]}, answers {codes}", broken=broken)


@attack(FENCE, short=True, sanitized=True, inside=True)
def late_after_a_trip_of_refusals(scene):
    """As before, but first the peer lets itself be refused with other ids, so that the victim may forget what it
    refused last."""
    session, region = half_a_write(scene, "back")
    other = wire.Session(scene.victim.info)
    scene.victim.must("suspend back")
    for id_ in (region.id, region.id - (1 << 32) & (2**64 - 1), region.id - 1):
        other.lane.send(wire.WRITE, payload=b"", transfer=2, pieces=1, region=id_, aux=other.epoch)
        other.lane.answer(wire.ACK)
    scene.victim.must(f"fill back 0 {BYTES} 72 0 0")
    resumed = scene.victim.ask("resume back")
    rest_of_it(session)
    next_chunk(session, region)
    codes = answers(session, 2)
    broken = landed(scene, "back", 72)
    session.close()
    other.close()
    scene.victim.ask("deregister back")
    return dict(did=f"resume: {resumed[:40]}, answers {codes}", broken=broken)


@attack(FENCE, short=True, sanitized=True, inside=True)
def region_of_others(scene):
    """READs and WRITEs of a region that was given to no peer, with its true id and all its access bits."""
    region = wire.Region.decode(bytes.fromhex(scene.victim.must(f"private secret {BYTES} 3 73")))
    session = wire.Session(scene.victim.info)
    fields = dict(pieces=1, region=region.id, aux=session.epoch)
    session.lane.send(wire.WRITE, payload=b"\xaa" * 4096, transfer=1, **fields)
    written = session.lane.answer(wire.ACK)[1]
    session.lane.send(wire.READ, size=4096, transfer=2, **fields)
    kind, code, *_ = session.lane.answer(wire.DATA, wire.READ_FAILED)
    broken = landed(scene, "secret", 73) or ("it was read" if kind == wire.DATA else "")
    session.close()
    scene.victim.must("deregister secret")
    return dict(did=f"WRITE answered {written}, READ {code}", broken=broken)


@attack(FENCE, short=True, inside=True)
def stranger_stands_still_at_resume(scene):
    """A peer that answers nothing, and never used the region, beside one that did and answers: the region comes back."""
    idle = wire.Session(scene.victim.info)
    region = scene.victim.memory("back", BYTES, 3)
    user = wire.Session(scene.victim.info)
    user.lane.send(wire.WRITE, payload=b"z" * 100, transfer=1, pieces=1, region=region.id, aux=user.epoch)
    user.lane.answer(wire.ACK)
    scene.victim.must("suspend back")
    user.lane.send(wire.WRITE, payload=b"z" * 100, transfer=1, pieces=1, region=region.id, aux=user.epoch)
    refused = user.lane.answer(wire.ACK)[1]
    pump = threading.Thread(target=answers, args=(user, 1))
    pump.start()
    start = time.monotonic()
    resumed = scene.victim.ask("resume back")
    took = time.monotonic() - start
    idle.close()
    user.lane.sock.shutdown(socket.SHUT_RDWR)
    pump.join()
    user.close()
    scene.victim.ask("deregister back")
    return dict(did=f"refused with {refused}, resume: {resumed[:30]} after {took * 1e3:.0f} ms",
                broken="" if resumed.startswith("ok") else "the region did not come back")


@attack(FENCE, short=True, inside=True, seconds=6)
def stopped_peer(scene):
    """An honest client under SIGSTOP in the middle of its work, then continued."""
    third = scenes.Client("lasting", scene.third_region())
    time.sleep(0.3)
    third.mark()
    scenes.stop_process(third)
    time.sleep(min(scene.seconds, 5))
    third.signal(signal.SIGCONT)
    time.sleep(0.5)
    third.mark()
    time.sleep(0.3)
    after = third.mark()
    code = third.stop("quit")
    scene.victim.must("deregister third")
    rounds = after.get("small", {}).get("n", 0)
    broken = f"after it went on: {after}, exit code {code}" if after["wrong"] or not rounds or code else ""
    return dict(did=f"stood for {min(scene.seconds, 5):.0f} s, then {rounds} rounds", broken=broken)
