"""From bytes, as they come, to lines: whatever their length, encoding or end; and what is no text at all."""

import codecs

from vllm_watch.diagnosis import verdict
from vllm_watch.diagnosis.report import NOT_VLLM, Diagnosis
from vllm_watch.diagnosis.scanner import Scanner

LINE_BYTES_MAX = 1 << 20
"""A line that grows beyond this is taken in pieces, so that no input fills the memory."""

_MAGIC_BYTES = 8
"""So many are awaited before it is decided what this is; a shorter log is decided at its end."""

_SNIFFED_BYTES = 4096
_BINARY_RATIO = 0.1  # of NULs and controls; terminal logs with colours and bars stay far below
_CONTROLS = bytes(each for each in range(32) if each not in (7, 8, 9, 10, 11, 12, 13, 27))
_MAGIC = (
    (b"LPKSHHRH", "This is systemd's journal file: read it with journalctl -o cat -u UNIT."),
    (b"\x1f\x8b", "This is a gzip file inside another: unpack it first."),
    (b"(\xb5/\xfd", "This is a zstd file: give zstdcat's output."),
    (b"\xfd7zXZ", "This is an xz file: give xzcat's output."),
    (b"PK\x03\x04", "This is a zip archive: give the log in it."),
    (b"\x7fELF", "This is a program, not a log."),
)


class LogReader:
    """Takes a log's bytes in any pieces; says at any time what they mean so far."""

    def __init__(self) -> None:
        self._scanner = Scanner()
        self._rest = b""
        self._begun = False
        self._decoder: codecs.IncrementalDecoder | None = None
        self._refused: str | None = None

    @property
    def refused(self) -> bool:
        """Is it no text, so that more of it tells nothing?"""
        return self._refused is not None

    def feed(self, piece: bytes) -> None:
        """Take the next bytes."""
        if not self._begun:
            piece, self._rest = self._rest + piece, b""
            if len(piece) < _MAGIC_BYTES:
                self._rest = piece
                return
            self._begin(piece)
        if self._refused is not None:
            return
        if self._decoder is not None:
            piece = self._decoder.decode(piece).encode()
        lines = (self._rest + piece).split(b"\n") if self._rest else piece.split(b"\n")
        self._rest = lines.pop()
        feed = self._scanner.feed
        for line in lines:
            feed(line)
        if len(self._rest) > LINE_BYTES_MAX:
            feed(self._rest)
            self._rest = b""

    def _begin(self, piece: bytes) -> None:
        self._begun = True
        for bom, encoding in ((codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16")):
            if piece.startswith(bom):  # PowerShell's > writes so
                self._decoder = codecs.getincrementaldecoder(encoding)("replace")
                return
        known = next((text for magic, text in _MAGIC if piece.startswith(magic)), None)
        head = piece[:_SNIFFED_BYTES]
        strange = len(head) - len(head.translate(None, _CONTROLS))
        if known or strange > _BINARY_RATIO * len(head):
            self._refused = known or "It is binary: give the text that vLLM wrote."

    def end(self) -> None:
        """There is no more: what stands after the last newline is a line, too."""
        if not self._begun and self._rest:
            self._begin(self._rest)
        if self._rest and self._refused is None:
            self._scanner.feed(self._rest)
        self._rest = b""

    def diagnosis(self) -> Diagnosis:
        """Return what the lines so far mean; more may be fed after it."""
        if self._refused is not None:
            return Diagnosis(failure=NOT_VLLM, confidence=1.0, sentence="this is not a log", explanation=self._refused)  # fmt: skip
        if not self._scanner.lines:
            text = "It is empty: vLLM has written nothing, or its output goes elsewhere."
            return Diagnosis(failure=NOT_VLLM, confidence=1.0, sentence="this log is empty", explanation=text)  # fmt: skip
        return verdict.of_log(self._scanner)
