"""Writes docs/diagnose.md from the rules themselves, so that it names every class there is and no other.

python docs/generate_diagnose.py --measure NAME CASES
    measure how often a confidence is right, over JSON lines (log, class, class_alternatives), and keep that
"""

import json
import sys
from collections import Counter
from pathlib import Path

from vllm_watch.diagnosis.catalogue import FAILURES
from vllm_watch.diagnosis.reading import LogReader
from vllm_watch.diagnosis.report import HEALTHY, NOISE, NOT_VLLM, UNKNOWN
from vllm_watch.diagnosis.rule import Failure

sys.path.insert(0, str(Path(__file__).parent))

from generated import write_or_check

PAGE = Path(__file__).parent / "diagnose.md"
MEASURED = Path(__file__).parent / "diagnose_reliability.json"

STEPS = ((0.8, "0.8"), (0.6, "0.6 to 0.7"), (0.0, "below 0.6"))

HEAD = """\
# Why vLLM did not start, or why it died

<!-- Made by docs/generate_diagnose.py from vllm_watch/diagnosis/. Do not edit. -->

`vllm-watch diagnose` reads a vLLM log, of any version, and names the one error that caused the others:

```sh
vllm-watch diagnose vllm.log
kubectl logs --previous vllm-0 | vllm-watch diagnose -
journalctl -u vllm --since -1h | vllm-watch diagnose - --json
dmesg -T | vllm-watch diagnose -
```

It prints the error in one sentence, its numbered log line, the reason and the fix, with this log's numbers, and last the class. It accepts prefixes of
journald, kubectl, docker and Ray, colours, interleaved workers, gzip and UTF-16; hundreds of megabytes take seconds.

## How the root cause is found

The root cause is the first error of the last start in the log. A report of an exit ("EngineCore failed to start."), a silent
worker or a failed request counts only if there is no other error. INFO and WARNING lines, and lines with users' prompts, are ignored.

It does not guess: an error that matches no class is `unknown`, with its meaning (if known), the function that raised it, and a next step. It prints a fix only if this log shows that the fix applies, and checks before changes.

Other results: `healthy` (the log shows that the server came up); `unknown` without a line (no error, but nothing shows that it came up), or with the first warning that reports a failure; `benign_warning_noise` (errors that did not end the server); `not_a_vllm_log` (also logs of Ollama, SGLang and others, which get no advice); `engine_hang` (no tokens for two minutes while requests run, or a start without
progress for ten).

## How sure it is

How often each `confidence` was right, over public logs with a known answer:

{reliability}

## In JSON

`--json` prints one object: `class`, `confidence` (0 to 1), `root_cause_line`, `line_number`, `explanation`,
`fixes` (each with `what`, and `command` or null), `facts` (null if unknown), and `deterministic_start_failure`, which is true if the same start must fail again and the confidence is 0.6 or more. It is false for a pasted error line, because only the log of a start can show this.

Exit status: 0: no error found; 1: an error found, known or `unknown`; 2: not a vLLM log, empty or unreadable.

{live}
## The classes

*Fails again* means that the same start fails again unless something is changed.

"""

LIVE = """\
## While it runs

`vllm-watch run --engine-log /var/log/vllm.log` (or `engine_log` of a target) follows a server's log. The error is added to the incident of an engine
that is down or stalled, and `/api/v1/status` has it as `signals.start_failure` of the target (null if none):

```
{"class": "kv_cache_too_small", "deterministic": true, "root_cause_line": "…", "explanation": "…"}
```

It follows rotation by renaming or truncation. The file may appear later, and must be a regular file.
"""


def text() -> str:
    """The whole page."""
    head = HEAD.replace("{live}", LIVE).replace("{reliability}", reliability())
    return head + "".join(row(each) for each in FAILURES.values())


def reliability() -> str:
    """The table of what was measured."""
    kept = json.loads(MEASURED.read_text())
    lines = [f"| confidence | {' | '.join(kept)} |", "|---|" + "---|" * len(kept)]
    for _, name in STEPS:
        cells = (kept[each].get(name, [0, 0]) for each in kept)
        lines.append(f"| {name} | " + " | ".join(f"{right} of {count}" for right, count in cells) + " |")  # fmt: skip
    unknown = (kept[each]["unknown"] for each in kept)
    cells = (str(each) if isinstance(each, int) else f"{each[0]} of {each[1]}" for each in unknown)
    lines.append(f"| `unknown` | {' | '.join(cells)} |")
    return "\n".join(lines)


def measure(name: str, cases: Path) -> None:
    """Count by confidence how often the class was right, and keep that under this name."""
    kept = json.loads(MEASURED.read_text()) if MEASURED.exists() else {}
    right: Counter[str] = Counter()
    count: Counter[str] = Counter()
    unknown = 0
    for case in map(json.loads, cases.read_text().splitlines()):
        reader = LogReader()
        reader.feed(case["log"].encode())
        reader.end()
        found = reader.diagnosis()
        if found.failure in {UNKNOWN, NOT_VLLM}:
            unknown += 1
            continue
        wanted = {case["class"], *case.get("class_alternatives", ())}
        if wanted & {HEALTHY, NOISE}:
            wanted |= {HEALTHY, NOISE}
        step = next(label for least, label in STEPS if found.confidence >= least)
        count[step] += 1
        right[step] += found.failure in wanted
    kept[name] = {**{each: [right[each], count[each]] for each in count}, "unknown": unknown}
    MEASURED.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n")


def row(failure: Failure) -> str:
    """One class."""
    again = " (*fails again*)" if failure.deterministic else ""
    return f"- `{failure.slug}`: {failure.sentence}{again}\n"


if __name__ == "__main__":
    if "--measure" in sys.argv:
        group, cases = sys.argv[sys.argv.index("--measure") + 1 :]
        measure(group, Path(cases))
    sys.exit(write_or_check({PAGE: text()}))
