"""What a page says at one moment, as read from it, and where that contradicts itself, the API or the truth."""

import re
from dataclasses import dataclass
from typing import Any

from playwright.async_api import Page

from benchmarks.detection.sequences import KINDS
from benchmarks.lab.virtual import EPOCH
from tests.export.demo_hour import ILL, DemoHour
from vllm_watch.incidents.relations import STATE_OF
from vllm_watch.signals.scales import MOMENT_SECONDS
from vllm_watch.story.base import CURES

LOOK = """async () => {
  const { page } = await import(new URL("page/app.js", location).href);
  if (!await page.live.poll()) return null;
  page.drawNow();
  const shown = (root, where) => {
    const found = root.querySelector(where);
    return found !== null && found.checkVisibility() ? found.textContent : "";
  };
  const texts = (root, where) => [...root.querySelectorAll(where)].map((each) => each.textContent);
  const api = await Promise.all(["status", "incidents"].map(async (path) => (await fetch(`api/v1/${path}`)).json()));
  return {
    title: document.title,
    verdict: { tone: document.getElementById("verdict").dataset.tone, text: texts(document, "#verdict-text")[0], more: texts(document, "#verdict-more")[0] },
    counted: shown(document, "#incidents-title"),
    cards: [...document.querySelectorAll("#incident-list .incident")].map((card) => ({
      id: card.id.replace("incident-", ""), title: shown(card, "h3"), target: shown(card, ".incident-target"), severity: shown(card, ".severity"), since: shown(card, ".since"),
      summary: shown(card, ".incident-summary"), recovery: shown(card, ".incident-recovery"), step: shown(card, ".first-step"),
      restart: shown(card, ".restart"), plan: texts(card, ".plan-lines li") })),
    rows: [...document.querySelectorAll("details.target")].map((row) => ({
      name: shown(row, "h3"), tone: row.dataset.tone, badge: shown(row, ".badge"), flags: texts(row, ".flag") })),
    status: api[0], incidents: api[1].incidents,
  };
}"""

NORMAL_TIMES = re.compile(r"\b(0\.\d+|1\.[01]\d*) times (as|the|its)")
"""A finding whose own number is normal: "steps take 1.0 times as long"."""

ADVICE = (CURES, "would be restarted")

LEFT_BEHIND = "stale_vram"
"""The demo has a notebook that holds memory of a GPU all the time."""

GOOD, BAD = ("serving", "idle", "prefilling"), (*STATE_OF.values(), "unknown", "stale")


@dataclass(frozen=True)
class Seen:
    """The page and the API at one moment."""

    title: str
    verdict: dict[str, str]
    counted: str
    cards: list[dict[str, Any]]
    rows: list[dict[str, Any]]
    status: dict[str, Any]
    incidents: list[dict[str, Any]]

    @classmethod
    async def of(cls, page: Page) -> "Seen":
        """Let the page poll and draw, and read it."""
        while (said := await page.evaluate(LOOK)) is None:
            pass  # it was about to try for its stream again
        return cls(**said)

    @property
    def active(self) -> list[dict[str, Any]]:
        """The cards of what is so now."""
        return [each for each in self.cards if each["severity"] != "recovering"]


def contradictions(seen: Seen, play: DemoHour) -> list[str]:
    """Every sentence is one thing that cannot be true together with another."""
    found = [*_with_the_api(seen), *_headline(seen), *_with_the_truth(seen, play)]
    for row in seen.rows:
        cards = [each for each in seen.cards if each["target"] == row["name"]]
        begins = play.trouble_at(play.t) is not None and row["name"] == ILL
        found += _row(row, cards, begins=begins, just_over=_just_over(seen, row["name"], play.t))
    for card in seen.cards:
        if NORMAL_TIMES.search(card["summary"]) and card in seen.active:
            found.append(f"a finding within normal: {card['summary']}")
    return found


def _with_the_api(seen: Seen) -> list[str]:
    """The page shows what the API says, and both of its answers say the same."""
    open_ = {each["id"]: each for each in seen.incidents if each["state"] == "open"}
    of_targets = {
        each["id"]: each["phase"]
        for target in (*seen.status["targets"], seen.status["host"])
        for each in target["incidents"]
    }
    found = []
    if {each["id"] for each in seen.cards} != open_.keys():
        found.append(f"cards {[each['id'] for each in seen.cards]}, API {list(open_)}")
    if of_targets != {name: each["phase"] for name, each in open_.items()}:
        found.append(f"status {of_targets}, incidents {open_.keys()}")
    for card in seen.cards:
        phase = open_.get(card["id"], {}).get("phase")
        if (card["severity"] == "recovering") != (phase == "recovering"):
            found.append(
                f"{card['title']} is {card['severity']} on its card and {phase} in the API"
            )
    states = {each["name"]: each["state"] for each in seen.status["targets"]}
    if states != {each["name"]: each["badge"] for each in seen.rows}:
        found.append(f"rows and API differ: {states}")
    return found


def _headline(seen: Seen) -> list[str]:
    """It counts the targets that need somebody: what recovers does not."""
    names = {each["name"] for each in seen.rows}
    alarming = {each["target"] for each in seen.active if each["severity"] != "info"}
    needing = alarming | {each["name"] for each in seen.rows if each["badge"] in BAD}
    text, tone = seen.verdict["text"], seen.verdict["tone"]
    found = []
    told = re.search(r"(\d+) of \d+ targets.* needs? attention", seen.verdict["more"])
    if (int(told[1]) if told else 0) != len(needing & names):
        found.append(f"headline {text!r}, but {sorted(needing)} need attention")
    if (text == f"All {len(names)} targets are healthy") != (not needing):
        found.append(f"headline {text!r}, but {sorted(needing)} need attention")
    if (tone in ("bad", "warn")) != bool(needing):
        found.append(f"headline is {tone}, but {sorted(needing)} need attention")
    if needing and not seen.title.startswith(f"({len(needing)})"):
        found.append(f"the tab says {seen.title!r}")
    recovering = len(seen.cards) - len(seen.active)
    counted = re.search(r"(\d+) recovering", seen.counted)
    all_ = seen.counted.endswith(", recovering")
    if (len(seen.cards) if all_ else int(counted[1]) if counted else 0) != recovering:
        found.append(f"{seen.counted!r}, but {recovering} recover")
    return found


def _just_over(seen: Seen, target: str, t: float) -> list[str]:
    """The kinds that recover since a moment ago: their state stays so long, lest it flickers."""
    return [
        each["kind"]
        for each in seen.incidents
        if each["target"] == target and each["phase"] == "recovering"
        if t - (each["ended_timestamp_seconds"] - EPOCH) < MOMENT_SECONDS
    ]


def _row(
    row: dict[str, Any], cards: list[dict[str, Any]], *, begins: bool, just_over: list[str]
) -> list[str]:
    """A target's row and its cards; `begins`: is trouble there that a card may not tell yet?"""
    found, badge = [], row["badge"]
    kinds = [each["id"].rsplit("-", 2)[0] for each in cards if each["severity"] != "recovering"]
    if badge in GOOD and (ill := [kind for kind in kinds if kind in STATE_OF]):
        found.append(f"{row['name']} is {badge}, and {ill} are active")
    known = [STATE_OF.get(kind) for kind in (*kinds, *just_over)]
    if badge in STATE_OF.values() and (known or not begins) and badge not in known:
        found.append(f"{row['name']} is {badge}, and its cards tell {kinds}")
    if len([kind for kind in kinds if kind in STATE_OF]) > 1:
        found.append(f"{row['name']}: one trouble is told as {kinds}")
    if len(row["flags"]) != len(cards):
        found.append(f"{row['name']} has the flags {row['flags']} and {len(cards)} cards")
    for card in cards:
        recovering = card["severity"] == "recovering"
        said = " ".join((card["restart"], *card["plan"]))
        advised = [words for words in ADVICE if words in said]
        if recovering and (card["step"] or card["restart"] or not card["recovery"]):
            found.append(f"what recovers asks for somebody: {card}")
        if not recovering and card["recovery"]:
            found.append(f"what is active has recovered: {card}")
        if advised and (recovering or badge in GOOD):
            found.append(f"a restart is advised of {row['name']}, which is {badge}: {said}")
    return found


def _with_the_truth(seen: Seen, play: DemoHour) -> list[str]:
    """What is told, against what the lab knows to be so."""
    found = [
        f"{each['target']} is healthy: {each['title']}"
        for each in seen.cards
        if each["target"] != ILL and not each["id"].startswith(LEFT_BEHIND)
    ]
    if play.healthy_at(play.t) and (
        of_ill := [each for each in seen.active if each["target"] == ILL]
    ):
        found.append(f"all is well, and active are {of_ill}")
    for incident in seen.incidents:
        if incident["kind"] == LEFT_BEHIND:
            continue
        began_s, opened_s, ended_s = (
            None if incident[f"{name}_timestamp_seconds"] is None
            else incident[f"{name}_timestamp_seconds"] - EPOCH
            for name in ("began", "opened", "ended")
        )  # fmt: skip
        trouble = play.trouble_at(opened_s)
        if trouble is None:
            found.append(f"{incident['title']} is opened at {opened_s:.0f} s: nothing is wrong")
            continue
        if incident["kind"] != KINDS[trouble.slug]:
            found.append(f"a {trouble.slug} is told as {incident['title']}")
        if play.trouble_at(began_s) is None:
            found.append(f"{incident['title']} began at {began_s:.0f} s: nothing was wrong")
        if ended_s is not None and play.healthy_at(ended_s):
            found.append(f"{incident['title']} ended at {ended_s:.0f} s: all was well before")
    return found
