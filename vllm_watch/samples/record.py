"""Decorators for records created at every poll: `@dataclass(frozen=True)` takes 15 µs for one EngineSample, against 4 here."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cache
from operator import attrgetter
from typing import Any, TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, kw_only_default=True)
def record(cls: type[T]) -> type[T]:
    """Make a record; only the type checker enforces that it is frozen."""
    return dataclass(slots=True, kw_only=True, unsafe_hash=True)(cls)


@dataclass_transform(frozen_default=True)
def short_record(cls: type[T]) -> type[T]:
    """Make a record with few fields, which may be positional."""
    return dataclass(slots=True, unsafe_hash=True)(cls)


def changed(record: T, **values: Any) -> T:
    """Return a copy with other values, like `dataclasses.replace` in half the time."""
    cls: Any = record.__class__
    names, take = _taken(cls)
    copy: T = cls(**dict(zip(names, take(record), strict=True)) | values)
    return copy


def completed(record: T, **values: Any) -> T:
    """Set values in place: only for the creator of a record, before sharing it."""
    for name, value in values.items():
        setattr(record, name, value)
    return record


@cache
def _taken(cls: type[Any]) -> tuple[tuple[str, ...], Callable[[Any], tuple[Any, ...]]]:
    names = tuple(field.name for field in fields(cls))
    return names, attrgetter(*names)
