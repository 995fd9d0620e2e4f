"""The web configuration file: what is taken, and what is said of everything else."""

from pathlib import Path

import bcrypt
import pytest

from vllm_watch.errors import ConfigError
from vllm_watch.settings import web

HASH = bcrypt.hashpw(b"secret-of-ana", bcrypt.gensalt(4)).decode()
TLS = "tls_server_config:\n  cert_file: a.pem\n  key_file: a.key\n"
WHOLE = f"""\
{TLS}  client_auth_type: RequireAndVerifyClientCert
  client_ca_file: ca.pem
  client_allowed_sans: [prometheus]
  min_version: TLS12
  max_version: TLS13
  cipher_suites: [TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, TLS_AES_128_GCM_SHA256]
  prefer_server_cipher_suites: true
  curve_preferences: []
http_server_config:
  http2: true
  headers:
    Strict-Transport-Security: max-age=31536000
basic_auth_users:
  ana: {HASH}
"""


def read(folder: Path, text: str) -> web.WebSettings:
    (folder / "web.yaml").write_text(text)
    return web.read(folder / "web.yaml")


def test_a_whole_file(tmp_path: Path) -> None:
    found = read(tmp_path, WHOLE)
    assert found.files == (tmp_path / "a.pem", tmp_path / "a.key", tmp_path / "ca.pem")
    assert found.tls_server_config.ciphers == ("ECDHE-RSA-AES128-GCM-SHA256",)
    assert found.basic_auth_users == {"ana": HASH}


@pytest.mark.parametrize("text", ["", "tls_server_config:\n", "# nothing\n"])
def test_a_file_without_anything(tmp_path: Path, text: str) -> None:
    found = read(tmp_path, text)
    assert (found.tls_server_config.on, found.basic_auth_users) == (False, {})


WRONG = {
    "unknown key": ("tls_config: {}", "tls_config: unknown key"),
    "unknown key below": (TLS + "  cert: x\n", "tls_server_config.cert: unknown key"),
    "no key file": ("tls_server_config: {cert_file: a.pem}", "tls_server_config.key_file: is missing"),
    "no certificate": ("tls_server_config: {key_file: a.key}", "tls_server_config.cert_file: is missing"),
    "TLS asked for without a certificate": (
        "tls_server_config: {min_version: TLS13}", "tls_server_config.cert_file: is missing"),
    "an authority for nobody": (TLS + "  client_ca_file: ca.pem\n", "clients are not asked for a certificate"),
    "no authority": (
        TLS + "  client_auth_type: RequireAndVerifyClientCert\n", "tls_server_config.client_ca_file: is missing"),
    "unverified certificates": (
        TLS + "  client_auth_type: RequireAnyClientCert\n", "would take a certificate without verifying it"),
    "no way of asking": (TLS + "  client_auth_type: always\n", "'always' is not a client_auth_type"),
    "names without certificates": (TLS + "  client_allowed_sans: [a]\n", "clients need no certificate"),
    "an old TLS": (TLS + "  min_version: TLS10\n", "'TLS10' is broken, and not served"),
    "no version is left": (TLS + "  min_version: TLS13\n  max_version: TLS12\n", "is above max_version"),
    "no suite is left": (
        TLS + "  max_version: TLS12\n  cipher_suites: [TLS_AES_128_GCM_SHA256]\n", "holds none of TLS 1.2"),
    "a weak suite": (
        TLS + "  cipher_suites: [TLS_RSA_WITH_RC4_128_SHA]\n", "is not a supported cipher suite"),
    "curves": (TLS + "  curve_preferences: [X25519]\n", "the order of curves cannot be set"),
    "a header of another kind": (
        "http_server_config: {headers: {Server: x}}", "'Server' is not a header that can be set"),
    "a header of two lines": (
        'http_server_config: {headers: {X-Frame-Options: "a\\nB: c"}}', "X-Frame-Options is not a line of text"),
    "a password in place of its hash": (
        "basic_auth_users: {ana: hunter2hunter2}", "basic_auth_users.ana: the value (not shown) is not a bcrypt hash"),
    "a hash that takes a day": (
        f"basic_auth_users: {{ana: {HASH[:4]}31{HASH[6:]}}}", "a cost of 31 is not between 4 and 14"),
    "a user with a colon": (f'basic_auth_users: {{"a:b": {HASH}}}', "'a:b' cannot be sent as a user's name"),
    "users twice": (
        f"basic_auth_users: {{ana: {HASH}}}\nbasic_auth_users: {{}}", "basic_auth_users: is set twice"),
    "an alias": ("a: &x 1\nb: *x", "the alias *x is not supported"),
    "a list": ("- a", "not keys with values"),
    "no file": (None, "no such file"),
}  # fmt: skip


@pytest.mark.parametrize(("text", "words"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_told(tmp_path: Path, text: str | None, words: str) -> None:
    """With the file, the key's path and a remedy, and without any value that may be a secret."""
    with pytest.raises(ConfigError) as refused:
        web.read(tmp_path / "none.yaml") if text is None else read(tmp_path, text)
    assert str(tmp_path) in refused.value.cause
    assert words in refused.value.cause
    assert refused.value.remedy
    assert "hunter2" not in str(refused.value)
    assert "123456" not in str(refused.value)


def test_all_that_is_wrong_is_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as refused:
        read(tmp_path, "tls_server_config: {cert_file: a.pem}\nbasic_auth_users: {a: b}\nx: 1")
    assert refused.value.cause.count("web.yaml: ") == 3
