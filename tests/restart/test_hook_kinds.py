"""A kind of hook is a file; every kind is built alike and bounded in time."""

import pytest

from vllm_watch.config import Config
from vllm_watch.errors import WatchError
from vllm_watch.restart.hooks import base
from vllm_watch.settings.hooks import GateHook, HooksSettings

CONFIGURED = {
    "command": {"argv": ["/bin/true"]},
    "webhook": {"url": "http://127.0.0.1:1"},
    "systemd": {"unit": "vllm.service"},
    "docker": {"container": "vllm"},
    "gate": {},
    "kubernetes": {},
}


@pytest.mark.parametrize(("kind", "keys"), CONFIGURED.items())
def test_configured_hook_is_built(kind, keys):
    """From settings and tools alone; what one call takes is known before it is made."""
    config = Config.model_validate({"hooks": {kind: [{"name": "a", **keys}]}})
    found, settings = config.hooks.by_name()["a"]
    hook = base.make(found, settings, base.Tools())
    assert settings.timeout_seconds <= hook.timeout_seconds <= settings.timeout_seconds + 10


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
