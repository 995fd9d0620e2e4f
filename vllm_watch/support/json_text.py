"""The one way to read JSON that came from elsewhere: `json.loads` raises another error for one that is nested too deep."""

import json
from typing import Any


def read(text: str | bytes | bytearray) -> Any:
    """Return what JSON holds. Raises ValueError, also for one that is nested too deep."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deep") from None
