"""The public page, without addresses, evidence or input fields."""

import re
import time
from html import escape
from urllib.parse import urlsplit

from aiohttp import web

from vllm_watch.board.board import Board, TargetEntry
from vllm_watch.board.uptime import Share
from vllm_watch.export.answers import answer
from vllm_watch.incidents.incident import Incident, in_order
from vllm_watch.story.base import severity_word
from vllm_watch.story.kinds import story_of

TARGETS_MAX = 1000
_IPV4 = re.compile(r"(?:\d{1,3}[.-]){3}\d{1,3}")
_WELL = frozenset(("serving", "idle", "prefilling", "sleeping"))
_STYLE = """:root { color-scheme: light dark; }
body { max-width: 60rem; margin: 2rem auto; padding: 0 1rem; font: 1rem/1.5 system-ui, sans-serif; }
table { width: 100%; border-collapse: collapse; }
th, td { padding: 0.5rem 0.75rem 0.5rem 0; border-bottom: 1px solid; text-align: left; vertical-align: top; overflow-wrap: anywhere; }
thead th { font-size: 0.875rem; } tbody th { font-weight: 650; } th:first-child { min-width: 10rem; } td[data-title] { overflow-wrap: normal; }
@media (max-width: 40rem) { thead { display: none; } tr { display: block; padding: 0.5rem 0; border-bottom: 1px solid; } th, td { display: block; padding: 0; border: 0; } td[data-title]::before { content: attr(data-title) ": "; } }
"""
_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="robots" content="noindex"><title>{headline}</title>
<link rel="stylesheet" href="public/style.css"><script src="public/live.js" defer></script></head><body><main><h1>{headline}</h1>
<table><thead><tr><th scope="col">service</th><th scope="col">now</th><th scope="col">up, 24 hours</th><th scope="col">7 days</th><th scope="col">30 days</th></tr></thead><tbody>
{rows}
</tbody></table><p>As of {at} UTC. Up is the share of the time that is known.</p></main></body></html>
"""
_LIVE = """let answered = new Date();
setInterval(async () => {
  let next = null;
  try {
    const answer = await fetch(location.href, { cache: "no-store", signal: AbortSignal.timeout(10000) });
    if (answer.ok) next = new DOMParser().parseFromString(await answer.text(), "text/html");
  } catch { /* no answer: treated like a refusal */ }
  if (next?.querySelector("main")) {
    answered = new Date();
    document.title = next.title;
    document.querySelector("main").replaceWith(next.querySelector("main"));
  } else {
    document.title = document.querySelector("h1").textContent = `Unknown: no answer since ${answered.toISOString().slice(11, 19)} UTC`;
    for (const cell of document.querySelectorAll("td:not([data-title])")) cell.textContent = "unknown";
  }
}, 10000);
"""


def routes(board: Board) -> list[web.RouteDef]:
    """Return the routes of `/public`, its style sheet and its script."""

    async def shown(request: web.Request) -> web.StreamResponse:
        html = page(board, time.time())
        return await answer(request, html.encode(), "text/html", **{"Cache-Control": "no-store"})

    async def style(request: web.Request) -> web.StreamResponse:
        return await answer(request, _STYLE.encode(), "text/css")

    async def script(request: web.Request) -> web.StreamResponse:
        return await answer(request, _LIVE.encode(), "text/javascript")

    return [
        web.get("/public", shown), web.get("/public/style.css", style),
        web.get("/public/live.js", script),
    ]  # fmt: skip


def page(board: Board, t: float) -> str:
    """Return the page as HTML."""
    entries = sorted(board.targets.values(), key=lambda entry: entry.target.name)[:TARGETS_MAX]
    unknown = sum(_is_unknown(entry) for entry in entries)
    ill = sum(not (_serves(entry) or _is_unknown(entry)) for entry in entries)
    headline = f"{ill} of {len(entries)} services disturbed" if ill else "All services are up"
    if unknown:
        headline = f"{headline if ill else 'No known disturbance'}, {unknown} unknown"
    rows = "\n".join(_row(number, entry, t) for number, entry in enumerate(entries, 1))
    at = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(t))
    return _PAGE.format(headline=headline if entries else "No services", rows=rows, at=at)


def _active(entry: TargetEntry) -> list[Incident]:
    found = in_order(entry.incidents.open.values())
    return [each for each in found if not each.recovering and each.severity != "info"]


def _serves(entry: TargetEntry) -> bool:
    return entry.signals is not None and entry.signals.state in _WELL and not _active(entry)


def _is_unknown(entry: TargetEntry) -> bool:
    state = entry.signals.state if entry.signals else "unknown"
    return state == "unknown" and not _active(entry)


def _row(number: int, entry: TargetEntry, t: float) -> str:
    shares = entry.uptime.shares(t)
    titles = ("24 hours", "7 days", "30 days")
    cells = "".join(f'<td data-title="{title}">{_share(share)}</td>' for title, share in zip(titles, shares, strict=True))  # fmt: skip
    return f'<tr><th scope="row">{escape(_name(number, entry))}</th><td>{escape(_now(entry))}</td>{cells}</tr>'


def _now(entry: TargetEntry) -> str:
    if active := _active(entry):
        worst = active[0]
        title = story_of(worst.kind, worst.target).title_of(worst.cause)
        since = time.strftime("%H:%M", time.gmtime(worst.began_t))
        return f"{severity_word(worst.severity)}: {title}, since {since} UTC"
    return entry.signals.state if entry.signals else "not scraped yet"


def _name(number: int, entry: TargetEntry) -> str:
    name, url = entry.target.name, urlsplit(entry.target.url)
    host = re.sub(r"[^a-z0-9]+", "-", (url.hostname or "").lower())
    made = bool(host) and host in name.lower().replace(".", "-") and str(url.port or "") in name
    return f"service {number}" if (made and url.port) or _IPV4.search(name) else name


def _share(share: Share) -> str:
    lacks = round(share.unknown_ratio * 100)
    if share.up_ratio is None or lacks == 100:  # noqa: PLR2004
        return "unknown"
    return f"{int(share.up_ratio * 1e4) / 1e2:g}%" + (f" ({lacks}% unknown)" if lacks else "")
