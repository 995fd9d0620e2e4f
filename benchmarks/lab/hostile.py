"""An engine that means harm: at each look another body, within every bound of its own, and none of it twice.

Each mode is one way to make a reader spend memory; `mixed` takes another one at each look.
"""

import gzip
from collections.abc import Callable
from random import Random

LINES, BYTES = 24_900, (2 << 20) - (64 << 10)
"""Just below what is read: sources.exposition.SERIES_MAX, scrape.body_bytes_max."""

_KNOWN = (
    "vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc", "vllm:generation_tokens_total",
    "vllm:prompt_tokens_total", "vllm:num_preemptions_total", "vllm:request_success_total",
)  # fmt: skip


def _lines(rng: Random, line: Callable[[int], str]) -> bytes:
    """As many as there may be, or fewer: sizes change, too."""
    made: list[str] = []
    left, count = BYTES, rng.choice((LINES, LINES, LINES // 3, 2_000))
    while left > 0 and len(made) < count:
        made.append(line(len(made)))
        left -= len(made[-1]) + 1
    return ("\n".join(made if left > 0 else made[:-1]) + "\n").encode()


def _word(rng: Random) -> str:
    return f"{rng.getrandbits(48):x}"


def _labels(rng: Random) -> bytes:
    """Known families, each series with a label that is new."""
    return _lines(rng, lambda n: f'{_KNOWN[n % len(_KNOWN)]}{{engine="{n % 64}",id="{_word(rng)}"}} {n}')  # fmt: skip


def _engines(rng: Random) -> bytes:
    return _lines(rng, lambda n: f'{_KNOWN[n % len(_KNOWN)]}{{engine="{_word(rng)}"}} {n}')


def _families(rng: Random) -> bytes:
    """vLLM's by their prefix, and unknown."""
    return _lines(rng, lambda n: f'vllm:f{_word(rng)}_total{{engine="0",id="{_word(rng)}"}} {n}')


def _strangers(rng: Random) -> bytes:
    return _lines(rng, lambda n: f'f{_word(rng)}{{id="{_word(rng)}"}} {n}')


def _buckets(rng: Random) -> bytes:
    name = "vllm:time_to_first_token_seconds_bucket"
    return _lines(rng, lambda n: f'{name}{{engine="{n % 64}",le="{rng.random()}"}} {n}')


def _reasons(rng: Random) -> bytes:
    name = "vllm:request_success_total"
    return _lines(rng, lambda n: f'{name}{{engine="0",finished_reason="{_word(rng)}"}} {n}')


def _wide(rng: Random) -> bytes:
    """Lines as long as they may be, of as many labels."""
    many = "{}" + ",".join(f'l{n}="{{}}"' for n in range(128))
    return _lines(rng, lambda n: f"{_KNOWN[n % 7]}{{{many.format('', *[_word(rng)] * 128)}}} {n}")


def _long(rng: Random) -> bytes:
    return _lines(rng, lambda n: f'{_KNOWN[n % 7]}{{engine="0",id="{_word(rng) * 1_300}"}} {n}')


def _comments(rng: Random) -> bytes:
    return _lines(rng, lambda n: f"# {_word(rng)} {_word(rng)}")


def _odd(rng: Random) -> bytes:
    """Beyond the plain format, and so read by prometheus_client."""
    return b"".join(b'vllm:num_requests_running{engine="%d"}  %d 1000\n' % (n, rng.getrandbits(40)) for n in range(5_000))  # fmt: skip


def _refused(rng: Random) -> bytes:
    """Too many lines, too many bytes, or no text."""
    return rng.choice((b"a 1\n" * 300_000, rng.randbytes(BYTES), b"x" * (BYTES + (1 << 20)), b"a{" * (BYTES // 2)))  # fmt: skip


def _grows(rng: Random) -> bytes:
    """Equal lines but for the last: each look looks as if it were known."""
    tail = "".join(f"x{_word(rng)} 1\n" for _ in range(rng.randrange(1, 9)))
    same = "".join(f'vllm:num_requests_running{{engine="0",id="{n}"}} {n}\n' for n in range(LINES - 9))  # fmt: skip
    return (same + tail).encode()


MODES = {
    "labels": _labels, "engines": _engines, "families": _families, "strangers": _strangers, "buckets": _buckets,
    "reasons": _reasons, "wide": _wide, "long": _long, "comments": _comments, "odd": _odd, "refused": _refused,
    "grows": _grows,
}  # fmt: skip
MIXED = "mixed"


def body(mode: str, rng: Random) -> bytes:
    """One answer to /metrics."""
    return MODES[rng.choice(tuple(MODES)) if mode == MIXED else mode](rng)


def packed(mode: str, rng: Random) -> tuple[bytes, dict[str, str]]:
    """The same and its headers, every fourth time as gzip."""
    said = body(mode, rng)
    if rng.random() < 0.25:
        return gzip.compress(said, 1), {"Content-Encoding": "gzip"}
    return said, {}
