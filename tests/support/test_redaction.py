"""What hides secrets: one list for all that is shown, in time that grows with the text and not with its square."""

import resource
import subprocess
import sys
from collections import OrderedDict

import pytest

from vllm_watch.support import redaction
from vllm_watch.support.redaction import (
    HIDDEN,
    excerpt,
    redact_always,
    redacted,
    safe_arguments,
    without_path,
)

HOSTILE = (
    "a-", "sk-", "key=", "--a ", "a:", "://", "https://", "http://a@", "?", "token=[", 'token="', "'token':", "eyJ-", "eyJa.",
    "Bearer ", "Token a", "--api-key ", "'token' ", "token:  ", " ",
    "--a', '", "token = ", "Authorization: a ", "Cookie:", "-----BEGIN A ", "http://h/hooks/", "http://a.", "/webhook",
)  # fmt: skip
CPU_SECONDS_MAX = 60  # 512 KB of each take eight; the square of their length takes a minute for one

SHOWN_AS = {
    "--api-key s3cretvalue next": f"--api-key {HIDDEN} next",
    "--api-key=s3cret --model=Qwen/Qwen3-8B --x=y": f"--api-key={HIDDEN} --model=Qwen/Qwen3-8B --x=y",
    "Authorization: Token s3cret": f"Authorization: Token {HIDDEN}",
    "'Authorization': 'Bearer s3cret', 'a': 1": f"'Authorization': {HIDDEN}, 'a': 1",
    "Token 9944b09199c62bcf9418": f"Token {HIDDEN}",
    "seen AKIAIOSFODNN7EXAMPLE there": f"seen {HIDDEN} there",
    "seen ASIAIOSFODNN7EXAMPLE there": f"seen {HIDDEN} there",
    "AIzaSyDdI0hCZtE6vySjMm-WEfRq3CPzqKqqsHI": HIDDEN,
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmN": HIDDEN,
    "github_pat_11ABCDEFG0abcdefghij": HIDDEN,
    "password: hunter2x": f"password: {HIDDEN}",
    "api_key='it was cut in the mid": f"api_key={HIDDEN}",
    "{'api_key': ['s3cret', 'b'], 'x': 1}": f"{{'api_key': {HIDDEN}, 'x': 1}}",
    "git+https://git.example/a/b.git@v1#egg=b": "git+https://git.example/a/b.git@v1#egg=b",
    "git+https://s3cret@git.example/a/b.git@v1": f"git+https://{HIDDEN}@v1",
    "https://h:1/-/x, http://u:p/w@b:8000?tok": f"https://h:1/-/x, http://{HIDDEN}@b:8000?{HIDDEN}",
    "'--api-key', 's3cret', '--port', '8000'": f"'--api-key', '{HIDDEN}', '--port', '8000'",
    "api_key: \"s3 cret\", model: 'm'": f"api_key: {HIDDEN}, model: 'm'",
    "aws_secret_access_key = wJalrXUtnFEMI/K7MDENG": f"aws_secret_access_key = {HIDDEN}",
    "Authorization: GenieKey s3cret": f"Authorization: {HIDDEN}",
    "Set-Cookie: session=s3cret; Path=/": f"Set-Cookie: {HIDDEN}",
    "-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END": f"-----BEGIN RSA PRIVATE KEY-----{HIDDEN}-----END",
    "sk_live_abcdefgh12 LTAI5tAbCdEfGhIjKlMn": f"{HIDDEN} {HIDDEN}",
    "POST https://hooks.slack.com/services/T0/B0/s3cret: 404": f"POST https://hooks.slack.com/{HIDDEN} 404",
    "https://hooks.example/a": f"https://hooks.example/{HIDDEN}",
    "password: [s3cret], x: 1": f"password: {HIDDEN}, x: 1",
    "https://chat.example/hooks/abcdefghijklmnopqr": f"https://chat.example/{HIDDEN}",
    "https://discord.com/api/webhooks/1/s3cret": f"https://discord.com/{HIDDEN}",
    "https://api.telegram.org/bot12:s3cret/send": f"https://api.telegram.org/{HIDDEN}",
    "http://h/x?a=b&c=d": f"http://h/x?a={HIDDEN}&c={HIDDEN}",
}
STAYS = (
    "generation tokens: 5000 of 8192", "the key is missing", "write KEY: VALUE lines there", "api.token: is missing, add it", "Token is missing",
    "--max-model-len 8192 --served-model-name chat", "http://10.0.0.7:8000/metrics answered 503", "https://host/docs/hooks/kubernetes",
    "--x=y --tokenizer=Qwen/Qwen3-8B --max-num-batched-tokens = 8192", "max_tokens = 512",
    "vllm serve: error: argument --api-key: expected at least one argument", "argument --api-key: expected one argument",
)  # fmt: skip


@pytest.mark.parametrize("text", SHOWN_AS)
def test_secrets_are_hidden_by_one_list(text: str) -> None:
    assert redacted(text) == redacted(redacted(text)) == SHOWN_AS[text]


@pytest.mark.parametrize("text", STAYS)
def test_what_is_no_secret_stays_readable(text: str) -> None:
    assert redacted(text) == text


def test_no_text_costs_the_square_of_its_length() -> None:
    """A prompt of 200 KB in an engine's log stopped the daemon for half a minute."""
    program = f"""
from vllm_watch.support.redaction import redacted
for word in {HOSTILE!r}:
    redacted(word * ((512 << 10) // len(word)))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS_MAX, CPU_SECONDS_MAX)),
    )  # fmt: skip
    assert done.returncode == 0, f"it did not end within {CPU_SECONDS_MAX} s of CPU: {done.stderr}"


def test_an_excerpt_is_cut_before_it_is_redacted() -> None:
    """What is cut in the middle of a word is left out: it may be half a secret."""
    assert excerpt("x " * 1000, 10) == "x x x x x…"
    assert excerpt("a " * 100 + f"https://me:s3cret{'x' * 300}@host/", 100).endswith("…")
    assert excerpt("s3cret" * 1000, 100) == "…"
    assert excerpt(f"token={'s' * 394}", 100) == f"token={HIDDEN}"
    assert excerpt("said token=s3cret", 100) == f"said token={HIDDEN}"


def test_what_was_read_from_a_file_of_keys_is_hidden_wherever_it_turns_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """From then on; what is so short that it turns up by chance is not."""
    monkeypatch.setattr(redaction, "_known", OrderedDict())
    command = ("vllm", "serve", "eightchr")
    assert safe_arguments(command) == command
    redact_always("eightchr")
    redact_always("sevench")
    assert safe_arguments(command) == ("vllm", "serve", HIDDEN)
    assert redacted("no eightchr here, sevench there") == f"no {HIDDEN} here, sevench there"


def test_a_thousand_keys_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """One more, and the oldest is forgotten; one that is read again is no other."""
    monkeypatch.setattr(redaction, "_known", OrderedDict())
    for number in (*range(1000), 999):
        redact_always(f"known{number:04}")
    assert redacted("known0000 known0999") == f"{HIDDEN} {HIDDEN}"
    redact_always("known1000")
    assert redacted("known0000 known0001 known1000") == f"known0000 {HIDDEN} {HIDDEN}"


def test_the_path_of_a_webhook_is_hidden() -> None:
    """Whoever knows it may post there."""
    assert (
        without_path("https://chat.example/services/T0/B0/XyZ?a=b")
        == f"https://chat.example/{HIDDEN}"
    )
    assert without_path("https://u:p@chat.example:8443") == "https://chat.example:8443"


COMMANDS: dict[str, tuple[str, str]] = {
    "none": ("vllm serve m --port 8000", "vllm serve m --port 8000"),
    "one": ("vllm serve m --api-key a --port 8000", f"vllm serve m --api-key {HIDDEN} --port 8000"),
    "several": ("vllm --api-key a b c -tp 2 d", f"vllm --api-key {HIDDEN} {HIDDEN} {HIDDEN} -tp 2 d"),
    "with =": ("vllm --api-key=a m", f"vllm --api-key={HIDDEN} m"),
    "another option with =": ("vllm --port=8000 m", "vllm --port=8000 m"),
    "at the end": ("vllm --api-key", "vllm --api-key"),
    "two in a row": ("vllm --api-key a --hf-token b", f"vllm --api-key {HIDDEN} --hf-token {HIDDEN}"),
    "a variable before it": ("env API_KEY=a vllm", f"env API_KEY={HIDDEN} vllm"),
    "a word that is named like one": ("vllm token m", "vllm token m"),
    "by its shape": (f"vllm sk-{'a' * 20}", f"vllm {HIDDEN}"),
}  # fmt: skip


@pytest.mark.parametrize(("command", "shown"), COMMANDS.values(), ids=COMMANDS)
def test_arguments_that_are_secrets_are_hidden(command: str, shown: str) -> None:
    """An option's values are, until the next option begins; what else stands there is shown as it is."""
    assert " ".join(safe_arguments(tuple(command.split(" ")))) == shown
