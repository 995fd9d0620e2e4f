"""The base of all settings models.

Validation is strict, because YAML 1.1 reads `on` as true, and a misspelt key would silently keep
the default.
"""

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    ValidationInfo,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import PydanticCustomError

from vllm_watch.support.redaction import redacted, without_path

_QUOTED_CHARACTERS_MAX = 80
_BYTES = re.compile(r"(\d+)\s*(B|KiB|MiB|GiB)")
_BYTES_OF_UNIT = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


class Settings(BaseModel):
    """A part of the configuration: immutable; unknown keys are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


class Sections(Settings):
    """A section with subsections. A subsection with only commented-out keys counts as absent."""

    @model_validator(mode="before")
    @classmethod
    def _without_empty(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        return {key: value for key, value in data.items() if value is not None}


class Problem(NamedTuple):
    """An error at one key. `path` is relative to the model or field with the validator."""

    path: tuple[str | int, ...]
    cause: str
    remedy: str


def problems(found: Sequence[Problem]) -> PydanticCustomError:
    """Return the exception for a validator to raise."""
    return PydanticCustomError("problems", "not usable", {"problems": tuple(found)})


def problem(cause: str, remedy: str, *path: str | int) -> PydanticCustomError:
    """Return the exception about the value that the validator checks, or the value at a path in it."""
    return problems([Problem(path, cause, remedy)])


def matching(pattern: str, noun: str, remedy: str) -> AfterValidator:
    """Return a validator that refuses a text as not `noun`, unless all of it matches the pattern."""

    def check(value: str) -> str:
        if not re.fullmatch(pattern, value):
            raise problem(f"{quoted(value)} is not {noun}", remedy)
        return value

    return AfterValidator(check)


def quoted(value: object) -> str:
    """Return the value as written, in one short line and without credentials."""
    match value:
        case bool():
            text = str(value).lower()
        case str():
            text = f"'{redacted(value)}'"
        case int() | float():
            text = f"{value:.15g}" if isinstance(value, float) else str(value)
        case None:
            text = "nothing"
        case _:
            text = redacted(str(value))
    text = text.replace("\n", " ")
    return text if len(text) <= _QUOTED_CHARACTERS_MAX else text[:_QUOTED_CHARACTERS_MAX] + "…"


def _number(value: Any) -> Any:
    if isinstance(value, bool) or value is None:
        raise problem(f"{quoted(value)} is not a number", "write a number")
    if isinstance(value, float) and not math.isfinite(value):
        raise problem(f"{quoted(value)} is not a finite number", "write a number")
    return value


def _seconds(value: Any) -> Any:
    if isinstance(value, str) and re.fullmatch(r"\s*[\d.]+\s*[a-zA-Z]+\s*", value):
        raise problem(f"{quoted(value)} is not a number", "write plain seconds, without a unit: 5")
    return _number(value)


def _bytes(value: Any) -> Any:
    if isinstance(value, str) and not value.strip().isdigit():
        match = _BYTES.fullmatch(value.strip())
        if match is None:
            remedy = "write a whole number of bytes, or one with KiB, MiB or GiB: 16 MiB"
            raise problem(f"{quoted(value)} is not a size", remedy)
        return int(match[1]) * _BYTES_OF_UNIT[match[2]]
    return _number(value)


def _switch(value: Any) -> Any:
    # YAML 1.1 reads a bare on or off as a boolean.
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else value


def _resolved(value: Path, info: ValidationInfo) -> Path:
    folder = (info.context or {}).get("folder")
    return value if folder is None else Path(folder, value.expanduser())


def _http_url(value: Any) -> Any:
    if not isinstance(value, str) or not re.match(r"https?://[^/?#]", value):
        raise problem(
            f"{quoted(value)} is not an http(s) URL", "write http://HOST:PORT (or https://)"
        )
    if "@" in value.split("?")[0]:
        remedy = "take them out of the URL; a secret goes into a file"
        raise problem(f"{quoted(value)} carries credentials", remedy)
    return value


Name = Annotated[str, matching(
    r"([a-z0-9][a-z0-9._-]{0,62})?",  # a DNS label, or unset
    "a name",
    "use lower-case letters, digits, '.', '_' and '-', at most 63, the first a letter or digit",
)]  # fmt: skip
HttpUrl = Annotated[str, BeforeValidator(_http_url)]
# The path of a chat webhook is a secret, because it allows posting.
WebhookUrl = Annotated[HttpUrl, PlainSerializer(without_path, when_used="json")]
Seconds = Annotated[float, BeforeValidator(_seconds), Field(gt=0, allow_inf_nan=False)]
Minutes = Annotated[float, BeforeValidator(_number), Field(gt=0, allow_inf_nan=False)]
_BYTES_SCHEMA = {
    "anyOf": [
        {"type": "integer", "exclusiveMinimum": 0},
        {"type": "string", "pattern": f"^{_BYTES.pattern}$"},
    ]
}
Bytes = Annotated[int, BeforeValidator(_bytes), Field(gt=0), WithJsonSchema(_BYTES_SCHEMA)]
Port = Annotated[int, BeforeValidator(_number), Field(ge=1, le=65535)]
Switch = Annotated[
    Literal["auto", "on", "off"],
    BeforeValidator(_switch),
    WithJsonSchema({"enum": ["auto", "on", "off", True, False]}),
]
# Paths are relative to the configuration file's folder.
FilePath = Annotated[Path, AfterValidator(_resolved)]
FilePattern = Annotated[
    str, Field(min_length=1), AfterValidator(lambda value, info: str(_resolved(Path(value), info)))
]
