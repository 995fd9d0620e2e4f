"""The numbers that colour a panel: the product's own, or those at which one of its alerts fires.

A test holds the ones that stand here against alerts/watcher.yaml.
"""

from vllm_watch.detectors.stale_vram import Settings as StaleVram
from vllm_watch.incidents.fleet import LATE_SECONDS
from vllm_watch.signals.baseline import STARVED_RATIO

LATE_LOOK_SECONDS = LATE_SECONDS
"""From here on an incident says that the watcher itself was delayed."""

THROUGHPUT_RATIO_MIN = STARVED_RATIO
"""Below this share of what it did when fresh, with work waiting, an engine has lost something."""

STALE_BYTES_MIN = StaleVram().bytes_min
"""What is worth a ticket: less than that keeps no engine from starting."""

BLIND_INTERVALS = 10
"""A target that nobody looked at for so many intervals is not watched: VllmWatchBlind."""

GPUS_STALE_SECONDS = 300
"""VllmWatchSourceStale, of the GPUs."""

IDENTITY_STALE_SECONDS = 1500
"""VllmWatchSourceStale, of version and models, which are asked every ten minutes."""

STATE_NOT_KEPT_SECONDS = 600
"""VllmWatchStateNotKept."""
