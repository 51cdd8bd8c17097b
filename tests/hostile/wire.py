"""The wire protocol, written from docs/wire-protocol.md alone: what an attacker would write.

Nothing here knows src/. Standard library only. Frames of a flood are made in blocks by strided copies, a few
million a second.
"""
import array
import dataclasses
import hashlib
import hmac
import os
import socket
import struct
import time

VERSION = 4
TCP_PATH = 1
HELLO_BYTES, CHALLENGE_BYTES, PROOF_BYTES, WELCOME_BYTES, SIGNED_BYTES = 192, 96, 40, 480, 448
HEADER_BYTES, TRAILER_BYTES, PIECE_BYTES = 64, 16, 24
NEW_SESSION, JOIN = 1, 2
(WRITE, READ, DATA, ACK, READ_FAILED, NOTIFY, NOTIFY_ACK, LANE_DOWN, LANE_DOWN_ACK, PING, PONG, BYE, CARRIER,
 NOTIFY_BEHIND, NOTIFY_BEHIND_ACK) = range(1, 16)
WITH_PAYLOAD = (WRITE, DATA, NOTIFY, CARRIER, NOTIFY_BEHIND)  # and a trailer
MAX_CHUNK = 16 << 20
OK = 0

ENGINE_LABEL = b"tcpx-p2p engine key   v1"
SESSION_LABEL = b"tcpx-p2p session key  v1"
KNOCK_LABEL = b"tcpx-p2p knock        v1"
SERVER_LABEL = b"tcpx-p2p server proof v1"
CLIENT_LABEL = b"tcpx-p2p client proof v1"
WELCOME_LABEL = b"tcpx-p2p welcome mac  v1"
INFO_LABEL = b"tcpx-p2p connection info v1"


def mac(key, *parts):
    return hmac.new(key, b"".join(parts), hashlib.sha256).digest()


class Refused(Exception):
    """The other side said no, with a code."""

    def __init__(self, where, code):
        super().__init__(f"{where}: refused with code {code}")
        self.code = code


# ---- blobs ---------------------------------------------------------------------------------------
@dataclasses.dataclass
class Info:
    mode: int
    uid: bytes
    secret: bytes
    name: bytes
    addresses: list  # (host, port)

    @classmethod
    def decode(cls, blob):
        magic, _version, total, mode, name_bytes, count = struct.unpack_from("<4sHHBBB", blob)
        assert magic == b"TCPI" and total == len(blob), "no connection info"
        name = blob[64:64 + name_bytes]
        addresses = [decode_address(blob[64 + name_bytes + 20 * i:][:20]) for i in range(count)]
        return cls(mode, blob[16:32], blob[32:64], name, addresses)

    def encode(self, key=b""):
        """`key` is the operator's, in mode 2."""
        rows = b"".join(encode_address(*each) for each in self.addresses)
        total = 96 + len(self.name) + len(rows)
        body = struct.pack("<4sHHBBB5x16s32s", b"TCPI", 1, total, self.mode, len(self.name), len(self.addresses),
                           self.uid, self.secret if self.mode == 1 else bytes(32)) + self.name + rows
        secret = {0: b"", 1: self.secret, 2: key}[self.mode]
        return body + mac(mac(INFO_LABEL, secret), body)


def decode_address(row):
    ip, port = row[:16], struct.unpack_from("<H", row, 16)[0]
    if ip[:12] == bytes(10) + b"\xff\xff":
        return socket.inet_ntop(socket.AF_INET, ip[12:]), port
    return socket.inet_ntop(socket.AF_INET6, ip), port


def encode_address(host, port):
    if ":" in host:
        ip = socket.inet_pton(socket.AF_INET6, host)
    else:
        ip = bytes(10) + b"\xff\xff" + socket.inet_pton(socket.AF_INET, host)
    return struct.pack("<16sHBx", ip, port, 0)


@dataclasses.dataclass
class Region:
    """As a description names it; the id is 8 opaque bytes."""
    uid: bytes
    id: int
    length: int
    access: int

    @classmethod
    def decode(cls, blob):
        magic, _version, uid, region, length, access = struct.unpack_from("<4sH2x16sQQI", blob)
        assert magic == b"TCPR" and len(blob) == 80, "no region description"
        assert hashlib.sha256(blob[:64]).digest()[:16] == blob[64:], "damaged region description"
        return cls(uid, region, length, access)


# ---- handshake -----------------------------------------------------------------------------------
def hello(kind=NEW_SESSION, lane=0, lanes=1, session=0, chunk_bytes=512 << 10, uid=None, target=bytes(16),
          nonce=None, name=b"mallory", window=16, flags=1, version=VERSION, epoch=0, key=None):
    """Without `key`, which it will have to prove, the knock is noise."""
    said = struct.pack("<4sHBBIIQQ16s16s32s64sIHHQ8x", b"TCPH", version, kind, flags, lane, lanes, session,
                       chunk_bytes, uid or os.urandom(16), target, nonce or os.urandom(32), name, window, VERSION,
                       TCP_PATH, epoch)
    return said + (mac(key, KNOCK_LABEL, said)[:8] if key else os.urandom(8))


def proof(value):
    return struct.pack("<4s4x32s", b"TCPP", value)


@dataclasses.dataclass
class Welcome:
    status: int
    lanes: int
    window: int
    session: int
    chunk_bytes: int
    epoch: int

    @classmethod
    def decode(cls, raw):
        magic, status, _count, lanes, window, session, chunk = struct.unpack_from("<4sHHIIQQ", raw)
        assert magic == b"TCPW", "no welcome"
        return cls(status, lanes, window, session, chunk, struct.unpack_from("<Q", raw, 424)[0])


# A socket with a timeout waits in every call, whatever flags say: so it is set for the kind of call.
def never_wait(sock):
    if sock.gettimeout() != 0:
        sock.settimeout(0)
    return sock


def may_wait(sock, seconds=20):
    if sock.gettimeout() == 0:
        sock.settimeout(seconds)
    return sock


def receive_exactly(sock, count):
    may_wait(sock)
    parts, left = [], count
    while left:
        part = sock.recv(min(left, 1 << 20))
        if not part:
            raise ConnectionResetError(f"closed with {left} of {count} bytes missing")
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


def dial(address, timeout=20):
    sock = socket.create_connection(address, timeout=timeout)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def shake(sock, engine_key, client_hello, join_key=None):
    """The client's part of a handshake; returns the welcome and the session key."""
    sock.sendall(client_hello)
    challenge = receive_exactly(sock, CHALLENGE_BYTES)
    status = struct.unpack_from("<H", challenge, 6)[0]
    if status != OK:
        raise Refused("challenge", status)
    key = join_key or engine_key
    said = client_hello + challenge[:64]
    assert hmac.compare_digest(challenge[64:], mac(key, SERVER_LABEL, said)), "the server's proof is wrong"
    sock.sendall(proof(mac(key, CLIENT_LABEL, said)))
    raw = receive_exactly(sock, WELCOME_BYTES)
    welcome = Welcome.decode(raw)
    if welcome.status != OK:
        raise Refused("welcome", welcome.status)
    session_key = join_key or mac(engine_key, SESSION_LABEL, said)
    signed = mac(session_key, WELCOME_LABEL, said, raw[:SIGNED_BYTES])
    assert hmac.compare_digest(raw[SIGNED_BYTES:], signed), "the welcome's MAC is wrong"
    return welcome, session_key


def challenge(client_hello, engine_key, uid, nonce):
    """The server's first message, with its proof."""
    said = struct.pack("<4sHHB7x16s32s", b"TCPC", VERSION, OK, 1, uid, nonce)
    return said + mac(engine_key, SERVER_LABEL, client_hello, said)


def signed_welcome(client_hello, said, engine_key, session, lanes=1, window=16):
    """The server's second message; `said` is its challenge."""
    transcript = client_hello + said[:64]
    body = struct.pack("<4sHHIIQQ64s320xH30x", b"TCPW", OK, 0, lanes, window, session, 512 << 10, b"rogue", TCP_PATH)
    assert len(body) == SIGNED_BYTES
    return body + mac(mac(engine_key, SESSION_LABEL, transcript), WELCOME_LABEL, transcript, body)


# ---- frames --------------------------------------------------------------------------------------
def header(kind, sequence=0, status=0, chunk=0, transfer=0, size=0, aux=0, pieces=0, region=0, offset=0, flags=0,
           magic=b"TCPX"):
    return struct.pack("<4sBBHIIQQQIQ4xQ", magic, kind, flags, status, sequence & 0xffffffff, chunk, transfer, size,
                       aux, pieces, region, offset)


def trailer(sequence, status=0):
    return struct.pack("<4sHxxI4x", b"TCPT", status, sequence & 0xffffffff)


def piece(region, offset, length):
    return struct.pack("<QQQ", region, offset, length)


class Lane:
    """One authenticated socket. Sends what it is told to, right or wrong."""

    def __init__(self, sock, epoch=0):
        self.sock = sock
        self.epoch = epoch
        self.sequence = 0

    def frame(self, kind, payload=None, **fields):
        """The bytes of the next frame; with `payload` (bytes) those and the trailer too."""
        if payload is not None:
            fields.setdefault("size", len(payload))
        out = header(kind, sequence=self.sequence, **fields)
        if payload is not None:
            out += payload + trailer(self.sequence)
        self.sequence += 1
        return out

    def send(self, kind, payload=None, **fields):
        may_wait(self.sock).sendall(self.frame(kind, payload, **fields))

    def receive(self):
        """Next frame: (type, status, chunk, transfer, aux, payload bytes)."""
        head = receive_exactly(self.sock, HEADER_BYTES)
        _magic, kind, _flags, status, _sequence, chunk, transfer, length, aux = struct.unpack_from("<4sBBHIIQQQ", head)
        payload = b""
        if kind in WITH_PAYLOAD:
            payload = receive_exactly(self.sock, length)
            receive_exactly(self.sock, TRAILER_BYTES)
        return kind, status, chunk, transfer, aux, payload

    def answer(self, *kinds, seconds=5):
        """The next frame of these kinds; pings are answered meanwhile."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.sock.settimeout(max(0.01, end - time.monotonic()))
            got = self.receive()
            if got[0] in kinds:
                return got
            if got[0] == PING:
                self.send(PONG, aux=got[4])
        raise TimeoutError(f"no frame of types {kinds} in {seconds} s")

    def closed(self, seconds=5):
        """True when the other side closes within that time; what it sends is thrown away."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.sock.settimeout(max(0.01, end - time.monotonic()))
            try:
                if not self.sock.recv(1 << 16):
                    return True
            except TimeoutError:
                return False
            except OSError:
                return True
        return False

    def close(self):
        self.sock.close()


class Session:
    """An authenticated session of up to 64 lanes."""

    def __init__(self, info, lanes=1, key=b"", window=16, uid=None, name=b"mallory", timeout=20):
        secret = info.secret if info.mode == 1 else key
        self.address = info.addresses[0]
        self.target = info.uid
        self.uid = uid or os.urandom(16)
        self.engine_key = mac(ENGINE_LABEL, secret)
        self.timeout = timeout
        sock = dial(self.address, timeout)
        said = hello(lanes=lanes, uid=self.uid, target=self.target, window=window, name=name, epoch=1,
                     key=self.engine_key)
        self.welcome, self.key = shake(sock, self.engine_key, said)
        self.epoch = self.welcome.epoch
        self.lanes = [Lane(sock, self.epoch)]
        for index in range(1, min(lanes, self.welcome.lanes)):
            self.join(index)

    def join(self, index):
        sock = dial(self.address, self.timeout)
        said = hello(kind=JOIN, lane=index, lanes=self.welcome.lanes, session=self.welcome.session, uid=self.uid,
                     target=self.target, key=self.key)
        shake(sock, self.engine_key, said, join_key=self.key)
        self.lanes.append(Lane(sock, self.epoch))
        return self.lanes[-1]

    @property
    def lane(self):
        return self.lanes[0]

    def close(self):
        for lane in self.lanes:
            lane.close()


class Flood:
    """Very many equal frames, each with the next sequence number. `vary` maps a field's offset in the header to
    a function of the frame's number that gives 4 bytes of it (array of unsigned 32 bit numbers in, the same out)."""

    def __init__(self, lane, kind, vary=None, payload=None, block=16384, **fields):
        self.lane = lane
        self.frames = block
        self.vary = vary or {}
        start, lane.sequence = lane.sequence, 0
        one = lane.frame(kind, payload, **fields)
        lane.sequence = start
        self.stride = len(one)
        self.trailer_at = self.stride - TRAILER_BYTES + 8 if payload is not None else None
        self.block = bytearray(one * self.frames)
        self.pending = memoryview(b"")
        self.sent = 0  # frames handed to the socket in whole blocks

    def put(self, at, numbers):
        raw = numbers.tobytes()
        for byte in range(4):
            self.block[at + byte::self.stride] = raw[byte::4]

    def next_block(self):
        first = self.lane.sequence
        numbers = array.array("I", [n & 0xffffffff for n in range(first, first + self.frames)])
        self.put(8, numbers)
        if self.trailer_at is not None:
            self.put(self.trailer_at, numbers)
        for at, function in self.vary.items():
            self.put(at, function(numbers))
        self.lane.sequence += self.frames
        return memoryview(bytes(self.block))

    def push(self):
        """Sends what fits without waiting; False if the socket takes nothing now."""
        if not self.pending:
            self.pending = self.next_block()
            self.sent += self.frames
        try:
            count = never_wait(self.lane.sock).send(self.pending)
        except (BlockingIOError, InterruptedError):
            return False
        self.pending = self.pending[count:]
        return True
