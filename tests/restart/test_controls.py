"""What operators have set holds over starts, damage and other programs; what cannot be read holds nothing open."""

import time
from typing import Any

import pytest

from vllm_watch.board.restarts import Paused
from vllm_watch.errors import JournalError
from vllm_watch.restart import controls as controls_module
from vllm_watch.restart.controls import Controls
from vllm_watch.state import file
from vllm_watch.state.journal import Journal

NOW = 1_790_000_000.0


async def loaded(folder, version="1", t=NOW):
    journal = Journal(folder)
    controls = Controls(journal, version)
    await controls.load(t)
    return controls, journal


async def test_holds_over_a_start(tmp_path):
    """A pause, a silence, a closed breaker and the version's first day are read again."""
    controls, journal = await loaded(tmp_path)
    assert controls.known
    await controls.set_pause(
        Paused(actor="ana", reason="migration", until_timestamp_seconds=NOW + 60)
    )
    await controls.silence("i1", "ana", "known", NOW + 60)
    await controls.reset_breakers(NOW + 1)
    await journal.close()

    again, journal = await loaded(tmp_path, t=NOW + 5)
    assert again.pause(NOW) == Paused(
        actor="ana", reason="migration", until_timestamp_seconds=NOW + 60
    )
    assert again.silenced("i1", NOW)
    assert not again.silenced("i2", NOW)
    assert (again.breaker_reset_t, again.version_first_t) == (NOW + 1, NOW)
    await journal.close()


async def test_ends_by_time_or_by_a_person(tmp_path):
    """At its last moment a pause or a silence is over; a pause without an end needs a person."""
    controls, journal = await loaded(tmp_path)
    await controls.silence("i1", "ana", "known", NOW + 60)
    await controls.set_pause(
        Paused(actor="ana", reason="migration", until_timestamp_seconds=NOW + 60)
    )
    assert controls.pause(NOW + 59) is not None
    assert controls.pause(NOW + 60) is None
    assert not controls.silenced("i1", NOW + 60)
    await controls.set_pause(Paused(actor="ana", reason="migration"))
    assert controls.pause(NOW + 1e9) is not None
    await controls.set_pause(None)
    assert controls.pause(NOW) is None
    await journal.close()


async def test_each_version_has_its_first_day(tmp_path):
    """An upgrade looks on again; going back to a version that was here does not."""
    for version, t, first_t in (("1", NOW, NOW), ("2", NOW + 9, NOW + 9), ("1", NOW + 20, NOW)):
        controls, journal = await loaded(tmp_path, version, t)
        assert controls.version_first_t == first_t
        await journal.close()


async def test_silences_are_bounded(tmp_path, monkeypatch):
    """Beyond the bound the one that ends first goes; the same again is no new one."""
    monkeypatch.setattr(controls_module, "SILENCES_MAX", 2)
    controls, journal = await loaded(tmp_path)
    await controls.silence("long", "ana", "", NOW + 900)
    await controls.silence("short", "ana", "", NOW + 60)
    await controls.silence("long", "ana", "", NOW + 950)
    assert controls.silenced("short", NOW)
    await controls.silence("new", "ana", "", NOW + 500)
    silenced = [each for each in ("long", "short", "new") if controls.silenced(each, NOW)]
    assert silenced == ["long", "new"]
    await journal.close()


async def test_what_is_not_kept_does_not_hold(tmp_path):
    """Where nothing can be read or written nothing is known, and a person is told that it did not take."""
    (tmp_path / "file").write_text("")
    controls, journal = await loaded(tmp_path / "file")
    assert not controls.known
    with pytest.raises(JournalError):
        await controls.set_pause(Paused(actor="ana", reason="migration"))
    assert controls.pause(NOW) is None
    await journal.close()


async def test_known_no_more(tmp_path):
    """What was read once is not known for ever: a file that cannot be read any more may say otherwise."""
    controls, journal = await loaded(tmp_path)
    (tmp_path / "other").write_bytes(b"no SQLite at all" * 300)
    (tmp_path / "other").rename(tmp_path / file.NAME)
    await controls.load(NOW)
    assert not controls.known
    await journal.close()


async def test_damage_while_we_run(tmp_path):
    """The history is lost and a person must resume; what operators have set still holds, on the new file too."""
    controls, journal = await loaded(tmp_path)
    await controls.set_pause(Paused(actor="ana", reason="migration"))
    file.move_aside(tmp_path, time.time())
    await controls.load(NOW + 5)
    assert "or resume" in (controls.history_lost or "")
    assert controls.pause(NOW) is not None
    assert controls.version_first_t == NOW
    await controls.load(NOW + 6)
    assert controls.history_lost
    await journal.close()

    again, journal = await loaded(tmp_path, t=NOW + 9)
    assert again.history_lost
    assert again.pause(NOW) is not None
    await again.reset_breakers(NOW + 10)
    assert again.history_lost is None
    await journal.close()
    last, journal = await loaded(tmp_path, t=NOW + 11)
    assert (last.history_lost, last.breaker_reset_t) == (None, NOW + 10)
    await journal.close()


ODD: dict[str, dict[str, Any]] = {
    "nobody's": {},
    "an end that is none": {"actor": "ana", "reason": "x", "until_t": "soon"},
}


@pytest.mark.parametrize("said", ODD.values(), ids=ODD)
async def test_odd_pause_is_a_pause(tmp_path, said):
    """An entry that something else wrote holds all the same."""
    controls, journal = await loaded(tmp_path)
    await journal.set("pause", said)
    await controls.load(NOW)
    assert controls.pause(NOW) is not None
    await journal.close()
