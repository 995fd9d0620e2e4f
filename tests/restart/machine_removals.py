"""What the state machine (test_machine.py) must miss: a piece of code that is taken out, and what then happens.

`python -m tests.restart.machine_removals [WORDS]...` (make fault-removals) plays it on a copy without each piece, first its
story (machine_stories.py), and ends with 1 unless each is noticed. A piece that is not found exactly once fails in test_machine.py: these follow the code.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.faults.matrix import ROOT
from tests.faults.removals import Cut
from tests.faults.removing import copied

RESTART, CHECKS, DISPATCHER = "restart/restart.py", "restart/checks.py", "restart/dispatcher.py"
PEERS = "breaker, start_failure, new_version, protection, peers,"

REMOVALS: Mapping[str, tuple[Cut, ...]] = {
    "two calls for one intent": (
        Cut(RESTART, "due = [each for each in due if results[each.target.name].outcome == FAILED]", "pass"),
    ),
    "called without a `calling` on the disk": (
        Cut(RESTART, "await self._ledger.write(called)", "pass"),
    ),
    "called on process": (
        Cut("restart/targets.py", "        if not same:\n            return another(now)\n", ""),
        Cut("restart/decider.py", "replaced=self._replaced(request),", "replaced=None,"),
    ),
    "which is not configured (any more)": (Cut(RESTART, "if now.target != target:", "if False:"),),
    "called with the program of an older configuration": (
        Cut(RESTART, "if self._decider.backends.hook(now.settings.hook) is not planned.hook:", "if False:"),
    ),
    "that the last scrape did not find": (
        Cut(CHECKS, "if not incident.firing:", "if False:"),
        Cut(CHECKS, "if incident.phase == ACTIVE:", "if incident.phase:"),
        Cut(CHECKS, "if not incident.advises_restart_of(facts.asker or request.target):", "if False:"),
        Cut("restart/restarts.py", "if event.incident.phase == ACTIVE and event.incident.open:", "if event.incident.open:"),
    ),
    "is advised for what the last scrape did not find": (
        Cut("incidents/followed.py", "firing=False", "firing=True"),
        Cut("incidents/followed.py", "phase=RECOVERING, ended_t=t, restart_advised=False, restart_targets=()", "phase=RECOVERING, ended_t=t"),
    ),
    "a common outage": (Cut("incidents/fleet.py", "return silent >= self._targets_min and silent > self._share * known", "return False"),),
    "called in mode": (
        Cut("restart/guard.py", 'if settings.mode == "approve" and request.person is None:', "if False:"),
        Cut("restart/guard.py", 'acts = settings.mode == "auto" or request.person is not None', "acts = True"),
    ),
    "that a person has silenced": (Cut(CHECKS, "if facts.silenced:", "if False:"),),
    "called while a person has paused restarts": (Cut(CHECKS, "mode, trigger, pause, freeze,", "mode, trigger, freeze,"),),
    "called while restarts are frozen": (Cut(CHECKS, "mode, trigger, pause, freeze,", "mode, trigger, pause,"),),
    # The condition of a schedule is checked twice: when it falls due, and by the guard.
    "a schedule called a process of": (
        Cut("restart/restarts.py", "against = condition(schedule, self.targets.signals(name))", "against = None"),
        Cut("restart/decider.py", "condition=self._condition(request, managed),", "condition=None,"),
    ),
    "restarts in an hour": (Cut(CHECKS, "under_way, cooldown, budget,", "under_way, cooldown,"),),
    "after the last restart": (Cut(CHECKS, "under_way, cooldown, budget,", "under_way, budget,"),),
    "in the group would be left healthy": (Cut(CHECKS, PEERS, PEERS.removesuffix(" peers,")),),
    "the lock": (
        Cut(CHECKS, "(hook, blockers, gang, lock)", "(hook, blockers, gang)"),
        Cut(RESTART, "if held.held is not True or not self.lock.still_ours():", "if False:"),
        Cut(RESTART, 'if self.lock is not None and not self.lock.still_ours():\n            return "the lock was lost while', 'if False:\n            return "the lock was lost while'),
    ),
    "a hook that had begun was cut off": (
        Cut("restart/attempts.py", "await asyncio.gather(*(happens(each.idle, each.hook_seconds) for each in begun))", "pass"),
    ),
    "another model came back": (Cut("restart/verify.py", "if all(models) and models[0] != models[1]:", "if False:"),),
    "what was called is written down as": (
        Cut("restart/attempts.py", '            attempt = await self._put(attempt, "uncertain", text)\n        if last and', '            attempt = await self._put(attempt, "cancelled", text)\n        if last and'),
    ),
    "and nobody restarts it": (
        Cut(DISPATCHER, "pending.attempt_id, pending.after_s = None, time.monotonic() + AGAIN_SECONDS", "pass"),
    ),
    # Each later scrape that finds it takes the severity anew.
    "and not paged for": (
        Cut("incidents/lifecycle.py", "severity, why = relations.severity_beside(opened, verdict.severity, known)", 'severity, why = "ticket", ""'),
        Cut("incidents/followed.py", "            severity=severity,\n", ""),
    ),
}  # fmt: skip
"""By words of what the state machine then says."""

RUN_SECONDS = 900.0

NOTICED = 3
"""Exit status of who was looked for and found."""


def noticed(folder: Path, words: str) -> bool:
    """Does it say so on a copy without the piece?"""
    project = copied(ROOT, folder / "copy", REMOVALS[words])
    done = subprocess.run(
        [sys.executable, "-m", "tests.restart.test_machine", words], cwd=project, capture_output=True, text=True,
        env=os.environ | {"PYTHONPATH": str(project)}, timeout=RUN_SECONDS, check=False,
    )  # fmt: skip
    print(f"{words}: {done.stdout.strip() or done.stderr[-2000:]}", flush=True)
    return done.returncode == NOTICED


def main(asked: Sequence[str]) -> int:
    """0 when each was noticed."""
    chosen = [each for each in REMOVALS if not asked or any(word in each for word in asked)]
    missed = []
    for words in chosen:
        with tempfile.TemporaryDirectory(prefix="removals-") as folder:
            if not noticed(Path(folder), words):
                missed.append(words)
    print(f"{len(chosen) - len(missed)} of {len(chosen)} noticed; not: {missed}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
