"""Diagnose an engine that came up, if its log has no known error."""

import re

from vllm_watch.diagnosis import lines, noise, stillness
from vllm_watch.diagnosis.life import Life
from vllm_watch.diagnosis.report import HEALTHY, Diagnosis, Fix
from vllm_watch.diagnosis.scanner import Scanner
from vllm_watch.diagnosis.stillness import Silence

_REFUSED = re.compile(r'"POST [^"]{1,300}" (4\d\d)\b')
_REFUSALS = {"401": " (no API key, or another than the server's)", "404": " (a path or a model name that is not served)"}  # fmt: skip

_CRITICAL = re.compile(r"(?i)\b(?:critical|fatal|unrecoverable) (?:\w{1,20} )?(?:error|failure|exception)\b|\bkilling (?:this |the )?process\b|(?-i:\bFATAL\b)(?=[ :\]])")  # fmt: skip


def refusals(scanner: Scanner) -> str:
    """Return a sentence about the last refused request, or ""."""
    last = [lines.clean(each) for each in scanner.last]
    found = ((at, _REFUSED.search(each)) for at, each in reversed(list(enumerate(last))))
    at, code = next(((at, each[1]) for at, each in found if each), (0, None))
    if code in ("400", "422") and at and "Unsupported upgrade request" in last[at - 1]:
        return f" Requests among the last lines were refused with {code}, the last one right after its client asked for another protocol (usually HTTP/2), which loses the body: let the client use HTTP/1.1."  # fmt: skip
    return "" if code is None else f" Requests among the last lines were refused with {code}{_REFUSALS.get(code, '')}; the client's answer, or a warning before it, has the reason."  # fmt: skip


def waiting(scanner: Scanner) -> str:
    """Return a sentence about requests that wait in the last report while no prompt is read, or ""."""
    counts = stillness.counts(scanner.queued_from)
    if counts is None:
        return ""
    return f" Since the report of {counts[1]} running and {counts[2]} waiting requests, no prompt was read: check whether the running requests have a limit of tokens (max_tokens)."


def critical_at_the_end(scanner: Scanner) -> tuple[int, str] | None:
    """Return the first critical error after the last answered request."""
    found = None
    for back, raw in enumerate(reversed(scanner.last)):
        text = lines.clean(raw)
        if stillness.SERVED.search(text):
            break
        at = _CRITICAL.search(text)
        harmless = any(each in text for each in (*noise.HARMLESS, *noise.USERS_TEXT))
        if at is not None and not harmless and not lines.is_quiet(text, at.start()):
            found = scanner.lines - back, lines.shown(text, at.start())
    return found


def ended_critically(life: Life, line: tuple[int, str]) -> Diagnosis:
    """Diagnose a critical error after which no request was answered."""
    text = "It came up, and no line after this one shows an answer. No rule knows this error."
    see = Fix("see whether the process still runs, and the driver's own report", "dmesg -T | tail -50")  # fmt: skip
    return life.unknown("a critical error was reported right before the log ends", text, line, (see,))  # fmt: skip


def queue(life: Life, found: Silence) -> Diagnosis:
    """Diagnose requests that wait without being admitted."""
    text = f"{found.running} requests are running and {found.waiting} waiting in the last report, and none was admitted since {found.since} ({(found.seconds or 0) / 60:.0f} minutes). The engine works, and this log does not show why they wait: long answers may hold all places or the KV cache."  # fmt: skip
    fixes = (Fix("see whether the running requests have a limit of tokens (max_tokens), and how many may run at once (--max-num-seqs)"), Fix("watch the queue and the KV cache", "curl -s http://HOST:8000/metrics | grep -E 'num_requests_|cache_usage'"))  # fmt: skip
    return life.unknown("no error in this log, but requests wait and none is admitted", text, (found.number, found.line), fixes)  # fmt: skip


def stopped(life: Life, text: str) -> Diagnosis:
    """Diagnose a server that was stopped on request."""
    text = f"{text} It was stopped on request (line {life.stopped})."
    text += " The errors after it follow from the stop." if life.failed_after_stop else ""
    return life.diagnosis(HEALTHY, 0.9, "nothing failed; it was stopped on request", text)
