"""Each alert in the stories that were written for it: when it fires, what it says, when it is quiet."""

import re

import pytest
import yaml

from tests.alerts.incident_stories import STORIES as OF_INCIDENTS
from tests.alerts.other_stories import STORIES as OF_OTHERS
from tests.alerts.raw_stories import STORIES as OF_RAW_VLLM
from tests.alerts.restart_stories import STORIES as OF_RESTARTS
from tests.alerts.stories import as_promtool, promtool

STORIES = (*OF_INCIDENTS, *OF_OTHERS, *OF_RESTARTS, *OF_RAW_VLLM)


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What promtool says of each story: it is asked once, for most of its time is its start."""
    folder = tmp_path_factory.mktemp("stories")
    files = [folder / f"{number:04}.yaml" for number in range(len(STORIES))]
    for file, story in zip(files, STORIES, strict=True):
        file.write_text(yaml.safe_dump(as_promtool(story), sort_keys=False))
    _, said = promtool("test", "rules", *files)
    of_file = [part for part in re.split("^(?=Unit Testing: )", said, flags=re.MULTILINE) if part]
    assert [part.split()[2] for part in of_file] == [str(file) for file in files], said
    return of_file


@pytest.mark.parametrize(
    "number", range(len(STORIES)), ids=(f"{each.alert}: {each.name}" for each in STORIES)
)
def test_story(number: int, said: list[str]) -> None:
    assert said[number].split()[3:] == ["SUCCESS"], said[number]
