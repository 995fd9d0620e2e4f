"""The thresholds of the detectors, as a section of the configuration: each detector brings its own `Settings`."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, create_model

from vllm_watch.settings.base import Sections, Settings
from vllm_watch.support import plugins


class _Thresholds(Sections):
    """What each detector judges by. Defaults suit every engine that was measured: try others on a recording first
    (`vllm-watch replay --config FILE`)."""

    def of(self, slug: str) -> BaseModel:
        """Return the settings of one detector."""
        found: BaseModel = getattr(self, slug)
        return found

    def under(self, own: "_Thresholds") -> "_Thresholds":
        """Return these with the keys that `own` sets in their place."""
        said = own.model_dump(exclude_unset=True)
        if not said:
            return self
        merged: dict[str, Any] = self.model_dump(exclude_unset=True)
        for slug, keys in said.items():
            merged[slug] = merged.get(slug, {}) | keys
        return type(self).model_validate(merged)


def _with_detectors() -> type[_Thresholds]:
    found = plugins.modules("vllm_watch.detectors", ("Settings",))
    sections: Mapping[str, Any] = {
        plugins.slug(module): (module.Settings, module.Settings()) for module in found
    }
    made = create_model("DetectorsSettings", __base__=_Thresholds, **sections)
    made.__doc__ = _Thresholds.__doc__
    return made


if TYPE_CHECKING:
    DetectorsSettings = _Thresholds
else:
    DetectorsSettings = _with_detectors()


class GroupSettings(Settings):
    """What holds for the targets of one group, by the group's name."""

    detectors: DetectorsSettings = DetectorsSettings()
    """The keys of `detectors` that differ for this group; the others are taken from there."""
