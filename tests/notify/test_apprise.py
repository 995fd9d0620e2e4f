"""The real library against a receiver of ours (its json:// scheme): what arrives, what fails, what never leaks."""

import asyncio
import io
import json
import logging
import os
import sys

import pytest

from tests.notify.telling import incident, receiver
from vllm_watch.notify import apprise, base
from vllm_watch.notify.policy import Batch, Item
from vllm_watch.notify.words import message, trial_message
from vllm_watch.settings.notifications import AppriseNotifier, NotificationsSettings

# The library asks Python 3.11 and 3.12 for a module that 3.13 has no more.
pytestmark = pytest.mark.filterwarnings("ignore:'imghdr' is deprecated:DeprecationWarning")

SECRET = "s3cr3t-pass"
TOKEN = "s3cr3t-token"


def notifier(tmp_path, *urls, seconds=10, mode=0o600):
    file = tmp_path / "urls"
    file.write_text("# ours\n\n" + "\n".join(urls) + "\n")
    file.chmod(mode)
    settings = AppriseNotifier(name="a", urls_file=file, timeout_seconds=seconds)
    return apprise.Notifier(settings, base.Tools())


def of(it, extra=""):
    return it.url.replace("http://", f"json://me:{SECRET}@") + extra


def page(phase="opened"):
    one = Item(phase=phase, alert=incident(summary="<b>*all*</b> of [it](http://evil) by kv_pinning"))  # fmt: skip
    return message("k1", Batch(items=(one,)), NotificationsSettings(page_url="https://w.example/"), dropped=0, t=1.0)  # fmt: skip


async def test_a_page_arrives(tmp_path):
    async with receiver() as it:
        assert (await notifier(tmp_path, of(it)).send(page())).outcome == base.SENT
        [(headers, body)] = it.requests
    said = json.loads(body)
    assert said["title"] == "CRITICAL chat-0 engine 0 is stalled: hang"
    assert said["type"] == "failure"
    assert "UTC. \\<b\\>\\*all\\*\\</b\\> of \\[it\\](http://evil)" in said["message"]
    assert headers["Authorization"].startswith("Basic ")


async def test_as_html_nothing_but_text_arrives(tmp_path):
    """What a server said is shown, and is no tag, no link and no emphasis."""
    async with receiver() as it:
        await notifier(tmp_path, of(it, "?format=html")).send(page())
    text = it.got[0]["message"]
    assert "&lt;b&gt;*all*&lt;/b&gt; of [it](http://evil) by kv_pinning" in text
    assert '<a href="https://w.example/#target-chat-0">' in text
    assert "href=\"http://evil" not in text  # fmt: skip


async def test_urls_come_from_a_variable(tmp_path):
    """White space between them; nothing of it stands in the configuration."""
    async with receiver() as it:
        settings = AppriseNotifier(name="a", urls_variable="ONCALL_URLS", timeout_seconds=10)
        tools = base.Tools(environ={"ONCALL_URLS": f"{of(it)}\n {of(it, '/2')}"})
        assert (await apprise.Notifier(settings, tools).send(page())).outcome == base.SENT
        assert len(it.got) == 2


async def test_a_token_is_replaced_while_it_runs(tmp_path):
    """The file is read at each message."""
    async with receiver() as first, receiver() as second:
        one = notifier(tmp_path, of(first))
        await one.send(page())
        (tmp_path / "urls").write_text(of(second))
        await one.send(trial_message("a", NotificationsSettings(), 1.0))
        assert (len(first.got), len(second.got)) == (1, 1)


@pytest.fixture
def everything():
    """All that a log at level debug would show."""
    root, stream = logging.getLogger(), io.StringIO()
    handler, level = logging.StreamHandler(stream), root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    yield stream.getvalue
    root.removeHandler(handler)
    root.setLevel(level)


async def test_a_service_that_refuses_is_said_without_its_token(tmp_path, everything, capfd):
    """The library's own words name the URL at times; ours never do."""
    async with receiver() as it:
        it.statuses = [401]
        one = notifier(tmp_path, of(it, f"/{TOKEN}?x-{TOKEN}=1"))
        sent = await one.send(page())
    assert sent.outcome == base.UNSURE
    assert sent.text.startswith("URL 1 (json): ")
    assert "40" in sent.text  # the status
    out = "".join(capfd.readouterr())
    for text in (sent.text, everything(), out, repr(one.check())):
        assert SECRET not in text
        assert TOKEN not in text


async def test_one_of_two_fails_and_only_that_one_is_tried_again(tmp_path):
    """Who has taken a message is not sent it again."""
    async with receiver() as good, receiver() as bad:
        one = notifier(tmp_path, of(good), of(bad))
        bad.statuses = [500, 200]
        made = page()
        assert (await one.send(made)).text.startswith("URL 2 (json): ")
        assert (await one.send(made)).outcome == base.SENT
        assert (len(good.got), len(bad.got)) == (1, 2)


async def test_a_service_that_hangs_holds_up_nobody(tmp_path):
    """The event loop goes on, the deadline holds, and no second thread is begun while the first one hangs."""
    async with receiver() as it:
        it.statuses = [0, 200]
        one = notifier(tmp_path, of(it, "?rto=30"), seconds=0.5)
        turns = 0

        async def others():
            nonlocal turns
            while True:
                await asyncio.sleep(0.01)
                turns += 1

        busy = asyncio.create_task(others())
        assert "no answer within 0.5 s" in (await one.send(page())).text
        assert turns > 1
        threads = os.listdir("/proc/self/task")
        again = await one.send(page())
        hangs = "the last try has not ended yet: a service hangs"
        assert (again.outcome, again.text) == (base.UNSURE, hangs)
        assert os.listdir("/proc/self/task") == threads
        busy.cancel()
        it.hang.set()
        one._settings = one._settings.model_copy(update={"timeout_seconds": 60.0})
        async with asyncio.timeout(20):
            while (
                sent := await one.send(trial_message("a", NotificationsSettings(), 1.0))
            ).text == hangs:
                await asyncio.sleep(0.01)
        assert sent.outcome == base.SENT


WRONG = {
    "others may read it": (
        lambda f: f.chmod(0o604),
        "urls_file cannot be read: others may read it: chmod 600 it, or mount the Secret with defaultMode: 0440",
    ),
    "it is gone": (lambda f: f.unlink(), "urls_file cannot be read: No such file or directory"),
    "it is empty": (lambda f: f.write_text("# nothing\n"), "urls_file holds no URL"),
    "it is no text": (lambda f: f.write_bytes(b"\xff\xfe\x00"), "urls_file is not text"),
    "it holds no URL": (lambda f: f.write_text(f"{SECRET}\n"), None),
    "a service that there is not": (lambda f: f.write_text(f"nosuch://{SECRET}/x\n"), None),
}


@pytest.mark.parametrize(("spoil", "cause"), WRONG.values(), ids=WRONG)
async def test_a_file_that_cannot_be_used(tmp_path, everything, spoil, cause):
    """Said by a check and by a try, with a remedy, and without what stands in it."""
    one = notifier(tmp_path, f"json://{SECRET}@127.0.0.1/")
    spoil(tmp_path / "urls")
    [found] = one.check()
    sent = await one.send(page())
    assert (found.ok, sent.outcome != base.SENT) == (False, True)
    assert found.remedy
    if cause is not None:
        assert (found.text, sent.text) == (cause, cause)
    assert SECRET not in found.text + sent.text + everything()


async def test_without_the_library_it_says_what_to_install(tmp_path, monkeypatch):
    """The daemon runs without it."""
    monkeypatch.setitem(sys.modules, "apprise", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    one = notifier(tmp_path, "json://127.0.0.1/")
    [found] = one.check()
    assert (found.text, found.remedy) == (
        "the library apprise is not installed",
        "pip install 'vllm-watch[apprise]'",
    )
    assert "pip install" in (await one.send(page())).text
