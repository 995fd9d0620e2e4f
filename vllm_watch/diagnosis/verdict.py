"""Turn the findings of a log into one diagnosis."""

import re
from dataclasses import replace

from vllm_watch.diagnosis import explaining, lines, phases, stacks, stillness
from vllm_watch.diagnosis.catalogue import FAILURES, HARMLESS, USERS_TEXT
from vllm_watch.diagnosis.families import (
    memory,
    parallel,
    serving,
)
from vllm_watch.diagnosis.finding import (
    OUTPUT_LINES,
    QUOTED,
    TAIL_LINES,
    UNLOADED,
    Finding,
    message_of,
)
from vllm_watch.diagnosis.life import UNKNOWN_CONFIDENCE, Life
from vllm_watch.diagnosis.report import HEALTHY, NOISE, NOT_VLLM, UNKNOWN, Check, Diagnosis, Fix
from vllm_watch.diagnosis.rule import Evidence, Rank, Told, rule
from vllm_watch.diagnosis.scanner import Scanner
from vllm_watch.diagnosis.stillness import Silence

_REFUSED = re.compile(r'"(?:POST|GET) [^"]{1,300}" (4\d\d)\b')

_REFUSALS = {"401": " (no API key, or not the server's)", "404": " (the path or model name is not served)"}  # fmt: skip

_CRITICAL = re.compile(r"(?i)\b(?:critical|fatal|unrecoverable) (?:\w{1,20} )?(?:error|failure|exception)\b|\bkilling (?:this |the )?process\b|(?-i:\bFATAL\b)(?=[ :\]])")  # fmt: skip

_REMARK = re.compile(
    r"^\s*(?:assert|raise) \S|\b(?:hip|cuda)Error[A-Z]\w{3,60}|\b(?:[Uu]nable to|[Nn]o such|[Ii]nvalid|[Uu]nknown|[Ee]rror(?! from\b)) \S|\b(?:not|[Uu]n)[ -]?(?:\w{1,12} )?(?:supported|recognized|available|found|exist)\b"
    r"|\b[Oo]ut of (?:\w{1,20} )?(?:memory|space|range|bounds)\b|\b(?:[Ff]atal|[Ii]nsufficient|[Ii]ncompatible|requires|busy|exceeds|unexpected(?:ly)?|[Cc]rashed|[Ee]xhausted|Segmentation fault)\b"
    r"|\b[Aa]bort(?:ed|ing)?\b|\b[Tt]imed? ?out\b|\b[Mm]ismatch|\b[Cc]orrupt|\btoo (?:large|small|long|short|many|few|old|new|low|high)\b|\bnot enough\b|\b(?:larger|smaller) than\b"
)  # fmt: skip
"""Words that report a failure in a pasted line or right before a death, and may be harmless elsewhere."""

_BY_WORDS = rule(UNKNOWN, rank=Rank.MESSAGE)


def _refusals(scanner: Scanner) -> str:
    last = [lines.clean(each) for each in scanner.last]
    found = ((at, _REFUSED.search(each)) for at, each in reversed(list(enumerate(last))))
    at, code = next(((at, each[1]) for at, each in found if each), (0, None))
    if code in ("400", "422") and at and "Unsupported upgrade request" in last[at - 1]:
        return f" The server rejected requests in the last lines with {code}, the last one right after its client requested another protocol (usually HTTP/2), which loses the body: make the client use HTTP/1.1."  # fmt: skip
    return "" if code is None else f" The server rejected requests in the last lines with {code}{_REFUSALS.get(code, '')}; the response to the client, or a warning before it, has the reason."  # fmt: skip


def _waiting(scanner: Scanner) -> str:
    """Return a sentence about requests that wait in the last report while no prompt is read, or ""."""
    counts = stillness.counts(scanner.queued_from)
    if counts is None:
        return ""
    used = stillness.used_percent(scanner.reports)
    if used >= stillness.FULL_PERCENT:
        block = scanner.life.facts.known.get("block_size", 0)
        size = f" Each request takes blocks of {block:,} tokens, even for a short prompt." if isinstance(block, int) and block >= stillness.LARGE_BLOCK else ""  # fmt: skip
        return f" The running requests fill the KV cache ({used:g} %), and other requests wait for it: admit fewer or shorter requests, or give the cache more memory.{size}"
    return f" Since the report of {counts[1]} running and {counts[2]} waiting requests, vLLM read no prompt: check whether the running requests have a token limit (max_tokens)."


def _remark(scanner: Scanner) -> Finding | None:
    """Return the first of the last lines that may report a failure."""
    texts = [lines.clean(each) for each in scanner.last]
    before, quiet, heading = scanner.lines - len(texts) + 1, False, None
    for at, text in enumerate(texts):
        found = _REMARK.search(text)
        quiet = lines.is_quiet(text, len(text)) if lines.has_level(text) else quiet
        known = any(each in text for each in (*HARMLESS, *USERS_TEXT)) or lines.IGNORES.search(text)
        native = text.lstrip().startswith("frame #")
        if found is not None and not native and not known and not quiet:
            remark = Finding(_BY_WORDS, lines.shown(text, found.start()), before + at, scanner.life.phase, found.start(), tail=texts[at + 1 : at + 1 + TAIL_LINES])  # fmt: skip
            if not text.rstrip().endswith(":"):
                return remark
            heading = heading or remark
    return heading


def _critical_at_the_end(scanner: Scanner) -> tuple[int, str] | None:
    found = None
    for back, raw in enumerate(reversed(scanner.last)):
        text = lines.clean(raw)
        if stillness.SERVED.search(text):
            break
        at = _CRITICAL.search(text)
        harmless = any(each in text for each in (*HARMLESS, *USERS_TEXT))
        if at is not None and not harmless and not lines.is_quiet(text, at.start()):
            found = scanner.lines - back, lines.shown(text, at.start())
    return found


def _without_message(scanner: Scanner, life: Life, traced: tuple[int, str]) -> Diagnosis:
    if (
        lines.EXCEPTION.search(traced[1])
        and "Traceback (" not in traced[1]
        and lines.FRAME.search(traced[1]) is None
    ):
        return life.unknown("no rule matches this error", "Its traceback is cut.", traced)
    return _last_statement(scanner) or life.unknown(
        "an error whose message is not in this log", _NO_MESSAGE, traced
    )


def _cut_below(life: Life, root: Finding) -> Diagnosis:
    text = "The log ends inside the traceback below this line, before the exception that gives the reason: diagnose more of the log."
    return life.diagnosis(root.rule.failure, _SURE_OF_DEATH, "an exception was raised here, and its message is not in this log", text, (root.number, root.line), fatal=True)  # fmt: skip


def _in_a_step(life: Life, dumped: tuple[int, str]) -> Diagnosis:
    text = "The engine writes its input when a step fails or times out, and then the exception. This log ends before it: diagnose more of the log."
    return life.unknown("a step of the engine failed; the exception is not in this log", text, dumped, fatal=True)  # fmt: skip


def _last_statement(scanner: Scanner) -> Diagnosis | None:
    last = lines.clean(next((each for each in reversed(scanner.last) if each.strip()), b""))
    if not _STATEMENT.match(message_of(last)):
        return None
    return scanner.life.unknown("the last statement of a traceback failed; its message is not in this log", _NO_MESSAGE, (scanner.lines, last.strip()))  # fmt: skip


def _last_frame(scanner: Scanner) -> tuple[int, str] | None:
    """Return the frame of a traceback in which the log ends, or None."""
    for back, raw in enumerate(list(scanner.last)[: -_FRAME_LINES - 1 : -1]):
        if lines.FRAME.search(text := lines.clean(raw)):
            return scanner.lines - back, text.strip()
    return None


def _is_cut(scanner: Scanner, traced: tuple[int, str]) -> bool:
    """Return True if the log ends inside a traceback."""
    return _last_frame(scanner) is not None or scanner.lines - traced[0] < _FRAME_LINES


def _ended_critically(life: Life, line: tuple[int, str]) -> Diagnosis:
    text = "The server came up, and no later line shows a response. No rule matches this error."
    see = Check("check whether the process is still running, and the driver's report", "dmesg -T | tail -50")  # fmt: skip
    return life.unknown("the log ends right after a critical error", text, line, (see,))  # fmt: skip


def _queue(life: Life, found: Silence) -> Diagnosis:
    text = f"{found.running} requests are running and {found.waiting} waiting in the last report, and the scheduler has admitted none since {found.since} ({(found.seconds or 0) / 60:.0f} minutes). The engine works, and this log does not show why they wait: long responses may occupy all slots or the KV cache."  # fmt: skip
    fixes = (Check("check whether the running requests have a token limit (max_tokens), and how many can run at once (--max-num-seqs)"), Check("watch the queue and the KV cache", "curl -s http://HOST:8000/metrics | grep -E 'num_requests_|cache_usage'"))  # fmt: skip
    return life.unknown("no error in this log, but requests are waiting and none is admitted", text, (found.number, found.line), fixes)  # fmt: skip


def _blocked_queue(life: Life, found: Silence) -> Diagnosis:
    text = f"{found.running} requests are running and {found.waiting} waiting in the last report, more ran at once before, and most of the KV cache is free: something other than memory blocks the waiting requests. Requests that wait for a grammar, for KV from another server or for the offloading connector (deferred) may occupy the slots of --max-num-seqs."  # fmt: skip
    fixes = (Check("check the reasons for waiting", "curl -s http://HOST:8000/metrics | grep num_requests_waiting"), Fix("if the scheduler admits no more requests, restart the engine, and admit fewer requests or raise --max-num-seqs"))  # fmt: skip
    return life.unknown("requests are waiting although the engine has capacity", text, (found.number, found.line), fixes)  # fmt: skip


def _stopped(life: Life, text: str) -> Diagnosis:
    text = f"{text} It was stopped on request (line {life.stopped})."
    text += (
        " The errors after that line are a consequence of the stop."
        if life.failed_after_stop
        else ""
    )
    return life.diagnosis(HEALTHY, 0.8, "nothing failed; it was stopped on request", text)


_EARLIER_RATIO = 0.7
_SURE_OF_DEATH = 0.6

_NO_MESSAGE = "The exception is at the end of the traceback: diagnose more of the log."
_STATEMENT = re.compile(r"(?:assert|raise) \S")

_BROKEN = re.compile(rf"vllm\._C\b.{{0,300}}(?:{UNLOADED}|Symbol not found)")

_FRAME_LINES = 3  # a frame has up to three lines

_UNPROVEN = "This log does not show that the server came up."

_ERROR = re.compile(r"\bERROR\b|\bCRITICAL\b|\b\w*(?:Error|Exception)\b")


def of_log(scanner: Scanner) -> Diagnosis:
    """Return the diagnosis of the lines read so far."""
    life = scanner.life
    root = life.root
    other = scanner.other or scanner.program or scanner.writer
    if other is not None and not scanner.of_vllm and not _of_the_host(scanner, root):
        return _of_another(other, root)
    unexplained = root is None or root.rule.rank in (Rank.DEATH, Rank.MESSAGE)
    if unexplained and (place := _of_place(scanner, life)) is not None:
        return place
    if root is not None and not scanner.of_vllm and root.rule.rank is Rank.MESSAGE:
        return _of_no_server(scanner)
    if root is not None:
        return _beside(scanner, life, root) or explaining.failed(life, root)
    before = None if scanner.before is None else scanner.before.root
    if life.ready or life.serving or scanner.before is None or before is None:
        return _quiet(scanner, life)
    return explaining.failed(scanner.before, before, ratio=_EARLIER_RATIO)


def _beside(scanner: Scanner, life: Life, root: Finding) -> Diagnosis | None:
    """Return a diagnosis from lines that explain the root or show that nothing failed. None without such lines."""
    if root.rule.rank is Rank.DEATH or '" 500' in root.rule.literals:
        if not life.serving and (last := _last_statement(scanner)) is not None:
            return replace(last, failure=root.rule.failure)
        end = _last_frame(scanner) if "Traceback (" in "".join(root.tail[:1]) else None
        if end is not None and root.process in end[1]:
            return _cut_below(life, root)
        near = OUTPUT_LINES if life.ready or life.serving else scanner.lines
        complaint = life.complaint or (_remark(scanner) if root.process else None)
        if complaint and 0 < root.number - complaint.number <= near:
            found = explaining.unexplained(life, complaint)
            return replace(found, failure=root.rule.failure, explanation=f"{found.explanation} Line {root.number} shows only the consequence; this earlier line may be the cause.")  # fmt: skip
    ended = "died unexpectedly, shutting down client" in root.line
    if ended and life.answered_all and not scanner.reports.last:
        return _only_waited(life, root, _SCRIPT_ENDED)
    if ended and "shut_down" in life.noted and not life.ready and not life.serving:
        return _only_waited(life, root, _SHUT_DOWN)
    stalled = root.rule.failure == parallel.SHM and root.rule.quiet
    if stalled and stillness.idle(scanner.reports):
        return _only_waited(life, root, _IDLE)
    if stalled and not life.serving and stillness.went_on(scanner.last):
        return _only_waited(life, root, _WENT_ON)
    return None


def _of_the_host(scanner: Scanner, root: Finding | None) -> bool:
    return scanner.of_kernel and root is not None and lines.other_server(root.line) is None


def _of_place(scanner: Scanner, life: Life) -> Diagnosis | None:
    """Return the diagnosis of frames without an error's message."""
    if scanner.stack and life.root is None:
        return _of_stacks(scanner)
    return _in_capture(life, life.captured) if life.captured and not life.ready else None


def _of_stacks(scanner: Scanner) -> Diagnosis:
    found = stacks.threads("\n".join(scanner.stack))
    text = "The dump shows the code that the process was executing at that moment, and no error. If later dumps show the same code, the process hangs there."  # fmt: skip
    top = next((str(frame) for each in found for frame in each.frames[:1]), scanner.stack[0])
    number = next((at for at, each in enumerate(scanner.stack, 1) if top in each), 1)
    fixes = (Check("dump the stacks of all server processes twice, one minute apart", "for p in $(pgrep -f VLLM::); do py-spy dump --pid $p; done"), Check("search vLLM's issues for the innermost frames"))  # fmt: skip
    sentence = f"a stack dump (py-spy): its main thread is {stacks.where(chr(10).join(scanner.stack))}"  # fmt: skip
    return scanner.life.unknown(sentence, text, (scanner.stack_from + number - 1, top), fixes)


def _of_another(name: str, root: Finding | None) -> Diagnosis:
    text = f"This is a log of {name}, and vLLM's flags and fixes do not apply to it."
    text += "" if root is None else f" Its first known error is line {root.number}: {root.line[:QUOTED]}"  # fmt: skip
    return Diagnosis(failure=NOT_VLLM, confidence=0.8, sentence=f"this is a log of {name}, not of vLLM", root_cause_line=None if root is None else root.line, line_number=None if root is None else root.number, explanation=text)  # fmt: skip


_IDLE = "No request was running or waiting in the last statistics: an idle engine waits like this."

_SHUT_DOWN = "The engine was asked to shut down before this line, and shut down. At the end of a script, some releases report the shutdown as if the engine had died."
_SCRIPT_ENDED = "All prompts of this script were answered before this line. At the end of a script, some releases report the engine's exit as if it had died. If results are missing, it did die: check dmesg."

_WENT_ON = "The workers were busy, not stuck: one of them reported progress after this line. The log does not show whether the server came up."


def _only_waited(life: Life, root: Finding, text: str) -> Diagnosis:
    return life.diagnosis(NOISE, 0.6, "nothing failed; the line is harmless", text, (root.number, root.line))  # fmt: skip


def _in_capture(life: Life, line: tuple[int, str]) -> Diagnosis:
    text = "A traceback passes through CUDA graph capture, and its last line, which has the reason, is missing."  # fmt: skip
    fix = Check("get the full log: the line with the reason is missing")
    return life.unknown("CUDA graph capture failed", text, line, (fix,), fatal=True)


def _quiet(scanner: Scanner, life: Life) -> Diagnosis:
    ready = life.ready or life.serving or life.phase >= phases.SERVE
    if not scanner.of_vllm and not ready:
        return _of_no_server(scanner)
    if not life.asked_to_stop:
        if life.dumped is not None:
            return _in_a_step(life, life.dumped)
        found = _silence(scanner, life, ready=ready) or (None if ready else _cut_short(scanner, life))  # fmt: skip
        if found is not None:
            return found
        if ready and (critical := _critical_at_the_end(scanner)) is not None:
            return _ended_critically(life, critical)
        if ready and life.traced is not None and _is_cut(scanner, life.traced):
            return _without_message(scanner, life, life.traced)
    waits = not ready and b"Waiting for" in (scanner.last[-1] if scanner.last else b"")
    if (harmless := _harmless(life, ready=ready, waits=waits)) is not None:
        return harmless
    if not ready:
        return _not_up(scanner, life)
    return _serving(scanner, life)


def _serving(scanner: Scanner, life: Life) -> Diagnosis:
    """Diagnose a server that came up, from a log without an error."""
    idle = scanner.reports.idle
    text = "It came up and answered requests." if life.answered else "It came up."
    if life.asked_to_stop:
        return _stopped(life, text)
    if idle:
        return _no_tokens(scanner, life)
    if (queue := stillness.of_queue(scanner.reports)) is not None:
        return _queue(life, queue)
    if (blocked := stillness.of_blocked_queue(scanner.reports)) is not None:
        return _blocked_queue(life, blocked)
    if scanner.none_accepted >= stillness.UNACCEPTED:
        return _none_accepted(scanner, life)
    doubt = _waiting(scanner)
    text += _asleep(life) + _refusals(scanner) + doubt
    return life.diagnosis(HEALTHY, 0.6 if doubt else 0.8, "nothing failed", text)


def _asleep(life: Life) -> str:
    held = life.facts.known.get("gpu_memory_asleep_gib")
    kept = "" if held is None else f" When it first fell asleep, {held:g} GiB of GPU memory were still in use."  # fmt: skip
    return f" It is asleep (POST /sleep).{kept}" if life.asleep else ""


def _no_tokens(scanner: Scanner, life: Life) -> Diagnosis:
    number, raw = scanner.reports.last or (scanner.lines, b"")
    idle = scanner.reports.idle
    last = "The last report has" if idle == 1 else f"The last {idle} reports have"
    said = f"{last} requests but no tokens: one very long prompt, or a hang. The next reports will show which."  # fmt: skip
    see = Check("check the engine's stack", "py-spy dump --pid PID_OF_ENGINECORE")
    return life.unknown("no error in this log, but no tokens in its last reports", said, (number, lines.shown(lines.clean(raw), 0)), (see,))  # fmt: skip


def _none_accepted(scanner: Scanner, life: Life) -> Diagnosis:
    text = f"The last {scanner.none_accepted} reports of speculative decoding show drafted tokens and (almost) no accepted ones. Either the drafts or the model's own outputs are wrong, and each step costs more than without drafts."  # fmt: skip
    fixes = (Check("check the responses, and start once without --speculative-config to compare"),)
    return life.unknown(
        "no error in this log, but almost no drafted token is accepted", text, fixes=fixes
    )


def _of_no_server(scanner: Scanner) -> Diagnosis:
    if scanner.of_kernel:
        return Diagnosis(failure=HEALTHY, confidence=0.5, sentence="no known GPU error and no killed process in this kernel log", explanation="This log does not show whether an engine works.")  # fmt: skip
    text = "No line has vLLM's log format, and no known error was found."
    pasted = scanner.lines <= len(scanner.last)
    if (complaint := scanner.life.complaint or (_remark(scanner) if pasted else None)) is not None:
        return _reported(scanner, complaint)
    if pasted and scanner.life.overlooked is not None:
        return _overlooked(scanner.life, scanner.life.overlooked)
    return Diagnosis(failure=NOT_VLLM, confidence=0.8, sentence="this is not a log of vLLM", explanation=text)  # fmt: skip


def _reported(scanner: Scanner, error: Finding) -> Diagnosis:
    found = explaining.unexplained(scanner.life, error)
    said = "" if scanner.wrote or found.confidence > UNKNOWN_CONFIDENCE else " No line has vLLM's log format."  # fmt: skip
    return replace(found, explanation=found.explanation + said)


def _cut_short(scanner: Scanner, life: Life) -> Diagnosis | None:
    if life.raised is not None:
        return _reported(scanner, life.raised)
    if (traced := life.traced or _last_frame(scanner)) is not None:
        return _without_message(scanner, life, traced)
    pasted = scanner.lines <= len(scanner.last) and not life.of_a_start and not life.overlooked
    if (complaint := life.complaint or (_remark(scanner) if pasted else None)) is not None:
        return _reported(scanner, complaint)
    return None if life.ended is None else _ended(life, life.ended)


def _not_up(scanner: Scanner, life: Life) -> Diagnosis:
    text, sentence = _UNPROVEN, "no error in this log"
    fixes: tuple[Fix, ...] = ()
    phase = explaining.as_sentence(phases.IN_WORDS[life.phase])
    if life.asked_to_stop and not life.of_a_start:
        return _stopped(life, "This log begins after startup.")
    if life.asked_to_stop:
        sentence = "the server was stopped from outside before it came up"
        text = f"{explaining.as_sentence(sentence)} Line {life.stopped} shows it. {phase} A startup probe or a timeout may be too short."
    elif life.progress is not None:
        number, line = life.progress
        text = f"{_UNPROVEN} {phase} The last known startup step is line {number}."
        if number == scanner.lines:
            text += " If the log stays there, startup hangs in this step."
        evidence = Evidence(line, line, life.facts.complete(), life.phase)
        start = FAILURES[serving.HANG].variants[0]
        fixes = explaining.fitting(
            Told(), tuple(each for each in start.cures if not each.when.empty), evidence
        )
    return life.unknown(sentence, text, fixes=fixes)


def _ended(life: Life, line: tuple[int, str]) -> Diagnosis:
    text = "No line shows that the server came up, and the lines after this one only show that the process ended."  # fmt: skip
    fixes = (Check("check whether it was killed", "dmesg -T | grep -i -E 'killed process|out of memory'"), Check("check its exit code", "docker inspect CONTAINER   (or kubectl describe pod POD)"))  # fmt: skip
    return life.unknown("the process ended during startup, and no line shows why", text, line, fixes, fatal=True)  # fmt: skip


def _harmless(life: Life, *, ready: bool, waits: bool) -> Diagnosis | None:
    if life.lived_with is not None:
        return _survived(life, life.lived_with, ready=ready)
    if ready or waits or life.asked_to_stop:
        return None
    if life.overlooked is not None and life.progress is None and life.warned_of is None:
        return _overlooked(life, life.overlooked)
    if life.warned is None:
        return None
    broken = ((each.number, each.line) for each in life.imports if _BROKEN.search(each.line))
    if (warned_of := life.warned_of or next(broken, None)) is not None:
        text = f"The level of this line is not ERROR. {_UNPROVEN}"
        return life.unknown("only lines below level ERROR report a failure; this is the first", text, warned_of)  # fmt: skip
    text = f"The log has only warnings. {_UNPROVEN}"
    return life.diagnosis(NOISE, 0.5, "no error in this log, only warnings", text, life.warned)


def _overlooked(life: Life, line: tuple[int, str]) -> Diagnosis:
    text = f"vLLM usually continues after this error. {_UNPROVEN}"
    return life.diagnosis(NOISE, 0.5, "no error in this log that ends a server", text, line)


def _survived(life: Life, found: Finding, *, ready: bool) -> Diagnosis:
    error = _ERROR.search(found.line) is not None
    text, fixes = "The server kept running after this line.", tuple[Fix, ...]()
    known, evidence = explaining.meaning_of(life, found)
    if found.rule.failure == UNKNOWN and known is not None:
        text += f" {explaining.as_sentence(known.sentence)} {explaining.in_general(known)}"
        fixes = explaining.fitting(Told(), known.cures, evidence)
    elif killed := memory.KILLED.search(found.text):
        text += f" {explaining.as_sentence(f'the host ran out of memory, and the kernel killed process {killed[1]}')} If the server needs that process, its requests wait or fail."
        fixes = (Check("check which process used the memory: the kernel log lists all processes", "dmesg -T | grep -i -E 'killed process|oom-kill'"),)  # fmt: skip
    elif explaining.of_request(life, found):
        text += f" {explaining.ONE_REQUEST}"
    elif error:
        text += " The error may have ended a request."
    harmless = not error and not fixes
    sentence = "nothing failed; the line is harmless" if harmless else "the server kept running after this error"  # fmt: skip
    at = found.number, found.line
    return life.diagnosis(NOISE, 0.8 if ready else 0.5, sentence, text.strip(), at, fixes)


def _silence(scanner: Scanner, life: Life, *, ready: bool) -> Diagnosis | None:
    if ready:
        found = stillness.of_statistics(scanner.reports, scanner.last)
        if found is None:
            return None
        lasted = "" if found.seconds is None else f", and the log continues for {found.seconds / 60:.0f} minutes"  # fmt: skip
        alike = " (one very long prompt appears the same)" if found.running else ""
        since = f"since {found.since}" if found.since else "since this line"
        silence = f"no statistics {since}{lasted}" if found.reports == 0 else f"no tokens in the last {found.reports} reports{alike}"  # fmt: skip
        return explaining.silent(life, serving.HANG, found, f"{found.running} requests were running and {found.waiting} waiting; {silence}.", serves=True)  # fmt: skip
    found = None if ready else stillness.of_start(life.progress, scanner.last)
    if found is None or found.seconds is None:
        return None
    return explaining.silent(life, serving.HANG, found, f"The last progress was at {found.since}; the log continues for {found.seconds / 60:.0f} minutes.")  # fmt: skip
