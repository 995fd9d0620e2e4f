"""Find the kinds of restart hooks, and build a hook."""

from types import ModuleType
from typing import cast

from vllm_watch.errors import WatchError
from vllm_watch.restart.hooks import base
from vllm_watch.settings.hooks import HookSettings
from vllm_watch.support import plugins

_FOLDER = "vllm_watch.restart.hooks"


def kinds() -> dict[str, ModuleType]:
    """Return the module of each kind, by the kind's name in the configuration."""
    return {plugins.slug(module): module for module in plugins.modules(_FOLDER, ("Hook",))}


def make(kind: str, settings: HookSettings, tools: base.Tools) -> base.Hook:
    """Build the hook. Raises WatchError if the kind is unknown."""
    module = kinds().get(kind)
    if module is None:
        known = ", ".join(kinds())
        raise WatchError(f"hooks.{kind}: this vllm-watch has no such kind", f"take one of {known}")
    return cast("base.Hook", module.Hook(settings, tools))
