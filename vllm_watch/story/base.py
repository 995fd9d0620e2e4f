"""The contract of every story: how one kind of incident and its causes are told.

A story is a module of this folder, named as its kind, with a `STORY`. Page, terminal, notifications, alert rules
and docs take their words from here and have none of their own.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

UNKNOWN = "unknown"
CURES = "A restart is advised: it usually fixes this."

IF_ADVISED = "; restart vLLM if the status page advises it."
"""How a first step ends where that is not known yet, as in an alert rule."""

ELSE_IF_ADVISED = "; if you find none, restart vLLM if the status page advises it."
"""... where it is no use if the first step was."""

CORE_PID = "PID, found with pgrep -af VLLM::EngineCore"
LOOK_AT_PEER = "Look at the server that KV comes from (prefill, store) and the network between, and fix that one."
WAITS = "A restart does not help: this engine waits for another server."
SERVER_PID = "PID, found with pgrep -af 'vllm serve'"
"""Nothing to paste: of several servers on a host a person must choose, and would take the first for the right one."""

ADVISED_AFTER = "restart_advised_after"
"""The name of contradicting evidence that says how long it must last until a restart is advised, in seconds."""

_PIDS = {
    CORE_PID: re.compile(r"::EngineCore\S{0,40} \(PID (\d{1,10})\)"),
    SERVER_PID: re.compile(r"API server \(PID (\d+)\)"),
    "--reclaim PID": re.compile(r"(--reclaim \d+)"),
    "the PID of the evidence": re.compile(r"\(PID (\d+)\) is stopped"),
}
"""What a first step leaves open → how it is found in what is known of the incident."""

# A core that outlived its server: before any other step, whatever the cause.
_LEFT = re.compile(r"left behind and still holds GPU memory: \S{1,40} \(PID (\d{1,10})\)")
_END_IT = "End the engine core that it left (vllm-watch gpus --reclaim {}): no start finds GPU memory until then. "


def runbook_path(page: str) -> str:
    """Where a daemon serves a runbook of docs/, below the address of its page."""
    path, hash_, anchor = page.partition("#")
    return f"runbooks/{path.rpartition('/')[2].removesuffix('.md')}{hash_}{anchor}"


@dataclass(frozen=True, slots=True)
class Cause:
    """How one cause of a kind is told."""

    title: str  # behind the kind's title: "Stalled: hang"
    seen: str  # a clause, what the watcher saw: "requests run and no step ends"
    first_step: str = ""  # one sentence to act on at 3 a.m., imperative; empty: that of the kind
    restart: str = ""  # a sentence, why no restart is advised (yet); empty: that of the kind
    family: str = ""  # causes of one family are one trouble, told ever more exactly


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """How one kind of incident is told."""

    title: str  # "Stalled"
    says: str  # of its target: "is stalled"
    about: str  # one sentence: what is wrong, and what that means for users
    is_not: str  # a noun phrase, what looks alike: "a long prefill or a warm-up"
    first_step: str  # where the cause has none of its own, or is not known
    restart: str = (
        "It is not known whether a restart helps."  # as first_step; said while none is advised
    )
    causes: Mapping[str, Cause] = field(default_factory=dict)  # by slug
    severities: tuple[str, ...] = ("page", "ticket")  # that it may have, the worst first
    runbook: str = ""  # a page of docs/; empty: detectors/KIND.md
    charts: tuple[str, ...] = ()  # the signals in which it shows, for the page
    of_gpus: bool = False  # is it about a host's GPUs?
    detected: bool = True  # False: it is told, but no detector finds it

    def title_of(self, cause: str) -> str:
        """Kind and cause: "Stalled: hang"."""
        return f"{self.title}: {self._cause(cause).title}"

    def says_of(self, cause: str) -> str:
        """Kind and cause as what is said of its target: "is stalled: hang"."""
        return f"{self.says}: {self._cause(cause).title}"

    def first_step_of(
        self, cause: str, *, advised: bool | None = None, known: Iterable[str] = ()
    ) -> str:
        """What to do first, in one sentence.

        `advised`: whether a restart is; None: not known. `known`: texts of the incident, which may name the PID.
        """
        step = self._cause(cause).first_step or self.first_step
        if advised is not None:
            step = step.replace(IF_ADVISED, "; then restart vLLM." if advised else ".")
            step = step.replace(
                ELSE_IF_ADVISED, "; if you find none, restart vLLM." if advised else "."
            )
        for blank, pid in _PIDS.items():
            if blank in step and (found := pid.search("\n".join(known))):
                step = step.replace(blank, found[1])
        left = _LEFT.search("\n".join(known))
        return f"{_END_IT.format(left[1])}{step}" if left else step

    def restart_of(self, cause: str, *, advised: bool, after_s: float | None = None) -> str:
        """Whether a restart helps; never more than is known. `after_s`: how long it must last until one is advised."""
        if advised:
            return CURES
        waits = (
            f"A restart is advised only after {after_s:.0f} s: it may recover by itself."
            if after_s
            else ""
        )
        return self._cause(cause).restart or waits or self.restart

    @property
    def runbook_path(self) -> str:
        """Where a daemon serves its runbook, below the address of its page."""
        return runbook_path(self.runbook)

    def _cause(self, cause: str) -> Cause:
        known = self.causes.get(cause)
        words = "cause unknown" if cause == UNKNOWN else cause.replace("_", " ")
        return known or Cause(title=words, seen=words)
