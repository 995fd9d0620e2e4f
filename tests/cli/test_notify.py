"""`vllm-watch notify test` and what `check-config` says of notifiers: real processes, a real receiver, the real library."""

import asyncio
import json
import os
import re
import sys

import pytest
import yaml

from tests.daemon_process import ROOT
from tests.notify.telling import receiver
from vllm_watch.config import Config

PAGE = (ROOT / "docs/notifications.md").read_text()


async def vllm_watch(*arguments, **environ):
    clean = {k: v for k, v in os.environ.items() if not k.startswith("VLLM_")}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "vllm_watch", *map(str, arguments), cwd=ROOT, env=clean | environ,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, err = await asyncio.wait_for(process.communicate(), 60)
    return process.returncode, out.decode(), err.decode()


def private(file, text):
    file.write_text(text)
    file.chmod(0o600)
    return file


def config(folder, notifications):
    file = folder / "c.yaml"
    file.write_text(yaml.safe_dump({"notifications": notifications}))
    return file


async def test_a_test_message_is_sent(tmp_path):
    async with receiver() as it:
        file = config(tmp_path, {"webhook": [{"name": "oncall", "url": it.url}]})
        status, out, err = await vllm_watch("notify", "test", "oncall", "--config", file)
        assert it.titles == ["INFO test: vllm-watch: test (test)"]
    assert (status, err) == (0, "")
    assert out.splitlines() == [
        "notifier oncall (webhook)",
        "  note   messages are not signed: anyone who knows the URL can send them",
        "         → set secret_file",
        f"  ok     the test message was accepted: {it.url.removesuffix('/told')} answered 200",
    ]


async def test_check_config_looks_at_notifiers(tmp_path):
    key = private(tmp_path / "key", "s3cr3t")
    urls = private(
        tmp_path / "urls", "slack://s3cr3tAAAA/s3cr3tBBBB/s3cr3tCCCC\njson://u:s3cr3t@h/x\n"
    )
    file = config(tmp_path, {
        "webhook": [{"name": "oncall", "url": "http://h/x?token=s3cr3t", "secret_file": str(key)}],
        "apprise": [{"name": "chat", "urls_file": str(urls)}],
    })  # fmt: skip
    for more in ((), ("--json",)):
        status, out, err = await vllm_watch("check-config", file, *more)
        assert "s3cr3t" not in out + err
        if more:
            assert json.loads(out)["notifications"]["webhook"][0]["name"] == "oncall"
    urls.write_text("json://u:s3cr3t@h/x\n")
    status, out, _ = await vllm_watch("check-config", file)
    assert status == 0
    assert out.partition("notifiers:\n")[2].splitlines() == [
        "  oncall (webhook): messages are signed",
        "  chat (apprise): URL 1 is for json",
    ]


EXAMPLES = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize("text", [e for e in EXAMPLES if "notifications:" in e])
def test_examples_of_the_page_are_configurations(text, tmp_path):
    """What the page gives people to copy is taken as it stands."""
    found = Config.model_validate(yaml.safe_load(text), context={"folder": tmp_path})
    assert found.notifications.each()


@pytest.mark.parametrize("url", re.findall(r"\| `(\w+://[^`]+)` \|", PAGE))
@pytest.mark.filterwarnings("ignore:'imghdr' is deprecated:DeprecationWarning")
def test_urls_of_the_page_are_taken_by_the_library(url):
    """Each service's own form; the tokens are made up."""
    from vllm_watch.notify.apprise import _service  # noqa: PLC0415

    assert _service(url) is not None


def test_page_says_every_key_of_a_message():
    from tests.notify.telling import incident  # noqa: PLC0415
    from vllm_watch.notify.policy import Batch, Item  # noqa: PLC0415
    from vllm_watch.notify.words import message  # noqa: PLC0415
    from vllm_watch.settings.notifications import NotificationsSettings  # noqa: PLC0415

    batch = Batch(items=(Item(phase="opened", alert=incident()),))
    payload = message("k", batch, NotificationsSettings(), dropped=0, t=1.0).payload
    table = PAGE.partition("| key | value |")[2].partition("```python")[0]
    assert {*payload, *payload["items"][0]} <= set(re.findall(r"`(\w+)`", table))
