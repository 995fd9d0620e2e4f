"""Whoever can write a target's name cannot have our key sent there, nor be asked where that is not allowed."""

import json
from pathlib import Path

import pytest
import yaml
from structlog.testing import capture_logs

from tests.sources.wire import Wire, wire
from vllm_watch.config import Config, load
from vllm_watch.discovery.targets import Discovery, is_allowed
from vllm_watch.errors import ConfigError
from vllm_watch.sources import http
from vllm_watch.sources.vllm import VllmSource

KEY = "key-of-all-engines-0123456789"
METRICS = 'vllm:num_requests_running{engine="0"} 1.0\n# TYPE process_start_time_seconds gauge\nprocess_start_time_seconds 1.0\n'

ALLOWED = {
    "the name": ("http://vllm.example.org:8000", ["vllm.example.org"], True),
    "in another case, with a dot": ("http://VLLM.example.org.:8000", ["vllm.example.ORG"], True),
    "below a domain": ("http://a.b.example.org", ["*.example.org"], True),
    "the domain itself": ("http://example.org", ["*.example.org"], False),
    "a name that only ends so": ("http://evilexample.org", ["*.example.org"], False),
    "a name that only begins so": ("http://vllm.example.org.evil.net", ["vllm.example.org"], False),
    "an address": ("http://10.1.2.3:8000", ["10.1.2.3"], True),
    "in a network": ("http://10.1.2.3:8000", ["10.0.0.0/8"], True),
    "in another network": ("http://169.254.169.254", ["10.0.0.0/8"], False),
    "IPv6 in a network": ("http://[fd00::1]:8000", ["fd00::/8"], True),
    "a name for an address": ("http://10.1.2.3", ["vllm.example.org"], False),
    "an address for a name": ("http://vllm.example.org", ["0.0.0.0/0"], False),
    "digits that resolvers take for an address": ("http://2130706433", ["127.0.0.0/8"], False),
    "none": ("http://a", ["b"], False),
}


@pytest.mark.parametrize(("url", "allow", "allowed"), ALLOWED.values(), ids=ALLOWED)
def test_what_is_allowed(url: str, allow: list[str], allowed: bool) -> None:
    """Names stand for themselves, networks for addresses, and nothing for what it only looks like."""
    assert is_allowed(url, allow) == allowed


def config(folder: Path, found: list[str], **discovery: object) -> Config:
    (folder / "key").write_text(KEY)
    (folder / "found.json").write_text(json.dumps([{"targets": found}]))
    document = {
        "discovery": {"file_sd": ["found.json"], **discovery},
        "scrape": {"api_key_file": "key"},
    }
    (folder / "config.yaml").write_text(yaml.safe_dump(document))
    return load(folder / "config.yaml", environ={})


async def asked(config: Config, server: Wire) -> list[str]:
    """Look once at each target that is found; return what was shown to the server."""
    server.on("/metrics", METRICS)
    server.on("/v1/models", '{"data": []}')
    for target in await Discovery(config).refresh(0) or ():
        async with http.Session() as session:
            source = VllmSource(target.identity(), config.scrape_for(target), session)
            await source.observe()
    return [str(request.headers) for request in server.requests]


async def test_a_host_that_a_file_names_is_not_shown_our_key(tmp_path: Path) -> None:
    """It is watched, and the log says once what was withheld and how to allow it: then it is shown."""
    async with wire() as server:
        found = [server.url.removeprefix("http://")]
        with capture_logs() as told:
            withheld = str(await asked(config(tmp_path, found), server))
        assert {request.path for request in server.requests} >= {"/metrics", "/v1/models"}
        shown = str(await asked(config(tmp_path, found, allow=["127.0.0.0/8"]), server))
    assert (KEY in withheld, f"Bearer {KEY}" in shown) == (False, True)
    assert [each["event"] for each in told if each["log_level"] == "warning"] == [
        "api_key_withheld"
    ]


async def test_a_host_that_a_file_names_is_asked_with_the_tls_of_all(tmp_path: Path) -> None:
    """A certificate is no key: it proves who asks to whoever is asked, and is of no use to them."""
    config(tmp_path, [])
    (tmp_path / "found.json").write_text('[{"targets": ["10.0.0.1:8000"], "labels": {"__scheme__": "https"}}]')  # fmt: skip
    environ = {"VLLM_WATCH_SCRAPE__TLS_CONFIG__SERVER_NAME": "llm.example.org"}
    settings = load(tmp_path / "config.yaml", environ=environ)
    (found,) = await Discovery(settings).refresh(0) or ()
    scrape = settings.scrape_for(found)
    assert (scrape.api_key_file, scrape.tls_config.server_name) == (None, "llm.example.org")


async def test_what_is_not_allowed_is_not_asked(tmp_path: Path) -> None:
    """Not even for its metrics; it is said, once, and is no failure of discovery."""
    async with wire() as server:
        found = [server.url.removeprefix("http://")]
        with capture_logs() as told:
            settings = config(tmp_path, found, allow=["*.example.org"])
            discovery = Discovery(settings)
            assert [await discovery.refresh(t) for t in (0, 100)] == [(), None]
        assert server.requests == []
    assert [each["event"] for each in told] == ["targets_not_allowed"]
    assert discovery.problems == {}


async def test_what_is_written_out_is_always_allowed(tmp_path: Path) -> None:
    """The operator's own words need no list."""
    settings = config(tmp_path, [], allow=["*.example.org"])
    written = load(tmp_path / "config.yaml", environ={}, targets=["http://10.0.0.1:8000"])
    found = await Discovery(written).refresh(0)
    assert [each.url for each in found or ()] == ["http://10.0.0.1:8000"]
    assert written.scrape_for((found or ())[0]).api_key_file == settings.scrape.api_key_file


REFUSED = ("ftp://a", "http://a", "10.0.0.0/99", "a b", "", "*", "*.*.org")


@pytest.mark.parametrize("host", REFUSED)
def test_what_is_no_host_is_refused(tmp_path: Path, host: str) -> None:
    """A list that nothing can match is a mistake."""
    with pytest.raises(ConfigError, match=r"discovery\.allow\[0\]: .* is neither a host nor"):
        config(tmp_path, [], allow=[host])


SCHEMES = ("file:///etc/passwd", "ftp://a", "unix:///run/x", "http+unix://x", "//a:1")


@pytest.mark.parametrize("url", SCHEMES)
def test_targets_are_http_and_nothing_else(url: str) -> None:
    with pytest.raises(ConfigError, match="does not begin with http"):
        load(None, environ={}, targets=[url])


LOADED = ("http://me:CANARY1234@h:1", "http://h:1/?key=CANARY1234", "http://CANARY1234@h:1", "http://h:1/#CANARY1234=1")  # fmt: skip


@pytest.mark.parametrize("url", LOADED)
def test_no_credential_of_a_url_is_echoed(url: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load(None, environ={}, targets=[url])
    assert "CANARY1234" not in str(refused.value)


async def test_a_redirect_takes_the_key_nowhere_else(tmp_path: Path) -> None:
    """A server that sends us to another host or port is not followed, with the key or without."""
    async with wire() as elsewhere, wire() as server:
        server.on("/metrics", METRICS)

        async def away(request: object) -> None:
            location = {"Location": f"{elsewhere.url}/v1/models"}
            await request.answer(status="307 Temporary Redirect", headers=location)  # type: ignore[attr-defined]

        server.on("/v1/models", away)
        (tmp_path / "key").write_text(KEY)
        settings = load(None, environ={"VLLM_WATCH_SCRAPE__API_KEY_FILE": str(tmp_path / "key")}, targets=[server.url])  # fmt: skip
        async with http.Session() as session:
            target = settings.targets[0]
            await VllmSource(target.identity(), settings.scrape_for(target), session).observe()
        assert any(KEY in str(request.headers) for request in server.requests)
        assert elsewhere.requests == []
