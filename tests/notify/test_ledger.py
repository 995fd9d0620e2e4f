"""What was told, on disk: kept through any end, and a disk that fails costs no message."""

import json
import os
import sqlite3
from dataclasses import replace

from tests.notify.telling import EVIDENCE, T, incident, step
from vllm_watch.notify import ledger as ledger_module
from vllm_watch.notify.alert import DROPPED, from_state, to_state
from vllm_watch.notify.ledger import Ledger
from vllm_watch.state import file
from vllm_watch.state.ledger import LedgerTable
from vllm_watch.state.worker import Worker


class Book(Ledger):
    """A ledger with a worker of its own."""

    def __init__(self, folder, tell=None):
        self.worker = None if folder is None else Worker(folder, tell)
        super().__init__(None if folder is None else LedgerTable(self.worker))

    async def close(self):
        await self.flush()
        if self.worker is not None:
            await self.worker.close()


async def opened(folder, **more):
    one = Book(folder, **more)
    await one.open()
    return one


def phases(ledger, alert_id="stall-a"):
    return [(each.phase, each.sent_t) for each in ledger.known("a", alert_id)]


async def test_an_alert_is_the_same_when_it_was_kept(tmp_path):
    """All that is said of it, and in the same types."""
    over = incident(ended_t=T, resolution="healthy", engine=None, firing=False)
    for alert in (incident(), step(), over):
        assert from_state(json.loads(json.dumps(to_state(alert)))) == alert
    one = await opened(tmp_path)
    one.add("a", "opened", incident(), T)
    await one.close()
    two = await opened(tmp_path)
    assert two.lasting("a") == [incident()]
    await two.close()


OF_0_1 = {
    "id": "stall-a", "about": "incident", "t": T, "target": "chat-0", "group": "chat", "engine": "0",
    "kind": "engine_stalled", "cause": "hang", "severity": "page",
    "summary": "no step has ended for 94 s although 41 requests run", "evidence": list(EVIDENCE), "restart": "advised.",
    "restart_advised": True, "ended_t": None, "resolution": None, "silenced": False, "held": False,
}  # fmt: skip


async def test_what_an_older_version_has_told_is_not_told_again(tmp_path):
    """Its rows are read, those that waited too."""
    file.connect(tmp_path).close()
    with sqlite3.connect(tmp_path / file.NAME) as db:
        for phase, told_t, ended_t in (("opened", T + 1, None), ("resolved", None, T + 9)):
            said = OF_0_1 | {"ended_t": ended_t, "resolution": ended_t and "healthy"}
            row = ("a", "stall-a", phase, T, told_t, told_t and "m1", json.dumps(said))
            db.execute("INSERT INTO notice VALUES (?, ?, ?, ?, ?, ?, ?)", row)
    one = await opened(tmp_path)
    first, last = one.known("a", "stall-a")
    assert (first.alert, first.sent_t, first.message) == (incident(), T + 1, "m1")
    over = incident(ended_t=T + 9, resolution="healthy", firing=False)
    assert last.alert == replace(over, incident=replace(over.incident, updated_t=T + 9))
    assert one.waiting("a") == [last]
    await one.close()


async def test_each_phase_outlives_the_process(tmp_path):
    """What waits, what was told when, and in which message."""
    one = await opened(tmp_path)
    one.add("a", "opened", incident(), T)
    one.sent(one.waiting("a"), [], "m1", T + 1)
    one.add("a", "reminder", incident(), T + 2)
    one.add("a", "reminder", incident(), T + 3)
    one.bind(one.waiting("a")[:1], "m2")
    await one.flush()
    two = await opened(tmp_path)  # the first one was killed
    assert phases(two) == [("opened", T + 1), ("reminder", None), ("reminder", None)]
    assert [(each.name, each.message) for each in two.waiting("a")] == [
        ("reminder", "m2"),
        ("reminder 2", None),
    ]
    assert two.sent_t("a", T + 100) == [T + 1]
    assert two.sent_t("a", T + 3700) == []
    await one.close()
    await two.close()


async def test_what_was_dropped_is_said_by_a_later_run(tmp_path):
    """Until a message has said so."""
    one = await opened(tmp_path)
    one.add("a", "opened", incident(), T)
    one.drop(one.waiting("a"), T + 1)
    assert one.sent_t("a", T + 2) == []
    await one.close()
    two = await opened(tmp_path)
    assert [each.message for each in two.dropped("a")] == [DROPPED]
    two.sent([], two.dropped("a"), "m1", T + 3)
    assert two.dropped("a") == []
    assert [each.dropped for each in two.known("a", "stall-a")] == [True]
    assert two.sent_t("a", T + 4) == []
    await two.close()


async def test_a_folder_of_another_watcher_is_not_touched(tmp_path, monkeypatch):
    """Who does not hold it neither reads nor writes it."""
    monkeypatch.setattr(file, "HELD_SECONDS", 0.0)
    held = file.lock(tmp_path)
    one = await opened(tmp_path, tell=lambda *_: None)
    one.add("a", "opened", incident(), T)
    await one.close()
    os.close(held)
    assert not (tmp_path / file.NAME).exists()


async def test_a_disk_that_fails_costs_nothing_but_memory_of_it(tmp_path):
    """What it did not take is written when it can be."""
    folder = tmp_path / "away"
    one = await opened(folder)
    one.add("a", "opened", incident(), T)
    await one.flush()
    assert phases(one) == [("opened", None)]
    folder.mkdir()
    await one.flush()
    await one.close()
    two = await opened(folder)
    assert phases(two) == [("opened", None)]
    await two.close()


async def test_where_nothing_has_changed_the_disk_is_not_asked(tmp_path):
    """A disk that hangs holds up no message that has no news for it."""
    writes = []
    one = await opened(tmp_path, tell=lambda *how: writes.append(how))
    one.add("a", "opened", incident(), T)
    await one.flush()
    before = len(writes)
    await one.flush()
    assert before == len(writes) > 0
    await one.close()


async def test_an_entry_that_is_damaged_is_left_out(tmp_path):
    """The rest is used; what was damaged may be told again."""
    one = await opened(tmp_path)
    for name in ("a", "b", "c"):
        one.add("a", "opened", incident(name), T)
    await one.close()
    with sqlite3.connect(tmp_path / file.NAME) as db:
        db.execute("UPDATE notice SET said = '{\"id\": 5}' WHERE matter = 'b'")
    two = await opened(tmp_path)
    assert [each.id for each in two.lasting("a")] == ["a", "c"]
    await two.close()


async def test_what_is_over_is_forgotten_what_is_not_is_kept(tmp_path):
    """A day after its end; never what is open, and never what waits."""
    one = await opened(tmp_path)
    for name in ("over", "open", "waits"):
        one.add("a", "opened", incident(name), T)
    one.sent([each for each in one.waiting("a") if each.alert.id != "waits"], [], "m1", T)
    one.prune(["open"], ["a"], T + ledger_module.KEPT_SECONDS - 1)
    assert phases(one, "over")
    one.prune(["open"], ["a"], T + ledger_module.KEPT_SECONDS)
    assert [bool(phases(one, name)) for name in ("over", "open", "waits")] == [False, True, True]
    await one.close()
    two = await opened(tmp_path)
    assert [bool(phases(two, name)) for name in ("over", "open", "waits")] == [False, True, True]
    await two.close()


async def test_what_is_withdrawn_is_not_told(tmp_path):
    """But what is in a message that was begun stays."""
    one = await opened(tmp_path)
    for name in ("waits", "begun"):
        one.add("a", "opened", incident(name), T)
    one.bind([each for each in one.waiting("a") if each.alert.id == "begun"], "m1")
    await one.flush()
    for name in ("waits", "begun", "unknown"):
        one.withdraw("a", name)
    one.withdraw("nobody", "waits")
    assert [each.alert.id for each in one.waiting("a")] == ["begun"]
    assert [each.id for each in one.lasting("a")] == ["begun"]
    await one.close()
    two = await opened(tmp_path)
    assert [each.id for each in two.lasting("a")] == ["begun"]
    await two.close()


async def test_what_waits_is_told_as_it_now_stands(tmp_path):
    """What is in a message that was begun is sent as it was, and what was sent stays."""
    one = await opened(None)
    one.add("a", "opened", incident(), T)
    one.sent(one.waiting("a"), [], "m1", T + 1)
    one.add("a", "worse", incident(), T + 2)
    one.bind(one.waiting("a"), "m2")
    one.add("a", "reminder", incident(), T + 3)
    now = incident(cause="idle_wedged")
    one.renew("a", now)
    told = {each.name: each.alert for each in one.known("a", "stall-a")}
    assert told == {"opened": incident(), "worse": incident(), "reminder": now}
    assert one.lasting("a") == [now]
    await one.close()


DAY = 86400.0


async def test_an_alert_is_forgotten_a_day_after_it_was_last_told():
    """Of a notifier that is gone a day after the last that it was to be told."""
    one = await opened(None)
    for notifier in ("kept", "gone"):
        for phase, t in (("opened", T), ("reminder", T + 10)):
            one.add(notifier, phase, incident(), t)
    for each, t in zip(one.waiting("kept"), (T + 1, T + 11), strict=True):
        one.sent([each], [], "m1", t)
    for now_t, kept, gone in ((T + DAY + 9, 2, 2), (T + DAY + 10, 2, 0), (T + DAY + 11, 0, 0)):
        one.prune([], ["kept"], now_t)
        found = [len(one.known(each, "stall-a")) for each in ("kept", "gone")]
        assert found == [kept, gone]


async def test_a_file_that_is_moved_aside_is_written_anew(tmp_path):
    """As with one that is damaged: memory has it all."""
    one = await opened(tmp_path)
    one.add("a", "opened", incident(), T)
    await one.flush()
    for suffix in ("", "-wal", "-shm"):
        path = tmp_path / (file.NAME + suffix)
        if path.exists():
            path.rename(tmp_path / f"{file.NAME}.damaged-1{suffix}")
    one.add("a", "opened", incident("b"), T)
    await one.close()
    two = await opened(tmp_path)
    assert {each.id for each in two.lasting("a")} == {"stall-a", "b"}
    await two.close()
