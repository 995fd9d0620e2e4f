"""The calendar file of a daemon: read again when it changes; one that cannot be read blocks."""

import os

from tests.restart.station import station

NOW = """\
BEGIN:VCALENDAR
BEGIN:VEVENT
SUMMARY:all year
DTSTART;VALUE=DATE:20200101
DTEND;VALUE=DATE:20990101
END:VEVENT
END:VCALENDAR
"""
NEVER = NOW.replace("20990101", "20200102")


async def refused(one):
    """What the calendar has against a restart, after it was looked at."""
    await one.restarts._look()
    facts = one.restarts._equipment.means().policy(one.config.restart)
    return facts.freezes_error, [each.reason for each in facts.freezes]


async def test_a_calendar(tmp_path):
    """A freeze that was added holds, one that was taken away does not, and trouble is told with the file's name."""
    file = tmp_path / "freezes.ics"
    file.write_text(NEVER)
    async with station(tmp_path, freeze_calendar_file=str(file), start=False) as one:
        assert await refused(one) == (None, [])
        file.write_text(NOW)
        assert await refused(one) == (None, ["all year"])
        file.write_text("nonsense")
        error, freezes = await refused(one)
        assert error == f"{file}: 'nonsense' is no line of an iCalendar file"
        assert freezes == []
        file.write_text(NEVER)
        assert await refused(one) == (None, [])
        file.unlink()
        assert "No such file" in (await refused(one))[0]
        os.mkfifo(file)  # a file that never ends
        assert (await refused(one))[0] == f"{file}: it is no regular file"


async def test_it_holds_for_all_but_an_override(tmp_path):
    """Asked through the API, as a person does."""
    file = tmp_path / "freezes.ics"
    file.write_text(NOW)
    async with station(tmp_path, freeze_calendar_file=str(file)) as one:
        status, said = await one.ask("/api/v1/targets/a/restart", {"reason": "x"})
        assert (status, said["gate"]) == (409, "freeze")
        assert "all year" in said["error"]
        body = {"reason": "x", "override_freeze": "it serves nobody"}
        assert (await one.ask("/api/v1/targets/a/restart", body))[0] == 202


async def test_a_calendar_that_was_not_read_yet_blocks(tmp_path):
    """Nobody knows yet what holds."""
    async with station(tmp_path, start=False) as one:
        settings = one.config.restart.model_copy(update={"freeze_calendar_file": tmp_path / "x"})
        policy = one.restarts._equipment.means().policy(settings)
        assert policy.freezes_error == "it was not read yet"
