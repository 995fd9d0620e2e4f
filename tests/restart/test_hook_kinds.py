"""A kind of hook is a file; every kind is built alike and bounded in time."""

import pytest

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


@pytest.mark.parametrize("kind", CONFIGURED)
def test_configured_hook_is_built(kind):
    """From settings and tools alone; what one call takes is known before it is made."""
    keys, more_seconds = CONFIGURED[kind]
    entry = {"name": "a", "timeout_seconds": 45.0, **keys}
    found, settings = Config.model_validate({"hooks": {kind: [entry]}}).hooks.by_name()["a"]
    hook = base.make(found, settings, base.Tools())
    assert hook.timeout_seconds == 45.0 + more_seconds


def test_every_kind_can_be_configured():
    """No kind is without settings."""
    assert set(CONFIGURED) <= set(base.kinds()) <= set(HooksSettings.model_fields)


def test_kind_that_is_not_there_is_named():
    """A kind that this version lacks is an operator's error, with what there is."""
    with pytest.raises(
        WatchError,
        match=r"hooks\.levitate: this vllm-watch has no such kind\. take one of .*command",
    ):
        base.make("levitate", GateHook(name="a"), base.Tools())
