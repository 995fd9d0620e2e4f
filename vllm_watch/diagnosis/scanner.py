"""Read a log of any size line by line, and keep the relevant parts.

Lines that differ only in hexadecimal digits have the same shape. Only one line of each shape is searched.
"""

import re
from collections import Counter, deque

from vllm_watch.diagnosis import lines, phases, stacks, stillness
from vllm_watch.diagnosis.catalogue import HARMLESS, IGNORED, NOTED, Interest, interest_in
from vllm_watch.diagnosis.families import packages
from vllm_watch.diagnosis.finding import HINT_LINES_AFTER, HINT_LINES_BEFORE, TAIL_LINES, Finding
from vllm_watch.diagnosis.life import FINDINGS_PER_CLASS_MAX, Life
from vllm_watch.diagnosis.report import UNKNOWN
from vllm_watch.diagnosis.rule import Rank, Rule, rule
from vllm_watch.diagnosis.stillness import Reports

SHAPES_MAX = 40_000
"""Maximum number of remembered shapes, about 100 bytes each. At the limit, all are forgotten."""

DULL_LINES_PER_SITE = 50
"""Maximum irrelevant lines read per call site. Its other lines are skipped."""

_HINTS_KEPT = 200
_SHAPE_BYTES = 400

_SITE_BYTES, _FILE_BYTES = 200, 12

_IDS = b"0123456789abcdefABCDEF"

_OF_VLLM = re.compile(
    r"\b(?:DEBUG|INFO|WARNING|ERROR|CRITICAL) (?:\d\d-\d\d \d\d:\d\d:\d\d|\[\w{1,40}\.py:\d{1,6}\])|\[vllm|EngineCore|Engine core initialization failed|LLMEngine|LMCache (?:ERROR|WARNING|INFO):"
    r"|API server version|throughput: [\d.]+ tokens/s|\((?:APIServer|(?:Vllm|Ray)?Worker\w*)\b[^()]{0,40}pid=\d"
)
_NAMES_VLLM = re.compile(r"(?:^|[/\\])vllm[/\\]\S+\.py\b|\bvllm\.\w|::worker: VLLM: ")
"""Names of vLLM's modules. They do not count if another server is recognised, because some servers import parts of vLLM."""

_OF_KERNEL = re.compile(r"^\[ *\d+\.\d{6}\] |^\[\w{3} \w{3} [ \d]\d \d\d:\d\d:\d\d \d{4}\] |\bkernel: ")  # fmt: skip
_BANNER = re.compile(r"vLLM API server version|[█▀▄]\s+version v?\d")
_TOKENS = re.compile(r'generation throughput: (?!0\.0\b)[\d.]+|"(?:POST [^"]*|GET /health[^"]*)" 200 OK|Finished request')  # fmt: skip
_ALL_ANSWERED = re.compile(r"Processed prompts: +100%(?!.*\d%)")
_EXCEPTION = re.compile(
    r"(?:^|[\s\]:|)>'\"])(?:[A-Za-z_]\w{0,80}\.){0,9}(?:[A-Z]\w{0,80}(?:Error|Exception)(?:_[A-Z]\w{1,40})?|Exception)(?:: ?\S|:?\s*$)"
    r"|(?<=\] )[A-Z]\w{0,80}(?:Error|Exception)\(['\"].{1,2000}['\"]\)$"
    r"|\bwhat\(\): +(?!.{0,120}:\s*$)\S"
)
_ERROR = re.compile(r"\b(?:ERROR|CRITICAL)\b\]?(?: \d\d-\d\d \d\d:\d\d:\d\d)?+(?: ?\[?[\w./]{1,80}:\d{1,6}\])?+:? ?+|\[E\d{4} [\d:.]{8,20} [^\]]{1,80}\] |^E\d{4} [\d:.]{8,20} +(?:\d{1,9} )?[\w./]{1,80}:\d{1,6}\] ")  # fmt: skip
_NOT_A_MESSAGE = re.compile(
    r"\s|$|[\^~-]|Traceback \(most|During handling|The above exc|File \"|[\w.]{1,80}\((?:[^)]*|.*\))$|[\w., ]{1,80} = |\*\*|\)"
    r"|(?:raise|return|self|await|with|async|for|if|try|else|def|class|while|yield|assert|from|import)\b"
    r"|NoneType: None|(?:[\w.]{1,80}: )?Error in (?:\w{1,20} ){1,3}(?:stream|generator)\b|Exception in ASGI application|Dumping (?:input|scheduler)|TBE Subprocess|\[[\w/.]{0,80}$"
)
"""Lines of a traceback. vLLM logs each at level ERROR."""

_ORIGINAL = re.compile(r"(?<=original error: )\w{1,80}(?:Error|Exception)\(.")
"""The error that a dead engine's message quotes."""

_PROSE = re.compile(r"(?: [a-z]{2,}){3}")
"""Prose before an exception's name. Such a line only describes an error."""

_SOURCE = re.compile(r"\b(?:raise|except) \(?[\w., ]{1,200}(?:\($|\) |:$| as \w)|\braise [\w.]+$")
"""A source line in a traceback."""

_PROCESS = re.compile(r"\([\w ]{0,60}?pid=\d+")

_COMPLAINT = re.compile(
    r"(?:^|\s)[Ee]rror: \S|\w(?:Error|Exception): \S|\bFATAL: \S|\bFAILED\b|(?<![,:;(|] 0 )\b[Ff]ailed\b(?![:=] ?(?:0|False)\b)|\b[Cc](?:annot|ould not)\b"
    r"|\brefused\b|\bnot permitted\b|[Ee]xec format error|\b[Dd]enied\b|\bexceeds \w{1,20} available\b|\[error\]|\bCMake Error\b|, (?:but|however,?) (?:got|received|found) \S|\bMissing \d+ |\bdoes not support the kernel ABI\b|\bmust (?:be|match|equal)\b"
)
"""Words that report a failure."""

_PROBE = re.compile(r" -c /dev/null\b")
"""A compiler is only asked whether it knows an option."""

_NO_EVIDENCE = re.compile(
    r"\b(?:common|possible|potential|likely) (?:root )?(?:causes?|reasons?)\b|\bunrecognized arguments: *+(?=.)|\binput_value="
)
"""After these words a message lists possible causes, or quotes a user's input."""

_NO_RULE = rule(UNKNOWN, rank=Rank.GENERAL)
_NO_RULE_LINE = rule(UNKNOWN, rank=Rank.MESSAGE)
_IMPORT = rule(packages.IMPORT, rank=Rank.IMPORT)

_SWITCHED = re.compile(r"(?:^|\bexport |\benv |-e |--env |\$ )['\"]?(VLLM_(?:USE|ROCM_USE|XPU|ENABLE|FLASHINFER)_\w{1,60})=['\"]?(?:1|[Tt]rue)\b")  # fmt: skip

_BEFORE_LINES, _LAST_LINES, _LAST_BYTES = 3, 40, 500
_STACK_LINES = 2000

_PREFIXED_MIN, _PREFIXED_RATIO = 5, 0.6
_LOOKED_FOR_VLLM = 2000  # after this many lines, only lines with keywords are checked


def _site(line: bytes) -> bytes | None:
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
        self.before: Life | None = None
        self.lines = 0
        self.stack: list[str] = []  # lines that py-spy printed
        self.stack_from, self._in_stack = 0, False
        self.wrote = False  # vLLM wrote a line of the log
        self.named = False
        self.of_kernel = False
        self.other: str | None = None
        self.program: str | None = None
        self.statistics: tuple[int, bytes] | None = None  # as in stillness.Reports
        self.idle_reports = 0
        self.idle_from = b""
        self.queued_from = b""
        self.report_lines = 0
        self.report_before, self.most_running = b"", 0
        self.none_accepted = 0  # latest consecutive reports of drafts of which none was accepted
        self.last: deque[bytes] = deque(maxlen=_LAST_LINES)
        self._dull: set[bytes] = set()  # shapes
        self._known: dict[bytes, Interest] = {}
        self._told: set[bytes] = set()  # shapes read since the last start
        self._sites: Counter[bytes] = Counter()
        self._prefixes: Counter[str] = Counter()
        self._calm: set[bytes] = set()  # shapes of progress, read once while nothing is wrong
        self._open: list[Finding] = []  # findings that still collect their following lines
        self._hints: deque[tuple[int, str]] = deque(maxlen=_HINTS_KEPT)
        self._chains: dict[str, int] = {}  # by process: the chain of its last exception
        self._linked: set[str] = set()  # processes in the middle of a chain of exceptions
        self._ignored: set[str] = set()  # processes: Python ignores the next exception
        self._passed: set[str] = set()  # processes in which Python ignored the last exception
        self._reported = (
            0,
            "",
        )  # last line of the last known exception, and its place
        self._skipped = 0  # the last line with such an exception

    @property
    def reports(self) -> Reports:
        after = 0 if self.statistics is None else self.lines - self.statistics[0]
        return Reports(self.statistics, self.idle_reports, self.idle_from, self.report_lines, after, self.queued_from, self.most_running, self.report_before)  # fmt: skip

    def feed(self, line: bytes) -> None:
        self.lines += 1
        self.last.append(line if len(line) <= _LAST_BYTES else line[:_LAST_BYTES])
        counts = self._in_stack or b"throughput:" in line or b"SpecDecoding metrics:" in line
        if (counts or line.startswith(b"Thread ")) and self._noted(line):
            return
        if self._open:
            self._follow(line)
        shape = line[:_SHAPE_BYTES].translate(None, _IDS)
        if shape in self._dull or shape in self._told:
            return
        if shape in self._calm and not self.life.findings:
            return
        site = _site(line)
        if site is not None and self._sites[site] >= DULL_LINES_PER_SITE:
            return
        interest = self._known.get(shape) or interest_in(line)
        self._whose(line, interest)
        self._forget()
        if interest is None:
            self._dull.add(shape)
            if site is not None:
                self._sites[site] += 1
            return
        self._known[shape] = interest
        if self._read(lines.clean(line), interest):
            kept = self._calm if "serving" in interest.marks else self._told
            kept.add(shape)

    def _noted(self, line: bytes) -> bool:
        """Note statistics and stacks. Return True for a line of py-spy, which no rule reads."""
        if b"SpecDecoding metrics:" in line:
            self.none_accepted = self.none_accepted + 1 if stillness.unaccepted(line) else 0
        elif b"throughput:" in line:
            self._report(line)
        elif (self._in_stack and line.startswith(b"    ")) or (line.startswith(b"Thread ") and stacks.begins(line)):  # fmt: skip
            self._in_stack = True
            self.stack_from = self.stack_from or self.lines
            self.stack += [lines.clean(line)][: _STACK_LINES - len(self.stack)]
            return True
        self._in_stack = self._in_stack and not line.strip()
        return False

    @property
    def of_vllm(self) -> bool:
        return self.wrote or (self.named and self.other is None)

    @property
    def writer(self) -> str | None:
        """The program, if the log does not have vLLM's format and most lines begin with one name."""
        if self.of_vllm or not self._prefixes:
            return None
        ((name, count),) = self._prefixes.most_common(1)
        lines_read = min(self.lines, _LOOKED_FOR_VLLM)
        return name if count >= max(_PREFIXED_MIN, _PREFIXED_RATIO * lines_read) else None

    def _whose(self, line: bytes, interest: Interest | None) -> None:
        if self.wrote or (interest is None and self.lines > _LOOKED_FOR_VLLM):
            return
        text = lines.clean(line)
        self.wrote = _OF_VLLM.search(text) is not None
        self.named = self.named or _NAMES_VLLM.search(text) is not None
        self.of_kernel = self.of_kernel or _OF_KERNEL.search(text) is not None
        self.other = self.other or lines.other_server(text)
        self.program = self.program or lines.other_program(text)
        if self.lines <= _LOOKED_FOR_VLLM and (prefix := lines.prefix(text)):
            self._prefixes[prefix] += 1
        if self.wrote and self.other is not None:
            self.life.forget(lambda found: lines.other_server(found.line) is not None)

    def _forget(self) -> None:
        if len(self._dull) + len(self._known) > SHAPES_MAX:
            for each in (self._dull, self._known, self._told, self._calm, self._sites):
                each.clear()

    def _report(self, line: bytes) -> None:
        if self.statistics is not None:
            self.report_lines = max(self.report_lines, self.lines - self.statistics[0])
        self.report_before = b"" if self.statistics is None else self.statistics[1]
        self.statistics = self.lines, line[:_LAST_BYTES]
        found = stillness.counts(line)
        self.most_running = max(self.most_running, int(found[1]) if found else 0)
        self.idle_reports = self.idle_reports + 1 if stillness.no_tokens(line) else 0
        if self.idle_reports <= 1:
            self.idle_from = self.statistics[1]
        if not stillness.queued(line):
            self.queued_from = b""
        elif not self.queued_from:
            self.queued_from = self.statistics[1]

    def _follow(self, line: bytes) -> None:
        text = lines.clean(line)
        for finding in self._open:
            if len(finding.tail) < TAIL_LINES:
                finding.tail.append(text)
        self._open = [each for each in self._open if self.lines - each.number < HINT_LINES_AFTER]

    def _read(self, text: str, interest: Interest) -> bool:
        """Read a line. Return True if lines of the same shape may be skipped until the next start."""
        life = self.life
        if "banner" in interest.marks and _BANNER.search(text):
            self._begin()
            life = self.life
        for pattern in interest.facts:
            life.facts.read(pattern, text)
        if "ready" in interest.marks:  # before the rules, because a later error may share the line
            life.came_up()
            self._told.clear()
        harmless = any(each in text for each in HARMLESS) or lines.IGNORES.search(text) is not None
        if "link" in interest.marks:
            ignored = any(each in text for each in IGNORED) or _process(text) in self._passed
            (self._ignored if ignored else self._linked).add(_process(text))
            harmless = harmless or (ignored and not lines.is_quiet(text, len(text)))
        if harmless and life.overlooked is None and not lines.is_quiet(text, len(text)):
            life.overlooked = self.lines, lines.shown(text, 0)
        known = not harmless and self._find(text, interest)
        if known and "error" in interest.marks and _EXCEPTION.search(text):
            self._reported = self.lines, _before_text(text)
        skipped = self._skipped == self.lines
        if not known and not harmless and not skipped and "complaint" in interest.marks:
            self._complain(text)
        if "import" in interest.marks and len(life.imports) < FINDINGS_PER_CLASS_MAX:
            life.imports.append(self._finding(_IMPORT, text, 0))
        self._mark(text, interest)
        return not (
            {"hint", "phase", "banner", "sleep", "stop", "link", "end", "prompts"}
            & set(interest.marks)
            or any(rule.numeric or rule.heals for rule in interest.rules)
        )

    def _begin(self) -> None:
        if self.life.progressed:
            self.before, self.life = self.life, Life()
        self.life.begun = True
        self._told.clear()
        self._calm.clear()
        self._open.clear()
        self._hints.clear()
        self._chains.clear()
        self._linked.clear()
        self._ignored.clear()
        self._passed.clear()
        self._reported = 0, ""
        self.statistics, self.idle_reports, self.queued_from = None, 0, b""
        self.report_before, self.most_running = b"", 0

    def _find(self, text: str, interest: Interest) -> bool:
        """Return True if a rule knows the line, or it is source code."""
        if _SOURCE.search(text):
            return True
        said_at = -1  # end of the explained part of the line
        cut = _NO_EVIDENCE.search(text)
        evidence = text if cut is None else text[: cut.end() + 1]
        for each in interest.rules:
            span = each.fits(evidence)
            if span is None or (not each.quiet and lines.is_quiet(text, span[0])):
                continue
            said_at = max(said_at, span[1] if each.rank is Rank.DEATH else len(text))
            self._add(each, text, span[0])
        if "error" in interest.marks or "native" in interest.marks:
            self._unknown(text, said_at)
        return said_at >= 0

    def _complain(self, text: str) -> None:
        at = _COMPLAINT.search(text)
        if at is None or lines.FRAME.search(text) or _PROBE.search(text):
            return
        if _process(text) in self._ignored:
            self.life.overlooked = self.life.overlooked or (self.lines, lines.shown(text, 0))
        elif lines.is_quiet(text, at.start()):
            self.life.warned_of = self.life.warned_of or (self.lines, lines.shown(text, at.start()))
        elif self.life.complaint is None:
            self.life.complaint = self._finding(_NO_RULE_LINE, text, at.start())
            self._open.append(self.life.complaint)

    def _unknown(self, text: str, said_at: int) -> None:
        at = _EXCEPTION.search(text)
        known = at is not None and not _PROSE.search(text, 0, at.start())
        if (
            self.life.traced is None
            and _process(text) not in self._ignored
            and ("Traceback (most" in text or (_ERROR.search(text) and lines.FRAME.search(text)))
        ):
            self.life.traced = self._heading(text) or (self.lines, lines.shown(text, 0))
        if not known and (at := _ERROR.search(text)) and _NOT_A_MESSAGE.match(text, at.end()):
            return
        if at is not None and at.start() < said_at:
            at = _ORIGINAL.search(text, at.end())
        if at is None or at.start() < said_at:
            return
        if not known and self._reported == (self.lines - 1, _before_text(text)):
            self._reported = self.lines, self._reported[1]  # one message of several lines
        elif not lines.is_quiet(text, at.end()):
            self._add(_NO_RULE if known else _NO_RULE_LINE, text, at.start())
        elif known and self.life.traced and self.life.raised is None:
            self.life.raised = self._finding(_NO_RULE_LINE, text, at.start())

    def _heading(self, text: str) -> tuple[int, str] | None:
        """Return the line before a traceback, if it names the exception."""
        number, before = self._line_before()
        named = number == self.lines - 1 and _process(before) == _process(text) and lines.EXCEPTION.search(before)  # fmt: skip
        return (number, before) if named else None

    def _add(self, of: Rule, text: str, at: int) -> None:
        if self.wrote and lines.other_server(text):
            return
        process = _process(text)
        if of.rank <= Rank.IMPORT:
            if process in self._ignored or self._skipped == self.lines:
                self._ignored.discard(process)
                self._passed.add(process)
                self._skipped = self.lines
                return
            self._passed.discard(process)
            if process not in self._linked:
                self._chains[process] = self.lines
            self._linked.discard(process)
        finding = self._finding(of, text, at)
        if self.life.add(finding):
            recent_from = self.lines - HINT_LINES_BEFORE
            finding.hints += [hint for number, hint in self._hints if number >= recent_from]
            self._open.append(finding)

    def _finding(self, of: Rule, text: str, at: int) -> Finding:
        process = _process(text)
        recent = list(self.last)[-_BEFORE_LINES - 1 : -1]
        return Finding(
            of, lines.shown(text, at), self.lines, self.life.phase, at,
            chain=self._chains.get(process, self.lines) if of.rank <= Rank.IMPORT else self.lines,
            before="\n".join(lines.clean(each) for each in recent), frames=self._frames(process), process=process,
        )  # fmt: skip

    def _frames(self, process: str) -> tuple[str, ...]:
        above = (lines.clean(each) for each in reversed(self.last))
        found = (lines.FRAME.search(each) for each in above if _process(each) == process)
        return tuple(f"{each[1]} {each[2] or ''}" for each in found if each)

    def _mark(self, text: str, interest: Interest) -> None:
        life, marks = self.life, interest.marks
        if "request" in marks:
            life.phase = phases.SERVE
        if "phase" in marks:
            life.phase = max(life.phase, *(p for word, p in phases.PROGRESS if word in text), 0)
            life.progress, life.ended = (self.lines, text), None
        if "hint" in marks and not lines.is_quiet(text, len(text)):
            self._hint(text)
        if "serving" in marks and _TOKENS.search(text):
            life.made_tokens(reported="throughput" in text)
            life.answered = life.answered or "GET /health" not in text
        elif "serving" in marks and "tokens/s" in text:
            life.phase = phases.SERVE  # the server reports even without requests
        life.noted.update(NOTED.intersection(marks))
        if "sleep" in marks:
            life.asleep = "asleep" in text
        if "stop" in marks:
            life.asked_to_stop = True
            life.stopped = life.stopped or self.lines
        if "end" in marks and life.ended is None and self.lines > 1:
            life.ended = self._line_before()
        self._mark_work(text, marks)
        self._mark_settings(text, marks)

    def _mark_work(self, text: str, marks: list[str]) -> None:
        if "dump" in marks and self.life.dumped is None:
            self.life.dumped = self.lines, text.partition(" with config")[0]
        if "prompts" in marks:
            self.life.answered_all = _ALL_ANSWERED.search(text) is not None

    def _mark_settings(self, text: str, marks: list[str]) -> None:
        if "given" in marks:
            self.life.give(text)
        if "variable" in marks and self.life.switched is None and (on := _SWITCHED.search(text)):
            self.life.switched = self.lines, on[1]
        if "warning" in marks or (
            "native" in marks and text.startswith("W") and lines.is_quiet(text, len(text))
        ):
            self.life.warn(self.lines, lines.shown(text, 0))

    def _line_before(self) -> tuple[int, str]:
        above = list(self.last)[-2::-1]
        back = next((at for at, each in enumerate(above, 1) if each.strip()), 0)
        return self.lines - back, lines.shown(lines.clean(self.last[-1 - back]), 0)

    def _hint(self, text: str) -> None:
        names = " ".join(name for name in phases.HINTS if name in text)
        if phases.names_capture(names):
            self.life.captured = self.lines, lines.shown(text, 0)
        self._hints.append((self.lines, names))
        for finding in self._open:
            finding.hints.append(names)


def _before_text(text: str) -> str:
    """Return process, level, time and place of a line, which the lines of one message share."""
    found = _ERROR.search(text)
    return "" if found is None else text[: found.end()]


def _process(text: str) -> str:
    found = _PROCESS.search(text)
    return "" if found is None else found[0]
