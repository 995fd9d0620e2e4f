"""From a recording to the pager's words: Watch, export, rules, of real faults and of those of the lab.

Each story plays a recording through the judgement and the export of the daemon, and has promtool run the shipped
rules over what was scraped. Nothing waits, so all that was ever recorded can be tried. Times are printed (pytest -s).
"""

from pathlib import Path

import pytest

from tests.alerts import chain
from tests.alerts.recorded import LAB, PAGE, REAL, Recorded, Told, page, played

STORIES = (*REAL, *LAB)


def told(alert: chain.Alert) -> tuple[str, str, str]:
    return alert.name, alert.labels["severity"], alert.labels.get("cause", "")


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.name)
def test_just_the_expected_alerts_fire(story: Recorded, tmp_path: Path) -> None:
    """Each alert with its severity, cause and words, soon, once, and ended; no other one; of health none."""
    found, fired = played(story)
    assert [told(alert) for alert in fired] == [
        (expected.alert, expected.severity, expected.cause) for expected in story.told
    ]
    for alert, expected in zip(fired, story.told, strict=True):
        print(
            f"{story.name}: {expected.alert} {alert.first_s - expected.at_s:.0f} s after it began"
        )
        as_expected(story, found, alert, expected, tmp_path)


def as_expected(
    story: Recorded, found: chain.Exported, alert: chain.Alert, expected: Told, folder: Path
) -> None:
    assert 0.0 <= alert.first_s - expected.at_s <= expected.within_s
    assert chain.words(found, alert, folder)["summary"] == expected.summary
    last_s = (found.scrapes - 1) * chain.SCRAPE_SECONDS
    assert (alert.last_s < last_s) == expected.ends
    assert alert.evaluations == (alert.last_s - alert.first_s) / chain.SCRAPE_SECONDS + 1
    if expected.behind:  # what holds it back fires for as long as it does
        holding = (expected.behind, "page")
        (before,) = (each for each in story.told if (each.alert, each.severity) == holding)
        assert before.at_s <= expected.at_s


def test_page_has_the_times() -> None:
    """docs/alerts.md says how long each took; `python -m tests.alerts.recorded` writes it anew."""
    assert PAGE.read_text() == page()
