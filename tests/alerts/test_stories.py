"""Each alert in the stories that were written for it: when it fires, what it says, when it is quiet."""

from pathlib import Path

import pytest
import yaml

from tests.alerts.incident_stories import STORIES as OF_INCIDENTS
from tests.alerts.other_stories import STORIES as OF_OTHERS
from tests.alerts.raw_stories import STORIES as OF_RAW_VLLM
from tests.alerts.restart_stories import STORIES as OF_RESTARTS
from tests.alerts.stories import Story, as_promtool, promtool

STORIES = (*OF_INCIDENTS, *OF_OTHERS, *OF_RESTARTS, *OF_RAW_VLLM)


@pytest.mark.parametrize("story", STORIES, ids=lambda story: f"{story.alert}: {story.name}")
def test_story(story: Story, tmp_path: Path) -> None:
    """promtool sees the alert fire as it is told, or not at all."""
    file = tmp_path / "story.yaml"
    file.write_text(yaml.safe_dump(as_promtool(story), sort_keys=False))
    status, said = promtool("test", "rules", file)
    assert status == 0, said
