"""Split incoming bytes into lines, and refuse binary input."""

import codecs

from vllm_watch.diagnosis import verdict
from vllm_watch.diagnosis.report import NOT_VLLM, Diagnosis
from vllm_watch.diagnosis.scanner import Scanner

LINE_BYTES_MAX = 1 << 20
"""Maximum bytes of a line. Longer lines are split."""

_MAGIC_BYTES = 8

_SNIFFED_BYTES = 4096
_BINARY_RATIO = 0.1  # share of control bytes; logs have far fewer
_CONTROLS = bytes(each for each in range(32) if each not in (7, 8, 9, 10, 11, 12, 13, 27))
_MAGIC = (
    (b"LPKSHHRH", "This is systemd's journal file: read it with journalctl -o cat -u UNIT."),
    (b"\x1f\x8b", "This is a gzip file inside another: unpack it first."),
    (b"(\xb5/\xfd", "This is a zstd file: give zstdcat's output."),
    (b"\xfd7zXZ", "This is an xz file: give xzcat's output."),
    (b"PK\x03\x04", "This is a zip archive: give the log in it."),
    (b"\x7fELF", "This is a program, not a log."),
)


def _is_binary(piece: bytes) -> bool:
    # Text in old encodings is invalid UTF-8, too, but has no control bytes.
    controls = len(piece) - len(piece.translate(None, _CONTROLS))
    strange = controls + piece.decode("utf-8", "replace").count("\ufffd")
    few = max(_BINARY_RATIO * len(piece) / 5, 1)
    return controls > _BINARY_RATIO * len(piece) or (controls > few and strange > len(piece) / 4)


class LogReader:
    """Accepts a log's bytes in pieces of any size."""

    def __init__(self) -> None:
        self._scanner = Scanner()
        self._rest = b""
        self._begun = False
        self._decoder: codecs.IncrementalDecoder | None = None
        self._refused: str | None = None

    @property
    def refused(self) -> bool:
        return self._refused is not None

    def feed(self, piece: bytes) -> None:
        if not self._begun:
            piece, self._rest = self._rest + piece, b""
            if len(piece) < _MAGIC_BYTES:
                self._rest = piece
                return
            self._begin(piece)
        if self._decoder is not None:
            piece = self._decoder.decode(piece).encode()
        if (
            self._refused is None
            and not self._scanner.of_vllm
            and _is_binary(piece[:_SNIFFED_BYTES])
        ):
            self._refused = "It is binary: give the text that vLLM wrote."
        if self._refused is not None:
            self._rest = b""
            return
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
            if piece.startswith(bom):  # PowerShell's > writes UTF-16
                self._decoder = codecs.getincrementaldecoder(encoding)("replace")
                return
        self._refused = next((text for magic, text in _MAGIC if piece.startswith(magic)), None)

    def end(self) -> None:
        """End the input. Text after the last newline is also a line."""
        if not self._begun and self._rest:
            self._begin(self._rest)
        if self._rest and self._refused is None:
            self._scanner.feed(self._rest)
        self._rest = b""

    def diagnosis(self) -> Diagnosis:
        if self._refused is not None:
            return Diagnosis(failure=NOT_VLLM, confidence=1.0, sentence="this is not a log", explanation=self._refused)  # fmt: skip
        if not self._scanner.lines:
            text = "It is empty: vLLM has written nothing, or its output goes elsewhere."
            return Diagnosis(failure=NOT_VLLM, confidence=1.0, sentence="this log is empty", explanation=text)  # fmt: skip
        return verdict.of_log(self._scanner)
