"""What is wrong, since when, what it costs, what to do first, will it restart: answered without a click or a scroll.

An incident of each kind and cause, on a laptop and a phone.
"""

import re
import time

import pytest
from playwright.async_api import expect

from tests.export.browsing import PHONE
from tests.export.demo_board import event
from tests.export.page_states import well
from tests.export.serving import serving
from tests.told import made
from vllm_watch.story.kinds import STORIES

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]

SIZES = ((1400, 900), PHONE)
WILL_IT_RESTART = re.compile(r"^Restart: .*(will not restart|restarts it|restarts nothing|is under way)")  # fmt: skip

ANSWERS = """(card) => Object.fromEntries(["h3", ".incident-target", ".severity", ".since", ".age", ".incident-summary", ".incident-cost", ".first-step", ".restart"].map((where) => {
  const each = card.querySelector(where);
  const box = each.getBoundingClientRect();
  return [where, { text: each.innerText.replaceAll("\\u202f", " "), seen: each.checkVisibility() && box.top >= 0 && box.bottom <= innerHeight && box.left >= 0 && box.right <= innerWidth }];
}))"""


async def answers(page, incident) -> dict[str, str]:
    """The texts of its card, all of them in sight."""
    card = page.locator(f"#incident-list #incident-{incident.id}")
    await expect(card.locator(".restart")).to_contain_text("restart")
    shown = await card.evaluate(ANSWERS)
    out_of_sight = [where for where, each in shown.items() if not each["seen"]]
    assert out_of_sight == [], f"{incident.kind} {incident.cause}: {page.viewport_size}"
    return {where: each["text"] for where, each in shown.items()}


def check(said: dict[str, str], incident) -> None:
    """Each question has its answer, and no other text is needed for it."""
    story = STORIES[incident.kind]
    assert said["h3"] == story.title_of(incident.cause)
    assert said[".severity"] in ("critical", "warning")
    assert re.fullmatch(r"since (\d+ \w+ )?\d\d:\d\d:\d\d UTC", said[".since"])
    assert said[".age"]
    assert said[".incident-cost"].startswith(f"Cost: {story.cost_of(incident.cause)}")
    assert len(said[".first-step"]) > len("Do: it")
    assert WILL_IT_RESTART.match(said[".restart"]), said[".restart"]


@pytest.mark.parametrize("size", SIZES)
async def test_each_kind_and_cause_answers_them(opened, size):
    """However long its texts are."""
    board = well()
    async with serving(board) as server:
        tab = await opened(server, size)
        for kind, story in STORIES.items():
            for cause in story.causes:
                told = {"engine": "0", "kind": kind, "cause": cause, "severity": story.severities[0], "summary": "No scheduler step for 30 s with 4 requests running, 17 waiting; no earlier pause known"}  # fmt: skip
                opened_event = event("chat-1", told, time.time())
                board.tell(made(opened_event))
                (incident,) = board.targets["chat-1"].incidents.open.values()
                check(await answers(tab.page, incident), incident)
                board.tell(made(opened_event | {"event": "resolved", "resolution": "healthy"}))
                await expect(
                    tab.page.locator(f"#incident-list #incident-{incident.id}")
                ).to_have_count(0)
