"""A whole log, read at once."""

from vllm_watch.diagnosis.reading import LogReader
from vllm_watch.diagnosis.report import Diagnosis


def diagnose(log: bytes) -> Diagnosis:
    """Read a whole log at once."""
    reader = LogReader()
    reader.feed(log)
    reader.end()
    return reader.diagnosis()
