"""The live view: header, engines, GPUs, details."""

import asyncio
import time
from collections.abc import Mapping
from typing import ClassVar, Protocol

from rich.text import Text
from textual import events
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Input, Static

from vllm_watch.cli.helpers.top import panels as top_panels
from vllm_watch.cli.helpers.top import rows as top_rows
from vllm_watch.cli.helpers.top import story as top_story
from vllm_watch.cli.helpers.top.status import Charted, Status
from vllm_watch.cli.helpers.top.text import stacked
from vllm_watch.errors import WatchError

_INTERVAL_SECONDS = 2.0
_PAGE_ROWS = 10
_LOW_HEIGHT = 16  # with fewer lines, the watcher's state is omitted
_GPU_SHARE = 4  # a quarter of the height


class Source(Protocol):
    """A daemon's API. Raises WatchError if it does not answer."""

    url: str

    async def status(self) -> Status: ...
    async def charts(self, target: str) -> Mapping[str, Charted]: ...
    async def close(self) -> None: ...


class TopApp(App[None]):
    """Requests the daemon's status every two seconds."""

    CSS = """
    Screen { layers: base; }
    #header, #wrong, #engines, #gpus, #detail, #watcher, #keys { width: 100%; }
    #header, #watcher { height: 1; }
    #engines { height: 1fr; }
    #wrong, #gpus, #detail, #keys { height: auto; }
    #filter { display: none; border: none; height: 1; padding: 0; }
    #filter.shown { display: block; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", "quit"),
        Binding("ctrl+c", "quit", "quit", priority=True),
        Binding("up,k", "move(-1)", "up"),
        Binding("down,j", "move(1)", "down"),
        Binding("pageup", f"move({-_PAGE_ROWS})", "up"),
        Binding("pagedown", f"move({_PAGE_ROWS})", "down"),
        Binding("home", "move(-1000000)", "first"),
        Binding("end", "move(1000000)", "last"),
        Binding("s", "sort(1)", "sort"),
        Binding("S", "sort(-1)", "sort back"),
        *(Binding(str(i), f"sort_by('{name}')", name) for i, name in enumerate(top_rows.SORTS, 1)),
        Binding("enter", "open", "open"),
        Binding("question_mark", "help", "keys"),
        Binding("slash", "filter", "filter"),
        Binding("escape", "leave", "all"),
    ]
    ENABLE_COMMAND_PALETTE = False
    AUTO_FOCUS = None

    def __init__(self, source: Source, interval_seconds: float = _INTERVAL_SECONDS) -> None:
        super().__init__(ansi_color=True)
        self._source = source
        self._interval_seconds = interval_seconds
        self._status: Status | None = None
        self._problem: str | None = None
        self._answered_s: float | None = None
        self._curves = top_rows.Curves()
        self._rows: list[top_rows.Row] = []
        self._shown: list[top_rows.Row] = []
        self._selected: str = ""
        self._chosen = False  # False: the cursor follows the worst row
        self._drawn: dict[str, tuple[object, ...]] = {}
        self._sort = "urgency"
        self._wanted = ""
        self._first = 0
        self._opened = ""
        self._helps = False
        self._scrolled = 0
        self._charts: Mapping[str, Charted] = {}

    def compose(self) -> ComposeResult:
        for name in ("header", "wrong", "engines", "gpus", "detail", "watcher"):
            yield Static(id=name)
        yield Input(id="filter", placeholder="filter", compact=True)
        yield Static(id="keys")

    def on_mount(self) -> None:
        """Redraw every second, because displayed ages grow."""
        self.run_worker(self._ask_for_ever(), exclusive=True)
        self.set_interval(1.0, self.draw)

    async def on_unmount(self) -> None:
        await self._source.close()

    def on_resize(self) -> None:
        self.draw()

    @property
    def known(self) -> Status | None:
        return self._status

    async def _ask_for_ever(self) -> None:
        while True:
            await self.look()
            await asyncio.sleep(self._interval_seconds)

    async def look(self) -> None:
        try:
            status = await self._source.status()
        except WatchError as error:
            self._problem = error.cause
        else:
            self._status, self._problem = status, None
            self._answered_s = time.monotonic()
            self._rows = self._curves.rows(status)
            await self._ask_charts()
        self.draw()

    async def _ask_charts(self) -> None:
        row = self._opened_row()
        try:
            self._charts = await self._source.charts(row.target.name) if row else {}
        except WatchError as error:
            self._problem = error.cause

    def _opened_row(self) -> top_rows.Row | None:
        return next((row for row in self._rows if row.name == self._opened), None)

    def draw(self) -> None:
        # During teardown parts of the screen are gone.
        if not self.is_running:
            return
        width, height = self.size
        self._shown = top_rows.arranged(self._rows, self._sort, self._wanted)
        selected = self._cursor()
        parts = self._parts(self._shown[selected] if self._shown else None, width, height)
        taken = sum(1 + part.plain.count("\n") for part in parts.values() if part.plain)
        taken += self.query_one("#filter").has_class("shown")
        room = max(2, height - taken)
        if self._helps or self._opened:
            parts["#engines"] = self._in_place(width, room)
        else:
            parts["#engines"] = self._engines(width, room, selected)
        for place, part in parts.items():
            drawn = (part.plain, str(part.style), tuple(part.spans))
            if drawn != self._drawn.get(place):  # avoids flicker
                self._drawn[place] = drawn
                self.query_one(place, Static).update(part)
                self.query_one(place).display = bool(part.plain)

    def _parts(self, row: top_rows.Row | None, width: int, height: int) -> dict[str, Text]:
        status = self._status
        age_seconds = None if self._answered_s is None else time.monotonic() - self._answered_s
        opened = self._helps or bool(self._opened)
        gpus = status.gpus if status and not opened else None
        row = None if opened else row
        return {
            "#header": top_panels.header(self._source.url, status, self._problem, age_seconds, width),
            "#wrong": top_story.wrong(status, width, height),
            "#gpus": top_panels.gpus(gpus, width, max(1, height // _GPU_SHARE)),
            "#detail": top_story.detail(row, status, width, height),
            "#watcher": top_story.watcher(status, width) if height >= _LOW_HEIGHT else Text(),
            "#keys": top_panels.keys(self._sort, self._wanted, len(self._shown), width, opened=opened),
        }  # fmt: skip

    def _in_place(self, width: int, height: int) -> Text:
        row, status = self._opened_row(), self._status
        if self._helps:
            lines = top_panels.help_lines(status, width)
        elif row is None or status is None:
            lines = [Text(f"{self._opened} is gone (escape goes back)", "dim")]
        else:
            told = top_story.detail(row, status, width, 4 * height)
            charted = self._charts.get(row.engine.engine if row.engine else "0")
            lines = top_panels.target_lines(row, status, charted, told, width)
        self._scrolled = min(self._scrolled, max(0, len(lines) - height))
        return stacked(lines[self._scrolled : self._scrolled + height])

    def _engines(self, width: int, height: int, selected: int) -> Text:
        columns = top_rows.columns_for(width, self._shown)
        visible = height - 1
        first = min(max(0, selected - visible // 2), max(0, len(self._shown) - visible))
        below = self._shown[first + visible :]
        if below and visible > 1:  # the last line summarizes hidden rows
            visible -= 1
            below = self._shown[first + visible :]
        self._first = first
        lines = [top_rows.titles(columns, width)]
        for number, row in enumerate(self._shown[first : first + visible], first):
            lines.append(top_rows.line(row, columns, selected=number == selected))
        if below and visible > 1:
            lines.append(top_rows.folded(below))
        if not self._shown:
            lines.append(Text(self._why_empty(), "dim"))
        return stacked(lines)

    def _why_empty(self) -> str:
        if self._status is None:
            return "waiting for the first answer"
        if self._rows:
            return f"no match for '{self._wanted}' (escape shows all)"
        return self._status.not_ready or self._status.nothing_watched or "no target is watched"

    def _cursor(self) -> int:
        names = [row.name for row in self._shown]
        if self._chosen and self._selected in names:
            return names.index(self._selected)
        place = top_story.worst_row(self._shown, self._status)
        self._selected = names[place] if names else ""
        return place

    def action_move(self, rows: int) -> None:
        if self._helps or self._opened:
            self._scrolled = max(0, self._scrolled + rows)
            self.draw()
        elif self._shown:
            place = min(max(0, self._cursor() + rows), len(self._shown) - 1)
            self._selected, self._chosen = self._shown[place].name, True
            self.draw()

    def action_sort(self, step: int) -> None:
        names = list(top_rows.SORTS)
        self.action_sort_by(names[(names.index(self._sort) + step) % len(names)])

    def action_sort_by(self, name: str) -> None:
        self._sort = name
        self.draw()

    async def action_open(self) -> None:
        self._helps, self._scrolled = False, 0
        if self._shown and not self._opened:
            self._opened = self._shown[self._cursor()].name
            self.draw()
            await self._ask_charts()
        self.draw()

    def action_help(self) -> None:
        self._helps, self._scrolled = not self._helps, 0
        self.draw()

    def action_leave(self) -> None:
        if not self._helps and not self._opened:
            self.query_one("#filter", Input).value = ""
            self._wanted = ""
            self.on_input_submitted()
        elif self._helps:
            self.action_help()
        else:
            self._opened, self._charts, self._scrolled = "", {}, 0
            self.draw()

    async def on_click(self, event: events.Click) -> None:
        place = event.screen_y - self.query_one("#engines").region.y - 1
        if self._helps:
            self.action_help()
        elif self._opened or not self.query_one("#engines").region.contains(*event.screen_offset):
            return
        elif place < 0:
            self.action_sort(1)
        elif place + self._first < len(self._shown):
            name = self._shown[place + self._first].name
            if self._chosen and name == self._selected:
                await self.action_open()
            self._selected, self._chosen = name, True
            self.draw()

    def on_mouse_scroll_down(self) -> None:
        self.action_move(1)

    def on_mouse_scroll_up(self) -> None:
        self.action_move(-1)

    def action_filter(self) -> None:
        field = self.query_one("#filter", Input)
        field.add_class("shown")
        field.focus()
        self.draw()

    def on_input_changed(self, event: Input.Changed) -> None:
        self._wanted = event.value
        self.draw()

    def on_input_submitted(self) -> None:
        self.query_one("#filter").remove_class("shown")
        self.set_focus(None)
        self.draw()
