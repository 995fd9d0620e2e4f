"""Errors that an operator can fix: each has a cause and a remedy."""


class WatchError(Exception):
    """An operating error, shown as `cause` and `remedy`, never as a traceback.

    `cause` is one sentence that quotes the wrong value; `remedy` is an instruction.
    """

    def __init__(self, cause: str, remedy: str) -> None:
        super().__init__(f"{cause}. {remedy}")
        self.cause = cause
        self.remedy = remedy


class ConfigError(WatchError):
    """An invalid configuration; `cause` begins with the path of the key or of the file."""


class ExpositionError(WatchError):
    """A /metrics body that is not the Prometheus text format; `cause` names the line."""


class RecordingError(WatchError):
    """A trace file that cannot be read; `cause` names the file and the line."""


class HookError(WatchError):
    """A restart hook that cannot or will not act; certainly nothing was restarted."""


class ServeError(WatchError):
    """The daemon cannot bind its address."""


class JournalError(WatchError):
    """The journal, which must be on disk before a restart, cannot be written or read."""


class StateError(WatchError):
    """The state folder cannot be used; the watcher continues without saved state."""
