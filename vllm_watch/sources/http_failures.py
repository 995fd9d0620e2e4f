"""How a call can fail, told apart where it happens; http.py says each in words."""


class NotAskedError(Exception):
    """There is no such question: the URL leads nowhere, or a header cannot be sent."""


class NotConnectedError(Exception):
    """There is no connection: the name ("dns"), the way there ("tcp") or the handshake ("tls") failed."""

    def __init__(self, step: str, os_error: OSError) -> None:
        super().__init__(str(os_error))
        self.step = step
        self.os_error = os_error


class OutOfTimeError(Exception):
    """Our own clock ended the call."""

    def __init__(self, late_s: float, *, connected: bool) -> None:
        super().__init__("out of time")
        self.late_s = late_s  # how much later than it was due
        self.connected = connected


class NotHttpError(Exception):
    """What came is not an answer in HTTP/1.x."""


class BrokenOffError(Exception):
    """The connection ended before the answer did."""

    def __init__(self, os_error: Exception | None, *, in_body: bool) -> None:
        said = str(os_error) or type(os_error).__name__
        super().__init__("Server disconnected" if os_error is None else said)
        self.os_error = os_error  # None: it was closed, properly
        self.in_body = in_body


class TooLargeError(Exception):
    """The body is longer than it may be."""


class NotUnpackedError(Exception):
    """The body is whole, and what it is packed in is not."""
