"""Links from the status page to a target's dashboards and logs."""

import re
from typing import Annotated

from pydantic import AfterValidator, Field

from vllm_watch.settings.base import HttpUrl, Settings, problem, quoted

PLACEHOLDERS = ("target", "model", "group", "namespace", "pod", "node", "from", "to")

LINKS_MAX = 10
"""At most this many links are allowed."""


def _template(url: str) -> str:
    unknown = [name for name in re.findall(r"\{(\w*)\}", url) if name not in PLACEHOLDERS]
    if unknown:
        known = ", ".join(f"{{{each}}}" for each in PLACEHOLDERS)
        raise problem(f"{quoted(url)} has {{{unknown[0]}}}", f"use {known}")
    return url


class LinkSettings(Settings):
    """A link on every incident and target."""

    name: Annotated[str, Field(min_length=1, max_length=40)]
    """Link text, such as `Grafana`."""

    url: Annotated[HttpUrl, AfterValidator(_template)]
    """URL template with `{target}`, `{model}`, `{group}`, `{namespace}`, `{pod}`, `{node}`,
    `{from}` and `{to}`. The last two enclose the incident, or else the last hour, in Unix milliseconds."""
