"""Colours, units and words that mean the same on every dashboard."""

from collections.abc import Mapping, Sequence

from grafana_foundation_sdk.builders import dashboard
from grafana_foundation_sdk.models import dashboard as model

from vllm_watch.signals.state import STATES

DATASOURCE = model.DataSourceRef(type_val="prometheus", uid="${datasource}")
TOKENS_PER_SECOND, PER_SECOND = "suffix: tokens/s", "suffix:/s"
FROM_NOW = "dateTimeFromNow"  # of Unix milliseconds: "in 3 hours", "2 minutes ago"

# One language of colours: nothing to do; no work; look soon; act now; not known.
WELL, QUIET, SOON, NOW, UNKNOWN, PLAIN = "green", "blue", "yellow", "red", "purple", "text"
OFF = "transparent"  # as a background, the colour of text would be a white block

STATE_COLORS = {
    "starting": "light-blue", "idle": "blue", "serving": "green", "prefilling": "light-green",
    "overloaded": "yellow", "collapsed": "dark-orange", "failing": "orange", "stalled": "red", "sleeping": "dark-blue",
    "down": "dark-red", "unknown": "purple",
}  # fmt: skip
IN_TROUBLE = ("overloaded", "collapsed", "failing", "stalled", "down", "unknown")

SEVERITY_RANKS = {"info": 1, "ticket": 2, "page": 3}
SEVERITY_COLORS = {"info": QUIET, "ticket": SOON, "page": NOW}

VERDICT_COLORS = {"vllm": WELL, "active": QUIET, "stale": NOW, "unknown": UNKNOWN}

Marks = Sequence[tuple[float | None, str]]  # from which value on which colour
Words = Sequence[tuple[float | str, str, str]]  # a value, the word that it is shown as, its colour


def words(said: Words) -> list[model.ValueMapping]:
    """Show values as coloured words."""
    results = {
        (f"{value:g}" if isinstance(value, int | float) else value): model.ValueMappingResult(
            text=text, color=color, index=index
        )
        for index, (value, text, color) in enumerate(said)
    }
    return [model.ValueMap(options=results)]


STATE_WORDS: Words = [
    (number, state, STATE_COLORS[state]) for number, state in enumerate(STATES)
]  # fmt: skip
SEVERITY_WORDS: Words = [
    (rank, word, SEVERITY_COLORS[word]) for word, rank in SEVERITY_RANKS.items()
]
YES_NO: Words = [(1, "yes", PLAIN), (0, "no", PLAIN)]


def colored(colors: Mapping[str, str]) -> Words:
    """Words that stand for themselves."""
    return [(word, word, color) for word, color in colors.items()]


def steps(marks: Marks) -> dashboard.ThresholdsConfig:
    """From each value upwards its colour; the first value is None, minus infinity."""
    config = dashboard.ThresholdsConfig().mode(model.ThresholdsMode.ABSOLUTE)
    return config.steps([model.Threshold(value, color) for value, color in marks])
