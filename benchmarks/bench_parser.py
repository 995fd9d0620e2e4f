"""CPU time of our parser against prometheus_client's, warm, on the capture of a real vLLM 0.32.

Every sample's value differs in every round, so nothing can be answered from memory of a line.
"""

import time
from collections.abc import Callable

from engines import bodies
from prometheus_client.parser import text_string_to_metric_families

from vllm_watch.sources.exposition import Parser
from vllm_watch.sources.reading import Reader

ROUNDS_OURS, ROUNDS_THEIRS, REPEATS = 256, 16, 5


def seconds_each(parse: Callable[[str], object], texts: list[str], rounds: int) -> float:
    """CPU seconds for one body, the least of REPEATS runs (other processes only ever add)."""
    best = float("inf")
    for _ in range(REPEATS):
        began = time.process_time()
        for number in range(rounds):
            parse(texts[number % len(texts)])
        best = min(best, (time.process_time() - began) / rounds)
    return best


def main() -> None:
    texts = bodies()
    parser, reader = Parser(), Reader()
    parser.parse(texts[0])
    reader.read(texts[0])
    theirs = seconds_each(
        lambda text: list(text_string_to_metric_families(text)), texts, ROUNDS_THEIRS
    )
    rows = [
        ("prometheus_client, text parser", theirs),
        ("ours, layout known (every scrape)", seconds_each(parser.parse, texts, ROUNDS_OURS)),
        ("ours, with fields of the engine", seconds_each(reader.read, texts, ROUNDS_OURS)),
        (
            "ours, layout new (first scrape)",
            seconds_each(lambda text: Parser().parse(text), texts, ROUNDS_THEIRS),
        ),
    ]
    samples = sum(1 for line in texts[0].split("\n") if line and line[0] != "#")
    print(f"parser: one body of {len(texts[0])} characters, {samples} samples")
    print(f"{'':38}{'µs CPU':>10}{'theirs ÷ it':>14}")
    for name, seconds in rows:
        print(f"{name:38}{seconds * 1e6:10.0f}{theirs / seconds:14.1f}")
    print("limit: theirs ÷ ours, layout known, at least 15")


if __name__ == "__main__":
    main()
