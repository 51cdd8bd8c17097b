"""The tests' own tools: a check that cannot fail proves nothing."""
from harness import Buffer, Failure, case, first_difference, pattern, require


def fails(check):
    try:
        check()
    except Failure:
        return True
    return False


@case(places=())
def checks_find_damage(test):
    agent = test.here("agent")
    agent.alloc("b", 10_000)
    agent.fill("b", 1)
    agent.check("b", 1)
    require(fails(lambda: agent.check("b", 2)), "another pattern")
    require(fails(lambda: agent.check("b", 1, 0, None, 8)), "the pattern at another place")
    agent.view("b")[7777] ^= 1
    require(fails(lambda: agent.check("b", 1)), "one bit")
    require(fails(lambda: agent.check_blocks("b", 1, [(0, 10_000)])), "one bit among blocks")
    agent.poison("b")
    agent.check_poison("b")
    agent.fill_blocks("b", 3, [(500, 10), (100, 20)])
    agent.check_blocks("b", 3, [(500, 10), (100, 20)])
    require(fails(lambda: agent.check_blocks("b", 3, [(100, 20), (500, 10)])), "blocks in another order")
    require(fails(lambda: agent.check_poison("b")), "bytes among the poison")
    agent.view("b")[99] = 0
    require(fails(lambda: agent.check_blocks("b", 3, [(500, 10), (100, 20)])), "a byte beside a block")
    agent.send("agent", b"surprise")
    require(fails(lambda: agent.expect_none(2)), "a notification nobody expects")
    require(fails(lambda: agent.expect("agent", b"never sent", 0.1)), "one that does not come")


@case(places=())
def guards_and_patterns(test):
    buffer = Buffer(100)
    require(not buffer.guard_damage(), "untouched")
    buffer.guards[1][0] ^= 1
    require(buffer.guard_damage(), "touched")
    whole = pattern(5, 0, 3000)
    for start, size in ((1, 100), (8, 8), (17, 2000), (2999, 1), (5, 0)):
        require(first_difference(pattern(5, start, size), whole[start:start + size]) is None, "a part of it")
    require(first_difference(pattern(6, 0, 8), whole[:8]) is not None, "seeds differ")
    words = whole[:2960].view("uint64")
    require(len(set(words.tolist())) == len(words), "no two words are equal")
    peer = test.peer("other")
    require(fails(lambda: peer.expect("nobody", b"", 0.1)), "failures come over from other processes")
    require(peer.poll() == [], "and it works on")
