"""What is exported of the state folder."""

from typing import Any

from vllm_watch.board.health import StoreHealth
from vllm_watch.export.family import Family, Series


def _errors(board: Any) -> Series | None:
    store: StoreHealth | None = board.store
    return (
        None if store is None else [((name,), store.errors[name]) for name in sorted(store.errors)]
    )


def _last_success(board: Any) -> float | None:
    store: StoreHealth | None = board.store
    return None if store is None else store.last_success_timestamp_seconds


STORE_FAMILIES: tuple[Family, ...] = (
    Family(
        name="vllm_watch_store_last_success_timestamp_seconds", kind="gauge", scope="watcher",
        help="Unix time of the last good read or write of the state folder, at least once a minute.",
        absent="Absent without a state folder, and until it could be read or written.",
        value=_last_success,
    ),
    Family(
        name="vllm_watch_store_errors_total", kind="counter", scope="watcher", labels=("reason",),
        help="Attempts to use the state folder that failed, by how: full, not_writable, refused (another "
             "vllm-watch holds it, or a newer one wrote it), damaged, entry (one entry could not be used), io.",
        absent="Absent without a state folder; a reason that never occurred is absent.", series=_errors,
    ),
)  # fmt: skip
