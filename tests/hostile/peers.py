"""Who holds the secret and means ill."""
import array
import socket
import time

import wire
from attack import PEER, attack, flood_again, swallow

MIB = 1 << 20


def heads(context, lanes):
    """Sessions whose every lane announces 16 MiB and sends nothing of it; a new one when the victim ends it."""
    made = 0
    held = []
    while context.left() > 0:
        if len(held) < 4:
            try:
                session = context.session(lanes)
                for lane in session.lanes:
                    lane.send(wire.NOTIFY, transfer=1, size=16 * MIB)
                held.append(session)
                made += 1
            except (OSError, wire.Refused):
                pass
        time.sleep(min(0.1, max(0, context.left())))
        for session in list(held):
            if context.left() > 0 and not all(alive(lane) for lane in session.lanes):
                held.remove(session)
                session.close()
    return f"{made} sessions, {made * lanes} heads"


def alive(lane):
    try:
        return swallow(lane.sock)
    except OSError:
        return False


@attack(PEER, lanes=4)
def notify_heads_1_lane(context):
    """Heads of 16 MiB notifications without a byte of them, one lane in each of four sessions."""
    return heads(context, 1)


@attack(PEER, short=True, lanes=256)
def notify_heads_64_lanes(context):
    """The same on 64 lanes."""
    return heads(context, 64)


@attack(PEER, short=True, sanitized=True)
def pings_unread(context):
    """Pings whose answers are never read."""
    return flood_again(context, lambda lane: wire.Flood(lane, wire.PING, aux=1))


@attack(PEER, short=True, sanitized=True)
def refused_reads_unread(context):
    """READs of a region that does not exist; the refusals are never read."""
    return flood_again(context, lambda lane: wire.Flood(lane, wire.READ, transfer=9, size=4096, pieces=1,
                                                        region=0x1234567800000001, aux=lane.epoch))


@attack(PEER)
def empty_writes_unread(context):
    """WRITEs of no bytes; the answers are never read."""
    region = context.regions["writable"].id
    return flood_again(context, lambda lane: wire.Flood(lane, wire.WRITE, payload=b"", transfer=9, pieces=1,
                                                        region=region, aux=lane.epoch))


@attack(PEER, short=True)
def lane_down_unread(context):
    """Lane-down frames for a lane that never was; the answers are never read."""
    return flood_again(context, lambda lane: wire.Flood(lane, wire.LANE_DOWN, chunk=63))


@attack(PEER, lanes=8)
def lane_down_answered(context):
    """The same on eight lanes, answers read."""
    return flood_again(context, lambda lane: wire.Flood(lane, wire.LANE_DOWN, chunk=63), lanes=8, read=True)


def number_from(start=0):
    return lambda numbers: array.array("I", [(start + n) & 0xffffffff for n in numbers])


@attack(PEER, short=True, serve="peers")
def notify_flood_empty(context):
    """Empty notifications, more than a million where there is time, and an application that takes none."""
    return flood_again(context, lambda lane: wire.Flood(lane, wire.NOTIFY, payload=b"", vary={16: number_from(1)}),
                       read=True)


@attack(PEER, serve="peers")
def notify_flood_big(context):
    """Notifications of 8 MiB, and an application that takes none."""
    body = bytes(8 * MIB)
    taken = ended = 0
    number = 0
    while context.left() > 0:
        try:
            session = context.session()
            session.lane.sock.settimeout(1)
            while context.left() > 0:
                number += 1
                session.lane.send(wire.NOTIFY, payload=body, transfer=number)
                taken += 1
                swallow(session.lane.sock)
            session.close()
        except (OSError, wire.Refused):
            ended += 1
            time.sleep(0.05)
    return f"{taken} sent, {ended} times held back or ended by the victim"


@attack(PEER)
def notify_ids_far_apart(context):
    """Notifications that are taken, with ids of which each leaves a gap behind the last one."""
    gaps = {16: lambda numbers: array.array("I", [(3 * n + 2) & 0xffffffff for n in numbers])}
    return flood_again(context, lambda lane: wire.Flood(lane, wire.NOTIFY, payload=b"", vary=gaps), read=True)


@attack(PEER, short=True, sanitized=True, seconds=6, lanes=16)
def answers_to_reads_unread(context):
    """A full window of READs of a megabyte on each of 16 lanes; no byte of the answers is read."""
    region = context.regions["readable"].id
    session, made = None, 0
    while context.left() > 0:
        try:
            if session is None:
                session = context.session(16)
                for lane in session.lanes:
                    for chunk in range(session.welcome.window):
                        lane.send(wire.READ, transfer=3, chunk=chunk, size=MIB, pieces=1, region=region, aux=lane.epoch)
                made += 1
            time.sleep(0.05)
            for lane in session.lanes:
                if lane.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) != 0:
                    raise ConnectionResetError
        except (OSError, wire.Refused):
            session = None
    return f"{made} sessions, {made * 256} MiB asked for"


@attack(PEER, lanes=8)
def reads_beyond_the_window(context):
    """READs of a megabyte on eight lanes, far more than a window of them; no byte of the answers is read."""
    region = context.regions["readable"].id
    return flood_again(context, lambda lane: wire.Flood(lane, wire.READ, transfer=3, size=MIB, pieces=1, region=region,
                                                        aux=lane.epoch, vary={12: number_from()}), lanes=8)


@attack(PEER, short=True, sanitized=True)
def guessed_regions(context):
    """READs of ids near one that is known, near one that is gone, and of any id, at full speed, answers read. None may
    be answered with data."""
    return guess(context, 1 << 62)


@attack(PEER)
def guessed_regions_anew(context):
    """The same in sessions of 4000 tries, so that a limit per session is of no use."""
    return guess(context, 4000)


def guess(context, tries_each):
    granted = {region.id for name, region in context.regions.items() if name != "gone"}
    near = [region.id for region in context.regions.values()]
    tries = hits = ended = 0
    while context.left() > 0:
        try:
            session = context.session()
            session.lane.sock.settimeout(1)
            stop = tries + tries_each
            while context.left() > 0 and tries < stop:
                base = context.random.choice(near)
                ids = [base + (n << shift) & (2**64 - 1) for shift in (0, 16, 32, 48) for n in range(-64, 65)]
                ids += [context.random.getrandbits(64) for _ in range(256)]
                ids = [each for each in ids if each not in granted]
                lane = session.lane
                wire.may_wait(lane.sock).sendall(b"".join(
                    lane.frame(wire.READ, transfer=5, chunk=i & 1023, size=8, pieces=1, region=each, aux=session.epoch)
                    for i, each in enumerate(ids)))
                answered = 0
                while answered < len(ids):
                    kind, *_ = lane.receive()
                    answered += kind in (wire.READ_FAILED, wire.DATA)
                    hits += kind == wire.DATA
                tries += answered
            session.close()
        except (OSError, wire.Refused):
            ended += 1
            time.sleep(0.01)
    return dict(did=f"{tries} tries, {ended} times held back or ended by the victim",
                broken=f"{hits} guesses were answered with data" if hits else "")


def tiny_writes(context, lanes):
    region = context.regions["writable"].id
    return flood_again(context, lambda lane: wire.Flood(lane, wire.WRITE, payload=b"x", transfer=9, pieces=1,
                                                        region=region, aux=lane.epoch, vary={12: number_from()}),
                       lanes=lanes, read=True)


@attack(PEER)
def small_frames_1_lane(context):
    """WRITEs of one byte as fast as they go, answers read."""
    return tiny_writes(context, 1)


@attack(PEER, short=True, sanitized=True, lanes=64)
def small_frames_64_lanes(context):
    """The same on 64 lanes."""
    return tiny_writes(context, 64)


def correct_writes(context, lanes):
    region = context.regions["writable"].id
    return flood_again(context, lambda lane: wire.Flood(lane, wire.WRITE, payload=b"x", transfer=9, pieces=1, block=8,
                                                        region=region, aux=lane.epoch, vary={12: number_from()}),
                       lanes=lanes, paced=True)


@attack(PEER, lanes=8)
def small_writes_in_window_8_lanes(context):
    """WRITEs of one byte on eight lanes, never more than half a window of them: what no receiver can refuse."""
    return correct_writes(context, 8)


@attack(PEER, short=True, sanitized=True, lanes=64)
def small_writes_in_window_64_lanes(context):
    """The same on 64 lanes."""
    return correct_writes(context, 64)


@attack(PEER, serve="peers")
def notify_in_window(context):
    """Empty notifications with ascending ids, never more than 64 without an answer, and an application that takes none."""
    return flood_again(context, lambda lane: wire.Flood(lane, wire.NOTIFY, payload=b"", block=64,
                                                        vary={16: number_from(1)}), paced=True)


@attack(PEER, lanes=64)
def pings_64_lanes(context):
    """Pings on 64 lanes as fast as they go, answers read."""
    return flood_again(context, lambda lane: wire.Flood(lane, wire.PING, aux=1), lanes=64, read=True)


@attack(PEER)
def answers_to_nothing(context):
    """Acknowledgements of chunks that nobody sent."""
    return flood_again(context, lambda lane: wire.Flood(lane, wire.ACK, transfer=77, vary={12: number_from()}), read=True)


def silent_after(context, first, lanes=8):
    sessions = []
    while context.left() > 0:
        if len(sessions) < 8:
            try:
                session = context.session(lanes)
                sessions.append(session)
                for lane in session.lanes:
                    lane.sock.sendall(first(lane))
            except (OSError, wire.Refused):
                pass
        time.sleep(0.05)
    return f"{len(sessions)} sessions of {lanes} lanes"


@attack(PEER, lanes=64)
def half_a_frame(context):
    """32 of 64 bytes of a head, and silence, on 64 lanes."""
    return silent_after(context, lambda lane: lane.frame(wire.PING)[:32])


@attack(PEER, lanes=64)
def half_a_payload(context):
    """Half the payload of a WRITE, and silence, on 64 lanes."""
    region = context.regions["writable"].id
    return silent_after(context, lambda lane: wire.header(wire.WRITE, size=65536, pieces=1, region=region,
                                                          aux=lane.epoch) + bytes(32768))


@attack(PEER, lanes=64)
def slow_payload(context):
    """A WRITE of a megabyte that comes byte by byte, on 64 lanes."""
    region = context.regions["writable"].id
    session = context.session(64)
    for lane in session.lanes:
        lane.sock.sendall(wire.header(wire.WRITE, size=MIB, pieces=1, region=region, aux=lane.epoch))
    sent = 0
    while context.left() > 0:
        for lane in session.lanes:
            try:
                wire.never_wait(lane.sock).send(b"y")
                sent += 1
            except BlockingIOError:
                pass
            except OSError:
                return f"{sent} bytes, then ended by the victim"
        time.sleep(0.005)
    return f"{sent} bytes"


@attack(PEER, short=True, sanitized=True)
def wrong_lengths_and_sequences(context):
    """Payloads longer or shorter than announced, and sequence numbers left out: each ends its own session only."""
    region = context.regions["writable"].id
    alive = 0

    def once():
        nonlocal alive
        session = context.session()
        lane = session.lane
        choice = context.random.randrange(3)
        fields = dict(transfer=1, pieces=1, region=region, aux=session.epoch)
        if choice == 0:
            lane.send(wire.WRITE, payload=bytes(1100), size=1000, **fields)
        elif choice == 1:
            lane.send(wire.WRITE, payload=bytes(900), size=1000, **fields)
            lane.send(wire.WRITE, payload=bytes(900), size=1000, **fields)
        else:
            lane.sequence += 1 + context.random.randrange(1 << 31)
            lane.send(wire.PING)
        if not lane.closed(3):
            alive += 1
        session.close()

    done, ended = context.until_over(once)
    return dict(did=f"{done} sessions, {ended} cut", broken=f"{alive} went on" if alive else "")


class Fuzzer:
    """Frames of every type: most are right and go deep, some have one field that is wrong."""

    def __init__(self, context):
        self.rng = context.random
        # Not the honest clients' memory: a peer may write there, which is not what is tested here.
        self.regions = [context.regions[name].id for name in ("readable", "writable", "gone")]

    def number(self, bits):
        most = (1 << bits) - 1
        return most & self.rng.choice((0, 1, 2, 63, 64, self.rng.getrandbits(8), self.rng.getrandbits(16),
                                       self.rng.getrandbits(bits), most))

    def right(self, kind, epoch):
        rng = self.rng
        fields = dict(transfer=rng.randrange(8), chunk=rng.randrange(8))
        if kind in (wire.WRITE, wire.READ):
            size = rng.choice((0, 1, 100, 4096, 65536))
            fields.update(size=size, pieces=1, region=rng.choice(self.regions), offset=rng.randrange(MIB), aux=epoch)
        elif kind in (wire.NOTIFY, wire.NOTIFY_BEHIND, wire.DATA):
            fields.update(size=rng.choice((0, 5, 4096)))
            if kind == wire.NOTIFY:
                fields.update(transfer=self.number(64), chunk=0)
        elif kind in (wire.ACK, wire.READ_FAILED):
            fields.update(status=rng.choice((4, 5, 6)))
        elif kind in (wire.LANE_DOWN, wire.LANE_DOWN_ACK):
            fields = dict(chunk=rng.randrange(64))
        else:
            fields = dict(aux=self.number(64)) if kind in (wire.PING, wire.PONG) else {}
        return fields

    def frame(self, lane):
        rng = self.rng
        kind = rng.choice((wire.WRITE, wire.WRITE, wire.READ, wire.READ, wire.NOTIFY, wire.NOTIFY_BEHIND, wire.PING,
                           wire.LANE_DOWN, wire.ACK, wire.READ_FAILED, *range(1, 16)))
        fields = self.right(kind, lane.epoch)
        body = bytes(fields["size"]) if kind in wire.WITH_PAYLOAD and "size" in fields else None
        if rng.random() < 0.1:
            name, bits = rng.choice((("status", 16), ("chunk", 32), ("transfer", 64), ("size", 64), ("aux", 64),
                                     ("pieces", 32), ("region", 64), ("offset", 64), ("flags", 8)))
            fields[name] = self.number(bits)
        if rng.random() < 0.01:
            kind = rng.getrandbits(8)
        return lane.frame(kind, body, **fields)


@attack(PEER, short=True, sanitized=True, seconds=60, lanes=4)
def fuzzed_frames(context):
    """Sessions of frames of every type, most of them right, one in ten with a field at random (seeded)."""
    fuzzer, frames = Fuzzer(context), 0

    def once():
        nonlocal frames
        session = context.session(context.random.choice((1, 1, 2, 4)))
        try:
            for _ in range(context.random.randrange(1, 60)):
                lane = context.random.choice(session.lanes)
                wire.may_wait(lane.sock, 0.2).sendall(fuzzer.frame(lane))
                swallow(lane.sock)
                frames += 1
        finally:
            session.close()

    done, ended = context.until_over(once)
    return f"{done + ended} sessions, {ended} ended by the victim midway, {frames} frames"


@attack(PEER)
def bye_and_more(context):
    """A goodbye, and then a flood of WRITEs and notifications on the same lane."""
    region = context.regions["writable"].id

    def once():
        session = context.session()
        lane = session.lane
        lane.send(wire.BYE)
        flood = b"".join(lane.frame(wire.WRITE, payload=bytes(64), transfer=1, chunk=i, pieces=1, region=region,
                                    aux=session.epoch) for i in range(200))
        try:
            lane.sock.sendall(flood)
            lane.closed(1)
        finally:
            session.close()

    return "{} sessions, {} cut".format(*context.until_over(once))


@attack(PEER, short=True, sanitized=True, lanes=8)
def lanes_dropped_midway(context):
    """Sessions of eight lanes that are reset inside a payload, again and again."""
    region = context.regions["writable"].id

    def once():
        session = context.session(8)
        for lane in session.lanes:
            lane.sock.sendall(wire.header(wire.WRITE, size=MIB, pieces=1, region=region, aux=session.epoch) + bytes(50000))
        session.close()

    return "{} sessions, {} refused".format(*context.until_over(once))


@attack(PEER, short=True, sanitized=True, seconds=20)
def short_sessions(context):
    """A thousand sessions in a row (long form; as many as a second takes in the short one), each with a ping."""
    made = 0

    def once():
        nonlocal made
        if context.long and made >= 1000:
            context.end = 0
            return
        session = context.session()
        session.lane.send(wire.PING, aux=5)
        session.lane.answer(wire.PONG)
        session.close()
        made += 1

    done, ended = context.until_over(once)
    return f"{made} sessions, {ended} refused"
