"""Reads a log line by line, whatever its size, and keeps what matters of it.

A line is first asked, as bytes, for the few words that rules, facts and marks begin with. Lines of one
shape (the same but for numbers and ids) are asked once: of millions of lines hundreds are decoded.
"""

import re
from collections import Counter, deque

from vllm_watch.diagnosis import keywords, lines, noise, phases
from vllm_watch.diagnosis.finding import HINT_LINES_AFTER, HINT_LINES_BEFORE, TAIL_LINES, Finding
from vllm_watch.diagnosis.keywords import Interest
from vllm_watch.diagnosis.life import Life

SHAPES_MAX = 40_000
"""Shapes of lines remembered, about 100 bytes each; a log with more forgets them all and asks again."""

DULL_LINES_PER_SITE = 50
"""One place in a program writes one kind of message: after so many of no interest its others have none."""

_HINTS_KEPT = 200
_SHAPE_BYTES = 400  # of a line's beginning: messages differ there

_SITE_BYTES, _FILE_BYTES = 200, 12

_IDS = b"0123456789abcdefABCDEF"  # numbers, hashes and UUIDs differ where messages are the same

_OF_VLLM = re.compile(
    r"\b(?:DEBUG|INFO|WARNING|ERROR|CRITICAL) \d\d-\d\d \d\d:\d\d:\d\d|[/\\]vllm[/\\]|\bvllm\.\w|\[vllm"
    r"|EngineCore|LLMEngine|API server version|throughput: [\d.]+ tokens/s"
)
_BANNER = re.compile(r"vLLM API server version|[█▀▄]\s+version v?\d")
_TOKENS = re.compile(r"generation throughput: (?!0\.0\b)[\d.]+|\" 200\b|Finished request")
_ERROR = re.compile(
    r"(?:^|[\s\]:|])(?:\w+\.)*\w*(?:Error|Exception): \S|\b(?:ERROR|CRITICAL)\b|Traceback \(most"
)
_EXPLICIT = re.compile(r"\w(?:Error|Exception): \S+ \S+ \S+")
"""An exception with its message, of at least three words."""

_SOURCE = re.compile(r"\braise [\w.]+\($")
"""A line of a program in a traceback: what it raises stands below, with its message."""

_LOOKED_FOR_VLLM = (
    2000  # lines without any sign of vLLM, after which only lines of interest are asked
)


def _site(line: bytes) -> bytes | None:
    """The `file.py:line` in vLLM that wrote this message below ERROR; None where that is not to be seen."""
    at = line.find(b".py:", 0, _SITE_BYTES)
    if at < 0:
        return None
    before = line[:at]
    if b"INFO" not in before and b"WARNING" not in before and b"DEBUG" not in before:
        return None
    if b"rror: " in line or b"ERROR" in line or b"xception: " in line:
        return None
    return line[max(0, at - _FILE_BYTES) : line.find(b"]", at, at + _FILE_BYTES)]


class Scanner:
    """Takes the lines of one log, in order."""

    def __init__(self) -> None:
        self.life = Life()
        self.before: Life | None = None  # the life before it, if the log has several
        self.lines = 0
        self.of_vllm = False
        self._dull: set[bytes] = set()  # shapes of no interest
        self._known: dict[bytes, Interest] = {}
        self._told: set[bytes] = set()  # shapes that have nothing more to say in this life
        self._sites: Counter[bytes] = Counter()  # dull lines by the place in vLLM that wrote them
        self._calm: set[bytes] = (
            set()
        )  # shapes that show progress, told once while nothing is wrong
        self._open: list[Finding] = []  # findings whose following lines are still of interest
        self._hints: deque[tuple[int, str]] = deque(maxlen=_HINTS_KEPT)

    def feed(self, line: bytes) -> None:
        """Take the next line."""
        self.lines += 1
        if self._open:
            self._follow(line)
        shape = line[:_SHAPE_BYTES].translate(None, _IDS)
        if shape in self._dull or shape in self._told:
            return
        site = _site(line)
        if site is not None and self._sites[site] >= DULL_LINES_PER_SITE:
            return
        if shape in self._calm and not (self.life.error or self.life.findings):
            return
        interest = self._known.get(shape) or keywords.of(line)
        if not self.of_vllm and (interest is not None or self.lines <= _LOOKED_FOR_VLLM):
            self.of_vllm = _OF_VLLM.search(lines.clean(line)) is not None
        if len(self._dull) + len(self._known) > SHAPES_MAX:
            self._dull.clear()
            self._known.clear()
            self._told.clear()
            self._calm.clear()
            self._sites.clear()
        if interest is None:
            self._dull.add(shape)
            if site is not None:
                self._sites[site] += 1
            return
        self._known[shape] = interest
        if self._read(lines.clean(line), interest):
            kept = self._calm if "serving" in interest.marks else self._told
            kept.add(shape)

    def _follow(self, line: bytes) -> None:
        text = lines.clean(line)
        for finding in self._open:
            if len(finding.tail) < TAIL_LINES:
                finding.tail.append(text)
        self._open = [each for each in self._open if self.lines - each.number < HINT_LINES_AFTER]

    def _read(self, text: str, interest: Interest) -> bool:
        """Take what the line says; has a line of this shape nothing to add to it in this life?"""
        life = self.life
        if "banner" in interest.marks and _BANNER.search(text):
            self._begin()
            life = self.life
        for pattern in interest.facts:
            life.facts.read(pattern, text)
        if "ready" in interest.marks:  # before its rules: one line may hold what came after it, too
            life.came_up()
            self._told.clear()
        harmless = any(each in text for each in noise.HARMLESS)
        found = False if harmless else self._find(text, interest)
        self._mark(text, interest, explained=found or harmless)
        # Lines whose digits decide, that may mean something again or tell a phase are always read.
        return not (
            {"hint", "phase", "banner", "stop"} & set(interest.marks)
            or any(rule.numeric or rule.heals for rule in interest.rules)
        )

    def _begin(self) -> None:
        if self.life.progressed:
            self.before, self.life = self.life, Life()
        self._told.clear()
        self._calm.clear()
        self._open.clear()
        self._hints.clear()

    def _find(self, text: str, interest: Interest) -> bool:
        found = False
        if _SOURCE.search(text):
            return found
        for rule in interest.rules:
            span = rule.fits(text)
            if span is None or (not rule.quiet and lines.is_quiet(text, span[0])):
                continue
            found = True
            finding = Finding(
                rule, lines.shown(text, span[0]), self.lines, self.life.phase, span[0]
            )
            if self.life.add(finding):
                finding.hints += [
                    hint for number, hint in self._hints if self.lines - number <= HINT_LINES_BEFORE
                ]
                self._open.append(finding)
        return found

    def _mark(self, text: str, interest: Interest, *, explained: bool) -> None:
        life, marks = self.life, interest.marks
        if "request" in marks:
            life.phase = phases.SERVE
        if "phase" in marks:
            life.phase = max(life.phase, *(p for word, p in phases.PROGRESS if word in text), 0)
        if "hint" in marks and not lines.is_quiet(text, len(text)):
            self._hint(text)
        if "serving" in marks and _TOKENS.search(text):
            life.made_tokens(reported="throughput" in text)
        if "stop" in marks:
            life.asked_to_stop = True
        if "warning" in marks and life.warned is None:
            life.warned = self.lines, lines.shown(text, 0)
        if "error" in marks and not explained:
            self._unknown(text)

    def _unknown(self, text: str) -> None:
        at, life = _ERROR.search(text), self.life
        if at is None or life.asked_to_stop or lines.is_quiet(text, at.end()):
            return
        if life.error is None or (_EXPLICIT.search(text) and not life.explicit):
            life.error = self.lines, lines.shown(text, 0)
            life.explicit = _EXPLICIT.search(text) is not None

    def _hint(self, text: str) -> None:
        names = " ".join(name for name in phases.HINTS if name in text)
        if phases.names_capture(names):
            self.life.captured = self.lines, lines.shown(text, 0)
        self._hints.append((self.lines, names))
        for finding in self._open:
            finding.hints.append(names)
