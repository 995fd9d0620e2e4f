"""What holds for all tests."""

import signal
from pathlib import Path

import pytest
from hypothesis import settings

from tests.examples import TEST

settings.load_profile(TEST)  # make hunt takes another, with --hypothesis-profile

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell's background job: what the tests start would inherit it, and never be met by Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)

# These wait for real time to pass, minutes some of them: begun early and among others that compute, they cost
# the others none.
WAITING = (
    "watch/test_canary_live.py", "test_restarts.py", "test_fleet_live.py", "test_gpus_reclaim.py",
    "test_preflight.py", "test_page_live.py", "test_recorded_live.py", "test_crash.py", "test_compose.py",
    "test_getting_started.py", "test_live.py", "test_target_faults.py", "test_clock_faults.py",
    "test_cpu_faults.py", "test_limit_faults.py", "test_disk_faults.py", "test_reload_faults.py", "test_install.py",
)  # fmt: skip

# make check leaves these out, too: whole lives of engines, watchers that are killed and disks that fail, other
# programs that are stopped and killed, a browser. make test and CI run them all.
LONG = (
    "detectors/test_healthy_stories.py", "alerts/test_stories.py", "detectors/test_stories.py",
    "alerts/test_recorded.py", "detectors/test_missing_signals.py", "benchmarks/test_lives.py", "state/test_split_replay.py",
    "benchmarks/test_detection.py", "benchmarks/test_fleet.py",
    "benchmarks/test_soak.py", "fuzz/test_fuzz.py",
    "restart/test_failing_disk.py", "restart/test_daemon_restarts.py", "restart/test_restart_stories.py",
    "restart/test_restarts.py", "hooks/test_gate_probes.py", "locks/test_lease.py", "locks/test_etcd.py",
    "restart/test_lock_loss.py", "cli/test_gpus.py", "sources/test_flight_recorder.py",
    "nvml/test_deadline.py", "state/test_journal.py", "restart/test_operators.py", "export/test_page.py",
    "export/test_page_incidents.py", "detectors/test_throughput_collapse.py", "sources/test_exposition.py",
    "export/test_page_restarts.py", "export/test_page_access.py", "export/test_page_fleet.py",
    "export/test_page_latency.py", "export/test_page_questions.py", "export/test_page_survives.py",
    "hooks/test_webhook.py", "hooks/test_kubernetes.py", "sources/test_canary.py",
    "deploy/test_systemd_install.py", "notify/test_killed.py",
    "notify/test_daemon_notifications.py", "tests/test_secrets_stay_secret.py",
    "export/test_slow_callers.py", "export/test_api_fuzz.py", "tests/test_daemon.py", "tests/test_daemon_web.py",
    "tests/support/test_service_manager.py", "tests/test_cpu_live.py", "tests/test_security_page.py", "cli/test_notify.py",
    "cli/test_top_terminal.py", "deploy/test_systemd.py", "hooks/test_signal.py", "hooks/test_command.py",
    "export/test_attacks.py", "notify/test_courier.py", "cli/test_record.py", "cli/test_connection.py",
    "deploy/test_kubernetes.py", "tests/test_daemon_pods.py", "restart/test_restart.py", "tests/test_new_kind.py",
)  # fmt: skip


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items[:] = _spread(items)
    for item in items:
        folder = item.path.parent.name
        if item.path.name in WAITING or f"{folder}/{item.path.name}" in LONG:
            item.add_marker(pytest.mark.long)


WAITING_SHARE = 0.8  # of the files, over which those that wait are spread evenly: at the end the others fill the gaps


def _spread(items: list[pytest.Item]) -> list[pytest.Item]:
    files: dict[Path, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.path, []).append(item)
    waiting = [file for file in files if file.name in WAITING]
    order = [file for file in files if file.name not in WAITING]
    between = WAITING_SHARE * len(order) / max(1, len(waiting))
    for number, file in reversed(list(enumerate(waiting))):
        order.insert(int(number * between), file)
    return [item for file in order for item in files[file]]
