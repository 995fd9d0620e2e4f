"""Format the history as a self-contained HTML file without scripts."""

from collections.abc import Sequence
from html import escape

from vllm_watch import __version__
from vllm_watch.cli.helpers.history import text
from vllm_watch.cli.helpers.history.judged import Compared, Found, Judged

_ROWS_MAX = 2000
_STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem; color: #1c2330; background: #fff }
h1 { font-size: 1.3rem } h2 { font-size: 1.05rem; margin-top: 2rem }
table { border-collapse: collapse; width: 100% } td, th { text-align: left; vertical-align: top; padding: .35rem .6rem; border-bottom: 1px solid #d5dae3 }
.page { color: #a4161a; font-weight: 600 } .ticket { color: #8a5a00 } svg { width: 100%; height: 1rem; background: #e7efe9 } rect { fill: #a4161a }
small { color: #566 }
@media (prefers-color-scheme: dark) { body { color: #dfe5ee; background: #151a22 } td, th { border-color: #333b48 } svg { background: #22332a } }
"""


def page(
    judged: Sequence[Judged], compared: Compared, source: str, start_t: float, end_t: float
) -> str:
    """Return the HTML."""
    rows = "".join(_row(each) for each in compared.found[:_ROWS_MAX])
    lines = "".join(_line(each, compared, start_t, end_t) for each in judged)
    blind = "".join(f"<li>{escape(each)}</li>" for each in text.blind_spots(judged))
    fired = "".join(
        f"<tr><td>{text.clock(each.begin_t)}</td><td>{text.duration(each.end_t - each.begin_t)}</td><td>{escape(each.name)}</td>"
        f"<td>{escape(each.labels.get('instance') or each.labels.get('pod') or '')}</td></tr>"
        for each in compared.needless[:_ROWS_MAX]
    )
    return f"""<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>vLLM history</title><style>{_STYLE}</style>
<h1>{escape(text.summary(judged, compared, end_t - start_t))}</h1>
<p>{text.clock(start_t)} to {text.clock(end_t)} UTC, from {escape(source)}, judged by vllm-watch {__version__}.</p>
<h2>Servers</h2><table><tr><th>Server</th><th>Scrapes</th><th>Every</th><th>When something was wrong</th></tr>{lines}</table>
<h2>Incidents</h2><table><tr><th>Began (UTC)</th><th>Lasted</th><th>Server</th><th>What</th><th>Your alerts</th></tr>{rows}</table>
<h2>Alerts that fired at healthy times</h2><table><tr><th>Began (UTC)</th><th>Lasted</th><th>Alert</th><th>Of</th></tr>{fired}</table>
<h2>Limits of this history</h2><ul>{blind}</ul>
</html>
"""


def _row(found: Found) -> str:
    head, what, alerts, step = text.incident(found)
    title = head.rpartition("  ")[2]
    lasted = "still open" if found.until_t is None else text.duration(found.until_t - found.began_t)
    return (
        f"<tr><td>{text.clock(found.began_t)}</td><td>{lasted}</td><td>{escape(found.target)}</td>"
        f'<td><span class="{escape(found.incident.severity)}">{escape(title)}</span><br>{escape(what.strip())}<br>'
        f"<small>{escape(step.strip())}</small></td><td>{escape(alerts.strip())}</td></tr>"
    )


def _line(one: Judged, compared: Compared, start_t: float, end_t: float) -> str:
    whole = max(end_t - start_t, 1.0)
    bars = "".join(
        f'<rect x="{1000 * (each.began_t - start_t) / whole:.1f}" width="{max(2.0, 1000 * ((each.until_t or end_t) - each.began_t) / whole):.1f}" height="10"/>'
        for each in compared.found if each.target == one.target.name
    )  # fmt: skip
    every = f"{one.interval_seconds:g} s" if one.interval_seconds else "–"
    failed = f" ({one.failed} failed)" if one.failed else ""
    return (
        f"<tr><td>{escape(one.target.name)}</td><td>{one.looks}{failed}</td><td>{every}</td>"
        f'<td><svg viewBox="0 0 1000 10" preserveAspectRatio="none" role="img" aria-label="times of incidents">{bars}</svg></td></tr>'
    )
