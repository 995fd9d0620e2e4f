"""JSON text in database columns."""

import json
from collections.abc import Mapping
from typing import Any

from vllm_watch.support import json_text


def packed(value: Mapping[str, Any]) -> str:
    """Return JSON text. Raises TypeError or ValueError if not serializable."""
    # In ASCII, because SQLite rejects lone surrogates.
    return json.dumps(value, separators=(",", ":"))


def unpacked(text: object) -> dict[str, Any]:
    """Parse packed text. Raises TypeError or ValueError if damaged."""
    found = json_text.read(text)  # type: ignore[arg-type]
    if not isinstance(found, dict):
        raise TypeError("it is not an object")
    return found
