"""Notifications of the whole daemon: a real process, a real engine's answers, real receivers, real kills."""

import json
import sqlite3

import pytest

from tests.daemon_process import daemon
from tests.notify.telling import receiver
from tests.sources.wire import wire
from tests.test_daemon import engine_routes, growing, is_up, values

QUICK = {"VLLM_WATCH_SCRAPE__HEALTH_INTERVAL_SECONDS": "0.2"}
SECRETS = ("s3cr3t-hmac", "s3cr3t-bearer", "s3cr3t-path", "s3cr3t-password", "s3cr3t-query")


async def unwell(request):
    await request.answer("no", status="503 Away")


class Site:
    """An engine, a receiver, and a daemon's configuration."""

    def __init__(self, folder, engine, it):
        self.folder, self.engine, self.it = folder, engine, it
        self.more = ""
        self.works = True
        engine.on("/metrics", growing(works=lambda: self.works))
        self.oncall = {"name": "oncall", "url": it.url, "group_seconds": 0.5, "timeout_seconds": 60}
        self.others = {}

    def daemon(self, **more):
        notifiers = {
            "page_url": "https://watch.example/",
            "webhook": [self.oncall],
        }
        (self.folder / "config.yaml").write_text(f"""\
state_dir: state
{self.more}
notifications: {json.dumps(notifiers | self.others)}
targets: [{{name: a, group: chat, url: "{self.engine.url}"}}]
""")
        return daemon(
            "--config", self.folder / "config.yaml", environ=QUICK | more.pop("environ", {})
        )

    def fall(self):
        self.works = False
        self.engine.on("/health", unwell)

    def rise(self):
        self.works = True
        self.engine.on("/health", "")


@pytest.fixture
async def site(tmp_path):
    async with wire() as engine, receiver() as it:
        engine_routes(engine)
        yield Site(tmp_path, engine, it)


async def test_from_a_fault_to_the_message_and_its_end(site):
    """One page with its dry run, and one end; the status and the metrics say the same."""
    site.more = """\
restart: {mode: observe, hook: h}
hooks: {command: [{name: h, argv: [/bin/true]}]}
"""
    site.oncall["restarts"] = ["dry_run"]
    async with site.daemon() as process:
        await process.until(is_up)
        site.fall()
        await site.it.until(2)
        site.rise()
        await site.it.until(3, seconds=90)
        status = await process.until(lambda s: s["notifiers"]["oncall"]["outcomes"]["sent"] == 3)
        metrics = values((await process.get("/metrics"))[1])
    opened, dry_run, resolved = sorted(
        site.it.got, key=lambda m: ["opened", "said", "resolved"].index(m["phase"])
    )
    assert opened["title"] == "CRITICAL a is down: engine dead behind a live API server"
    assert opened["items"][0]["restart"].startswith("advised; do it by hand")
    assert dry_run["title"] == "INFO a is not restarted (dry run)"
    assert resolved["ids"] == opened["ids"]
    assert status["notifiers"]["oncall"]["ok"] is True
    label = ("notifier", "oncall")
    assert metrics["vllm_watch_notifications_total", (label, ("outcome", "sent"))] == 3
    assert metrics["vllm_watch_notifications_queue_length", (label,)] == 0
    assert metrics["vllm_watch_notifier_failing", (label,)] == 0


async def test_no_secret_leaves_the_process(site, tmp_path):
    """Keys, tokens and URLs with credentials everywhere, a log at level debug, and services that refuse."""
    hmac, bearer, password, path, query = SECRETS[0], SECRETS[1], SECRETS[3], SECRETS[2], SECRETS[4]
    for name, text in (("hmac", hmac), ("bearer", bearer)):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o600)
    host = site.it.url.removeprefix("http://")
    (tmp_path / "urls").write_text(
        f"json://me:{password}@{host}/{path}?-token={query}\nnosuch://{path}/{password}\nslack://{path}/x\n"
    )
    (tmp_path / "urls").chmod(0o600)
    site.it.statuses = [401]
    site.oncall = {
        "name": "oncall", "url": f"{site.it.url}?token={query}", "group_seconds": 0,
        "secret_file": "hmac", "bearer_file": "bearer",
    }  # fmt: skip
    site.others = {"apprise": [{"name": "chat", "urls_file": "urls", "group_seconds": 0}]}
    async with site.daemon(environ={"VLLM_WATCH_LOG__LEVEL": "debug"}) as process:
        await process.until(is_up)
        site.fall()
        await process.until(
            lambda s: all(s["notifiers"][name]["outcomes"]["failed"] for name in ("oncall", "chat"))
        )
        shown = [
            (await process.get(path))[1]
            for path in ("/metrics", "/", "/api/v1/status", "/api/v1/incidents")
        ]
        await process.end()
    shown.append(json.dumps(process.lines))
    with sqlite3.connect(site.folder / "state/vllm-watch.sqlite") as db:
        shown += [str(row) for row in db.execute("SELECT * FROM notice")]
    assert process.events("notifier_fails")
    assert process.events("notifier_unusable")
    for secret in SECRETS:
        assert not [text for text in shown if secret in text]
