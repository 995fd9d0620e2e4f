"""Parse times on the command line."""

import argparse
import re
from datetime import datetime

_AGO = re.compile(r"(\d+(?:\.\d+)?)([smhdw])")
_UNIT_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}


def moment(text: str, now_t: float) -> float:
    """Parse an age such as "30m", a local date, or Unix seconds. Raises ArgumentTypeError."""
    if ago := _AGO.fullmatch(text):
        return now_t - float(ago[1]) * _UNIT_SECONDS[ago[2]]
    try:
        return float(text)
    except ValueError:
        pass
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"'{text}' is not a time\n→ write 30m, 2h, 7d, 2026-03-01 or Unix seconds"
        ) from None
