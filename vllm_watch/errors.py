"""Errors an operator can mend: every one says what is wrong and what to do about it."""


class WatchError(Exception):
    """An operating error, shown to the operator as `cause` and `remedy` and never as a traceback.

    `cause` is one sentence that quotes the offending value; `remedy` is something the reader can do.
    """

    def __init__(self, cause: str, remedy: str) -> None:
        super().__init__(f"{cause}. {remedy}")
        self.cause = cause
        self.remedy = remedy


class ConfigError(WatchError):
    """A configuration that cannot be used; `cause` begins with the path of the key or of the file."""


class ExpositionError(WatchError):
    """A /metrics body that is not the Prometheus text format; `cause` names the line."""


class RecordingError(WatchError):
    """A trace file that cannot be read; `cause` names the file and the line."""


class HookError(WatchError):
    """A restart hook that cannot, or will not, do what it is asked; surely nothing was done."""


class ServeError(WatchError):
    """The daemon cannot serve: the address is taken or not ours."""


class JournalError(WatchError):
    """What has to be on disk before an act could not be written, or what was written cannot be read."""


class StateError(WatchError):
    """The state folder cannot be used; watching goes on without memory."""
