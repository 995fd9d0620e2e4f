"""Links to this repository's pages, whose address only the reader knows: `--runbooks URL/`, as for the alerts.

Without an address a page is named, and a link that would lead nowhere is left out.
"""

import re
from typing import Any

HOLE = "<<runbooks>>"
_LINK = re.compile(re.escape("(" + HOLE) + r"([^)]*)\)")


def runbook(page: str) -> str:
    """Say which page to read, at the end of a description."""
    return f"Runbook: [docs/{page}]({HOLE}docs/{page})"


def address(page: str) -> str:
    """Of a page, for a link of a table's cell."""
    return f"{HOLE}docs/{page}"


def filled(value: Any, runbooks: str) -> Any:
    """The same JSON value with every address filled in, or without the links where there is none."""
    if isinstance(value, str):
        if runbooks:
            return value.replace(HOLE, runbooks)
        return re.sub(r"\[([^\]]+)\]" + _LINK.pattern, r"\1", value)
    if isinstance(value, list):
        kept = [each for each in value if runbooks or not _leads_nowhere(each)]
        return [filled(each, runbooks) for each in kept]
    if isinstance(value, dict):
        return {key: filled(each, runbooks) for key, each in value.items()}
    return value


def _leads_nowhere(value: Any) -> bool:
    return isinstance(value, dict) and str(value.get("url", "")).startswith(HOLE)
