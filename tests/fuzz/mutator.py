"""Changes bytes at random: for where no fuzzer that follows coverage is at hand. Small on purpose."""

from collections.abc import Sequence
from random import Random

CHANGES_MAX = 6
BYTES_MAX = 1 << 16

_WORDS = (
    b"", b"\n", b"\r\n", b"\0", b"NaN", b"+Inf", b"-Inf", b"-1", b"0", b"1e308", b"-1e308", b"1e999", b"9" * 30,
    b"{", b"}", b"[", b"]", b'"', b"\\", b",", b":", b" ", b"\t", b"null", b"true", b"false", b"{}", b"[]",
    b'""', b"# EOF\n", b"# TYPE a counter\n", b'le="+Inf"', b"\xff", b"\xed\xa0\x80", b"\xf0\x9f\x92\xa9",
    b"\xe2\x80\xa8", b"\x1b[31m", b"&a", b"*a", b"<<: ", b"!!python/object:os.system ", b"0x1f", b"1_000",
    b"Content-Length: 5\r\n", b"Transfer-Encoding: chunked\r\n", b"%00", b"../", b"%2e%2e/",
)  # fmt: skip


def changed(rng: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """Return `data` with some changes; pieces of `others` may come into it."""
    for _ in range(rng.randint(1, CHANGES_MAX)):
        data = rng.choice(_CHANGES)(rng, data, others)
    return data[:BYTES_MAX]


def _flip(rng: Random, data: bytes, _: Sequence[bytes]) -> bytes:
    if not data:
        return data
    at = rng.randrange(len(data))
    return data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]


def _insert(rng: Random, data: bytes, _: Sequence[bytes]) -> bytes:
    at = rng.randint(0, len(data))
    return data[:at] + rng.choice(_WORDS) + data[at:]


def _replace(rng: Random, data: bytes, _: Sequence[bytes]) -> bytes:
    at, count = rng.randint(0, len(data)), rng.randint(1, 12)
    return data[:at] + rng.choice(_WORDS) + data[at + count :]


def _number(rng: Random, data: bytes, _: Sequence[bytes]) -> bytes:
    """A number becomes another one."""
    digits = [at for at, byte in enumerate(data[:4096]) if 48 <= byte <= 57]
    if not digits:
        return data
    at = end = rng.choice(digits)
    while end < len(data) and data[end : end + 1] in b"0123456789.eE+-":
        end += 1
    return data[:at] + rng.choice(_WORDS[4:13]) + data[end:]


def _cut(rng: Random, data: bytes, _: Sequence[bytes]) -> bytes:
    begin, end = sorted((rng.randint(0, len(data)), rng.randint(0, len(data))))
    return data[:begin] + data[end:] if rng.random() < 0.5 else data[: max(1, end)]


def _line(rng: Random, data: bytes, _: Sequence[bytes]) -> bytes:
    """A line is left out, said twice, or moved."""
    lines = data.split(b"\n")
    line = lines.pop(rng.randrange(len(lines)))
    for _ in range(rng.randint(0, 2)):
        lines.insert(rng.randint(0, len(lines)), line)
    return b"\n".join(lines)


def _splice(rng: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    other = rng.choice(others)
    at, begin = rng.randint(0, len(data)), rng.randint(0, len(other))
    return data[:at] + other[begin : begin + rng.randint(1, 4000)] + data[at:]


def _often(rng: Random, data: bytes, _: Sequence[bytes]) -> bytes:
    """A piece comes many times: what is quadratic shows."""
    at = rng.randint(0, len(data))
    return data[:at] + data[at : at + rng.randint(1, 20)] * rng.choice((2, 50, 2000)) + data[at:]


_CHANGES = (_flip, _insert, _replace, _number, _cut, _line, _splice, _often)
