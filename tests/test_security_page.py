"""docs/security.md: its example runs as it stands, its numbers are those of the code, and each claim names here who tries it."""

import ast
import asyncio
import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import aiohttp
import pytest
import yaml

from tests.daemon_process import ROOT, daemon
from tests.fuzz.targets import TARGETS
from tests.planted import PLACES
from vllm_watch.clients.signed_post import REPLAY_SECONDS
from vllm_watch.export import answers, auth, listener, web_config
from vllm_watch.export.operator_api import ALERTS_BYTES_MAX
from vllm_watch.settings import web
from vllm_watch.support import token_file

PAGE = (ROOT / "docs/security.md").read_text()
BLOCKS = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)


async def test_the_example_runs_as_it_stands(tmp_path: Path) -> None:
    """Certificates, password, web configuration; then the daemon, and curl as the page says."""
    make, look = BLOCKS
    commands = tmp_path / "bin"
    commands.mkdir()
    for name, program in {"vllm-watch": "-m vllm_watch", "python3": ""}.items():
        (commands / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {program} "$@"\n')
        (commands / name).chmod(0o755)
    environ = os.environ | {"PATH": f"{commands}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        ["bash", "-euc", make], cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=600, check=False
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "config.yaml is usable." in done.stdout
    async with daemon("--config", tmp_path / "config.yaml") as process:
        port = process.url.rpartition(":")[2]
        curl = look.splitlines()[0].replace(":9470", f":{port}")
        assert "vllm_watch_build_info" in await _shell(curl, tmp_path)
        untrusting = aiohttp.TCPConnector(ssl=False)
        async with (
            aiohttp.ClientSession(connector=untrusting) as session,
            session.get(f"{process.url}/metrics") as answer,
        ):
            assert answer.status == 401


async def _shell(command: str, folder: Path) -> str:
    running = await asyncio.create_subprocess_exec(
        "bash",
        "-euc",
        f"{command} --silent --show-error",
        cwd=folder,
        stdout=asyncio.subprocess.PIPE,
    )
    said, _ = await asyncio.wait_for(running.communicate(), 60)
    return said.decode()


def test_its_numbers_are_those_of_the_code() -> None:
    for said in (
        f"{listener.CONNECTIONS_PER_CALLER_MAX} connections of one address, {listener.CONNECTIONS_MAX} in all",
        f"{listener.FIRST_REQUEST_SECONDS:g} s for a request's head",
        f"{answers.BODY_SECONDS:g} s for its body, {answers.WRITE_SECONDS:g} s to take the answer",
        f"a body {answers.BODY_BYTES_MAX >> 10} KiB (alerts: {ALERTS_BYTES_MAX >> 20} MiB",
        f"{auth.CHANGES_MAX} times a minute",
        f"{auth.FAILURES_MAX} tries a minute",
        f"tokens have {token_file.TOKEN_CHARACTERS_MIN} characters",
        f"checked every {web_config.LOOK_SECONDS:g} seconds",
        f"bcrypt hash, cost 4 to {web.BCRYPT_COST_MAX}",
        f"older than {REPLAY_SECONDS} s",
        f"plants {len(PLACES)} of them",
    ):
        assert said in PAGE.replace("\n", " "), said


def test_every_key_of_the_web_configuration_is_on_the_page() -> None:
    """And its YAML is YAML."""
    for model in (web.WebSettings, web.TlsSettings, web.HttpSettings):
        for key in model.model_fields:
            if key != "curve_preferences":  # is refused, with a remedy
                assert key in PAGE
    for text in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL):
        yaml.safe_load(text)


CLAIMS = {
    # who may do what
    "it listens on loopback": ("export/test_server.py::test_host_names_that_are_answered_to",),
    "a GET changes nothing": ("export/test_operator_api.py::test_getting_changes_nothing", "export/test_attacks.py::test_whatever_changes_something_is_guarded"),
    "a request to `/gate/` counts as a probe only": ("export/test_gate.py::test_only_what_may_be_a_probe_is_heard",),
    "it cannot read (no CORS)": ("export/test_attacks.py::test_other_origins_are_allowed_nothing", "export/test_server.py::test_every_answer_carries_the_security_headers"),
    "cannot reach us by DNS rebinding": ("export/test_attacks.py::test_no_endpoint_answers_to_another_name",),
    "cannot send a form": ("export/test_attacks.py::test_no_form_changes_anything", "export/test_attacks.py::test_no_page_of_another_site_changes_anything"),
    "what its `may` lists, 60 times a minute": ("export/test_operator_api.py::test_nothing_without_the_right_token", "export/test_auth.py::test_a_token_that_asks_too_often_is_told_to_wait"),
    "with name, address and outcome": ("export/test_attacks.py::test_each_change_is_written_down_and_no_token_is",),
    "10 tries a minute are answered with 401": ("export/test_auth.py::test_guessing_is_slowed_down_and_locks_nobody_out", "export/test_passwords.py::test_guessing_is_slowed_down_and_locks_nobody_out"),
    "the longest idle one is closed for a new one": ("export/test_slow_callers.py::test_idle_connections_make_room_for_newcomers",),
    "10 s for a request's head, 5 s for its body": ("export/test_server.py::test_connection_that_never_asks_is_closed", "export/test_server.py::test_reader_that_does_not_read_loses_its_connection"),
    "a head has at most 64 fields of 4 KiB and 32 KiB in all": ("export/test_slow_callers.py::test_a_head_has_so_many_fields_of_so_many_bytes", "export/test_slow_callers.py::test_a_head_that_does_not_end_is_bounded_as_a_whole"),
    "a body 4 KiB (alerts: 1 MiB": ("export/test_attacks.py::test_oversized_bodies_to_every_endpoint", "export/test_operator_api.py::test_large_bodies_are_for_alertmanager_alone"),
    "redirects stay on its host and port": ("sources/test_http.py::test_a_redirect_to_another_server_is_not_followed", "discovery/test_scope.py::test_a_redirect_takes_the_key_nowhere_else"),
    "fill memory, or stop scrapes of others": ("sources/test_reading.py::test_a_body_of_new_series_costs_a_few_times_its_length", "support/test_allocator.py::test_large_pieces_are_given_back", "sources/test_vllm.py::test_what_computes_beside_the_loop_leaves_it_free_and_comes_one_by_one"),
    "25,000 lines of 16 KiB with 128 labels, 64 engines": ("sources/test_exposition.py::test_what_is_far_beyond_an_engine_is_refused_in_a_sentence", "sources/test_reading.py::test_thousands_of_engines_are_read_in_part_and_quickly"),
    "unless `discovery.allow` limits them": ("discovery/test_scope.py::test_what_is_not_allowed_is_not_asked",),
    "That host never gets the API key": ("discovery/test_scope.py::test_a_host_that_a_file_names_is_not_shown_our_key",),
    "reload the configuration from this host": ("export/test_server.py::test_reload_is_for_this_machine_and_not_for_other_sites",),
    "files 0600, folders 0700, whatever the umask": ("support/test_private_files.py::test_for_the_owner_only", "support/test_private_files.py::test_no_link_is_written_through"),
    # hooks
    "Hooks run without a shell": ("restart/hooks/test_command.py::test_command_is_told_everything_and_sees_nothing_else",),
    # TLS and passwords
    "Any other key is an error.": ("settings/test_web.py::test_what_is_wrong_is_told",),
    "needs no restart: the files are checked": ("export/test_tls.py::test_a_renewed_certificate_counts_without_a_restart", "export/test_tls.py::test_a_broken_file_keeps_the_old_one_and_says_so"),
    "**`/-/healthy`** needs no password": ("export/test_passwords.py::test_every_route_asks_but_the_one_of_probes",),
    "takes its token in place of the password": ("export/test_passwords.py::test_what_changes_something_takes_the_token_in_place_of_the_password", "export/test_passwords.py::test_without_tokens_a_bearer_stands_for_no_password"),
    "Types that accept a certificate without verifying it are refused": ("export/test_tls.py::test_client_certificates", "settings/test_web.py::test_what_is_wrong_is_told"),
    # engines over TLS
    "**A certificate is checked** by authority, name and time": ("sources/test_http_tls.py::test_another_authority_is_not_trusted", "sources/test_http_tls.py::test_a_server_by_another_name"),
    "is scraped with the global `tls_config`": ("discovery/test_scope.py::test_a_host_that_a_file_names_is_asked_with_the_tls_of_all",),
    "A renewed file is used within seconds": ("sources/test_http_tls.py::test_a_renewed_client_certificate_is_used_without_a_restart",),
    "refuse unusable ones": ("sources/test_http_tls.py::test_what_is_wrong_with_a_file_is_said",),
    # tokens
    "If others may read a file": ("export/test_auth.py::test_unusable_token_lets_nobody_in",),
    "If you replace the file, the new token": ("export/test_auth.py::test_token_is_replaced_without_a_restart", "export/test_auth.py::test_token_whose_file_is_gone_lets_nobody_in"),
    "Each requested change is one line `change_asked`": ("export/test_attacks.py::test_each_change_is_written_down_and_no_token_is",),
    # names
    "any other gets 421": ("export/test_server.py::test_host_names_that_are_answered_to",),
    "it accepts every name until `api.hosts` lists some": ("export/test_server.py::test_on_a_network_address_any_name_is_answered_to_until_names_are_given",),
    # signatures
    "signs its request. A receiver refuses": ("restart/hooks/test_webhook.py::test_example_of_the_page_verifies",),
    # secrets
    "or it must belong to root and be readable by a group (0440)": ("support/test_regular_file.py::test_whether_a_file_keeps_a_secret", "deploy/test_kubernetes.py::test_files_of_the_secret_serve_with_the_modes_that_they_get"),
    "are shown nowhere: logs, errors, metrics": ("test_secrets_stay_secret.py::test_no_secret_comes_out_anywhere", "support/test_redaction.py::test_secrets_are_hidden_by_one_list"),
    "the path of a webhook": ("support/test_redaction.py::test_the_path_of_a_webhook_is_hidden",),
    "with its control characters as escapes": ("support/test_visible.py::test_commands_show_them", "support/test_visible.py::test_the_log_shows_them"),
}  # fmt: skip
"""Words of the page, which stand there once → the tests that try it, below `tests/`."""


@cache
def functions(file: str) -> frozenset[str]:
    tree = ast.parse((ROOT / "tests" / file).read_text())
    return frozenset(
        each.name for each in ast.walk(tree) if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)
    )  # fmt: skip


@pytest.mark.parametrize("claim", CLAIMS)
def test_who_tries_a_claim_is_there(claim: str) -> None:
    assert PAGE.replace("\n", " ").count(claim) == 1
    for test in CLAIMS[claim]:
        file, _, name = test.partition("::")
        assert name in functions(file), test


def test_each_row_of_who_may_do_what_is_tried() -> None:
    table = PAGE.split("| who | can |")[1].split("\n\n")[0].splitlines()[2:]
    assert len(table) > 8
    rows = [row for row in table if not row.startswith("| root,")]
    assert [row for row in rows if not any(claim in row for claim in CLAIMS)] == []


def test_each_section_that_claims_something_is_tried() -> None:
    sections = re.split(r"^## ", PAGE, flags=re.MULTILINE)[2:]
    told = [each.split("\n", 1) for each in sections]
    untried = [
        name for name, text in told if not any(claim in text.replace("\n", " ") for claim in CLAIMS)
    ]
    assert untried == []


INPUTS = PAGE.split("| input | bound |")[1].split("\n\n")[0].splitlines()[2:]


@pytest.mark.parametrize("row", INPUTS, ids=[row.split("|")[1].strip() for row in INPUTS])
def test_each_input_has_a_bound_and_a_test_that_is_there(row: str) -> None:
    """The last column is what `make fuzz` knows."""
    _, what, bound, test, fuzzed, _ = (cell.strip() for cell in row.split("|"))
    assert what
    assert bound
    file, _, function = test.strip("`").partition("::")
    assert function in functions(file)
    assert all(name in TARGETS for name in re.findall(r"`(\w+)`", fuzzed))
    assert fuzzed


def test_whatever_is_fuzzed_is_an_input_of_the_table() -> None:
    named = {name for row in INPUTS for name in re.findall(r"`(\w+)`", row.split("|")[4])}
    assert named == set(TARGETS)
