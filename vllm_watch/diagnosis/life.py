"""The part of a log from one engine start to the next."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from vllm_watch.diagnosis import finding, phases
from vllm_watch.diagnosis.facts import Facts
from vllm_watch.diagnosis.families import flags, memory_numbers, model
from vllm_watch.diagnosis.finding import Finding
from vllm_watch.diagnosis.report import UNKNOWN, Diagnosis, Fix
from vllm_watch.diagnosis.rule import Evidence, Rank, Rule

UNKNOWN_CONFIDENCE = 0.3

FINDINGS_PER_CLASS_MAX = 8

EVIDENCE_CHARACTERS_MAX = 64 << 10

_STARTING = re.compile(r"failed to start|initialization failed|Failed core proc|error: .{0,40}argument")  # fmt: skip

_FLAG = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]{3,60}\b")
_GIVEN = re.compile(r"'(?:enable_|disable_)?(\w{1,40}_\w{1,40})':")
_UNTOLD = frozenset(
    (
        "model tag",
        "served model name",
        "gpu memory utilization",
        "max model len",
        "trust remote code",
    )
)
"""Settings that nearly every command has, and that warnings name for other reasons."""

_TIMED_OUT = re.compile(r"Worker[^()]{0,60}pid=\d+\) WARNING .{0,300}\b[Tt]imed out\b")

_OF_TEXT: dict[str, Callable[[str], bool]] = {
    "much_is_held": memory_numbers.is_much_held,
    "nearly_free": memory_numbers.is_nearly_free,
    "more_than_the_gpu": memory_numbers.is_more_than_the_gpu,
    "more_free_than_asked": memory_numbers.is_more_free_than_asked,
    "flag_of_no_release": flags.is_of_no_release,
    "packed_4_bit": model.is_packed,
    "some_layers_missing": model.lacks_some_layers,
}
"""Facts that a message alone shows."""

_COMMON = re.compile(r"^(?:no |enable |disable |use |max )")

_DISTINCT = 8
"""Characters of a setting's name from which it means one setting. "model" stands in most messages."""

CAUTIONS_MAX = 50

HEALED_LINES = 30
"""Throughput reports with tokens after which a stall is over. They take five minutes."""


def _plain(text: str) -> str:
    return text.replace("-", " ").replace("_", " ").lower()


@dataclass(slots=True)
class Life:
    """One start of the engine and its outcome."""

    facts: Facts = field(default_factory=Facts)
    phase: int = phases.START
    ready: bool = False
    serving: bool = False
    answered: bool = False  # more than health checks
    answered_all: bool = False  # an offline script has all answers of its last call
    asleep: bool = False  # by POST /sleep
    noted: set[str] = field(default_factory=set)  # marks that conditions may require
    asked_to_stop: bool = False
    stopped: int = 0  # number of the line with the request to stop
    failed_after_stop: bool = False  # an error followed the request to stop
    begun: bool = False  # the banner was read
    traced: tuple[int, str] | None = None  # the first line of a traceback
    raised: Finding | None = None  # the first exception after it at level WARNING
    overlooked: tuple[int, str] | None = None  # the first harmless line without a lower level
    warned: tuple[int, str] | None = None  # the first WARNING: line number, line
    given: tuple[str, ...] = ()  # names of the settings that the user gave
    switched: tuple[int, str] | None = None  # the first variable of vLLM that was switched on
    cautioned: dict[str, tuple[int, str]] = field(default_factory=dict)  # setting → last WARNING
    timed_out: tuple[int, str] | None = None  # the first that a worker warned of in the start
    progress: tuple[int, str] | None = None  # the last line that showed a phase
    dumped: tuple[int, str] | None = None  # the first line of the input of a step that failed
    ended: tuple[int, str] | None = None  # the last line before a dead process's clean-up
    captured: tuple[int, str] | None = None  # the last frame of a CUDA graph capture
    complaint: Finding | None = None  # the first line that reports a failure and matches no rule
    warned_of: tuple[int, str] | None = None  # the same, at level WARNING or below
    imports: list[Finding] = field(default_factory=list)  # that failed
    lived_with: Finding | None = None  # an error that the engine survived
    progress_lines: int = 0  # throughput reports since the last finding
    findings: dict[str, list[Finding]] = field(default_factory=dict)

    @property
    def progressed(self) -> bool:
        return self.phase > phases.START or self.ready or self.root is not None

    @property
    def every(self) -> list[Finding]:
        return [each for found in self.findings.values() for each in found]

    @property
    def dead(self) -> bool:
        return any(each.rule.rank is Rank.DEATH for each in self.every)

    @property
    def of_a_start(self) -> bool:
        """True if the log shows a start."""
        shown = self.begun or self.progress is not None
        return shown or any(_STARTING.search(each.line) for each in self.every)

    @property
    def root(self) -> Finding | None:
        every = self.every
        log = "\n".join(each.line for each in every)
        whole = Evidence(log, log, self.facts.known, serving=self.ready or self.serving)
        found = finding.root(
            [each for each in every if each.rule.needs.empty or each.rule.needs.holds(whole)]
        )
        return found and (finding.not_imported(found, self.imports) or found)

    def evidence(self, of: Finding, *, phase: int | None) -> Evidence:
        parts = [
            of.before,
            of.text,
            *of.hints,
            *((self.timed_out or ())[1:] if of.rule.quiet else ()),
            *(each.line for each in self.every),
        ]
        facts = self.facts.complete()
        own = memory_numbers.is_own(facts)
        facts.update({name: 1 for name, holds in _OF_TEXT.items() if holds(of.text)})
        if memory_numbers.is_own_alone(of.text) and "unified_memory" not in facts:
            facts["held_by_itself"] = 1
        if memory_numbers.is_overestimated(facts):
            facts["graphs_overestimated"] = 1
        if any("profile_cudagraph_memory" in each for each in parts):
            facts["graphs_measured"] = 1
        facts.update(dict.fromkeys(self.noted, 1))
        if phase is not None:
            facts["phase"] = phase
        if self.asleep:
            facts["asleep"] = 1
        if own is not None:
            facts["memory_is_own" if own else "memory_of_others"] = 1
        log = "\n".join(parts)[:EVIDENCE_CHARACTERS_MAX]
        message = f"{of.text}\n{of.joined}"[:EVIDENCE_CHARACTERS_MAX]
        # zmq's Cython frames hide the caller's.
        frames = tuple(each for each in of.frames if not each.startswith("zmq/backend/"))
        return Evidence(message, log, facts, phase, self.ready or self.serving, frames)

    def add(self, found: Finding) -> bool:
        """Keep the finding, and return True. Return False if its class is full, or a requested stop explains it."""
        if self.asked_to_stop and (
            Rank.MESSAGE <= found.rule.rank <= Rank.DEATH or found.rule.failure == UNKNOWN
        ):
            self.failed_after_stop = True
            return False
        kept = self.findings.setdefault(found.rule.failure, [])
        full = len(kept) >= FINDINGS_PER_CLASS_MAX
        if full and any(each.rule is found.rule for each in kept):
            return False
        self.serving = self.serving or "EngineCore encountered a fatal error" in found.line
        kept.append(found)
        self.progress_lines = 0
        return True

    def diagnosis(
        self,
        failure: str,
        confidence: float,
        sentence: str,
        explanation: str,
        at: tuple[int, str] | None = None,
        fixes: tuple[Fix, ...] = (),
        *,
        fatal: bool = False,
    ) -> Diagnosis:
        """Return a diagnosis with the known facts. `at` is the root line's number and text."""
        number, line = at or (None, None)
        return Diagnosis(
            failure=failure, confidence=confidence, sentence=sentence, explanation=explanation,
            root_cause_line=line, line_number=number, fixes=fixes, facts=self.facts.complete(), ready=self.ready, fatal=fatal,
        )  # fmt: skip

    def unknown(
        self,
        sentence: str,
        explanation: str,
        at: tuple[int, str] | None = None,
        fixes: tuple[Fix, ...] = (),
        *,
        fatal: bool = False,
    ) -> Diagnosis:
        """Return a diagnosis of an unknown error."""
        return self.diagnosis(UNKNOWN, UNKNOWN_CONFIDENCE, sentence, explanation, at, fixes, fatal=fatal)  # fmt: skip

    def forget(self, of: Callable[[Finding], bool]) -> None:
        left = {slug: [each for each in found if not of(each)] for slug, found in self.findings.items()}  # fmt: skip
        self.findings = {slug: found for slug, found in left.items() if found}

    def give(self, text: str) -> None:
        """Note the settings that the line with the non-default arguments names."""
        names = {each.replace("_", " ") for each in _GIVEN.findall(text)}
        self.given = tuple(sorted(names - _UNTOLD))

    def caution(self, of: Finding) -> str:
        """Return sentences with a variable that was switched on, and a warning about a setting that the error names."""
        said = []
        if self.switched is not None:
            number, name = self.switched
            said.append(f"Line {number} switches {name} on: compare with a start without it.")
        error = _plain("\n".join((of.text, *of.frames)))
        warnings = [at for name, at in self.cautioned.items() if all(each in error for each in name.split())]  # fmt: skip
        if warnings:
            number, line = max(warnings)
            said.append(f'Line {number} warned of a setting: "{finding.message_of(line)}"')
        return " ".join(said)

    def warn(self, number: int, line: str) -> None:
        self.warned = self.warned or (number, line)
        plain = _plain(line)
        flags = (_plain(each).strip() for each in _FLAG.findall(line))
        for each in (*flags, *(each for each in self.given if each in plain)):
            name = _COMMON.sub("", each)
            known = name in self.cautioned or len(self.cautioned) < CAUTIONS_MAX
            if known and len(name) >= _DISTINCT:
                self.cautioned[name] = number, line
        if self.timed_out is None and _TIMED_OUT.search(line):
            self.timed_out = number, line

    def came_up(self) -> None:
        """Note that the server survived all earlier errors."""
        self.ready, self.phase, self.timed_out, self.complaint = True, phases.SERVE, None, None
        self._live_with(self.root)
        self.findings.clear()

    def made_tokens(self, *, reported: bool) -> None:
        """Drop unknown errors. After HEALED_LINES reports, also drop temporary errors."""
        self.serving, self.phase, self.timed_out, self.complaint = True, phases.SERVE, None, None
        self.dumped = None
        self.progress_lines += reported
        healed = self.progress_lines >= HEALED_LINES
        for failure, found in list(self.findings.items()):
            over = failure == UNKNOWN and not self.dead
            left = [each for each in found if not (over or self._healed(each.rule, healed))]
            if left != found:
                self._live_with(finding.root(found))
            if left:
                self.findings[failure] = left
            else:
                del self.findings[failure]

    def _healed(self, rule: Rule, healed: bool) -> bool:
        return rule.heals and (healed or (rule.rank is Rank.REQUEST and not self.dead))

    def _live_with(self, found: Finding | None) -> None:
        if self.lived_with is None and found is not None:
            self.lived_with = found
