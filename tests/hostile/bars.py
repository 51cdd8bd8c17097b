"""What an attack may cost, and the table of what it did cost."""
import dataclasses

from attack import STRANGER

# The bars. Slack is what two quiet times differ by, which the attack `nothing` shows: on two cores with other work beside (load
# 1 to 15) seven runs of it rose by 0.19 ms at most in a median below 1 ms, and none passed x2 + 0.2 in any figure. Peers get
# further than the door, and have more.
STRANGER_RATIO, PEER_RATIO = 2.0, 3.0
STRANGER_SLACK_MS = {"small": 0.2, "medium": 0.2, "anew": 0.2}
PEER_SLACK_MS = {"small": 2.0, "medium": 2.0, "anew": 20.0}
WORST_MS = 50.0  # beyond the quiet worst (strangers: beyond twice that)
# In the short form machines are shared by many tests: times fail it only when both of these are passed.
GENEROUS_RATIO, GENEROUS_MS = 10.0, 1000.0
# What hostile peers can make an engine of default options hold (docs/security.md, "After authentication"): so much for
# each lane, and the inbox where the application does not read. And the allocator's slack.
LANE_MIB, INBOX_MIB, ALLOCATOR_MIB = 1.0, 256.0, 16.0
BACK_SECONDS = 10.0
# Slack: the allocator's, and a session of the client that connects anew.
BACK_MIB, BACK_FDS, BACK_THREADS = 16.0, 4, 1
IDLE_CORES = 0.5
TEXT = (f"bars: median and mean of the honest x{STRANGER_RATIO:.0f} + {STRANGER_SLACK_MS['anew']} ms (strangers), or "
        f"x{PEER_RATIO:.0f} + {PEER_SLACK_MS['small']:.0f} ms lasting, {PEER_SLACK_MS['anew']:.0f} ms anew (the others); worst beyond quiet (twice that for strangers) "
        f"{WORST_MS:.0f} ms; held {ALLOCATOR_MIB:.0f} MiB + {LANE_MIB:.0f} per lane + {INBOX_MIB:.0f} of notifications that "
        f"nobody takes; back within {BACK_SECONDS:.0f} s (+{BACK_MIB:.0f} MiB, {BACK_FDS} fds, {BACK_THREADS} thread)")


@dataclasses.dataclass
class Missed:
    """A time beyond its bar."""
    text: str
    quiet: float = 0.0
    during: float = 0.0


@dataclasses.dataclass
class Outcome:
    attack: object
    seconds: float = 0.0
    did: str = ""
    broken: str = ""           # the attack reached what it must not reach, in its own words
    quiet: dict = dataclasses.field(default_factory=dict)    # what -> times of the honest clients
    during: dict = dataclasses.field(default_factory=dict)
    failures: list = dataclasses.field(default_factory=list)
    wrong: list = dataclasses.field(default_factory=list)
    before: tuple = (0, 0, 0, 0)
    worst: tuple = (0, 0, 0, 0)
    after: tuple = (0, 0, 0, 0)
    cpu: float = 0.0           # cores, during
    quiet_cpu: float = 0.0
    back: float = 0.0          # seconds; negative: not within BACK_SECONDS
    counted: dict = dataclasses.field(default_factory=dict)
    hard: list = dataclasses.field(default_factory=list)
    soft: list = dataclasses.field(default_factory=list)

    @property
    def held(self):
        return max(0.0, self.worst[0] - self.before[0])

    def ratio(self, what):
        """Of the medians or of the means, the larger one."""
        if what not in self.quiet or what not in self.during or not self.quiet[what]["n"]:
            return 0.0
        return max(self.during[what][figure] / max(1e-6, self.quiet[what][figure]) for figure in ("median", "mean"))

    def worst_beyond(self):
        """How far the worst time of an honest client lies beyond its quiet worst, in ms."""
        return max([0.0] + [self.during[w]["worst"] - self.quiet.get(w, {"worst": 0})["worst"]
                            for w in self.during if self.judged(w)])

    @property
    def slack(self):
        return STRANGER_SLACK_MS if self.attack.group == STRANGER else PEER_SLACK_MS

    def judged(self, what):
        return what in self.slack and not (what == "anew" and self.attack.anew_may_fail)


def may_hold(attack):
    return ALLOCATOR_MIB + LANE_MIB * attack.lanes + (INBOX_MIB if attack.serve == "peers" else 0)


def judge(outcome, judge_memory=True):
    """Fills `hard` (facts) and `soft` (times)."""
    attack, hard, soft = outcome.attack, outcome.hard, outcome.soft
    if outcome.broken:
        hard.append(outcome.broken)
    if outcome.wrong:
        hard.append(f"WRONG BYTES: {outcome.wrong[0]}")
    failures = [f for f in outcome.failures if not (attack.anew_may_fail and f.startswith("anew"))]
    if failures:
        hard.append(f"{len(failures)} honest failures: {failures[0][:100]}")
    if judge_memory and outcome.held > may_hold(attack):
        hard.append(f"held {outcome.held:.0f} MiB > {may_hold(attack):.0f}")
    if outcome.back < 0:
        hard.append("not back after {:.0f} s: {:+.0f} MiB, {:+d} fds, {:+d} threads".format(
            BACK_SECONDS, outcome.after[0] - outcome.before[0], outcome.after[1] - outcome.before[1],
            outcome.after[2] - outcome.before[2]))
    if attack.idle_cpu and outcome.cpu - outcome.quiet_cpu > IDLE_CORES:
        hard.append(f"{outcome.cpu - outcome.quiet_cpu:.1f} cores more, for nothing")
    limit = STRANGER_RATIO if attack.group == STRANGER else PEER_RATIO
    for what, slack in outcome.slack.items():
        quiet, during = outcome.quiet.get(what), outcome.during.get(what)
        if not quiet or not during or not outcome.judged(what):
            continue
        for figure in ("median", "mean"):
            if during[figure] > limit * quiet[figure] + slack:
                soft.append(Missed(f"{what} {figure} {quiet[figure]:.2f} -> {during[figure]:.2f} ms", quiet[figure],
                                   during[figure]))
        times = STRANGER_RATIO if attack.group == STRANGER else 1
        if during["worst"] > times * quiet["worst"] + WORST_MS:
            soft.append(Missed(f"{what} worst {quiet['worst']:.1f} -> {during['worst']:.1f} ms", quiet["worst"],
                               during["worst"]))


def missed_times(outcome, form):
    """Those that count: in the short form what no busy machine explains."""
    if form == "long":
        return outcome.soft
    return [each for each in outcome.soft if form == "short" and each.during > max(GENEROUS_MS, GENEROUS_RATIO * each.quiet)]


def row(outcome, failed):
    counted = " ".join(f"{k}+{v}" for k, v in outcome.counted.items())
    times = lambda what: f"{outcome.ratio(what):.1f}" if outcome.ratio(what) else "-"
    return (outcome.attack.name, "MISSED" if failed else "holds",
            f"{times('small')}/{times('medium')}", f"{outcome.worst_beyond():.0f}",
            times("anew"),
            "/".join(f"{max(0, outcome.worst[i] - outcome.before[i]):.0f}" for i in range(3)),
            f"{outcome.back:.1f}" if outcome.back >= 0 else f">{BACK_SECONDS:.0f}",
            f"{outcome.cpu:.1f}", counted or "-")


HEAD = ("attack", "verdict", "lasting x (small/medium)", "worst +ms", "anew x", "held MiB/fds/threads", "back s",
        "cores", "counted")


def print_table(rows):
    rows = [HEAD, *rows]
    widths = [max(len(r[i]) for r in rows) for i in range(len(HEAD) - 1)]
    for r in rows:
        print("  " + " | ".join([c.ljust(w) for c, w in zip(r, widths)] + [r[-1]]), flush=True)
