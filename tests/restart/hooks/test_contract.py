"""What every kind of hook does, whatever it restarts by; what is one kind's own: test_KIND.py."""

import json

import pytest

from tests.restart.hooks.calls import CALL, systemctl
from vllm_watch.config import Config
from vllm_watch.errors import WatchError
from vllm_watch.restart.hooks import base
from vllm_watch.settings.hooks import GateHook, HooksSettings

CONFIGURED = {
    # settings; seconds beyond the timeout that one call may take
    "command": ({"argv": ["/bin/true"]}, 8.0),
    "webhook": ({"url": "http://127.0.0.1:1"}, 0.0),
    "systemd": ({"unit": "vllm.service"}, 10.0),
    "docker": ({"container": "vllm"}, 10.0),
    "gate": ({}, 0.0),
    "kubernetes": ({}, 5.0),
}


def made(kind, tools, **keys):
    """By a configuration."""
    entry = {"name": "a", "timeout_seconds": 45.0, **CONFIGURED[kind][0], **keys}
    found, settings = Config.model_validate({"hooks": {kind: [entry]}}).hooks.by_name()["a"]
    return base.make(found, settings, tools)


@pytest.mark.parametrize("kind", CONFIGURED)
def test_configured_hook_is_built(kind):
    """From settings and tools alone; what one call takes is known before it is made."""
    assert made(kind, base.Tools()).timeout_seconds == 45.0 + CONFIGURED[kind][1]


def test_every_kind_can_be_configured():
    assert set(CONFIGURED) <= set(base.kinds()) <= set(HooksSettings.model_fields)


def test_kind_that_is_not_there_is_named():
    with pytest.raises(WatchError, match=r"levitate: .* no such kind\. take one of .*command"):
        base.make("levitate", GateHook(name="a"), base.Tools())


AWAY = {
    # what is not there: kind of hook, settings, what it says
    "a program": ("command", {"argv": ["/no/such"]}, "/no/such is not there"),
    "... of which nobody knows who starts its server": (
        "command", {"argv": ["/no/such"], "relaunches": False}, "/no/such is not there"),
    "a program that may be run": ("command", {"argv": ["HERE/file"]}, "file may not be run"),
    "a socket": ("docker", {"socket": "HERE/none"}, "none cannot be reached: No such file or directory"),
    "who listens at it": ("docker", {"socket": "HERE/file"}, "file cannot be reached: Connection refused"),
    "a systemd": ("systemd", {}, "System has not been booted with systemd"),
    "systemctl": ("systemd", {}, "systemctl cannot be run"),
    "a pod around us": ("kubernetes", {}, "this is not a Kubernetes pod"),
    "a secret": ("webhook", {"secret_file": "HERE/none"}, "secret_file cannot be read: No such file or directory"),
}  # fmt: skip


@pytest.mark.parametrize("what", AWAY)
async def test_what_is_not_there_did_nothing(tmp_path, what):
    """It is said before an attempt is spent, with what to do; and should it be called, surely nothing was done."""
    kind, keys, words = AWAY[what]
    (tmp_path / "file").touch()
    if what == "a systemd":
        systemctl(tmp_path, {}, dead=True)
    here = json.loads(json.dumps(keys).replace("HERE", str(tmp_path)))
    hook = made(kind, base.Tools(environ={"PATH": str(tmp_path)}), **here)
    said = await hook.refusal(CALL)
    assert words in said
    assert (await hook.restart(CALL)).outcome == "failed"
    [found, *_] = await hook.rehearse(CALL)
    assert (found.ok, found.text, bool(found.remedy)) == (False, said, True)
