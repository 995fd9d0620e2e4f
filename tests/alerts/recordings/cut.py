"""Cuts a recording down to what a test needs: a span of it, every so many looks, the series that are judged.

python -m tests.alerts.recordings.cut FROM.jsonl.gz TO.jsonl.gz --start S --end S [--every N]

Seconds count from the recording's first look. What is left of a body is as vLLM wrote it: whole lines are left
out, none is changed. The address it was recorded at becomes one that says nothing.
"""

import argparse
import gzip
import json
import re
import sys
from pathlib import Path

# A body has 50 KB, of which these families are a quarter: comments, times of creation, sizes asked for, the
# instrumentator's histograms and Python's own are read by no detector.
LEFT_OUT = re.compile(
    r"#|\w+:?\w*_created\b|python_|process_virtual|process_max|http_(re|response)\w*_(seconds|bytes)"
    r"|vllm:(request_(time_per_output_token|inference_time|prefill_time|decode_time|params|prefill_kv|max_num|num_pre)"
    r"|mm_cache|external_prefix|estimated|admission|iteration_tokens_total_created)"
)
LEVEL = 9


def cut(body: str) -> str:
    """The body without what nobody judges."""
    return "".join(line for line in body.splitlines(keepends=True) if not LEFT_OUT.match(line))


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", type=Path)
    parser.add_argument("into", type=Path)
    parser.add_argument("--start", type=float, required=True)
    parser.add_argument("--end", type=float, required=True)
    parser.add_argument("--every", type=int, default=1)
    asked = parser.parse_args(arguments)
    with gzip.open(asked.source, "rt") as file:
        looks = [json.loads(line) for line in file]
    began = looks[0]["t"]
    kept = [look for look in looks if asked.start <= look["t"] - began <= asked.end]
    with gzip.GzipFile(asked.into, "wb", LEVEL, mtime=0) as file:
        for look in kept[:: asked.every]:
            body = look["metrics"]
            told = look | {"target": "http://vllm:8000", "metrics": body and cut(body)}
            file.write(json.dumps(told, separators=(",", ":")).encode() + b"\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
