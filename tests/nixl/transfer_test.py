"""Moving bytes: sizes, lists, reposts, to another agent and to oneself."""
import random

from harness import Skip, case, in_threads, require

MIB = 1 << 20


def pair(test, place, size, target_options=None):
    """An initiator that knows the target, a registered buffer "b" of `size` bytes on each side."""
    target = test.target(place, **(target_options or {}))
    there = target.alloc("b", size)
    initiator = test.here("initiator")
    here = initiator.alloc("b", size)
    initiator.load(target.metadata())
    return initiator, target, here, there


def scattered(count, largest, gap, seed):
    """(offset, size) blocks in random order with gaps between them, and the space they need."""
    rng, blocks, at = random.Random(seed), [], 0
    for _ in range(count):
        size = rng.randint(1, largest)
        blocks.append((at, size))
        at += size + rng.randint(1, gap)
    rng.shuffle(blocks)
    return blocks, at


def same_sizes_elsewhere(blocks, gap, seed):
    """Blocks of the same sizes, in the same order of the list, at other places."""
    rng, order, at = random.Random(seed), list(range(len(blocks))), 0
    rng.shuffle(order)
    result = [None] * len(blocks)
    for index in order:
        result[index] = (at, blocks[index][1])
        at += blocks[index][1] + rng.randint(1, gap)
    return result, at


def at_address(base, blocks):
    return [(base + offset, size) for offset, size in blocks]


@case(core=True)
def write_and_read(test, place):
    sizes = [1, 7, 4095, 4096, 65537, MIB + 3, 16 * MIB - 5]
    initiator, target, here, there = pair(test, place, 16 * MIB)
    for seed, size in enumerate(sizes):
        # Different odd places on both sides; what lies around must stay as it is.
        mine, theirs = seed % 5, (3 * seed + 1) % 5
        size = min(size, 16 * MIB - 8)
        initiator.fill("b", seed, mine, size, 0)
        target.poison("b")
        initiator.move("WRITE", [(here + mine, size)], [(there + theirs, size)], "target")
        target.check_blocks("b", seed, [(theirs, size)])
        initiator.poison("b")
        initiator.move("READ", [(here + mine, size)], [(there + theirs, size)], "target")
        initiator.check_blocks("b", seed, [(mine, size)])


@case(core=True)
def prepared_lists(test, place):
    count, size = 64, 3000
    initiator, target, here, there = pair(test, place, count * size)
    blocks = [(i * size, size) for i in range(count)]
    local = initiator.prepare(None, at_address(here, blocks))
    remote = initiator.prepare("target", at_address(there, blocks))
    rng = random.Random(1)
    for seed in range(6):
        # The first one is the identity, which the core merges into one descriptor.
        mine, theirs = (rng.sample(range(count), 40) for _ in range(2))
        if seed == 0:
            mine = theirs = list(range(count))
        op = ("WRITE", "READ")[seed % 2]
        source, sink = (initiator, target) if op == "WRITE" else (target, initiator)
        source_blocks, sink_blocks = (mine, theirs) if op == "WRITE" else (theirs, mine)
        source.poison("b")
        source.fill_blocks("b", seed, [blocks[i] for i in source_blocks])
        sink.poison("b")
        request = initiator.prepared_request(op, local, mine, remote, theirs, b"list %d" % seed)
        initiator.done(request)
        sink.check_blocks("b", seed, [blocks[i] for i in sink_blocks])
        target.expect("initiator", b"list %d" % seed)
        initiator.release(request)
    initiator.release_list(local)
    initiator.release_list(remote)


@case()
def prepared_lists_outlive_their_handles(test, place):
    """A request made of lists works on after the lists are released."""
    initiator, target, here, there = pair(test, place, 64 * 1024)
    local = initiator.prepare(None, [(here, 1000), (here + 5000, 1000)])
    remote = initiator.prepare("target", [(there, 1000), (there + 9000, 1000)])
    request = initiator.prepared_request("WRITE", local, [1, 0], remote, [0, 1])
    initiator.release_list(local)
    initiator.release_list(remote)
    initiator.fill_blocks("b", 5, [(5000, 1000), (0, 1000)])
    initiator.done(request)
    target.check_blocks("b", 5, [(0, 1000), (9000, 1000)])


@case(core=True)
def repost(test, place):
    """One request, many posts, other bytes each time."""
    blocks, space = scattered(20, 9000, 500, 2)
    elsewhere, other_space = same_sizes_elsewhere(blocks, 500, 3)
    initiator, target, here, there = pair(test, place, max(space, other_space))
    local, remote = at_address(here, blocks), at_address(there, elsewhere)
    write = initiator.request("WRITE", local, remote, "target")
    read = initiator.request("READ", local, remote, "target")
    for seed in range(25):
        initiator.fill_blocks("b", seed, blocks)
        initiator.done(write)
        target.check_blocks("b", seed, elsewhere)
        initiator.poison("b")
        initiator.done(read)
        initiator.check_blocks("b", seed, blocks)
        require(initiator.state(read) == "DONE", "a finished request stays finished")


@case()
def repost_while_active_is_refused_or_done(test, place):
    """The core refuses a second post while the first is under way; nothing breaks by trying."""
    size = 16 * MIB
    initiator, target, here, there = pair(test, place, size)
    initiator.fill("b", 1)
    request = initiator.request("WRITE", [(here, size)], [(there, size)], "target")
    states = {initiator.post(request) for _ in range(20)}
    require(states <= {"PROC", "DONE", "RepostActive"}, f"posts answered {states}")
    require(initiator.wait(request) == "DONE", "it ends all the same")
    target.check("b", 1)


@case(core=True)
def ten_thousand_descriptors(test, place):
    blocks, space = scattered(10_000, 700, 40, 4)
    elsewhere, other_space = same_sizes_elsewhere(blocks, 40, 5)
    initiator, target, here, there = pair(test, place, max(space, other_space))
    local, remote = at_address(here, blocks), at_address(there, elsewhere)
    initiator.fill_blocks("b", 1, blocks)
    initiator.move("WRITE", local, remote, "target", b"all of them")
    target.check_blocks("b", 1, elsewhere)
    target.expect("initiator", b"all of them")
    target.fill_blocks("b", 2, elsewhere)
    initiator.poison("b")
    initiator.move("READ", local, remote, "target")
    initiator.check_blocks("b", 2, blocks)


@case(core=True)
def zero_length_descriptors(test, place):
    initiator, target, here, there = pair(test, place, 10_000)
    for op in ("WRITE", "READ"):
        message = b"nothing by " + op.encode()
        initiator.move(op, [(here, 0)], [(there, 0)], "target", message)
        target.expect("initiator", message)
        initiator.move(op, [(here + i, 0) for i in range(50)], [(there, 0)] * 50, "target")
    initiator.check_poison("b")
    target.check_poison("b")
    target.expect_none()
    # Some among others.
    local = [(here, 0), (here + 10, 1000), (here + 500, 0), (here + 2000, 3000), (here + 9999, 0)]
    remote = [(there, 0), (there + 3000, 1000), (there + 1, 0), (there + 5000, 3000), (there, 0)]
    initiator.fill_blocks("b", 3, [(10, 1000), (2000, 3000)])
    initiator.move("WRITE", local, remote, "target")
    target.check_blocks("b", 3, [(3000, 1000), (5000, 3000)])


@case()
def offsets_beyond_4_gib(test, place):
    """Sparse memory, so quick: registrations and offsets that 32 bits cannot hold."""
    size, piece = 5 << 30, 70_001
    target = test.target(place)
    there = target.alloc("big", size, sparse=True)
    initiator = test.here("initiator")
    here = initiator.alloc("big", size, sparse=True)
    initiator.load(target.metadata())
    offsets = [size - piece, (4 << 30) + 100_000, (4 << 30) - 1000, 0]
    local, remote = ([(base + offset, piece) for offset in offsets] for base in (here, there))
    for op, source, sink in (("WRITE", initiator, target), ("READ", target, initiator)):
        for seed, offset in enumerate(offsets):
            source.fill("big", seed, offset, piece)
            sink.fill("big", 99, offset, piece)
        initiator.move(op, local, remote, "target")
        for seed, offset in enumerate(offsets):
            sink.check("big", seed, offset, piece)


@case(places=("two processes",), limit=300)
def one_descriptor_beyond_4_gib(test, place):
    """TCPX_TEST_LONG: all the bytes of one descriptor larger than 32 bits can say."""
    if not test.setup.long:
        raise Skip("only with TCPX_TEST_LONG=1 (9 GiB of memory)")
    size = (4 << 30) + 4097
    target = test.target(place)
    there = target.alloc("big", size, sparse=True)
    initiator = test.here("initiator")
    here = initiator.alloc("big", size, sparse=True)
    initiator.load(target.metadata())
    marks = [0, 1 << 30, (4 << 30) - 5000, (4 << 30) + 1, size - 64]
    for op, source, sink in (("WRITE", initiator, target), ("READ", target, initiator)):
        for seed, mark in enumerate(marks):
            source.fill("big", 10 + seed, mark, 64)
            sink.fill("big", 20 + seed, mark, 64)
        request = initiator.request(op, [(here, size)], [(there, size)], "target")
        require(initiator.run(request, within=120) == "DONE", f"{op} failed")
        for seed, mark in enumerate(marks):
            sink.check("big", 10 + seed, mark, 64)


@case(core=True, places=())
def self_transfers(test):
    """An agent to itself, where it does not matter that nobody listens."""
    agent = test.here("alone")
    base = agent.alloc("b", 4 * MIB)
    other = agent.alloc("c", 4 * MIB)
    for seed, size in enumerate((1, 4097, 3 * MIB + 1)):
        agent.fill("b", seed, 5, size, 0)
        agent.poison("c")
        agent.move("WRITE", [(base + 5, size)], [(other + 9, size)], "alone", b"w%d" % seed)
        agent.check_blocks("c", seed, [(9, size)])
        agent.expect("alone", b"w%d" % seed)
        agent.poison("b")
        agent.move("READ", [(base + 1, size)], [(other + 9, size)], "alone", b"r%d" % seed)
        agent.check_blocks("b", seed, [(1, size)])
        agent.expect("alone", b"r%d" % seed)
    agent.fill_blocks("b", 7, [(0, 100), (200, 100)])
    agent.poison("c")
    agent.move("WRITE", [(base, 100), (base + 200, 100)], [(other + 900, 100), (other, 100)], "alone")
    agent.check_blocks("c", 7, [(900, 100), (0, 100)])
    agent.send("alone", b"note to self")
    agent.expect("alone", b"note to self")
    agent.expect_none()


@case(core=True, places=())
def two_agents_in_one_process(test):
    """Both start transfers at once; nothing of one shows up at the other."""
    size, rounds = 256 * 1024, 8
    left, right = test.here("left"), test.here("right")
    addresses = {side.name: (side.alloc("out", size), side.alloc("in", size)) for side in (left, right)}
    left.load(right.metadata())
    right.load(left.metadata())

    def play(me, you):
        for seed in range(rounds):
            me.fill("out", seed + len(me.name))
            me.move("WRITE", [(addresses[me.name][0], size)], [(addresses[you.name][1], size)], you.name,
                    b"%s %d" % (me.name.encode(), seed))
    in_threads(lambda: play(left, right), lambda: play(right, left))
    for me, you in ((left, right), (right, left)):
        me.expect_all([(you.name, b"%s %d" % (you.name.encode(), i)) for i in range(rounds)])
        me.expect_none()
        me.check("in", rounds - 1 + len(you.name))


@case(places=())
def three_agents_of_one_process_and_a_peer(test):
    """Each of three agents moves its own bytes to and from one target."""
    size = 64 * 1024
    target = test.peer("target")
    there = target.alloc("b", 3 * size)
    agents = [test.here(f"agent {i}") for i in range(3)]
    blob = target.metadata()
    for index, agent in enumerate(agents):
        here = agent.alloc("b", size)
        agent.fill("b", index)
        agent.load(blob)
        agent.move("WRITE", [(here, size)], [(there + index * size, size)], "target", b"hello")
    target.expect_all([(agent.name, b"hello") for agent in agents])
    for index, agent in enumerate(agents):
        target.check("b", index, index * size, size, 0)
        agent.poison("b")
        agent.move("READ", [(agent.address("b"), size)], [(there + index * size, size)], "target")
        agent.check("b", index)


@case(places=("two processes",))
def both_directions_at_once(test, place):
    size, count = MIB, 10
    left, right = test.here("left"), test.target(place, "right")
    mine, theirs = left.alloc("out", size), right.alloc("out", size)
    my_in, their_in = left.alloc("in", size), right.alloc("in", size)
    left.load(right.metadata())
    right.load(left.metadata())
    for seed in range(count):
        left.fill("out", seed)
        right.fill("out", 1000 + seed)
        op = ("WRITE", "READ")[seed % 2]
        request = left.request(op, [(mine if op == "WRITE" else my_in, size)],
                               [(their_in if op == "WRITE" else theirs, size)], "right")
        right.order("move", op, [(theirs if op == "WRITE" else their_in, size)],
                    [(my_in if op == "WRITE" else mine, size)], "left")
        left.done(request)
        right.answer()
        left.check("in", 1000 + seed)
        right.check("in", seed)
        left.release(request)


@case(core=True)
def one_way_metadata(test, place):
    """The target never hears of the initiator, and still serves it and knows its name."""
    size = 300_000
    initiator, target, here, there = pair(test, place, size)
    require(not target.knows("initiator"), "this test is about a target that knows nobody")
    initiator.fill("b", 1)
    initiator.move("WRITE", [(here, size)], [(there, size)], "target", b"from a stranger")
    target.expect("initiator", b"from a stranger")
    target.check("b", 1)
    target.fill("b", 2)
    initiator.move("READ", [(here, size)], [(there, size)], "target", b"and back")
    initiator.check("b", 2)
    target.expect("initiator", b"and back")
    initiator.send("target", b"alone")
    target.expect("initiator", b"alone")


@case(places=("two processes",))
def many_requests_at_once(test, place):
    """Sixty requests of both kinds under way together, posted again and again."""
    rng = random.Random(6)
    sizes = [rng.choice((1, 100, 5000, 70_000, 300_000)) for _ in range(60)]
    offsets = [sum(sizes[:i]) for i in range(len(sizes))]
    initiator, target, here, there = pair(test, place, sum(sizes))
    ops = ["WRITE" if i % 2 else "READ" for i in range(len(sizes))]
    requests = [initiator.request(op, [(here + offset, size)], [(there + offset, size)], "target")
                for op, offset, size in zip(ops, offsets, sizes)]
    for turn in range(4):
        for index, (op, offset, size) in enumerate(zip(ops, offsets, sizes)):
            source = initiator if op == "WRITE" else target
            source.fill("b", 100 * turn + index, offset, size)
        states = [initiator.post(request) for request in requests]
        require(set(states) <= {"PROC", "DONE"}, f"posts answered {set(states)}")
        for request in requests:
            require(initiator.wait(request) == "DONE", "one of many failed")
        for index, (op, offset, size) in enumerate(zip(ops, offsets, sizes)):
            sink = target if op == "WRITE" else initiator
            sink.check("b", 100 * turn + index, offset, size)


@case(places=("two processes",), ucx="its estimate is of the hardware")
def cost_is_estimated_from_what_was_measured(test, place):
    size = 4 * MIB
    initiator, target, here, there = pair(test, place, size)
    large = initiator.request("WRITE", [(here, size)], [(there, size)], "target")
    small = initiator.request("READ", [(here, 4096)], [(there, 4096)], "target")
    for _ in range(5):
        initiator.done(large)
        initiator.done(small)
    duration, margin, analytical = initiator.cost(large)
    require(analytical, "the method is not the backend's own")
    # 4 MiB in 10 us would be 400 GB/s; a second would be absurd on loopback.
    require(10 < duration < 1_000_000 and margin >= 0, f"{duration} us +- {margin}")
    require(initiator.cost(small)[0] <= duration, "4 KiB costs no more than 4 MiB")
