"""The webhook notifier: what is sent, signed with what, and the receiver that the page gives people."""

import asyncio
import contextlib
import json
import re
import sys
import time
from pathlib import Path

import pytest

from tests.notify.telling import receiver, settings
from vllm_watch.errors import WatchError
from vllm_watch.notify import base, kinds, webhook
from vllm_watch.notify.words import trial_message
from vllm_watch.settings.notifications import NotificationsSettings

PAGE = Path(__file__).parents[2] / "docs/notifications.md"


def notifier(url, **more):
    return webhook.Notifier(settings(url, **more), base.Tools())


def trial():
    return trial_message("a", NotificationsSettings(), time.time())


def private(file, text):
    file.write_text(text)
    file.chmod(0o600)
    return file


async def test_what_is_sent(tmp_path):
    """JSON with an idempotency key, signed and with a token, each from its file."""
    more = {
        "secret_file": private(tmp_path / "key", "swordfish\n"),
        "bearer_file": private(tmp_path / "token", "a-token\n"),
    }
    async with receiver() as it:
        sent = await notifier(it.url, **more).send(trial())
        assert sent.outcome == base.SENT
        [(headers, body)] = it.requests
    assert headers["Authorization"] == "Bearer a-token"
    assert re.fullmatch("sha256=[0-9a-f]{64}", headers["X-Vllm-Watch-Signature"])
    assert json.loads(body)["key"] == headers["Idempotency-Key"]


OUTCOMES = {
    200: base.SENT, 204: base.SENT, 302: base.UNSENT, 400: base.REFUSED, 401: base.UNSENT,
    403: base.UNSENT, 404: base.UNSENT, 413: base.REFUSED, 422: base.REFUSED, 429: base.UNSENT,
    500: base.UNSURE, 503: base.UNSURE,
}  # fmt: skip


@pytest.mark.parametrize(("status", "outcome"), OUTCOMES.items())
async def test_status_is_the_outcome(status, outcome):
    """What surely was not taken may be put together anew; what may have been is sent again as it was."""
    async with receiver() as it:
        it.statuses = [status]
        assert (await notifier(it.url).send(trial())).outcome == outcome


@pytest.mark.parametrize(("status", "answer"), [(200, 200), (400, 409)])
async def test_a_test_message_by_the_daemon_and_its_outcome(status, answer):
    """Sent once; what was refused says so, with what to do; a name that there is not, with those that are."""
    async with receiver() as it:
        it.statuses = [status]
        oncall = {"webhook": [{"name": "oncall", "url": it.url}]}
        notifiers = NotificationsSettings.model_validate(oncall)
        found, said = await kinds.trial(notifiers, "oncall")
        with pytest.raises(WatchError) as error:
            await kinds.trial(notifiers, "oncal")
    assert (found, len(it.got)) == (answer, 1)
    assert "oncall" in (said["text"] if status == 200 else said["error"])
    assert "test of the notifier oncall" in str(it.got)
    assert "oncall" in error.value.remedy


WRONG_FILES = {
    "not there": (None, "secret_file cannot be read: No such file or directory"),
    "empty": ("", "secret_file is empty"),
}


@pytest.mark.parametrize(("text", "cause"), WRONG_FILES.values(), ids=WRONG_FILES)
async def test_a_key_that_cannot_be_used_is_said(tmp_path, text, cause):
    """Nothing is sent unsigned for want of a key, and the file's path is no part of the error."""
    file = tmp_path / "key"
    if text is not None:
        private(file, text)
    async with receiver() as it:
        one = notifier(it.url, secret_file=file)
        assert (await one.send(trial())).text == cause
        assert it.got == []
    assert (False, cause) in [(each.ok, each.text) for each in one.check()]


async def test_a_token_that_is_none_cannot_become_a_header(tmp_path):
    """A line break in it would be another header."""
    file = private(tmp_path / "token", "a\r\nX-Evil: 1")
    async with receiver() as it:
        sent = await notifier(it.url, bearer_file=file).send(trial())
        assert (sent.outcome, it.got) == (base.UNSENT, [])


def test_a_key_that_others_may_read_is_said(tmp_path):
    file = private(tmp_path / "key", "swordfish")
    file.chmod(0o644)
    wrong = [each for each in notifier("http://a/", secret_file=file).check() if not each.ok]
    assert [(each.text, each.remedy) for each in wrong] == [
        ("secret_file: others may read it", f"chmod 600 {file}")
    ]


@contextlib.asynccontextmanager
async def page_receiver(folder, port):
    """The program that docs/notifications.md gives people, as a process of its own."""
    [code] = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (folder / "bridge.key").write_text("swordfish\n")
    (folder / "receiver.py").write_text(code.replace("8099", str(port)))
    process = await asyncio.create_subprocess_exec(
        sys.executable, "receiver.py", cwd=folder,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def test_receiver_of_the_page(tmp_path):
    """It takes each of our messages once, and none that is signed with another key, old, or changed."""
    async with receiver() as free:
        port = int(free.url.rpartition(":")[2].partition("/")[0])
    async with page_receiver(tmp_path, port) as process:
        url = f"http://127.0.0.1:{port}/"
        ours, other = tmp_path / "bridge.key", private(tmp_path / "other", "swordfisch")
        made = trial()
        async with asyncio.timeout(20):
            while (sent := await notifier(url, secret_file=ours).send(made)).outcome != base.SENT:
                await asyncio.sleep(0.2)  # it is being started
        assert (await notifier(url, secret_file=ours).send(made)).outcome == base.SENT  # again
        assert "answered 403" in (await notifier(url, secret_file=other).send(trial())).text
        assert "answered 403" in (await notifier(url).send(trial())).text
        tools = base.Tools(unix_time=lambda: time.time() - 400)
        old = webhook.Notifier(settings(url, secret_file=ours), tools)
        assert "answered 403" in (await old.send(trial())).text
        process.kill()
        printed, _ = await process.communicate()
    assert sent.outcome == base.SENT
    assert printed.decode().splitlines() == ["INFO test: vllm-watch: test (test)"]
    assert len(re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)[0].splitlines()) <= 25  # fmt: skip
