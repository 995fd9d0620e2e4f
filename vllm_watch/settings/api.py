"""Who may change something over HTTP."""

from typing import Literal

from pydantic import Field, field_validator

from vllm_watch.settings.base import FilePath, Name, Problem, Sections, Settings, problems, quoted

Right = Literal["restart", "approve", "silence", "pause", "alertmanager"]
RIGHTS: tuple[Right, ...] = ("restart", "approve", "silence", "pause", "alertmanager")


class TokenSettings(Settings):
    """A bearer token of one person or program, by name: the name stands in the journal."""

    name: Name = Field(description="Who it is: a slug, unique.")
    file: FilePath = Field(
        description="File with the token (at least 16 characters), read again when it changes; "
        "readable by nobody but vllm-watch."
    )
    may: tuple[Right, ...] = Field(
        RIGHTS,
        description="What it may be used for.",
        json_schema_extra={
            "default": "all of them",
            "why": "A person does all; a program gets one.",
        },
    )


class ApiSettings(Sections):
    """The endpoints that change something. Without tokens they do not exist."""

    tokens: tuple[TokenSettings, ...] = Field((), max_length=100)

    @field_validator("tokens")
    @classmethod
    def _unique(cls, tokens: tuple[TokenSettings, ...]) -> tuple[TokenSettings, ...]:
        names = [token.name for token in tokens]
        found = [
            Problem((number, "name"), f"{quoted(name)} stands twice", "give each its own name")
            for number, name in enumerate(names)
            if name in names[:number]
        ]
        if found:
            raise problems(found)
        return tokens
