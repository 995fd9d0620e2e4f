"""What a log says of one life of an engine, from one start to the next."""

from dataclasses import dataclass, field

from vllm_watch.diagnosis import phases
from vllm_watch.diagnosis.facts import Facts
from vllm_watch.diagnosis.finding import Finding
from vllm_watch.diagnosis.rule import Rank

FINDINGS_PER_CLASS_MAX = 8

HEALED_LINES = 30
"""vLLM reports its throughput every ten seconds: five minutes of work after a stall, and it is over."""


@dataclass(slots=True)
class Life:
    """One start and what came of it."""

    facts: Facts = field(default_factory=Facts)
    phase: int = phases.START
    ready: bool = False
    serving: bool = False
    asked_to_stop: bool = False
    warned: tuple[int, str] | None = None  # the first WARNING: line number, line
    error: tuple[int, str] | None = (
        None  # the first error no rule knows, since it last made progress
    )
    captured: tuple[int, str] | None = (
        None  # the last line of a traceback through CUDA graph capture
    )
    explicit: bool = False  # does an unknown error say in words what it is?
    lived_with: tuple[int, str] | None = None  # an error it went on after
    progress_lines: int = 0  # lines that showed tokens since the last finding that heals
    findings: dict[str, list[Finding]] = field(default_factory=dict)

    @property
    def progressed(self) -> bool:
        """Has this start done anything but print its banner?"""
        return self.phase > phases.START or self.ready or bool(self.findings)

    @property
    def root(self) -> Finding | None:
        """The finding nearest to the cause."""
        every = (each for found in self.findings.values() for each in found)
        return min(every, key=lambda finding: finding.order, default=None)

    def add(self, finding: Finding) -> bool:
        """Keep it, unless enough of its class are kept or it died by request; was it kept?"""
        if self.asked_to_stop and Rank.SYMPTOM <= finding.rule.rank <= Rank.DEATH:
            return False
        kept = self.findings.setdefault(finding.rule.failure, [])
        if len(kept) >= FINDINGS_PER_CLASS_MAX:
            return False
        kept.append(finding)
        self.progress_lines = 0
        return True

    def came_up(self) -> None:
        """It is ready: whatever was wrong before was lived with."""
        self.ready, self.phase = True, phases.SERVE
        self._live_with(self.root)
        self.findings.clear()

    def made_tokens(self, *, reported: bool) -> None:
        """It works: unknown errors did not stop it, and what heals has healed after a while."""
        self.serving = True
        self._live_with(None)
        self.progress_lines += reported
        if self.progress_lines < HEALED_LINES:
            return
        for failure, found in list(self.findings.items()):
            left = [each for each in found if not each.rule.heals]
            if left:
                self.findings[failure] = left
            else:
                self._live_with(found[0])
                del self.findings[failure]

    def _live_with(self, finding: Finding | None) -> None:
        if self.lived_with is None and finding is not None:
            self.lived_with = finding.number, finding.line
        if self.lived_with is None:
            self.lived_with = self.error
        self.error = None
