"""The `detectors` section: the `Settings` of each detector module."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, create_model

from vllm_watch.settings.base import Sections, Settings
from vllm_watch.support import plugins


class _Thresholds(Sections):
    """Thresholds of the detectors. The defaults suit every measured engine. Test other values with `vllm-watch replay --config FILE`."""

    def of(self, slug: str) -> BaseModel:
        found: BaseModel = getattr(self, slug)
        return found

    def under(self, own: "_Thresholds") -> "_Thresholds":
        changed = own.model_dump(exclude_unset=True)
        if not changed:
            return self
        merged: dict[str, Any] = self.model_dump(exclude_unset=True)
        for slug, keys in changed.items():
            merged[slug] = merged.get(slug, {}) | keys
        return type(self).model_validate(merged)


def _with_detectors() -> type[_Thresholds]:
    modules = plugins.modules("vllm_watch.detectors", "Settings")
    sections: Mapping[str, Any] = {
        slug: (module.Settings, module.Settings()) for slug, module in modules.items()
    }
    made = create_model("DetectorsSettings", __base__=_Thresholds, **sections)
    made.__doc__ = _Thresholds.__doc__
    return made


if TYPE_CHECKING:
    DetectorsSettings = _Thresholds
else:
    DetectorsSettings = _with_detectors()


class GroupSettings(Settings):
    """Settings of one group's targets."""

    detectors: DetectorsSettings = DetectorsSettings()
    """Overrides of `detectors` for this group."""
