"""Writes docs/diagnose.md from the rules themselves, so that it names every class there is and no other.

python docs/generate_diagnose.py            write it
python docs/generate_diagnose.py --check    exit 1 when it is stale
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

PAGE = Path(__file__).parent / "diagnose.md"
MEASURED = Path(__file__).parent / "diagnose_reliability.json"

STEPS = ((0.9, "0.9"), (0.8, "0.8"), (0.6, "0.6 to 0.7"), (0.0, "below 0.6"))

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

The first error of a start (or of what it died of) is the root, and its line is shown; of several starts in a log the last counts. Of exceptions that Python
links, and of a compiler's output, the one that says more is taken. Lines that only tell of a death ("EngineCore failed to start."), of a worker that does
not answer, or of a request that failed are the root only where nothing else is. INFO and WARNING are no failure, nor are errors before "Application startup
complete"; lines that carry users' prompts are not read.

The class is that of this line, or `unknown`: no class is guessed. What is to be done depends on more than the class: each cure has a condition (a phase, a number,
a library that was named), and is printed only if that was read in this log. The phase of an out-of-memory error is read from tracebacks, progress and throughput
lines; without any, nothing is advised that depends on it.

A log without a failure is `healthy`; with errors that did not end it, `benign_warning_noise`; a text that vLLM did not write, without a known error,
`not_a_vllm_log`. A pasted line and the kernel's log are judged as they are.

A log whose statistics stop (or report no tokens for two minutes) while requests run is `engine_hang`, with the time since; so is a start that makes no progress for ten
minutes, with its phase.

## How sure it is

`confidence` by how much the line says; right of all, of public logs with a known answer:

{reliability}

## In JSON

`--json` prints one object: `class`, `confidence` (0 to 1), `root_cause_line`, `line_number`, `explanation`,
`fixes` (each `what` and `command` or null), `facts` (null is unknown), and `deterministic_start_failure`: true where the same start must
fail again with nothing changed, at a confidence of 0.6 or more. Memory that another process may have held is no such failure: it is one only if the log's own sums show
that this engine used it.

The exit status is 0 when nothing failed, 1 when an error was found (`unknown` too), 2 for what is not a log, is empty or cannot be read.

{live}
## The classes

For some a finer sentence and its own cures depend on the message (*kinds*).

| class | finding | fails again |
|---|---|---|
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
    head = HEAD.replace("{live}", LIVE).replace("{reliability}", reliability())
    return head + "".join(row(each) for each in FAILURES.values())


def reliability() -> str:
    """The table of what was measured."""
    kept = json.loads(MEASURED.read_text())
    lines = [f"| confidence | {' | '.join(kept)} |", "|---|" + "---|" * len(kept)]
    for _, name in STEPS:
        cells = (kept[each].get(name, [0, 0]) for each in kept)
        lines.append(f"| {name} | " + " | ".join(f"{right} of {count}" for right, count in cells) + " |")  # fmt: skip
    unknown = "; ".join(f"{each}: {kept[each]['unknown']}" for each in kept)
    return "\n".join(lines) + f"\n\n`unknown` claims nothing ({unknown})."


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
    finer = f"; {len(failure.variants)} kinds" if failure.variants else ""
    again = "yes" if failure.deterministic else ""
    return f"| `{failure.slug}` | {failure.sentence}{finer} | {again} |\n"


def main() -> int:
    """Write the page, or say whether it is stale."""
    if "--measure" in sys.argv:
        name, cases = sys.argv[sys.argv.index("--measure") + 1 :]
        measure(name, Path(cases))
    if "--check" not in sys.argv:
        PAGE.write_text(text())
        return 0
    if PAGE.exists() and PAGE.read_text() == text():
        return 0
    sys.stderr.write("docs/diagnose.md is stale: run make generate\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
