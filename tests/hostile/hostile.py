#!/usr/bin/env python3
"""Attacks on a real engine by a program that speaks the wire protocol itself, beside two honest clients.

Usage: hostile.py [--short | --sanitized] [--seed N] [NAME | GROUP]...
Groups are strangers, observers, peers and fences; `--list` names the attacks. The programs are those of TCPX_TEST_BUILD_DIR.

One honest client has a lasting session, the other connects anew for every round; both check every byte. Their quiet
times are measured right before each attack, so that every figure is a ratio. The long form (default) judges the bars of
bars.py and exits 1 when one is missed. The short one is for machines that do other things beside: facts (wrong bytes,
failures, an end of the victim, memory, leaks) fail it, times only beyond all doubt; under a sanitizer not even those.
Where only times were missed an attack is made once more, and that counts: a weakness misses them twice.
Attackers run at nice 10: what they cost is what the victim does for them, not the cores they burn.
"""
import argparse
import importlib
import json
import os
import pathlib
import resource
import subprocess
import sys
import time
import types

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import bars
import scene as scenes
import wire
from attack import ATTACKS, Context

for _group in ("strangers", "peers", "fences"):  # in this order
    importlib.import_module(_group)

NICE = 10
SETTLE_SECONDS = 20


class Scene:
    """A victim and its two honest clients."""

    def __init__(self, form, low_fds=0):
        self.form = form
        self.seconds = 1.0
        self.victim = scenes.Victim(low_fds=low_fds or None)
        self.clients = [scenes.Client(mode, self.victim) for mode in ("lasting", "anew")]
        time.sleep(1.0)

    def settle(self):
        """Until nothing that an earlier attack held up is left: it would make the quiet time a long one."""
        end = time.monotonic() + SETTLE_SECONDS
        while time.monotonic() < end:
            time.sleep(0.2)
            times = self.marks()[0]
            if "small" in times and "anew" in times and max(times[w]["worst"] for w in ("small", "anew")) < 200:
                return

    def marks(self):
        """(times by kind, failures, wrong bytes) since the last time."""
        times, failures, wrong = {}, [], []
        for client in self.clients:
            said = client.mark()
            failures += said.pop("failures")
            wrong += said.pop("wrong")
            times.update(said)
        return times, failures, wrong

    def another_victim(self, options):
        return scenes.Victim(options)

    def third_region(self):
        """The victim as a third honest client sees it, with memory of its own."""
        self.victim.memory("third", scenes.REGION_BYTES, 3)
        return types.SimpleNamespace(info_blob=self.victim.info_blob,
                                     described={"lasting": self.victim.described["third"]})

    def close(self):
        """What went wrong at the end: everybody must still be there, and leave in order."""
        ends = [(c.name, c.stop("quit")) for c in self.clients] + [("victim", self.victim.stop("exit"))]
        return [f"{name}: exit code {code}" for name, code in ends if code != 0]


def attacker_process(name):
    """The body of an attacker: context on stdin, result on stdout."""
    os.nice(NICE)
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192), hard))
    said = ATTACKS[name].act(Context(json.load(sys.stdin)))
    print(json.dumps(said if isinstance(said, dict) else dict(did=said, broken="")))


def run_attacker(attack, scene, seconds, seed):
    victim = scene.victim
    regions = {name: victim.described[name] for name in ("lasting", "anew", "readable", "writable", "gone")}
    said = dict(info=victim.info_blob.hex(), regions=regions, seconds=seconds, long=scene.form == "long", seed=seed)
    process = subprocess.Popen([sys.executable, __file__, "--attacker", attack.name], stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        out, err = process.communicate(json.dumps(said), timeout=seconds * 3 + 30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return dict(did="the attacker hangs", broken="the attacker hangs")
    if process.returncode != 0:
        return dict(did="", broken="the attack itself failed: " + err.strip().splitlines()[-1][:200])
    return json.loads(out)


def run_inside(attack, scene):
    try:
        return attack.act(scene)
    except (OSError, AssertionError, wire.Refused) as failure:
        return dict(did="", broken=f"the attack itself failed: {failure!r}"[:200])


def merged(times, later):
    """Only the worst of `later` counts: what began in the attack and ended behind it."""
    for what, each in times.items():
        each["worst"] = max(each["worst"], later.get(what, each)["worst"])
    return times


def wait_until_back(scene, before):
    """Seconds, and what is held then. The allocator is asked to give back what is free: pages it keeps for the next time
    are not what the engine holds."""
    start = time.monotonic()
    while True:
        scene.victim.must("trim")
        now = scenes.held(scene.victim.pid)
        if now is None:
            raise scenes.Failed(scene.victim.end_text())
        took = time.monotonic() - start
        memory = scene.form == "sanitized" or now[0] <= before[0] + bars.BACK_MIB
        if memory and now[1] <= before[1] + bars.BACK_FDS and now[2] <= before[2] + bars.BACK_THREADS:
            return took, now
        if took > bars.BACK_SECONDS * (3 if scene.form == "sanitized" else 1):
            return -1.0, now
        time.sleep(0.1)


def difference(before, after):
    return {k: after[k] - v for k, v in before.items()
            if isinstance(v, int) and after.get(k, v) != v
            and k not in ("peers_connected", "peers_lost", "chunks_received", "chunks_live", "half_open", "progress_sleeps",
                          "notifications_in")}


def run_one(attack, scene, seed):
    long = scene.form == "long"
    seconds = attack.seconds if long else min(1.5, attack.seconds) * (2 if scene.form == "sanitized" else 1)
    outcome = bars.Outcome(attack)
    scene.seconds = seconds
    scene.victim.serve(attack.serve)
    # Quiet.
    scene.settle()
    sampler = scenes.Sampler(scene.victim.pid)
    quiet = 2.0 if long else 0.5
    time.sleep(quiet)
    outcome.before = sampler.stop()
    outcome.quiet_cpu = sampler.cpu / quiet
    outcome.quiet, failures, wrong = scene.marks()
    if failures or wrong:
        raise scenes.Failed(f"before {attack.name}, in quiet: {(failures + wrong)[0]}")
    # The attack.
    counters = scene.victim.counters()
    start = time.monotonic()
    sampler = scenes.Sampler(scene.victim.pid)
    said = run_inside(attack, scene) if attack.inside else run_attacker(attack, scene, seconds, seed)
    outcome.seconds = time.monotonic() - start
    outcome.worst = sampler.stop()
    outcome.cpu = sampler.cpu / outcome.seconds
    outcome.during, outcome.failures, outcome.wrong = scene.marks()
    outcome.did, outcome.broken = said["did"], said["broken"]
    if not scene.victim.alive():
        raise scenes.Failed(f"{attack.name}: {scene.victim.end_text()}")
    outcome.counted = difference(counters, scene.victim.counters())
    # After it.
    scene.victim.serve("all")
    outcome.back, outcome.after = wait_until_back(scene, outcome.before)
    later, failures, wrong = scene.marks()
    outcome.during = merged(outcome.during, later)
    outcome.failures += failures
    outcome.wrong += wrong
    bars.judge(outcome, judge_memory=scene.form != "sanitized")
    return outcome


def tell(outcome, failed):
    print(f"\n{outcome.attack.name}: {outcome.attack.text}")
    print(f"  did: {outcome.did} in {outcome.seconds:.1f} s")
    for what in outcome.slack:
        quiet, during = outcome.quiet.get(what), outcome.during.get(what)
        if quiet and during:
            print("  {:<7} median {:.2f} -> {:.2f} ms, mean {:.2f} -> {:.2f}, p99 {:.1f} -> {:.1f}, worst {:.1f} -> {:.1f}, "
                  "{} -> {} rounds".format(what, *(each[figure] for figure in ("median", "mean", "p99", "worst", "n")
                                          for each in (quiet, during))))
    print("  victim  {:.0f} MiB {} fds {} threads {:.2f} cores -> worst {:.0f} MiB {} fds {} threads {:.2f} cores -> after "
          "{:.0f} MiB {} fds {} threads".format(*outcome.before[:3], outcome.quiet_cpu, *outcome.worst[:3], outcome.cpu,
                                                *outcome.after[:3]))
    for text in outcome.hard + [each.text for each in outcome.soft]:
        print(f"  {'MISSED' if failed else 'noted'}: {text}", flush=True)


def run_all(chosen, form, seed):
    rows, failed_names, scene = [], [], None
    for attack in chosen:
        if scene is None or attack.low_fds:
            scene = close_scene(scene, failed_names) or Scene(form, attack.low_fds)
        try:
            outcome = run_one(attack, scene, seed)
            if not outcome.hard and bars.missed_times(outcome, form):
                tell(outcome, failed=False)
                print("  once more, since only times were missed")
                outcome = run_one(attack, scene, seed)
        except scenes.Failed as failure:
            print(f"\n{attack.name}: MISSED: {failure}", flush=True)
            rows.append((attack.name, "MISSED", *["-"] * 6, str(failure)[:60]))
            failed_names.append(attack.name)
            close_scene(scene, [])
            scene = None
            continue
        failed = outcome.hard or bars.missed_times(outcome, form)
        if failed:
            failed_names.append(attack.name)
        tell(outcome, failed)
        rows.append(bars.row(outcome, failed))
        if attack.low_fds or outcome.back < 0:  # what is still held would hide what the next one makes it hold
            scene = close_scene(scene, failed_names)
    close_scene(scene, failed_names)
    print()
    bars.print_table(rows)
    return failed_names


def close_scene(scene, failed_names):
    if scene is not None:
        for text in scene.close():
            print(f"\nat the end: MISSED: {text}", flush=True)
            failed_names.append(text)
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--sanitized", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--attacker")
    args = parser.parse_args()
    if args.attacker:
        return attacker_process(args.attacker)
    form = "sanitized" if args.sanitized else "short" if args.short else "long"
    known = {*ATTACKS, *(a.group for a in ATTACKS.values())}
    unknown = [name for name in args.names if name not in known]
    if unknown:
        parser.error(f"no attack or group {unknown[0]!r}; there are {', '.join(sorted(known))}")
    chosen = [a for a in ATTACKS.values()
              if (not args.names or a.name in args.names or a.group in args.names)
              and (a.name in args.names or form == "long" or getattr(a, form))]
    if args.list:
        for each in chosen:
            print(f"{each.group:<10} {each.name:<32} {each.text}")
        return None
    print(f"{len(chosen)} attacks, {form} form, seed {args.seed}, {os.cpu_count()} cores, attackers at nice {NICE}")
    print(bars.TEXT, flush=True)
    failed = run_all(chosen, form, args.seed)
    held = len(chosen) - len(set(failed) & set(ATTACKS))
    print(f"\n{held} of {len(chosen)} hold" + (f"; missed: {', '.join(failed)}" if failed else ""))
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
