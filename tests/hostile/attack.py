"""What every attack has: a name, who makes it, how long it lasts, and the loops that many of them share."""
import dataclasses
import random
import select
import socket
import time

import wire

STRANGER, OBSERVER, PEER, FENCE = "strangers", "observers", "peers", "fences"
ATTACKS = {}


@dataclasses.dataclass
class Attack:
    name: str
    group: str
    act: object
    short: bool = False      # part of the short form
    sanitized: bool = False  # and of the one for sanitized builds
    seconds: float = 5.0     # in the long form; 1 in the short one
    lanes: int = 1           # it has at a time, for what it may make the victim hold
    serve: str = "all"       # "peers": the victim's application takes no notifications
    inside: bool = False     # act(scene) in the driver, beside the victim's line; else act(context) in a process of its own
    low_fds: int = 0         # a victim of its own with so many descriptors
    idle_cpu: bool = False   # the victim has nothing to do meanwhile: a thread that spins is a failure
    anew_may_fail: bool = False

    @property
    def text(self):
        return " ".join(self.act.__doc__.split())


def attack(group, **rest):
    def register(act):
        name = act.__name__
        ATTACKS[name] = Attack(name, group, act, **rest)
        return act
    return register


class Context:
    """What an attacker in its own process knows."""

    def __init__(self, said):
        self.info = wire.Info.decode(bytes.fromhex(said["info"]))
        self.regions = {name: wire.Region.decode(bytes.fromhex(blob)) for name, blob in said["regions"].items()}
        self.seconds = said["seconds"]
        self.long = said["long"]
        self.random = random.Random(said["seed"])
        self.end = time.monotonic() + self.seconds
        self.address = self.info.addresses[0]

    def left(self):
        return self.end - time.monotonic()

    def session(self, lanes=1, **rest):
        return wire.Session(self.info, lanes=lanes, **rest)

    def dial(self, source=2, timeout=5):
        """A stranger's socket, from another address of this host (127.0.0.SOURCE)."""
        sock = socket.socket()
        sock.settimeout(timeout)
        sock.bind((f"127.0.0.{source}", 0))
        sock.connect(self.address)
        return sock

    def until_over(self, once):
        """Calls once() again and again; how often it worked, and how often the victim ended it."""
        done = ended = 0
        while self.left() > 0:
            try:
                once()
                done += 1
            except (OSError, wire.Refused):
                ended += 1
                time.sleep(0.005)
        return done, ended


def swallow(sock):
    """Throws away what has come; False when the other side has closed."""
    try:
        return bool(wire.never_wait(sock).recv(1 << 20))
    except BlockingIOError:
        return True


def pour_within_window(context, floods):
    """As a correct peer paces itself: the next block of a flood when the last one is answered, 64 bytes for each frame.
    Returns True if the victim ended one of them."""
    answered = [0] * len(floods)
    while context.left() > 0:
        moved = False
        for index, flood in enumerate(floods):
            try:
                came = len(wire.never_wait(flood.lane.sock).recv(1 << 16))
                if came == 0:
                    return True
                answered[index] += came
                moved = True
            except BlockingIOError:
                pass
            except OSError:
                return True
            try:
                if flood.pending or answered[index] >= flood.sent * wire.HEADER_BYTES:
                    moved |= flood.push()
            except OSError:
                return True
        if not moved:
            select.select([flood.lane.sock for flood in floods], [], [], min(0.05, max(0, context.left())))
    return False


def pour(context, floods, read):
    """Pushes floods until time is up. Returns True if the victim ended one of them."""
    while context.left() > 0:
        moved = False
        for flood in floods:
            try:
                moved |= flood.push()
                if read and not swallow(flood.lane.sock):
                    return True
            except OSError:
                return True
        if not moved:
            socks = [flood.lane.sock for flood in floods]
            select.select(socks if read else [], socks, [], min(0.05, max(0, context.left())))
    return False


def flood_again(context, make, lanes=1, read=False, paced=False):
    """Floods made by make(lane) on each lane of a session; a new session when the victim ends it."""
    frames = ended = 0
    while context.left() > 0:
        try:
            session = context.session(lanes)
        except (OSError, wire.Refused):
            ended += 1
            time.sleep(0.05)
            continue
        floods = [make(lane) for lane in session.lanes]
        ended += pour_within_window(context, floods) if paced else pour(context, floods, read)
        frames += sum(flood.sent for flood in floods)
        session.close()
    return f"{frames} frames, {ended} sessions ended by the victim"


class Crowd:
    """A number of sockets kept open; those that the victim closes are opened again."""

    def __init__(self, context, count, sources=(2,), first=b""):
        self.context, self.first = context, first
        self.sources = sources
        self.socks = [None] * count
        self.opened = self.closed = 0

    def refill(self):
        for index, sock in enumerate(self.socks):
            if self.context.left() <= 0:
                return
            if sock is None:
                try:
                    sock = self.context.dial(self.sources[index % len(self.sources)], timeout=0.2)
                    if self.first:
                        sock.sendall(self.first)
                    self.opened += 1
                except OSError:
                    sock = None
                self.socks[index] = sock

    def each(self, act):
        """act(sock) for each; one that fails has been closed by the victim."""
        for index, sock in enumerate(self.socks):
            if sock is None:
                continue
            try:
                if act(sock):
                    continue
            except OSError:
                pass
            sock.close()
            self.closed += 1
            self.socks[index] = None

    def stay(self, act=swallow, step=0.05):
        while self.context.left() > 0:
            self.refill()
            self.each(act)
            time.sleep(step)
        return f"{self.opened} connections, {self.closed} closed by the victim"
