"""The runbooks that the daemon serves: of every kind, alert and restart, from the package, without a network."""

import re
from html.parser import HTMLParser
from pathlib import Path

import aiohttp
import pytest

from tests.export.serving import serving
from tests.export.small_board import small_board
from vllm_watch.export import page_files
from vllm_watch.story.base import RESTART_RUNBOOK, runbook_path
from vllm_watch.story.kinds import KINDS, MANY_AT_ONCE, STORIES

PATHS = [
    *(story.runbook_path for story in STORIES.values()),
    MANY_AT_ONCE.runbook_path,
    runbook_path(RESTART_RUNBOOK),
]
DOCS = Path(__file__).parents[2] / "docs"


class Page(HTMLParser):
    """The anchors of a page, and where its links lead."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.anchors |= {found["id"] or ""} if "id" in found else set()
        self.links += [found["href"] or ""] if tag == "a" else []


def text_of(name: str) -> str:
    return page_files.contents("runbooks")[f"{name}.html"].decode()


@pytest.mark.parametrize("path", PATHS)
async def test_every_story_leads_to_a_page_that_is_served(path: str) -> None:
    async with (
        serving(small_board()) as server,
        aiohttp.ClientSession() as session,
        session.get(f"http://127.0.0.1:{server.port}/{path}") as answer,
    ):
        assert answer.status == 200
        assert answer.content_type == "text/html"
        assert "script-src 'self'" in answer.headers["Content-Security-Policy"]
        anchors = Page(await answer.text()).anchors
    assert path.partition("#")[2] in {"", *anchors}


async def test_no_such_runbook() -> None:
    async with serving(small_board()) as server, aiohttp.ClientSession() as session:
        for name in ("nothing", "..%2fpage%2findex", "engine_down.html"):
            async with session.get(f"http://127.0.0.1:{server.port}/runbooks/{name}") as answer:
                assert answer.status == 404


@pytest.mark.parametrize(
    "name", [name.removesuffix(".html") for name in page_files.contents("runbooks")]
)
def test_every_link_leads_somewhere(name: str) -> None:
    """To a heading, to another runbook, to the status page, or to another site."""
    for link in Page(text_of(name)).links:
        path, _, anchor = link.partition("#")
        if link.startswith("https://") or link == "../":
            continue
        assert f"{path or name}.html" in page_files.contents("runbooks"), link
        assert anchor in {"", *Page(text_of(path or name)).anchors}, link


@pytest.mark.parametrize("kind", KINDS)
def test_what_to_do_comes_first(kind: str) -> None:
    """Then whether it is really that; at the end what only who has time reads. With commands to copy."""
    page = (DOCS / f"detectors/{kind}.md").read_text()
    headings = re.findall(r"^## (.*)", page, re.MULTILINE)
    assert headings[:3] == ["What to do now", "Is it really that?", "Reference"]
    now = page.partition("## What to do now")[2].partition("\n## ")[0]
    blocks = re.findall(r"^ *```\n(.*?)```", now, re.MULTILINE | re.DOTALL)
    assert blocks
    assert re.search(r"kubectl|Kubernetes", now)
    assert re.search(r"docker|Docker", now)
