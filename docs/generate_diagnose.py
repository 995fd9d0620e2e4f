"""Writes docs/diagnose.md from the rules themselves, so that it names every class there is and no other.

python docs/generate_diagnose.py            write it
python docs/generate_diagnose.py --check    exit 1 when it is stale
"""

import sys
from pathlib import Path

from vllm_watch.diagnosis.catalogue import FAILURES, RULES
from vllm_watch.diagnosis.families import memory
from vllm_watch.diagnosis.rule import Failure

PAGE = Path(__file__).parent / "diagnose.md"

HEAD = """\
# Why did it not start, and what did it die of

<!-- Made by docs/generate_diagnose.py from vllm_watch/diagnosis/. Do not edit. -->

`vllm-watch diagnose` reads a log of vLLM, of any version, and names the one error that caused the others:

```
vllm-watch diagnose vllm.log
kubectl logs --previous vllm-0 | vllm-watch diagnose -
journalctl -u vllm --since -1h | vllm-watch diagnose - --json
dmesg -T | vllm-watch diagnose -
```

It answers in one sentence, shows the line with its number, says why, and what to do, with numbers from this very
log where they are in it: the longest context that would have fitted, the share of the GPU that was free, the
tensor-parallel size that divides. Then come the facts that the log holds. Prefixes of journald, kubectl, docker and
Ray, colours, progress bars, interleaved workers, gzip and UTF-16 are no obstacle; a log of hundreds of
megabytes takes seconds and some 20 MB of memory.

## How the root is found

- Messages have a rank. One that says in so many words why (a cache too small, a gated model) beats a general error
  of CUDA, NCCL or the compiler, that beats a failed import (often lived with), that beats what others see of a
  failure (a worker that does not answer), and that beats "the engine is dead". Among equals the earliest counts.
- What vLLM logs as INFO or WARNING is no failure, but for the few messages that it writes so.
- Errors before "Application startup complete" were lived with. A stall is over after five minutes of tokens. What
  dies after a shutdown was asked for died by request.
- Of several starts in a log the last counts; while it says nothing yet, the one before it.
- An out-of-memory error is sorted by its phase: by the functions in the traceback around it, else by how far the start had
  come, else by the allocator's numbers (then with little confidence).
- Lines that carry users' prompts are not read for errors.

A log without a failure is `healthy`; with frightening lines that it lived with, `benign_warning_noise`; with an error that
no rule knows, `unknown` (the line is shown); and a text that vLLM did not write, or nothing, `not_a_vllm_log`.

## In JSON

`--json` prints one object: `class`, `confidence` (0 to 1), `root_cause_line`, `line_number`, `explanation`,
`fixes` (each `what` and `command` or null), `facts` (null is unknown), and `deterministic_start_failure`: true when a
start failed in a way in which the next would fail again, with nothing changed. It is never true of what may fix
itself, of what failed in service, or below a confidence of 0.6.

The exit status is 0 when no failure was found, 1 when one was, 2 when the log cannot be read.

{live}
## The classes

"Fails again" is what `deterministic_start_failure` rests on; "messages" counts the rules that lead to the class.
"""

LIVE = """\
## While it runs

`vllm-watch run --engine-log /var/log/vllm.log` (or `engine_log` in the configuration, of each target its own) follows
the log of a server. What it fails of is added to the incident of an engine that is down or stalled: in the
summary, and as evidence with the line. The status (`/api/v1/status`) has it as `signals.start_failure` of the target:

```
{"class": "kv_cache_too_small", "deterministic": true, "root_cause_line": "…", "explanation": "…"}
```

or null. The file is read beside the looks, at most 4 MiB between two of them, and of what was written before the watcher
began the last 16 MiB. Rotation, by renaming or by truncation, is followed; a file that is not there yet may come. It
must be a regular file: a pipe is not read. Recordings keep what was found, so that a replay says the same.

"""


def text() -> str:
    """The whole page."""
    return HEAD.replace("{live}", LIVE) + "".join(section(each) for each in FAILURES.values())


def section(failure: Failure) -> str:
    """One class."""
    count = sum(each.failure == failure.slug for each in RULES)
    by_phase = failure.slug in (memory.LOADING, memory.PROFILING, memory.CAPTURE, memory.RUNTIME)
    rules = f"messages: {count}" + (", and out-of-memory errors in this phase" if by_phase else "")
    lines = [
        f"\n### {failure.slug}\n",
        f"{failure.sentence[0].upper()}{failure.sentence[1:]}. {failure.why}\n",
        f"Fails again: {'yes' if failure.deterministic else 'not surely'}; {rules}.\n",
    ]
    for fix in failure.fixes:
        command = f": `{fix.command}`" if fix.command else ""
        lines.append(f"- {fix.what}{command}")
    return "\n".join(lines) + "\n"


def main() -> int:
    """Write the page, or say whether it is stale."""
    if "--check" not in sys.argv:
        PAGE.write_text(text())
        return 0
    if PAGE.exists() and PAGE.read_text() == text():
        return 0
    sys.stderr.write("docs/diagnose.md is stale: run make generate\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
