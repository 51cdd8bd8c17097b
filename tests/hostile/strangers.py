"""Who can reach the port and holds no secret."""
import os
import socket
import struct
import threading
import time

import wire
from attack import OBSERVER, STRANGER, Crowd, attack

ANYWHERE = tuple(range(2, 250))


def recorded_hello(context):
    """An honest client's hello, as somebody on its way could have recorded it: the knock is right."""
    return wire.hello(target=context.info.uid, key=wire.mac(wire.ENGINE_LABEL, context.info.secret))


def storm(context, said=b""):
    """Connections as fast as they go, each with `said`; the last 500 stay open."""
    socks, opened = [], 0
    while context.left() > 0:
        try:
            socks.append(context.dial(2 + opened % 240))
            if said:
                socks[-1].sendall(said)
            opened += 1
        except OSError:
            time.sleep(0.001)
        if len(socks) > 500:
            socks.pop(0).close()
    return f"{opened} connections"


@attack(STRANGER)
def nothing(context):
    """No attack: what two quiet times differ by, which is what the bars cannot see."""
    time.sleep(context.seconds)
    return "nothing"


@attack(STRANGER, short=True, seconds=12)
def idle_64(context):
    """As many silent connections as may be half open, opened again when they are closed."""
    return Crowd(context, 64).stay()


@attack(STRANGER, seconds=12)
def idle_64_same_address(context):
    """The same from the address that the honest clients come from."""
    return Crowd(context, 64, sources=(1,)).stay()


@attack(STRANGER, short=True, sanitized=True, seconds=12)
def idle_1000(context):
    """A thousand silent connections from 248 addresses."""
    return Crowd(context, 1000, sources=ANYWHERE).stay()


@attack(STRANGER, seconds=8)
def half_a_hello(context):
    """96 of 192 bytes, and silence, 64 times."""
    return Crowd(context, 64, first=wire.hello()[:96]).stay()


@attack(STRANGER, seconds=8)
def hello_byte_by_byte(context):
    """A hello of which a byte comes every 50 ms, 64 times."""
    said = wire.hello()
    crowd = Crowd(context, 64)

    def next_byte(sock):
        at = sent.get(sock, 0)
        sent[sock] = at + 1
        return sock.send(said[at % 192:at % 192 + 1]) == 1

    sent = {}
    return crowd.stay(next_byte)


@attack(STRANGER, short=True, sanitized=True)
def garbage(context):
    """64 KiB of noise on connections of its own, again and again."""
    noise = os.urandom(65536)

    def once():
        with context.dial() as sock:
            try:
                sock.sendall(noise)
                sock.recv(1)
            except OSError:
                pass  # reset: what is expected

    return "{} connections, {} refused".format(*context.until_over(once))


@attack(STRANGER, seconds=8)
def hello_without_proof(context):
    """A recorded hello, the challenge is taken, and then silence, 64 times."""
    return Crowd(context, 64, first=recorded_hello(context)).stay()


@attack(STRANGER, short=True, sanitized=True)
def wrong_proof(context):
    """Recorded hellos with a proof that is noise, as fast as they go."""
    refused = let_in = 0
    said = recorded_hello(context)

    def once():
        nonlocal refused, let_in
        with context.dial() as sock:
            sock.sendall(said)
            wire.receive_exactly(sock, wire.CHALLENGE_BYTES)
            sock.sendall(wire.proof(os.urandom(32)))
            raw = wire.receive_exactly(sock, wire.WELCOME_BYTES)
            if wire.Welcome.decode(raw).status == wire.OK:
                let_in += 1
            else:
                refused += 1

    done, ended = context.until_over(once)
    return dict(did=f"{done} handshakes, {ended} cut", broken=f"{let_in} were let in" if let_in else "")


@attack(STRANGER)
def connect_and_reset(context):
    """Connections that are reset as soon as they exist, as fast as one process can."""
    linger = struct.pack("ii", 1, 0)

    def once():
        sock = context.dial()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        sock.close()

    return "{} connections, {} refused".format(*context.until_over(once))


@attack(STRANGER, short=True, sanitized=True)
def connect_storm(context):
    """Thousands of connections a second, of which the last 500 stay open."""
    return storm(context)


@attack(STRANGER)
def hello_storm(context):
    """The same, and each says a hello, whose knock is noise."""
    return storm(context, wire.hello(target=context.info.uid))


@attack(OBSERVER)
def recorded_hello_storm(context):
    """The same by somebody who has recorded an honest client's hello: the victim answers with its own proof, and waits
    for theirs."""
    return storm(context, recorded_hello(context))


@attack(STRANGER, short=True, sanitized=True, seconds=2)
def replayed_handshake(context):
    """Both messages of a handshake that was let in, once more."""
    said = recorded_hello(context)
    key = wire.mac(wire.ENGINE_LABEL, context.info.secret)
    with context.dial() as sock:
        sock.sendall(said)
        challenge = wire.receive_exactly(sock, wire.CHALLENGE_BYTES)
        recorded = wire.proof(wire.mac(key, wire.CLIENT_LABEL, said, challenge[:64]))
        sock.sendall(recorded)
        if wire.Welcome.decode(wire.receive_exactly(sock, wire.WELCOME_BYTES)).status != wire.OK:
            return dict(did="", broken="the handshake to be recorded was refused")
    let_in = 0

    def once():
        nonlocal let_in
        with context.dial() as sock:
            sock.sendall(said)
            wire.receive_exactly(sock, wire.CHALLENGE_BYTES)
            sock.sendall(recorded)
            raw = wire.receive_exactly(sock, wire.WELCOME_BYTES)
            let_in += wire.Welcome.decode(raw).status == wire.OK

    done, ended = context.until_over(once)
    return dict(did=f"{done} replays, {ended} cut", broken=f"{let_in} were let in" if let_in else "")


@attack(STRANGER, short=True, sanitized=True, seconds=2)
def join_of_anothers_session(context):
    """A lane for a session whose key it does not have: as itself, as its owner with the key of another session or noise,
    and with a recorded hello."""
    mine, other = context.session(), context.session()
    let_in = 0

    def once():
        nonlocal let_in
        key = context.random.choice([mine.key, os.urandom(32)])
        uid, knock_key = context.random.choice([(mine.uid, key), (other.uid, key), (other.uid, other.key)])
        with context.dial() as sock:
            said = wire.hello(kind=wire.JOIN, lane=1, lanes=2, session=other.welcome.session, uid=uid, key=knock_key)
            sock.sendall(said)
            challenge = wire.receive_exactly(sock, wire.CHALLENGE_BYTES)
            sock.sendall(wire.proof(wire.mac(key, wire.CLIENT_LABEL, said, challenge[:64])))
            raw = wire.receive_exactly(sock, wire.WELCOME_BYTES)
            let_in += wire.Welcome.decode(raw).status == wire.OK

    done, ended = context.until_over(once)
    mine.close()
    other.close()
    return dict(did=f"{done} joins, {ended} cut", broken=f"{let_in} were let in" if let_in else "")


@attack(STRANGER, short=True, seconds=8, low_fds=64, idle_cpu=True, anew_may_fail=True)
def out_of_descriptors(context):
    """More connections than the victim has descriptors (64). New sessions may wait until they go; nothing may spin."""
    return Crowd(context, 200, sources=ANYWHERE).stay()


def rogue_server(trap, uid, secret, stage):
    """Plays the server to whoever connects, up to a stage at which it goes wrong or falls silent."""
    key = wire.mac(wire.ENGINE_LABEL, secret)
    socks = []
    try:
        while True:
            sock, _ = trap.accept()
            socks.append(sock)
            sock.settimeout(5)
            if stage == "silent":
                continue
            said = wire.receive_exactly(sock, wire.HELLO_BYTES)
            challenge = wire.challenge(said, key, uid, os.urandom(32))
            if stage == "half a challenge":
                sock.sendall(challenge[:50])
            elif stage == "wrong proof":
                sock.sendall(challenge[:64] + os.urandom(32))
            else:
                sock.sendall(challenge)
                wire.receive_exactly(sock, wire.PROOF_BYTES)
                welcome = wire.signed_welcome(said, challenge, key, session=77)
                if stage == "wrong welcome":
                    sock.sendall(welcome[:20] + os.urandom(4) + welcome[24:])
                elif stage == "endless refusals":
                    sock.close()
    except OSError:
        for sock in socks:
            sock.close()


@attack(STRANGER, short=True, sanitized=True, seconds=8, inside=True)
def rogue_servers(scene):
    """The victim is told to connect to servers that are silent, say half, prove nothing, forge the welcome or hang up.
    None may become a peer, and nobody else waits for them."""
    stages = ("silent", "half a challenge", "wrong proof", "no welcome", "wrong welcome", "endless refusals")
    traps, peers = [], []
    for stage in stages * 3:
        trap = socket.create_server(("127.0.0.1", 0))
        uid, secret = os.urandom(16), os.urandom(32)
        threading.Thread(target=rogue_server, args=(trap, uid, secret, stage), daemon=True).start()
        info = wire.Info(1, uid, secret, b"rogue", [trap.getsockname()]).encode()
        peers.append((stage, scene.victim.must(f"connect {info.hex()}")))
        traps.append(trap)
    time.sleep(scene.seconds)
    ends = [(stage, scene.victim.ask(f"wait_peer {peer} 0")) for stage, peer in peers]
    for trap in traps:
        trap.shutdown(socket.SHUT_RDWR)
        trap.close()
    for _, peer in peers:
        scene.victim.ask(f"disconnect {peer}")
    let_in = [stage for stage, answer in ends if answer.startswith("ok")]
    given_up = sum(not answer.startswith("err 1 ") for _, answer in ends)
    return dict(did=f"{len(peers)} servers, {given_up} given up so far", broken=f"a peer after {let_in}" if let_in else "")


@attack(STRANGER, short=True, sanitized=True, seconds=1, inside=True)
def rogue_connection_info(scene):
    """Connection info with a secret of its own is handed to an engine that has the operator's key: nothing may be
    said to the address it names."""
    keyed = scene.another_victim({"auth_key": "0123456789abcdef-operators-key-0123456789"})
    with socket.socket() as trap:
        trap.bind(("127.0.0.1", 0))
        trap.listen()
        trap.settimeout(1)
        rogue = wire.Info(1, os.urandom(16), os.urandom(32), b"rogue", [trap.getsockname()]).encode()
        answer = keyed.ask(f"connect {rogue.hex()}")
        came = ""
        if answer.startswith("ok"):
            try:
                sock, _ = trap.accept()
                came = f"it connected and said {len(sock.recv(192))} bytes"
                sock.close()
            except TimeoutError:
                pass
    keyed.stop("exit")
    return dict(did=f"connect answered: {answer[:60]}", broken=came)
