"""Decorators for records that each poll creates.

Creating an EngineSample takes 4 µs. With `@dataclass(frozen=True)` it would take 15 µs.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cache
from operator import attrgetter
from typing import Any, TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, kw_only_default=True)
def record(cls: type[T]) -> type[T]:
    """Make a record. Only the type checker enforces that it is frozen."""
    return dataclass(slots=True, kw_only=True, unsafe_hash=True)(cls)


@dataclass_transform(frozen_default=True)
def short_record(cls: type[T]) -> type[T]:
    """Make a record that allows positional fields."""
    return dataclass(slots=True, unsafe_hash=True)(cls)


def changed(record: T, **values: Any) -> T:
    """Return a copy with other values. This function is twice as fast as `dataclasses.replace`."""
    cls: Any = record.__class__
    names, take = _taken(cls)
    copy: T = cls(**dict(zip(names, take(record), strict=True)) | values)
    return copy


def completed(record: T, **values: Any) -> T:
    """Set values in place. Only a record's creator may do this, before sharing it."""
    for name, value in values.items():
        setattr(record, name, value)
    return record


@cache
def _taken(cls: type[Any]) -> tuple[tuple[str, ...], Callable[[Any], tuple[Any, ...]]]:
    names = tuple(field.name for field in fields(cls))
    return names, attrgetter(*names)
