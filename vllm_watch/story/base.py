"""Defines stories, the texts about kinds of incidents, and the texts about restart steps."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from vllm_watch.support.quantities import in_words

UNKNOWN = "unknown"
CURES = "A restart is advised: it usually fixes this."

IF_ADVISED = "; restart vLLM if the status page advises it."
"""A step ends with this text if it is unknown whether a restart is advised."""

ELSE_IF_ADVISED = "; if you find none, restart vLLM if the status page advises it."
"""Like IF_ADVISED, but for steps that may make a restart unnecessary."""

CORE_PID = "PID, found with pgrep -af VLLM::EngineCore"
SERVER_PID = "PID, found with pgrep -af 'vllm serve'"
"""Placeholder for a PID. A command substitution would pick the first of several servers."""

ADVISED_AFTER = "restart_advised_after"
"""Name of the evidence that holds the seconds after which a restart is advised."""

_PIDS = {
    CORE_PID: re.compile(r"::EngineCore\S{0,40} \(PID (\d{1,10})\)"),
    SERVER_PID: re.compile(r"API server \(PID (\d+)\)"),
    "--reclaim PID": re.compile(r"(--reclaim \d+)"),
    "the PID of the evidence": re.compile(r"\(PID (\d+)\) is stopped"),
}
"""Maps each placeholder to the pattern of its value in the incident's texts."""

_LEFT = re.compile(r"left behind and still holds GPU memory: \S{1,40} \(PID (\d{1,10})\)")
_END_IT = "End the engine core that it left (vllm-watch gpus --reclaim {}): no start finds GPU memory until then. "


def runbook_path(page: str) -> str:
    """Return the runbook's path below the daemon's page."""
    path, hash_, anchor = page.partition("#")
    return f"runbooks/{path.rpartition('/')[2].removesuffix('.md')}{hash_}{anchor}"


@dataclass(frozen=True, slots=True)
class Cause:
    """The texts of one cause. If `first_step`, `restart`, `cost` or `warning` is empty, the kind's text applies."""

    title: str
    seen: str
    first_step: str = ""  # one sentence
    restart: str = ""  # why no restart is advised
    family: str = ""  # causes of one family share an incident
    cost: str = ""  # one sentence
    warning: str = ""  # a clause: why the incident is not critical


PEER_WAIT = Cause(
    "waits for KV from another server",
    "its requests wait for KV from another server",
    "Find and fix the fault in the server that sends the KV (prefill, store) or in the network between.",
    "A restart does not help: this engine waits for another server.",
    warning="the server that it waits for is at fault",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """The texts of one kind of incident."""

    title: str
    says: str  # predicate of the target: "is stalled"
    about: str
    cost: str  # the effect on users while it lasts, one sentence
    is_not: str  # lookalikes: "a long prefill or a warm-up"
    first_step: str
    restart: str = "It is not known whether a restart helps."
    causes: Mapping[str, Cause] = field(default_factory=dict)
    warning: str = "no user is known to wait longer or to get less than before"
    severities: tuple[str, ...] = ("page", "ticket")  # worst first
    runbook: str = ""  # a page of docs/; empty: detectors/KIND.md
    charts: tuple[str, ...] = ()
    of_gpus: bool = False
    detected: bool = True

    def title_of(self, cause: str) -> str:
        return f"{self.title}: {self._cause(cause).title}"

    def says_of(self, cause: str) -> str:
        return f"{self.says}: {self._cause(cause).title}"

    def first_step_of(
        self, cause: str, *, advised: bool | None = None, known: Iterable[str] = ()
    ) -> str:
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
        if advised:
            return CURES
        own = self._cause(cause).restart
        if after_s and not own:
            return f"A restart is advised only after {in_words(after_s)}: it may recover by itself."
        return own or self.restart

    def warning_of(self, cause: str) -> str:
        return self._cause(cause).warning or self.warning

    def cost_of(self, cause: str) -> str:
        return self._cause(cause).cost or self.cost

    @property
    def runbook_path(self) -> str:
        return runbook_path(self.runbook)

    def _cause(self, cause: str) -> Cause:
        known = self.causes.get(cause)
        words = "cause unknown" if cause == UNKNOWN else cause.replace("_", " ")
        return known or Cause(title=words, seen=words)


_WORDS = {"page": "critical", "ticket": "warning"}


def severity_word(severity: str) -> str:
    """Return the displayed word, or the severity itself if unknown."""
    return _WORDS.get(severity, severity)


RESTART_RUNBOOK = "restart.md"


@dataclass(frozen=True, slots=True)
class Step:
    """Texts of one restart step."""

    says: str
    first_step: str
    ended: str = ""


STEPS = {
    "dry_run": Step("is not restarted (dry run)", "Follow its alert, if there is one. In mode auto vllm-watch would restart it now; in mode observe it never does.",
                    "advised and left to you (mode observe)"),
    "approval": Step("waits for approval of its restart", "Check it, then approve the restart on the status page or with vllm-watch "
                     "approve INCIDENT (vllm-watch silence refuses it)."),
    "refused": Step("is not restarted", "See the status page for every gate that refuses the restart."),
    "breaker": Step("is not restarted automatically any more",
                    "See how the last attempt ended (vllm-watch journal); vllm-watch resume allows another one."),
    "begun": Step("is being restarted", "Nothing to do yet: its result will be reported."),
    "helped": Step("was restarted, and it helped", "Nothing to do.", "helped"),
    "did_not_help": Step("was restarted, and it did not help",
                         "Do not restart it again: read the evidence that the attempt kept (vllm-watch journal).", "did not help"),
    "failed": Step("could not be restarted", "Run vllm-watch hook test NAME to see why the hook failed.", "failed"),
    "uncertain": Step("may or may not have been restarted", "Check whether the server was restarted and whether anything was left "
                      "half done, then run vllm-watch resume.", "may not have happened"),
    "cancelled": Step("was not restarted after all", "Nothing to do: the hook was not called.",
                      "was given up before anything was done"),
}  # fmt: skip


def step_of(name: str) -> Step:
    """Return the step's texts. An unknown step has only its name."""
    words = name.replace("_", " ")
    return STEPS.get(name) or Step(words, "See the status page.", words)
