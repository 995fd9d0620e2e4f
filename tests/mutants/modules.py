"""What is mutated, the tests that belong to it, and the changes that no test can see."""

from dataclasses import dataclass

_LOCKS, _HOOKS, _HOOK_KINDS = "restart/locks", "restart/hooks", "restart/test_hook_kinds.py"
_HOLDERS = (
    "signals/holders/test_track.py", "signals/holders/test_orphans.py", "signals/holders/test_unaccounted.py",
    "signals/holders/test_stale.py", "signals/holders/test_look_alikes.py", "signals/holders/test_groups.py",
    "signals/holders/test_gpu_users.py", "signals/holders/test_place.py", "detectors/test_stale_vram.py",
)  # fmt: skip

_COLLAPSE = (
    "detectors/test_collapse_causes.py",
    "detectors/test_collapse_kept.py", "detectors/test_throughput_collapse.py", "detectors/test_collapse_host.py", "detectors/test_collapse_equal_work.py",
    "detectors/test_collapse_gpus.py", "detectors/test_collapse_stuck.py", "detectors/test_collapse_spec.py",
    "detectors/test_collapse_former.py", "detectors/test_collapse_siblings.py",
)  # fmt: skip

TESTS: dict[str, tuple[str, ...]] = {
    # a module → its tests, the quickest first
    "restart/guard.py": ("restart/test_guard.py", "restart/test_guard_pace.py", "restart/test_dispatcher.py"),
    "restart/checks.py": ("restart/test_guard.py", "restart/test_guard_pace.py", "restart/test_dispatcher.py"),
    "restart/gates.py": (f"{_HOOKS}/test_gate_words.py", f"{_HOOKS}/test_gate.py", f"{_HOOKS}/test_gate_probes.py"),
    "restart/attempts.py": ("restart/test_attempts.py", "restart/test_dispatcher.py", "restart/test_restarts.py"),
    "restart/dispatcher.py": ("restart/test_dispatcher.py", "restart/test_restarts.py"),
    "restart/verify.py": ("restart/test_verify.py", "restart/test_attempts.py"),
    f"{_LOCKS}/file.py": (f"{_LOCKS}/test_file.py", f"{_LOCKS}/test_past.py"),
    f"{_LOCKS}/record.py": (f"{_LOCKS}/test_record.py", f"{_LOCKS}/test_file.py", f"{_LOCKS}/test_lease.py"),
    f"{_LOCKS}/lease.py": (f"{_LOCKS}/test_lease.py",),
    f"{_LOCKS}/etcd.py": (f"{_LOCKS}/test_etcd.py",),
    f"{_HOOKS}/command.py": (f"{_HOOKS}/test_command.py", _HOOK_KINDS),
    f"{_HOOKS}/signal.py": (f"{_HOOKS}/test_signal.py", _HOOK_KINDS),
    f"{_HOOKS}/systemd.py": (f"{_HOOKS}/test_systemd.py", _HOOK_KINDS),
    f"{_HOOKS}/docker.py": (f"{_HOOKS}/test_docker.py", _HOOK_KINDS),
    f"{_HOOKS}/kubernetes.py": (f"{_HOOKS}/test_kubernetes.py", _HOOK_KINDS),
    f"{_HOOKS}/webhook.py": (f"{_HOOKS}/test_webhook.py", _HOOK_KINDS),
    "reclaim/ending.py": ("reclaim/test_ending.py",),
    "reclaim/plan.py": ("reclaim/test_reclaim_plan.py",),
    "detectors/engine_down.py": ("detectors/test_engine_down.py", "detectors/test_engine_down_earlier.py"),
    "detectors/engine_stalled.py": (
        "detectors/test_engine_stalled.py", "detectors/test_stall_ranks.py", "detectors/test_canaries.py",
    ),
    "detectors/gpu_fault.py": ("detectors/test_gpu_fault.py",),
    "detectors/host_memory_growth.py": ("detectors/test_host_memory_growth.py",),
    "detectors/overload.py": ("detectors/test_overload.py",),
    "detectors/stale_vram.py": _HOLDERS,
    "detectors/throughput_collapse.py": _COLLAPSE,
    "detectors/collapse_engine.py": _COLLAPSE,
    "detectors/collapse_causes.py": _COLLAPSE,
    "incidents/lifecycle.py": (
        "incidents/test_lifecycle.py", "incidents/test_lifecycle_time.py", "incidents/test_incident.py",
        "incidents/test_recurring.py", "incidents/test_own_restart.py",
    ),
    "incidents/fleet.py": ("incidents/test_fleet.py", "incidents/test_fleet_said.py"),
    "signals/holders/track.py": _HOLDERS,
    "signals/holders/judge.py": _HOLDERS,
    "signals/holders/idle.py": _HOLDERS,
    "signals/holders/orphans.py": _HOLDERS,
    "signals/holders/unaccounted.py": _HOLDERS,
    "signals/window.py": ("signals/test_window.py", "signals/test_throughput.py", "signals/test_engine.py"),
    "sources/exposition.py": ("sources/test_exposition.py", "sources/test_body_deltas.py"),
    "state/ledger.py": ("notify/test_ledger.py", "state/test_worker.py", "notify/test_notifications.py"),
    "state/worker.py": ("state/test_worker.py", "state/test_file.py"),
    "state/journal.py": ("state/test_journal.py", "state/test_restarts.py"),
    "notify/ledger.py": ("notify/test_ledger.py", "notify/test_notifications.py"),
    "export/passwords.py": ("export/test_passwords.py",),
    "support/redaction.py": ("support/test_redaction.py", "support/test_logs.py", "test_secrets_stay_secret.py"),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Equivalent:
    """A change after which everything observable is as before."""

    module: str
    was: str
    now: str
    reason: str


_QUICKER = "it only spares work: without it the same is found, later"
EQUIVALENT: tuple[Equivalent, ...] = (
    Equivalent(
        "signals/window.py", "a.bounds is b.bounds or a.bounds == b.bounds", "(a.bounds == b.bounds)", _QUICKER,
    ),
    Equivalent(
        "signals/window.py", "then is not None and new is not None and new < then", "(then is not None and new is not None)", _QUICKER,
    ),
    Equivalent(
        "signals/window.py", "then is not None and new is not None and new.count < then.count",
        "(then is not None and new is not None)", _QUICKER,
    ),
    Equivalent("signals/window.py", "False", "True", _QUICKER),
    Equivalent("signals/window.py", "known is None or None not in counts", "(known is None)", _QUICKER),
    Equivalent(
        "notify/ledger.py", "each.sent_t is None and each.message is None", "(each.message is None)",
        "what was sent or dropped has a message",
    ),
    Equivalent(
        "incidents/fleet.py", "target is None or target.silent_s is None or target.dead or name in self._explained",
        "(target.silent_s is None or target.dead or name in self._explained)", "who is asked about was looked at before; it is for the type",
    ),
    Equivalent(
        "incidents/lifecycle.py", "self._followed and moment.up", "(moment.up)", "what follows goes over those that are followed",
    ),
)  # fmt: skip
