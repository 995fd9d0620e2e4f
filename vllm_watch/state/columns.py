"""Plain values as they stand in a column: JSON text."""

import json
from collections.abc import Mapping
from typing import Any

from vllm_watch.support import json_text


def packed(value: Mapping[str, Any]) -> str:
    """Return it as text. Raises TypeError or ValueError for what is no plain value."""
    # In ASCII, since SQLite takes no half of a surrogate pair, which JSON from elsewhere may bring.
    return json.dumps(value, separators=(",", ":"))


def unpacked(text: object) -> dict[str, Any]:
    """Return what was packed. Raises TypeError or ValueError for what is damaged."""
    found = json_text.read(text)  # type: ignore[arg-type]
    if not isinstance(found, dict):
        raise TypeError("it is not an object")
    return found
