"""Follows a page of commands in a clone: `python -m tests.deploy.follow PAGE HOME HOW...` runs its blocks of these kinds.

In their order, with that home folder. In a network namespace of its own the loopback is brought up first, so that
ports are free and as the page says. It prints what each showed, as JSON.
"""

import json
import os
import sys
from pathlib import Path

from tests.deploy.blocks import blocks
from tests.deploy.reader import Reader
from tests.deploy.stack import loopback_up


def main() -> None:
    """Raises TimeoutError where one does not show what the page promises."""
    page, home, *hows = sys.argv[1:]
    if os.environ.get("ALONE"):
        loopback_up()
    reader = Reader(Path(home))
    try:
        print(json.dumps([reader.follow(b) for b in blocks(Path(page)) if b.how in hows]))
    finally:
        reader.stop()


if __name__ == "__main__":
    main()
