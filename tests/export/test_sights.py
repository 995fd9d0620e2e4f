"""How well detectors see, as programs read it: in /metrics and in the status."""

import json
from dataclasses import replace

from tests.export.small_board import SERVING, samples_of, small_board
from vllm_watch.export.status import Status
from vllm_watch.signals.records import Sight

SIGHTS = {
    "overload": Sight("sees", ""),
    "engine_stalled": Sight("blind", "no counter of its work"),
    "throughput_collapse": Sight("partly", "no view of the GPUs"),
    "host_memory_growth": Sight("unknown", "too few looks yet"),
}


def board():
    made = small_board()
    made.publish(replace(SERVING, detectors=SIGHTS))
    return made


def test_metrics_say_who_is_blind():
    """0 and 1 for those that are known, nothing for the rest."""
    said = [line for line in samples_of(board()) if line.startswith("vllm_watch_detector_")]
    assert said == [
        'vllm_watch_detector_blind{target="chat",detector="engine_stalled"} 1',
        'vllm_watch_detector_blind{target="chat",detector="overload"} 0',
        'vllm_watch_detector_blind{target="chat",detector="throughput_collapse"} 0',
        'vllm_watch_detector_partly_blind{target="chat",detector="engine_stalled"} 0',
        'vllm_watch_detector_partly_blind{target="chat",detector="overload"} 0',
        'vllm_watch_detector_partly_blind{target="chat",detector="throughput_collapse"} 1',
    ]


def test_status_says_what_is_missing():
    """By detector, with the words; of a target that was not looked at, nothing."""
    chat, gone = json.loads(Status(board()).whole(None))["targets"]
    assert chat["detectors"]["engine_stalled"] == {
        "state": "blind",
        "text": "no counter of its work",
    }
    assert chat["detectors"].keys() == SIGHTS.keys()
    assert gone["detectors"] == {}
