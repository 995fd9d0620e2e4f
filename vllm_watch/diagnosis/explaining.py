"""Explain the error of a log: its class, its reasons and its fixes."""

import re
from dataclasses import replace

from vllm_watch.diagnosis import lines, phases
from vllm_watch.diagnosis.catalogue import FAILURES
from vllm_watch.diagnosis.families import (
    compiling,
    memory,
    model,
    parallel,
    serving,
    software,
    unclassified,
)
from vllm_watch.diagnosis.finding import (
    OF_INTERFACE,
    QUOTED,
    UNLOADED,
    Finding,
    message_of,
    of_library,
    raised_in,
)
from vllm_watch.diagnosis.life import UNKNOWN_CONFIDENCE, Life
from vllm_watch.diagnosis.report import UNKNOWN, Check, Diagnosis, Fix
from vllm_watch.diagnosis.rule import Cure, Evidence, Facts, Failure, Rank, Told, Variant
from vllm_watch.diagnosis.stillness import Silence

_CONFIDENCE = {
    Rank.CAUSE: 0.8,
    Rank.GENERAL: 0.7,
    Rank.IMPORT: 0.7,
    Rank.MESSAGE: 0.3,
    Rank.SYMPTOM: 0.7,
    Rank.DEATH: 0.6,
    Rank.REQUEST: 0.7,
}
"""Share of messages that named the cause, by rank. docs/diagnose.md has the measurement."""

_SILENCE_CONFIDENCE = 0.7

_SURE = 0.6

_BY_TRACEBACK = (
    (serving.GRAMMAR, re.compile(r"structured_output/|compile_grammar"), re.compile(r"^(?!.{0,200}\bTypeError: .{0,200}\barguments?\b)")),
    (parallel.SHM, re.compile("acquire_read"), re.compile(r"TimeoutError:?\s*$")),
    (model.ARCHITECTURE, re.compile(r"(?m)\.py load_(?:expert_)?weights$"), re.compile("KeyError: '")),
)  # fmt: skip

_TRACEBACK_CONFIDENCE = 0.6

_UNCLEAR = frozenset((serving.BUG, serving.XID, compiling.COMPILE, software.QUANTIZATION, software.ATTENTION))  # fmt: skip
"""Classes of failures that a setting may cause. Their explanation names such a setting."""

_REASONS = re.compile(r"\bEither\b|[,;] or ")
"""Matches a text that lists possible reasons."""

_BAD_DATA = re.compile(r'"POST [^"]{1,300}" 4(?:00|13|15|22)\b')

_NOT_NVIDIA = re.compile(r"\b(?:xpu|npu|hip|hpu|tpu|mps):\d")

_KERNEL = re.compile(r"(?im)^\W{0,20}(?:fault )?kernel(?:[ _]name)?\s?[:=]\s?(\w{3,200})")

_OF_REQUEST = re.compile(
    r"Exception in ASGI|completion stream|/vllm/entrypoints/\S{1,200}(?:serving|generator)"
)

ONE_REQUEST = "One request failed with this error. As far as this log shows, the server keeps running: do not restart it for this, but check whether other requests fail the same way."

_SETTING = re.compile(r"(?:^|\s)--([a-z-]{3,60})[= ](\S{1,60})")

_LIKE = {"auto": ("bfloat16", "float16")}

_STALLS = 3
"""Reports of unresponsive workers after which a start is stalled. A single report is normal."""


def failed(life: Life, root: Finding, ratio: float = 1.0) -> Diagnosis:
    """Return the diagnosis of an error that has a class."""
    slug, confidence = root.rule.failure, _CONFIDENCE[root.rule.rank]
    if slug == UNKNOWN:
        named = "\n".join((*root.frames[:1], *root.hints))
        slug = next((each for each, names, line in _BY_TRACEBACK if names.search(named) and line.search(root.line)), UNKNOWN)  # fmt: skip
        if slug == UNKNOWN or root.rule.rank is Rank.MESSAGE:
            return unexplained(life, root)
        confidence = _TRACEBACK_CONFIDENCE
    waits = slug == parallel.SHM and root.rule.quiet
    warned = life.timed_out if waits else None
    if waits and warned is None and (silent := _start_stalled(life)) is not None:
        return silent
    phase, sentence = (life.phase or None), None
    pins = slug == memory.OOM and re.search(memory.PINS, root.before)
    if pins and "ried to alloc" not in root.text:
        return unexplained(life, root)  # it asked for memory of the host
    if slug == memory.OOM:
        served = life.ready or life.serving
        slug, confidence, read = phases.of_out_of_memory(root, served=served)
        phase = phases.NUMBERS.get(slug) if read else None
        if not read and slug in phases.NUMBERS:
            sentence = phases.GUESSED[slug]
    failure = FAILURES[slug]
    evidence = life.evidence(root, phase=phase)
    told = Told()
    if failure.numbers is not None:
        told = failure.numbers(root.text, evidence.facts)
        if told == Told():
            told = failure.numbers(root.joined, evidence.facts)
    variant = next((each for each in failure.variants if each.when.holds(evidence)), None)
    guessed = FAILURES[memory.OOM] if sentence else failure
    why, cures = in_general(guessed), guessed.cures
    if variant is not None:
        sentence, why = variant.sentence, in_general(variant)
        confidence = min(confidence, variant.confidence)
    sentence = sentence or failure.sentence
    of_variant = None if variant is None else variant.deterministic
    answers = (told.deterministic, of_variant, root.rule.deterministic)
    sure = next((each for each in answers if each is not None), failure.deterministic)
    place = _place(slug, root)
    at = (root.number, root.line) if warned is None else warned
    unclear = slug in _UNCLEAR and root.rule.rank < Rank.SYMPTOM
    before = _came_first(life, root, warned) if waits else ""
    caution = life.caution(root) if unclear else ""
    parts = (as_sentence(sentence), before, told.explanation, root.hint, place, why, caution)
    return Diagnosis(
        failure=slug,
        confidence=round(confidence * ratio, 2),
        sentence=sentence,
        root_cause_line=at[1],
        line_number=at[0],
        explanation=" ".join(part for part in parts if part),
        fixes=fitting(told, cures if variant is None else variant.cures, evidence),
        facts=life.facts.complete(),
        ready=life.ready,
        fatal=_is_fatal(life, root, failure),
        deterministic_start_failure=_fails_again(life, root, phase, sure=sure)
        and confidence >= _SURE,
    )


def _fails_again(life: Life, root: Finding, phase: int | None, *, sure: bool) -> bool:
    """Return True if the log shows a start, and each start fails in the same way."""
    started = life.ready or life.serving or root.rule.rank >= Rank.SYMPTOM
    unseen = (root.rule.failure == memory.OOM and phase is None) or not life.of_a_start
    return sure and not (started or unseen)


def _came_first(life: Life, root: Finding, warned: tuple[int, str] | None) -> str:
    """Return a sentence about the line before a report of waiting."""
    if warned is not None:
        return f"Line {root.number} reports it; the timeout in line {warned[0]} came first."
    if life.progress is None or life.ready or life.serving:
        return ""
    number, line = life.progress
    return f'The last known startup step is line {number}: "{message_of(line)}".'


def _place(slug: str, root: Finding) -> str:
    """Return a sentence about the code that raised the error, if that adds to the class, or ""."""
    of_code = slug in (serving.BUG, memory.RUNTIME) or "cannot import name" in root.line
    of_kernel = slug in (compiling.COMPILE, software.DRIVER) and of_library(root.frames)
    below = (lines.FRAME.search(each) for each in root.tail[:2])  # of a cut paste
    frames = root.frames or tuple(f"{each[1]} {each[2] or ''}" for each in below if each)
    if frames and (of_code or of_kernel):
        return raised_in(frames, root.line, root.source)[0]
    return f"The code is `{root.source}`." if root.source else ""


def as_sentence(text: str) -> str:
    """Return the text with a capital and a full stop. vLLM keeps its name."""
    return (
        text
        if not text
        else f"{text[:1] if text.startswith('vLLM') else text[0].upper()}{text[1:]}."
    )


def in_general(of: Failure | Variant) -> str:
    """Return the reasons of such messages. Only facts of the log make them reasons of this one."""
    proven = isinstance(of, Variant) and of.when.facts
    if proven or not of.why:
        return of.why
    return f"{'Often' if _REASONS.search(of.why) else 'In general'}: {of.why}"


def _is_fatal(life: Life, root: Finding, failure: Failure) -> bool:
    """Return True if the error ended the engine. A serving engine survives failures that would prevent a start, unless the log reports its death."""
    if root.rule.rank is Rank.REQUEST and not life.dead:
        return False
    started = life.ready or life.serving
    return not (started and failure.deterministic) or life.dead


def fitting(told: Told, cures: tuple[Cure, ...], evidence: Evidence) -> tuple[Fix, ...]:
    """Return the fixes from the numbers of the log, and the cures with a condition that the log meets."""
    flags = {fix.command.split()[0] for fix in told.fixes if fix.command}
    elsewhere = "device" in evidence.facts or _NOT_NVIDIA.search(evidence.message)
    general = (
        each.fix
        for each in cures
        if each.when.holds(evidence)
        and not _is_set(each.fix, evidence.facts)
        and not (elsewhere and "nvidia-smi" in (each.fix.command or ""))
        and not (each.fix.command and each.fix.command.split()[0] in flags)
    )
    return (*told.fixes, *general)


def _is_set(fix: Fix, facts: Facts) -> bool:
    """Return True if the log shows that the engine had this setting when it failed."""
    given = ((name.replace("-", "_"), value) for name, value in _SETTING.findall(fix.command or ""))
    return any(str(facts.get(name)) in (value, *_LIKE.get(value, ())) for name, value in given)


def meaning_of(life: Life, root: Finding) -> tuple[Variant | None, Evidence]:
    """Return the meaning of an error without a class, if it is known, and the evidence."""
    message = f"{root.joined}\n{root.source}"
    evidence = replace(life.evidence(root, phase=life.phase or None), message=message)
    return next((each for each in unclassified.MEANINGS if each.when.holds(evidence)), None), evidence  # fmt: skip


def unexplained(life: Life, root: Finding) -> Diagnosis:
    """Return the diagnosis of an error without a class."""
    known, evidence = meaning_of(life, root)
    below = root.message_below[:QUOTED]
    below = f"Its message: {below}{'' if below[-1] in '.!?' else '.'}" if below else ""
    if known is not None:
        sentence = known.sentence
        at_border = OF_INTERFACE.search(root.line)
        place = raised_in(root.frames, root.line, root.source)[0] if at_border else ""
        text = " ".join(each for each in (as_sentence(sentence), below or root.advice, in_general(known), place) if each)  # fmt: skip
        fixes = fitting(Told(), known.cures, evidence)
    else:
        place, fixes = raised_in(root.frames, root.line, root.source)
        sentence = f"no rule matches this error{', and the engine died' if life.dead else ''}"
        request = ONE_REQUEST if of_request(life, root) else ""
        if not life.dead and _BAD_DATA.search("\n".join(root.tail)):
            fixes = (Check("check the data of this request: the server rejected it with 4xx and keeps running"),)  # fmt: skip
        if kernel := _KERNEL.search("\n".join(root.tail[:3])):
            below = f"{below} The kernel is {kernel[1]}.".strip()
            fixes = (Check("search the issues of this kernel's library and of vLLM for the kernel's name"),)  # fmt: skip
        text = " ".join(each for each in (as_sentence(sentence), request, below, root.advice, root.hint, place, _unimported(life, root), life.caution(root)) if each)  # fmt: skip
    confidence = UNKNOWN_CONFIDENCE if known is None else _SURE
    return life.diagnosis(UNKNOWN, confidence, sentence, text, (root.number, root.line), fixes, fatal=life.dead)  # fmt: skip


def _unimported(life: Life, root: Finding) -> str:
    """Return a sentence about the failed import of a compiled library before the error, or ""."""
    before = (each for each in life.imports if each.number < root.number and re.search(UNLOADED, each.line))  # fmt: skip
    found = next(before, None)
    return "" if found is None else f'Before it, line {found.number} reported: "{message_of(found.line)}"'  # fmt: skip


def of_request(life: Life, found: Finding) -> bool:
    """Return True if only one request failed with this error."""
    served = found.phase == phases.SERVE and found.process.startswith("(APIServer") and not life.dead  # fmt: skip
    return served and _OF_REQUEST.search("\n".join((*found.hints, *found.frames))) is not None


def _start_stalled(life: Life) -> Diagnosis | None:
    stalls = life.findings.get(parallel.SHM, [])
    if life.ready or life.serving or life.progress is None or len(stalls) < _STALLS:
        return None  # without a line of the start, the server may be running for days
    number, line = life.progress
    last = Silence(number, line, "", None)
    said = f"Its workers have not responded for {len(stalls)} minutes or more; long compilations and slow loading appear the same for a few minutes."  # fmt: skip
    return silent(life, parallel.SHM, last, said, shown=stalls[0])


def silent(life: Life, slug: str, last: Silence, said: str, shown: Finding | None = None, *, serves: bool = False) -> Diagnosis:  # fmt: skip
    """Return the diagnosis of an engine that makes no progress after `last`."""
    failure = FAILURES[serving.HANG]
    serves = serves or life.ready or life.serving
    evidence = Evidence(last.line, last.line, life.facts.complete(), life.phase, serves)
    variant = next((each for each in failure.variants if each.when.holds(evidence)), None)
    sentence = failure.sentence if variant is None else variant.sentence
    sentence += "" if serves or variant is None else f": {phases.IN_WORDS[life.phase]}"
    at = (last.number, last.line) if shown is None else (shown.number, shown.line)
    explanation = f"{as_sentence(sentence)} {said} {in_general(variant or failure)}"
    fixes = fitting(Told(), (variant or failure).cures, evidence)
    return life.diagnosis(slug, _SILENCE_CONFIDENCE, sentence, explanation, at, fixes, fatal=shown is not None)  # fmt: skip
