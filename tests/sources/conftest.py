"""The tests of sources import the wire server as a module."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
