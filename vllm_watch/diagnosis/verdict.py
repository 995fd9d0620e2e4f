"""From what was found in a log to one answer."""

from vllm_watch.diagnosis import phases
from vllm_watch.diagnosis.catalogue import FAILURES
from vllm_watch.diagnosis.families import memory, serving
from vllm_watch.diagnosis.finding import Finding
from vllm_watch.diagnosis.life import Life
from vllm_watch.diagnosis.report import HEALTHY, NOISE, NOT_VLLM, UNKNOWN, Diagnosis, Fix
from vllm_watch.diagnosis.rule import Failure, Rank, Told
from vllm_watch.diagnosis.scanner import Scanner

_CONFIDENCE = {
    Rank.CAUSE: 0.95,
    Rank.GENERAL: 0.85,
    Rank.IMPORT: 0.75,
    Rank.SYMPTOM: 0.7,
    Rank.DEATH: 0.6,
    Rank.REQUEST: 0.8,
}
"""How often a message of each rank named the cause; what others say of a failure is often not all."""

_CUT_OFF_CONFIDENCE = 0.4

_SURE = 0.6
"""From this confidence on a failure may be called deterministic: not sure is no."""

_EARLIER_RATIO = 0.7
"""An earlier start's failure is less sure to be what is asked for."""


def of_log(scanner: Scanner) -> Diagnosis:
    """Return the answer for all that the scanner has read so far; it may read on."""
    life = scanner.life
    if life.captured and not life.ready and not life.explicit and _says_nothing(life.root):
        return _in_capture(life, life.captured)
    if life.root is not None:
        return _failed(life, life.root)
    if life.ready or life.serving or scanner.before is None or scanner.before.root is None:
        return _quiet(life, of_vllm=scanner.of_vllm)
    # A new start has begun and says nothing yet: what ended the one before is the news.
    return _failed(scanner.before, scanner.before.root, ratio=_EARLIER_RATIO)


def _says_nothing(root: Finding | None) -> bool:
    return root is None or root.rule.rank is Rank.DEATH


def _in_capture(life: Life, line: tuple[int, str]) -> Diagnosis:
    """A traceback through the capture of CUDA graphs whose end is missing: memory is what fails there."""
    failure = FAILURES[memory.CAPTURE]
    text = "A traceback goes through the capture of CUDA graphs, and its last line is missing; most often it is an out-of-memory error."  # fmt: skip
    return Diagnosis(
        failure=failure.slug,
        confidence=_CUT_OFF_CONFIDENCE,
        sentence="the capture of CUDA graphs failed, most likely for want of GPU memory",
        root_cause_line=line[1],
        line_number=line[0],
        explanation=text,
        fixes=failure.fixes,
        facts=life.facts.complete(),
        ready=life.ready,
        fatal=True,
    )


def _failed(life: Life, root: Finding, ratio: float = 1.0) -> Diagnosis:
    slug, confidence = root.rule.failure, _CONFIDENCE[root.rule.rank]
    if slug == memory.OOM:
        slug, confidence = phases.of_out_of_memory(root.line, root.hints, root.phase)
    failure = FAILURES[slug]
    facts = life.facts.complete()
    told = failure.numbers(root.text, facts) if failure.numbers is not None else Told()
    sure = failure.deterministic if root.rule.deterministic is None else root.rule.deterministic
    started = life.ready or life.serving or root.rule.rank >= Rank.DEATH
    parts = [
        failure.sentence[0].upper() + failure.sentence[1:] + ".",
        told.explanation,
        failure.why,
    ]
    if slug == serving.DEAD and life.error is not None:
        parts.append(f"The first error that it shows: {life.error[1][:300]}")
    return Diagnosis(
        failure=slug,
        confidence=round(confidence * ratio, 2),
        sentence=failure.sentence,
        root_cause_line=root.line,
        line_number=root.number,
        explanation=" ".join(part for part in parts if part),
        fixes=_fixes(told, failure),
        facts=facts,
        ready=life.ready,
        fatal=_is_fatal(life, root, failure),
        deterministic_start_failure=sure and not started and confidence >= _SURE,
    )


def _is_fatal(life: Life, root: Finding, failure: Failure) -> bool:
    """Once it serves, what ends a start ends a request at most, unless the engine is said to be dead."""
    if root.rule.rank is Rank.REQUEST:
        return False
    started = life.ready or life.serving
    return not (started and failure.deterministic) or serving.DEAD in life.findings


def _fixes(told: Told, failure: Failure) -> tuple[Fix, ...]:
    """The log's own numbers first; general advice of the same flag has nothing to add to them."""
    flags = {fix.command.split()[0] for fix in told.fixes if fix.command}
    general = (
        fix for fix in failure.fixes if not fix.command or fix.command.split()[0] not in flags
    )
    return (*told.fixes, *general)


def _quiet(life: Life, *, of_vllm: bool) -> Diagnosis:
    """No rule found a failure: is all well, or is it only not known?"""
    facts = life.facts.complete()
    ready = life.ready or life.serving or life.phase >= phases.SERVE
    if not of_vllm and not ready:
        return Diagnosis(failure=NOT_VLLM, confidence=0.8, sentence="this is no log of vLLM", explanation="Nothing in it is written as vLLM writes.")  # fmt: skip
    if life.error is not None:
        number, line = life.error
        text = "It shows an error that no rule knows; the line is the first of it."
        return Diagnosis(failure=UNKNOWN, confidence=0.3, sentence="something failed that no rule knows", root_cause_line=line, line_number=number, explanation=text, facts=facts, ready=life.ready)  # fmt: skip
    harmless = life.lived_with or (None if ready else life.warned)
    if harmless is not None:
        number, line = harmless
        text = "It went on after this line." if life.lived_with else "There are only warnings."
        return Diagnosis(failure=NOISE, confidence=0.8 if ready else 0.6, sentence="nothing failed; the line looks worse than it is", root_cause_line=line, line_number=number, explanation=text, facts=facts, ready=life.ready)  # fmt: skip
    text = "It came up and works." if ready else "Nothing is wrong so far; the start is not complete in this log."  # fmt: skip
    return Diagnosis(failure=HEALTHY, confidence=0.9 if ready else 0.5, sentence="nothing failed", explanation=text, facts=facts, ready=life.ready)  # fmt: skip
