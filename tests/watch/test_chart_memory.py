"""Charts over a restart of the watcher: what was seen goes on, and the time between is a gap."""

from dataclasses import replace

from tests.export.small_board import SERVING, T
from vllm_watch.board.board import Board
from vllm_watch.board.history import SPANS
from vllm_watch.board.uptime import Day
from vllm_watch.samples.target import Target
from vllm_watch.state.charts import Part
from vllm_watch.watch.memory import ChartMemory

TARGET = Target(name="chat", url="http://h:8000")


class Disk:
    """A table that is as it was put."""

    def __init__(self):
        self.parts, self.lost = {}, []

    async def open(self):
        return tuple(self.parts.values())

    def put(self, part):
        self.parts[part.target, part.name] = part

    def damaged(self, part, why):
        self.lost.append((part.name, why))


async def run(disk, begin):
    """One run of the watcher: ten looks from Unix time `begin`."""
    board = Board()
    memory = ChartMemory(disk, board)
    await memory.open()
    board.add_target(TARGET, 5.0)
    for look in range(10):
        board.publish(replace(SERVING, t=begin + 5 * look))
        memory.keep(TARGET.name)
    return board, memory


async def test_charts_and_the_day_go_on(tmp_path):
    """In every span; nothing is drawn for the time in which nobody looked."""
    disk = Disk()
    _, memory = await run(disk, T)
    assert disk.parts == {}  # not yet
    memory.save()
    board, _ = await run(disk, T + 400)
    entry = board.targets["chat"]
    seen = [T + 5 * n for n in range(10)] + [T + 400 + 5 * n for n in range(10)]
    times, series = entry.history["0"].ring(SPANS[0]).series(T + 445)
    assert (times, set(series["requests_running"])) == (seen, {3.0})
    for seconds in SPANS[1:]:
        times, _ = entry.history["0"].ring(seconds).series(T + 445)
        assert times[0] < T + 60
    assert disk.lost == []
    assert board.past == {}


async def test_they_are_written_now_and_then(monkeypatch):
    """Not at each look; and of so many parts at most, where those of targets that are gone make room."""
    disk = Disk()
    monkeypatch.setattr("vllm_watch.watch.memory.CHARTS_SAVE_SECONDS", 0.0)
    monkeypatch.setattr("vllm_watch.watch.memory.PARTS_MAX", 3)
    board, memory = await run(disk, T)
    assert set(disk.parts) == {("chat", "day"), ("chat", "engine 0"), ("chat", "uptime")}
    board.add_target(replace(TARGET, name="other"), 5.0)
    memory.keep("other")
    assert len(disk.parts) == 3
    board.remove_target("chat")
    memory.keep("other")
    assert ("other", "day") in disk.parts


async def test_what_cannot_be_read_costs_that_chart_alone():
    """It is told; what another version wrote is left alone."""
    disk = Disk()
    _, memory = await run(disk, T)
    memory.save()
    whole = disk.parts["chat", "engine 0"]
    disk.put(replace(whole, data=whole.data[:-3]))
    disk.put(Part("chat", "engine 1", "0", b"of another version"))
    day = disk.parts["chat", "day"]
    disk.put(replace(day, form=" ".join((*day.form.split()[:2], "another number of points"))))
    board, _ = await run(disk, T + 400)
    assert [name for name, _ in disk.lost] == ["engine 0"]
    entry = board.targets["chat"]
    assert entry.history["0"].ring(SPANS[0]).series(T + 445)[0][0] == T + 400
    assert set(entry.history) == {"0"}
    assert entry.day.export() != Day().export()  # the day does not depend on how charts are kept
    assert entry.uptime.shares(T + 445)[0].up_ratio == 1.0
