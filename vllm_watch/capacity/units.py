"""Binary units, division that rounds up, and the limits of numbers read from a model or a command."""

from dataclasses import fields, is_dataclass
from typing import Any

from vllm_watch.errors import WatchError

MIB = 1 << 20
GIB = 1 << 30


def ceil_div(amount: int, piece: int) -> int:
    """Return the number of pieces that hold the amount."""
    return -(-amount // piece)


NUMBER_MAX = 1 << 40
LAYERS_MAX = 10_000
BYTES_MAX = 1 << 50
GIB_MAX = BYTES_MAX >> 30
_DIGITS_SHOWN = 18
AS_PUBLISHED = "take the config.json of the checkpoint as it was published"
"""The remedy of an impossible config."""


def is_size(value: Any, most: int = NUMBER_MAX) -> bool:
    """Return True for an int from 1 to the maximum."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value <= most


def shown(value: Any) -> str:
    """Return the value as short text."""
    text = str(value) if not isinstance(value, int) or abs(value) < 10**4000 else "a number of more than 4,000 digits"  # fmt: skip
    return text if len(text) <= _DIGITS_SHOWN else f"{text[:_DIGITS_SHOWN]}… ({len(text)} characters)"  # fmt: skip


def check_numbers(record: Any, where: str = "") -> None:
    """Check that every int of the record is from 0 to NUMBER_MAX. Raises WatchError."""
    for field in fields(record):
        value = getattr(record, field.name)
        if is_dataclass(value):
            check_numbers(value, f"{field.name}.")
        elif isinstance(value, int) and not 0 <= value <= NUMBER_MAX:
            raise WatchError(f"the config makes {where}{field.name} {shown(value)}: that is not possible", AS_PUBLISHED)  # fmt: skip
