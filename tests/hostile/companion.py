#!/usr/bin/env python3
"""An engine and two honest clients that live as long as `./run soak`. For each line on stdin they work for a while, with
short sessions of a third kind of client beside them, and one line tells what each of them holds. Ends with 1 when
something grows from the first time on, fails, or a byte is wrong.
"""
import sys
import time

import bars
import scene as scenes
import wire

WORK_SECONDS, SESSIONS = 5, 200


def work(victim, clients):
    for client in clients.values():
        client.ask("go")
    end = time.monotonic() + WORK_SECONDS
    for _ in range(SESSIONS):
        session = wire.Session(victim.info)
        session.lane.send(wire.PING, aux=1)
        session.lane.answer(wire.PONG)
        session.close()
    time.sleep(max(0, end - time.monotonic()))
    rounds = 0
    for name, client in clients.items():
        client.ask("pause")
        said = client.mark()
        if said["failures"] or said["wrong"]:
            raise scenes.Failed(f"{name} client: {(said['failures'] + said['wrong'])[0]}")
        rounds += sum(each["n"] for each in said.values() if isinstance(each, dict))
    time.sleep(1)
    return rounds


def main():
    victim = scenes.Victim()
    clients = {mode: scenes.Client(mode, victim) for mode in ("lasting", "anew")}
    programs = dict(engine=victim, **clients)
    first = None
    for _line in sys.stdin:
        rounds = work(victim, clients)
        now = {name: scenes.held(program.pid) for name, program in programs.items()}
        first = first or now
        parts = []
        for name, (mib, fds, threads, _cpu) in now.items():
            since = first[name]
            parts.append(f"{name} {mib:.0f} MiB ({mib - since[0]:+.1f}) {fds} fds ({fds - since[1]:+d}) {threads} threads "
                         f"({threads - since[2]:+d})")
            if (mib > since[0] + bars.BACK_MIB or fds > since[1] + bars.BACK_FDS
                    or threads > since[2] + bars.BACK_THREADS):
                raise scenes.Failed(f"{name} has grown: " + parts[-1])
        print("held after " f"{rounds} rounds and {SESSIONS} sessions: " + "; ".join(parts), flush=True)
    ends = [program.stop("exit" if program is victim else "quit") for program in programs.values()]
    if any(ends):
        raise scenes.Failed(f"exit codes {ends}")


if __name__ == "__main__":
    try:
        main()
    except (scenes.Failed, OSError, wire.Refused) as failure:
        sys.exit(f"companion: {failure}")
