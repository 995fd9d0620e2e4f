"""`detectors:` in the configuration: for all targets, for a group, for one."""

from pydantic import BaseModel

from vllm_watch.config import load
from vllm_watch.settings.detectors import DetectorsSettings
from vllm_watch.support import plugins

FILE = """\
detectors: {engine_stalled: {notice_seconds: 20, advise_seconds: 90}}
groups: {chat: {detectors: {engine_stalled: {notice_seconds: 30}, overload: {}}}}
targets:
  - {name: a, url: "http://a:1"}
  - {name: b, url: "http://b:1", group: chat}
  - name: c
    url: http://c:1
    group: chat
    detectors: {engine_stalled: {notice_seconds: 40}}
"""


def test_the_nearest_word_stands(tmp_path):
    """A target's own key over its group's, that over the one for all; other keys stay."""
    path = tmp_path / "config.yaml"
    path.write_text(FILE)
    config = load(path, environ={})
    stalled = [config.detectors_for(each).of("engine_stalled") for each in config.targets]
    assert [(each.notice_seconds, each.advise_seconds) for each in stalled] == [
        (20, 90),
        (30, 90),
        (40, 90),
    ]


def test_every_detector_has_its_section():
    modules = {
        **plugins.modules("vllm_watch.detectors", "Settings", "Detector"),
        **plugins.modules("vllm_watch.detectors", "Settings", "HostDetector"),
    }
    sections = {name: field.annotation for name, field in DetectorsSettings.model_fields.items()}
    assert sections == {slug: module.Settings for slug, module in modules.items()}
    assert all(issubclass(each, BaseModel) for each in sections.values())
