"""Replace rich's Text for `top --once` and `--json` if rich is not installed."""

from collections.abc import Iterable

__all__ = ["Text"]

_ELLIPSIS = "…"


class PlainText:
    """The part of rich.text.Text that `top` uses, without styles."""

    spans: tuple[()] = ()

    def __init__(self, plain: str = "", style: str = "", **_layout: object) -> None:
        self.plain, self.style = plain, style

    def __len__(self) -> int:
        return len(self.plain)

    @property
    def cell_len(self) -> int:
        return len(self.plain)

    def append(self, text: "PlainText | str", _style: str = "") -> "PlainText":
        self.plain += text if isinstance(text, str) else text.plain
        return self

    def truncate(self, width: int, *, overflow: str = "") -> None:
        if len(self.plain) > width:
            self.plain = self.plain[: max(0, width - 1)] + _ELLIPSIS if overflow == "ellipsis" else self.plain[:width]  # fmt: skip

    def join(self, parts: "Iterable[PlainText]") -> "PlainText":
        return PlainText(self.plain.join(part.plain for part in parts))

    def split(self, separator: str) -> "list[PlainText]":
        return [PlainText(part) for part in self.plain.split(separator)]

    def stylize(self, _style: str) -> None:
        """Ignore a style."""

    def rstrip(self) -> None:
        self.plain = self.plain.rstrip()


try:
    from rich.text import Text
except ImportError:  # rich is an extra
    Text = PlainText  # type: ignore[assignment,misc]
