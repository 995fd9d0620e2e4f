"""Writes docs/diagnose.md from the rules themselves, so that it names every class there is and no other.

python docs/generate_diagnose.py            write it
python docs/generate_diagnose.py --check    exit 1 when it is stale
"""

import sys
from functools import cache
from pathlib import Path

from vllm_watch.diagnosis.catalogue import FAILURES
from vllm_watch.diagnosis.report import Fix
from vllm_watch.diagnosis.rule import Failure

PAGE = Path(__file__).parent / "diagnose.md"

HEAD = """\
# Why did it not start, and what did it die of

<!-- Made by docs/generate_diagnose.py from vllm_watch/diagnosis/. Do not edit. -->

`vllm-watch diagnose` reads a log of vLLM, of any version, and names the one error that caused the others:

```sh
vllm-watch diagnose vllm.log
kubectl logs --previous vllm-0 | vllm-watch diagnose -
journalctl -u vllm --since -1h | vllm-watch diagnose - --json
dmesg -T | vllm-watch diagnose -
```

It answers in one sentence, shows the line with its number, says why, and what to do, with numbers from this very log. Prefixes of
journald, kubectl, docker and Ray, colours, interleaved workers, gzip and UTF-16 are no obstacle; hundreds of megabytes take
seconds and some 20 MB of memory.

## How the root is found

A message that says why (a cache too small, a gated model) beats a general error of CUDA or NCCL, that one what others see of it. Among equals the earliest
counts; of several starts in a log the last. INFO and WARNING are no failure, nor are errors before "Application startup complete". Lines that carry users'
prompts are not read.

A log without a failure is `healthy`; with errors that did not end it, `benign_warning_noise`; with an error that no rule knows,
`unknown` (the line is shown); a text that vLLM did not write `not_a_vllm_log`.

## In JSON

`--json` prints one object: `class`, `confidence` (0 to 1), `root_cause_line`, `line_number`, `explanation`,
`fixes` (each `what` and `command` or null), `facts` (null is unknown), and `deterministic_start_failure`: true where the next start
would fail again with nothing changed ("Fails again" below), at a confidence of 0.6 or more.

The exit status is 0 when no failure was found, 1 when one was, 2 when the log cannot be read.

{live}
## The classes
"""

LIVE = """\
## While it runs

`vllm-watch run --engine-log /var/log/vllm.log` (or `engine_log` of each target in the configuration) follows the log of a server.
What it fails of is added to the incident of an engine that is down or stalled, as evidence with the line, and to `/api/v1/status` as
`signals.start_failure` of the target, or null:

```
{"class": "kv_cache_too_small", "deterministic": true, "root_cause_line": "…", "explanation": "…"}
```

At most 4 MiB are read between two scrapes, and of what was written before the watcher began the last 16 MiB. Rotation, by renaming
or by truncation, is followed; a file that is not there yet may come. It must be a regular file. Recordings keep what was found.

"""


def text() -> str:
    """The whole page."""
    return HEAD.replace("{live}", LIVE) + "".join(section(each) for each in FAILURES.values())


def section(failure: Failure) -> str:
    """One class."""
    again = " **Fails again.**" if failure.deterministic else ""
    lines = [
        f"\n### {failure.slug}\n",
        f"{failure.sentence[0].upper()}{failure.sentence[1:]}.{again}\n",
    ]
    return "\n".join([*lines, *(_fix(fix, failure) for fix in failure.fixes)]) + "\n"


@cache
def _first_told(fix: Fix) -> str:
    """The class that a fix is explained with; others show its command."""
    return next(each.slug for each in FAILURES.values() if fix in each.fixes)


def _fix(fix: Fix, failure: Failure) -> str:
    if fix.command and _first_told(fix) != failure.slug:
        return f"- `{fix.command}`"
    return f"- {fix.what}: `{fix.command}`" if fix.command else f"- {fix.what}"


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
