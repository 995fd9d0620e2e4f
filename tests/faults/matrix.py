"""What is done to the watcher and its targets, what then is so, and the test that shows it: docs/faults.md.

`python -m tests.faults.matrix` writes the page; a test fails when it is stale, or when a test is not there.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "faults.md"

HEAD = """\
# Faults

<!-- Made by tests/faults/matrix.py (make generate). Do not edit. -->

Look up what happens when an engine, its host, the driver or vllm-watch itself fails. Each fault is tested with
real processes, sockets and files; `make fault-removals` shows that these tests fail without the code that handles it.

A reported incident, restart attempt or notification is never lost: it is on disk, or the state folder is reported as unusable. A fault of the
watcher's host never makes an engine that answers look dead: the scrape ends as `watcher`
(`vllm_watch_source_errors_total{reason="watcher"}`).

Each entry names the resulting states, log events, incidents and alerts. Unless an entry states otherwise, other targets are served, only the failing target's gauges are lost, and recovery is automatic.
"""


@dataclass(frozen=True)
class Row:
    """One fault."""

    fault: str
    served: str
    said: str
    lost: str
    recovers: str
    handled: str  # by what; its tests fail without that
    tests: tuple[str, ...]  # path below tests/ :: name [id]


NOTHING = "nothing"
BY_ITSELF = "by itself, at the next scrape"
ALL = "all"
TARGETS = "faults/test_target_faults.py::test_what_is_said_of_a_target_that"
WELL_AGAIN = "faults/test_target_faults.py::test_it_is_seen_well_again"
GAUGES = "that target's gauges while it fails"
HTTP = "sources/test_http.py::test_each_way_to_fail_has_its_own_outcome"

TARGET = (
    Row("refuses connections", "all other targets", "`target_down`; `crash`, critical if it had requests, after two failed scrapes", GAUGES,
        BY_ITSELF, "the second failed scrape that a crash takes", (f"{TARGETS}[refuses]", f"{WELL_AGAIN}[refuses]", "sources/test_http.py::test_nobody_listens", "detectors/test_engine_down.py::test_a_story[refused once]")),
    Row("swallows packets (black hole)", "all other targets", "`target_down`; `unreachable`, critical without a restart advised, after 15 s", GAUGES,
        BY_ITSELF, "the share of time that is left to an answer: it was called `api_hang`, with a restart advised", (f"{TARGETS}[black-holes]", f"{WELL_AGAIN}[black-holes]", "sources/test_own_trouble.py::test_who_is_never_reached_is_not_taken_for_one_that_hangs", "test_fleet_live.py::test_a_network_that_swallows_everything_is_one_page_and_who_stays_away_another")),
    Row("accepts connections and never answers", "all other targets", "`target_down`; `api_hang`, critical after three failed scrapes and 5 s", GAUGES,
        BY_ITSELF, "the time-out of a scrape", (f"{TARGETS}[says nothing]", f"{WELL_AGAIN}[says nothing]", HTTP)),
    Row("drips a byte a second", "all other targets", "as a target that never answers", GAUGES,
        BY_ITSELF, "the bound on the whole answer", (f"{TARGETS}[drips]", f"{WELL_AGAIN}[drips]", HTTP)),
    Row("sends 1 GB", "all other targets; memory stays flat", "`target_unknown`, `too_large`; `VllmWatchTargetUnreadable`", GAUGES,
        BY_ITSELF, "the bound on a body", (f"{TARGETS}[floods]", "faults/test_target_faults.py::test_a_gigabyte_is_not_kept")),
    Row("sends garbage", "all other targets", "`target_unknown`, `garbled` with the byte or line; no incident", GAUGES,
        BY_ITSELF, "the check of the encoding", (f"{TARGETS}[garbles]", "sources/test_vllm.py::test_a_body_that_cannot_be_read_is_garbled_and_says_how", "sources/test_exposition.py::test_any_text_reads_as_prometheus_client_reads_it_or_is_refused_by_both")),
    Row("truncates its answers", "all other targets", "`target_down`, `disconnected`; `api_hang` after three failed scrapes and 5 s", GAUGES,
        BY_ITSELF, "the outcome of a broken body", (f"{TARGETS}[truncates]", HTTP)),
    Row("redirects elsewhere", "all other targets", "`target_unknown`, `http` with the status; no request is sent elsewhere", GAUGES,
        BY_ITSELF, "the rule that a redirect stays on its server", (f"{TARGETS}[redirects]", "faults/test_target_faults.py::test_who_redirects_does_not_send_us_elsewhere", "sources/test_http.py::test_a_redirect_to_another_server_is_not_followed")),
    Row("changes identity between scrapes (two servers behind one address)", ALL, "the target's state names the other server and the remedy; no incident", "rates",
        "by itself, when one server answers", "the sentence, and the rule by which another server is known", (f"{TARGETS}[changes identity]", "faults/test_target_faults.py::test_two_servers_behind_one_address_have_no_rate")),
    Row("breaks TLS (an untrusted certificate)", "all other targets", "`target_unknown`, `tls` with the reason; `VllmWatchTargetUnreadable`; not critical", GAUGES,
        BY_ITSELF, "the outcome of a failed handshake", (f"{TARGETS}[breaks TLS]", f"{WELL_AGAIN}[breaks TLS]", "sources/test_http.py::test_a_certificate_that_nobody_signed")),
    Row("its DNS name resolves only sometimes", ALL, "`dns`; `unreachable`, critical without a restart advised, after 15 s", GAUGES,
        BY_ITSELF, "the outcome `dns`; three failed scrapes and 15 s", ("faults/test_clock_faults.py::test_a_name_server_that_flaps",)),
    Row("serves 10,000 new series at each scrape", ALL, "no effect", NOTHING,
        "nothing to recover", "the layout that ends with its last user; the bounds of the parser are above it", (f"{TARGETS}[invents series]", "faults/test_target_faults.py::test_ten_thousand_new_series_at_each_look_hide_nothing", "sources/test_exposition.py::test_ten_thousand_new_series_every_time_leave_nothing_behind")),
)  # fmt: skip

HOST = (
    Row("clock set by an hour, forward or back", ALL, "no effect", NOTHING,
        "nothing to recover", "the monotonic clock of an observation: rates went unknown or wrong", ("faults/test_clock_faults.py::test_a_clock_that_is_set_by_an_hour[forward]", "faults/test_clock_faults.py::test_a_clock_that_is_set_by_an_hour[back]", "signals/test_timeline.py::test_the_axis_never_goes_back")),
    Row("suspended for ten minutes (SIGSTOP, or the host sleeps)", "nothing meanwhile", "an engine that died meanwhile is a warning, and critical after half an hour", "scrapes",
        "by itself: a time-out that it slept through is asked again", "the second try of a time-out that came late", ("faults/test_clock_faults.py::test_a_watcher_that_was_suspended_for_ten_minutes[SIGSTOP]", "faults/test_clock_faults.py::test_a_watcher_that_was_suspended_for_ten_minutes[SIGSTOP, and its engine too]", "faults/test_clock_faults.py::test_a_watcher_that_was_suspended_for_ten_minutes[the host sleeps]")),
    Row("CPU starved to 5 %", "all, but later", "`watcher`; `VllmWatchBlind` after ten intervals without a scrape", "scrapes",
        BY_ITSELF, "the lateness of a time-out: the healthy engine was paged as `api_hang`", ("faults/test_cpu_faults.py::test_a_watcher_with_five_percent_of_a_cpu[evenly]", "faults/test_cpu_faults.py::test_a_watcher_with_five_percent_of_a_cpu[in long pauses]", "faults/test_cpu_faults.py::test_one_that_dies_while_the_watcher_has_no_cpu_is_told")),
    Row("memory limit reached", "everything that needs no new memory", "`look_failed`, or `watcher`; a cgroup's limit kills it like `kill -9`", "scrapes",
        "by itself when there is room; by its supervisor when it was killed", "one scrape that fails is only one scrape; threads that are begun without waiting: the event loop hung forever", ("faults/test_limit_faults.py::test_the_memory_limit_is_reached", "watch/test_target_loop.py::test_looks_that_fail_are_said_once_and_the_next_one_goes_on", "sources/test_own_trouble.py::test_a_thread_is_not_waited_for", "state/test_restarts.py::test_an_open_incident_goes_on_under_its_id")),
    Row("no file descriptor left", "open connections", "`target_unknown` with that reason; `watcher`", "scrapes on new connections",
        BY_ITSELF, "the errors of our own host: every engine was paged as `unreachable`", ("faults/test_limit_faults.py::test_no_file_descriptor_is_left[by address]", "faults/test_limit_faults.py::test_no_file_descriptor_is_left[by name]", "export/test_slow_callers.py::test_the_system_without_a_descriptor_left_is_outlasted")),
    Row("disk full", ALL, "`state_not_kept` with a remedy; `vllm_watch_store_errors_total`; `VllmWatchStateNotKept`", "nothing: writes wait in memory",
        "by itself, every 10 s", "what waits after a failed write", ("faults/test_disk_faults.py::test_a_disk_that_is[full]", "state/test_worker.py::test_a_full_disk_loses_nothing", "restart/test_failing_disk.py::test_nothing_is_done_that_is_not_written")),
    Row("disk read-only", ALL, "as a full disk; no engine is restarted meanwhile", "nothing, as above",
        "by itself, every 10 s", "what waits after a failed write", ("faults/test_disk_faults.py::test_a_disk_that_is[read-only]", "state/test_restarts.py::test_without_memory_watching_goes_on[a folder that cannot be made]", "restart/test_failing_disk.py::test_read_only_at_the_start")),
    Row("disk fails (EIO)", ALL, "as a full disk", "nothing, as above",
        "by itself, every 10 s", "what waits after a failed write", ("faults/test_disk_faults.py::test_a_disk_that_is[failing]", "sources/test_flight_recorder.py::test_a_disk_that_fails_is_said_once_and_memory_takes_over")),
    Row("slow fsync", ALL, "no effect", NOTHING,
        "nothing to recover", "the queue before the disk: nobody waits for it", ("faults/test_disk_faults.py::test_a_disk_that_is_slow", "sources/test_flight_recorder.py::test_a_disk_that_hangs_holds_nothing_up")),
    Row("state or journal corrupted", ALL, "`state_moved_aside`, `state_not_kept`; restarts wait for an operator", "the damaged file's content; the file is kept",
        "a new file is begun", "the check of the file as it is opened", ("state/test_restarts.py::test_without_memory_watching_goes_on[no SQLite file]", "state/test_worker.py::test_a_damaged_file_is_moved_aside", "state/test_worker.py::test_damage_is_found_before_it_is_read", "state/test_worker.py::test_an_index_that_misses_rows_is_damage", "state/test_journal.py::test_damaged_file_makes_the_history_unknown")),
    Row("configuration half-written", ALL, "`reload_refused` with every error", "nothing: the old configuration stays in use. A half-written file may be valid by chance, so write to a new file and rename it",
        "at the next reload", "the refusal of an empty file: every target went", ("faults/test_reload_faults.py::test_a_configuration_that_is_half_written", "test_daemon.py::test_a_wrong_new_configuration_is_refused_and_the_old_one_goes_on", "discovery/test_targets.py::test_a_bad_file_keeps_its_last_good_targets")),
)  # fmt: skip

NVML = (
    Row("a call hangs", "all but the GPUs", "status `hung` with the call's name; `VllmWatchSourceStale`", "GPU data",
        "by itself when the call returns", "the deadline of a poll", ("test_daemon.py::test_a_driver_that_hangs_delays_nothing", "sources/nvml/test_deadline.py::test_whichever_call_hangs_is_named_and_recovered_from")),
    Row("a GPU is lost", "all, the other GPUs too", "`gpu_fault`, cause `gpu_lost`, under its UUID", "that GPU's data",
        "by itself when it is back", "the error of one GPU as its own state", ("sources/nvml/test_faults.py::test_a_gpu_that_falls_off_the_bus_leaves_the_others", "sources/nvml/test_faults.py::test_a_lost_gpu_stays_known_after_a_new_session")),
    Row("the driver is reloaded", ALL, "status `no_driver` while it is gone", "GPU data meanwhile",
        "within a minute", "the new session after void handles", ("sources/nvml/test_faults.py::test_a_reloaded_driver_is_read_on_at_once", "sources/nvml/test_faults.py::test_a_driver_that_goes_and_comes_back")),
    Row("the library is missing", "all but the GPUs", "`no_gpu_driver` in the log, once; not an error", NOTHING,
        "without a restart, once it is installed", "the missing library as no error", ("sources/nvml/test_deadline.py::test_a_machine_without_the_library_is_a_normal_machine", "sources/nvml/test_deadline.py::test_a_driver_that_is_installed_later_is_found_without_a_restart")),
    Row("absurd values", ALL, "the field is unknown", "that field",
        "at the next sane value", "the bounds of each field", ("sources/nvml/test_fields.py::test_absurd_values_are_unknown",)),
)  # fmt: skip

PROCESS = (
    Row("SIGTERM", "everything, until a running restart hook ends",
        "`stopping`, `hook_awaited`; exit status 0", "nothing; the supervisor may kill a long hook",
        "the next start continues", "the handler of the signal", ("restart/test_daemon_restarts.py::test_a_hook_that_has_begun_may_end", "restart/test_daemon_restarts.py::test_nothing_is_called_once_it_stops", "test_daemon.py::test_sigterm_ends_it_at_once_and_frees_the_port", "test_daemon.py::test_sigterm_ends_it_while_a_target_hangs_and_a_viewer_watches", "state/test_restarts.py::test_what_was_learnt_is_kept_as_it_stops")),
    Row("SIGKILL", NOTHING, "no log event", "baselines learnt in the last minute",
        "the next start continues incidents, notifications and attempts; no hook is called twice", "the write before the word", ("state/test_restarts.py::test_an_open_incident_goes_on_under_its_id", "restart/test_daemon_restarts.py::test_a_killed_daemon_does_not_call_the_hook_again", "notify/test_killed.py::test_killed_at", "state/test_journal.py::test_killed_at_any_moment", "state/test_worker.py::test_killed_after_something_was_done")),
    Row("storms of SIGHUP", ALL, "`reloaded` a few times", NOTHING,
        "the last reload reads the newest file", "the signals that one waiting reload answers", ("faults/test_reload_faults.py::test_a_storm_of_sighups",)),
    Row("a reload while it starts", ALL, "`reloaded`, once it has started", NOTHING,
        "nothing to recover", "that restarts begin once: schedules would be due twice", ("faults/test_reload_faults.py::test_a_reload_while_it_starts", "restart/test_restarts.py::test_what_is_begun_twice_runs_once")),
    Row("its port is taken", "nothing: it does not start", "cause and remedy in two lines; exit status 2", NOTHING,
        "when its supervisor starts it again", "the error's words", ("test_daemon.py::test_a_taken_port_is_said_in_two_lines", "export/test_server.py::test_port_that_is_taken_is_said_with_a_way_out")),
    Row("two instances with one state folder", "both watch", "the second instance logs `state_not_kept` and restarts nothing", "the second instance's state",
        "when the first one ends", "the lock on the folder", ("state/test_restarts.py::test_two_watchers_with_one_folder", "state/test_worker.py::test_two_with_one_folder")),
)  # fmt: skip

STRANGER = (
    Row("an engine logs a prompt of 256 KB", ALL, "the end of the log is shown, redacted", NOTHING,
        "nothing to recover", "expressions that take time in proportion to the text", ("support/test_redaction.py::test_no_text_costs_the_square_of_its_length", "support/test_redaction.py::test_an_excerpt_is_cut_before_it_is_redacted")),
    Row("sends 2 MB of new series at each scrape", "all other targets", "`garbled` above 25,000 lines, 16 KiB a line or 128 labels", NOTHING,
        "nothing to recover", "a parser beside the event loop, one body at a time", ("sources/test_vllm.py::test_a_large_body_is_read_beside_the_event_loop[many bytes]", "sources/test_vllm.py::test_a_large_body_is_read_beside_the_event_loop[many lines]", "sources/test_vllm.py::test_what_computes_beside_the_loop_leaves_it_free_and_comes_one_by_one", "sources/test_exposition.py::test_what_is_far_beyond_an_engine_is_refused_in_a_sentence")),
    Row("logs JSON that nests endlessly", ALL, "the other lines are read", "that line",
        "at the next line", "an error of one line that is one line", ("sources/test_engine_log.py::test_a_line_that_cannot_be_understood_ends_nothing",)),
    Row("uses control characters in names", ALL, "escapes such as `\\x1b`", NOTHING,
        "nothing to recover", "the function that all text for people goes through", ("support/test_visible.py::test_controls_show_as_escapes", "support/test_visible.py::test_commands_show_them", "support/test_visible.py::test_the_log_shows_them")),
    Row("250 half-sent requests with large heads", ALL, "status 400", NOTHING,
        "nothing to recover", "the bounds of a head", ("export/test_slow_callers.py::test_a_head_has_so_many_fields_of_so_many_bytes", "export/test_slow_callers.py::test_one_request_buys_no_half_sent_one")),
    Row("a 2 MB recording or log that unpacks to gigabytes", "–", "cause and remedy in two lines; exit status 2", NOTHING,
        "nothing to recover", "the bounds of a file's targets, lines and growth", ("cli/test_hostile_files.py::test_a_recording_that_unpacks_to_much_is_refused", "cli/test_hostile_files.py::test_a_log_that_unpacks_to_much_is_refused")),
    Row("numbers of thousands of digits, and infinities", ALL, "an error that names the line", "that value",
        "nothing to recover", "the bounds of all numbers", ("sources/test_recording.py::test_numbers_beyond_all_observations_are_damage", "sources/test_vllm.py::test_a_length_that_no_model_has_is_unknown", "discovery/test_targets.py::test_a_bad_file_keeps_its_last_good_targets[a long number]")),
    Row("a client that is not a probe asks the gate", ALL, "`ok`, not recorded", NOTHING,
        "nothing to recover", "the address that a probe comes from", ("export/test_gate.py::test_only_what_may_be_a_probe_is_heard",)),
    Row("a bearer token instead of a password", ALL, "status 401", NOTHING,
        "nothing to recover", "that a token stands for a password only where there are tokens", ("export/test_passwords.py::test_without_tokens_a_bearer_stands_for_no_password",)),
    Row("a password is guessed from the operator's address", ALL, "status 429 to the guesser", NOTHING,
        "nothing to recover", "a check of each password before it is refused", ("export/test_passwords.py::test_guessing_is_slowed_down_and_locks_nobody_out",)),
)  # fmt: skip

PARTS = {
    "Targets": TARGET,
    "Host": HOST,
    "NVML": NVML,
    "Process": PROCESS,
    "Untrusted input": STRANGER,
}


def page() -> str:
    """The whole page."""
    parts = [HEAD]
    for title, rows in PARTS.items():
        parts.append("\n".join([f"## {title}", "", *map(told, rows), ""]))
    return "\n".join(parts)


def told(row: Row) -> str:
    """One fault: what is said, and what differs from the usual."""
    usual = {ALL, NOTHING, GAUGES, "all other targets", "nothing to recover", "–"}
    rest = (("Served", row.served), ("Lost", row.lost), ("Recovers", row.recovers))
    more = "".join(
        f" *{name}*: {text}."
        for name, text in rest
        if text not in usual and not text.startswith(("by itself", "nothing, as above"))
    )
    return f"- **{row.fault}**: {row.said}.{more}"


def missing(row: Row) -> Iterator[str]:
    """Tests that a row names and that are not there."""
    for each in row.tests:
        file, _, name = each.partition("::")
        function, _, case = name.partition("[")
        path = ROOT / "tests" / file
        text = path.read_text() if path.is_file() else ""
        case = case.removesuffix("]")
        known = re.search(rf"^(async )?def {function}\(", text, re.MULTILINE)
        if known is None or (case and f'"{case}"' not in text):
            yield each


if __name__ == "__main__":
    PAGE.write_text(page())
