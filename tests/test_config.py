"""A configuration means what it says; each file in tests/config is wrong in one way, and says how that is told."""

import time
from pathlib import Path
from typing import get_args

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from docs.generate_configuration import told
from tests.export.certificates import Authority
from vllm_watch.config import Config, load
from vllm_watch.errors import ConfigError
from vllm_watch.restart.hooks.base import HookCall
from vllm_watch.settings import errors, overrides
from vllm_watch.settings.errors import InvalidConfigError, model_at
from vllm_watch.settings.target import slug
from vllm_watch.settings.tls import TlsConfig
from vllm_watch.story.kinds import STORIES

WRONG = sorted((Path(__file__).parent / "config").glob("*.yaml"))

URLS = {
    "http://a:8000": ("http://a:8000", "a-8000"),
    "http://a:8000/metrics": ("http://a:8000", "a-8000"),
    "http://A.Example": ("http://a.example", "a.example-80"),
    "https://a": ("https://a", "a-443"),
    "http://10.0.0.7:8000/llm/chat/": ("http://10.0.0.7:8000/llm/chat", "10.0.0.7-8000-llm-chat"),
    "http://[FE80::1]:8000/metrics": ("http://[fe80::1]:8000", "fe80-1-8000"),
}

ENVIRONMENT = {
    "VLLM_WATCH_LISTEN": ("[::1]:1", lambda config: config.listen, "[::1]:1"),
    "VLLM_WATCH_STATE_DIR": ("/state", lambda config: config.state_dir, Path("/state")),
    "VLLM_WATCH_SCRAPE__INTERVAL_SECONDS": ("1.5", lambda config: config.scrape.interval_seconds, 1.5),
    "VLLM_WATCH_SCRAPE__BODY_BYTES_MAX": ("2 MiB", lambda config: config.scrape.body_bytes_max, 2 << 20),
    "VLLM_WATCH_GPU__ENABLED": ("off", lambda config: config.gpu.enabled, "off"),
    "VLLM_WATCH_TARGETS": (
        "http://a:1, b=http://b:2",
        lambda config: [(target.name, target.url) for target in config.targets],
        [("a-1", "http://a:1"), ("b", "http://b:2")],
    ),
}  # fmt: skip

WRONG_ENVIRONMENT = {
    "VLLM_WATCH_SCRAPE__INTERVAL_SECONDS": (
        "-5",
        "VLLM_WATCH_SCRAPE__INTERVAL_SECONDS: '-5' is not above 0",
        "set it above 0",
    ),
    "VLLM_WATCH_SCRAPE__INTERVAL_SECOND": (
        "5",
        "VLLM_WATCH_SCRAPE__INTERVAL_SECOND: is not a vllm-watch variable",
        "did you mean VLLM_WATCH_SCRAPE__INTERVAL_SECONDS? Keys are joined with two underscores: VLLM_WATCH_SCRAPE__INTERVAL_SECONDS",
    ),
    "VLLM_WATCH_TARGETS": (
        "chat=b",
        "VLLM_WATCH_TARGETS chat: 'b' does not begin with http:// or https://",
        "write http://HOST:PORT (or https://)",
    ),
}


@pytest.mark.parametrize("path", WRONG, ids=lambda path: path.stem)
def test_what_is_wrong_with_a_file_is_told_whole(path, monkeypatch):
    """The error of each wrong file is the text in the `#!` lines at its head, and shows no secret."""
    monkeypatch.chdir(path.parent)
    head = [line[3:] for line in path.read_text().splitlines() if line.startswith("#!")]

    told = errors_of(lambda: load(Path(path.name), environ={}))

    assert told == head
    assert not any(secret in "\n".join(told) for secret in ("s3cr", "do-not-show"))


@pytest.mark.parametrize(
    "text",
    ["", "# all of it\n", "targets:\nscrape:\nlisten:\n", "discovery: {file_sd: }\n", "---\n{}\n"],
)
def test_an_empty_file_is_a_configuration(tmp_path, text):
    """What is commented out means the defaults, be it the whole file or all lines of a section."""
    file = written(tmp_path, text)

    assert load(file, environ={}) == load(None, environ={})


@pytest.mark.parametrize(("given", "expected"), URLS.items(), ids=URLS)
def test_base_url_and_the_name_made_of_it(given, expected):
    """A URL is kept as scheme, host, port and prefix, and names its target when nothing else does."""
    target = load(None, environ={}, targets=[given]).targets[0]

    assert (target.url, target.name, target.group) == (*expected, expected[1])


def test_names_made_of_urls_are_unique(tmp_path):
    """Two URLs that would give one name give two, and a name that was written out is left alone."""
    file = written(
        tmp_path,
        "targets: [{url: 'http://a:80/x/y'}, {url: 'http://a:80/x-y'}, {url: 'http://b', name: a-80-x-y-2}]",
    )

    names = [target.name for target in load(file, environ={}).targets]

    assert names == ["a-80-x-y", "a-80-x-y-3", "a-80-x-y-2"]


@given(st.text())
def test_a_slug_is_a_name(text):
    name = slug(text)

    assert (
        name == "" or load(None, environ={}, targets=[f"{name}=http://a"]).targets[0].name == name
    )


@pytest.mark.parametrize(("variable", "case"), ENVIRONMENT.items(), ids=ENVIRONMENT)
def test_environment_stands_over_the_file(tmp_path, variable, case):
    """A variable sets the key that its name spells, whether the file has its section or not."""
    text, read, expected = case
    for content in ("", "listen: 127.0.0.1:9\nscrape: {interval_seconds: 9}\nlog: {}\n"):
        config = load(written(tmp_path, content), environ={variable: text, "HOME": "/root"})

        assert read(config) == expected


@pytest.mark.parametrize(("variable", "case"), WRONG_ENVIRONMENT.items(), ids=WRONG_ENVIRONMENT)
def test_what_is_wrong_in_the_environment_is_told_by_variable(variable, case):
    text, cause, remedy = case

    assert errors_of(lambda: load(None, environ={variable: text})) == [cause, f"  → {remedy}"]


@pytest.mark.parametrize(
    "variable",
    ["PORT", "SERVICE_HOST", "SERVICE_PORT_HTTP", "PORT_9470_TCP_ADDR", "GPU_SERVICE_PORT"],
)
def test_variables_of_a_kubernetes_service_are_not_ours(variable):
    """A Service named vllm-watch puts such variables into every pod: they are no mistake."""
    environ = {f"VLLM_WATCH_{variable}": "tcp://10.0.0.1:9470"}

    assert load(None, environ=environ) == load(None, environ={})


def test_what_a_hook_is_told_is_no_setting():
    """A hook's command that runs vllm-watch hands on what it was told, and is not refused for it."""
    told = HookCall(attempt_id="1", target="a", url="u", group="a", trigger="manual", reason="r")
    environment = told.environment()

    assert set(environment) == overrides.HOOK_VARIABLES
    assert not set(environment) & overrides.CLIENT_VARIABLES
    assert environment["VLLM_WATCH_TARGET_URL"] == "u"
    assert load(None, environ=environment) == Config()


def test_command_line_stands_over_all(tmp_path):
    """Over variables and the file that it names, or a variable where it names none; `--target` adds to the targets."""
    file = written(tmp_path, "listen: 127.0.0.1:1\ntargets: [{url: 'http://a:1'}]\n")
    environ = {"VLLM_WATCH_LISTEN": "127.0.0.1:2"}
    arguments = {"listen": "127.0.0.1:3", "state_dir": tmp_path, "procfs": Path("/host/proc")}

    config = load(file, environ=environ, targets=["http://b:2", "chat=http://c:3"], **arguments)

    assert {name: getattr(config, name) for name in arguments} == arguments
    assert [target.name for target in config.targets] == ["a-1", "b-2", "chat"]
    other = tmp_path / "other.yaml"
    other.write_text("listen: 127.0.0.1:4\n")
    named = {"VLLM_WATCH_CONFIG": str(file)}
    listens = [load(each, environ=named).listen for each in (None, other)]
    assert listens == ["127.0.0.1:1", "127.0.0.1:4"]


def test_a_target_inherits_what_it_does_not_set(tmp_path):
    """Own keys stand over the common ones, key by key; null takes an objective away."""
    file = written(
        tmp_path,
        """
        scrape: {interval_seconds: 10, body_bytes_max: 1 MiB}
        slo: {time_to_first_token_seconds: 1, e2e_latency_seconds: 30}
        targets:
          - {url: 'http://a:1', scrape: {interval_seconds: 1}, slo: {e2e_latency_seconds: null}}
          - {url: 'http://b:1'}
        """,
    )
    config = load(file, environ={})
    own, common = config.targets

    scrape, slo = config.scrape_for(own), config.slo_for(own)
    assert (scrape.interval_seconds, scrape.body_bytes_max) == (1, 1 << 20)
    assert (scrape.timeout_seconds, scrape.connect_timeout_seconds) == (2, 2)
    assert (slo.time_to_first_token_seconds, slo.e2e_latency_seconds) == (1, None)
    assert (config.scrape_for(common), config.slo_for(common)) == (config.scrape, config.slo)


def test_paths_start_at_the_folder_of_the_file(tmp_path, monkeypatch):
    """A relative path in a file means the same wherever the daemon is started."""
    (tmp_path / "vllm.key").write_text("key")
    file = written(
        tmp_path,
        "state_dir: state\nscrape: {api_key_file: vllm.key}\ndiscovery: {file_sd: ['targets/*.json']}\n",
    )
    monkeypatch.chdir("/")

    config = load(file, environ={})

    assert (config.state_dir, config.scrape.api_key_file, config.discovery.file_sd) == (
        tmp_path / "state",
        tmp_path / "vllm.key",
        (str(tmp_path / "targets/*.json"),),
    )


def test_the_tls_of_a_target_stands_in_place_of_that_of_all(tmp_path):
    """As a whole, like any other key of `scrape`; its files start at the folder of the file that names them."""
    ours = Authority(tmp_path, "ours")
    (tmp_path / "theirs").mkdir()
    theirs = Authority(tmp_path / "theirs", "theirs")
    text = """
        scrape: {tls_config: {ca_file: ours.pem, server_name: llm.example}}
        targets:
          - {url: https://a, scrape: {interval_seconds: 9}}
          - {url: https://b, scrape: {tls_config: {ca_file: theirs/theirs.pem}}}
          - {url: https://c, scrape: {tls_config: {}}}
    """
    config = load(written(tmp_path, text), environ={})
    of_all, of_b, of_c = (config.scrape_for(target).tls_config for target in config.targets)

    assert of_all == TlsConfig(ca_file=ours.own.certificate, server_name="llm.example")
    assert of_b == TlsConfig(ca_file=theirs.own.certificate)
    assert of_c == TlsConfig()


UNREADABLE = {
    "missing": (lambda path: None, "no such file or directory", "name a file that can be read"),
    "a folder": (
        lambda path: path.mkdir(),
        "is a folder, not a regular file",
        "name a file that can be read",
    ),
    "not UTF-8": (
        lambda path: path.write_bytes(b"listen: x\nlog: \xff\n"),
        "line 2: is not UTF-8",
        "save it as plain text in UTF-8",
    ),
    "too large": (
        lambda path: path.write_bytes(b"# a comment\n" * 200_000),
        "is larger than 2 MiB",
        "name a configuration file; long target lists go into several file_sd files",
    ),
}


@pytest.mark.parametrize(("make", "cause", "remedy"), UNREADABLE.values(), ids=UNREADABLE)
def test_a_file_that_cannot_be_read_is_told(tmp_path, make, cause, remedy):
    file = tmp_path / "vllm-watch.yaml"
    make(file)

    assert errors_of(lambda: load(file, environ={})) == [f"{file}: {cause}", f"  → {remedy}"]


def test_a_notifier_tells_of_kinds_that_there_are(tmp_path):
    """Every kind of incident that has a story, and no other one; the mistake names them all."""
    text = "notifications: {{webhook: [{{name: a, url: 'https://a/b', kinds: [{}]}}]}}"
    config = load(written(tmp_path, text.format(", ".join(STORIES))), environ={})
    assert config.notifications.webhook[0].kinds == tuple(STORIES)
    said = errors_of(lambda: load(written(tmp_path, text.format("engine_dwon")), environ={}))
    assert said[-1] == f"  → write one of {', '.join(STORIES)}"


def test_ten_thousand_targets_load_within_seconds(tmp_path):
    """The largest list that is accepted is read in bearable time; one more is refused."""
    lines = [f"  - {{url: 'http://10.0.{i // 250}.{i % 250}:8000'}}\n" for i in range(10_001)]
    started = time.process_time()

    config = load(written(tmp_path, "targets:\n" + "".join(lines[:-1])), environ={})

    assert len(config.targets) == 10_000
    assert time.process_time() - started < 10
    with pytest.raises(ConfigError, match=r"targets: has 10001 entries, more than 10000"):
        load(written(tmp_path, "targets:\n" + "".join(lines)), environ={})


KEYS = st.sampled_from(
    ["listen", "targets", "url", "name", "scrape", "slo", "interval_seconds", "timeout_seconds",
     "api_key_file", "bytes_max", "discovery", "host", "file_sd", "gpu", "enabled", "x"]
)  # fmt: skip
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5),
    st.sampled_from(["http://a:8000", "5s", "8 MiB", "9" * 400, "http://[", "~root"]),
)  # fmt: skip
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(KEYS, VALUES), st.lists(st.text(max_size=12), max_size=2))
def test_any_mapping_is_a_configuration_or_a_config_error(tmp_path_factory, data, targets):
    """However wrongly the known keys are combined, with arguments over them, it is told and no crash."""
    file = tmp_path_factory.mktemp("any") / "any.yaml"
    file.write_text(yaml.safe_dump(data))
    environ = {"VLLM_WATCH_SCRAPE__INTERVAL_SECONDS": "3", "VLLM_WATCH_TARGETS": "http://z:1"}

    for line in errors_of(lambda: load(file, environ=environ, targets=targets, listen="x")):
        assert "PydanticUndefined" not in line


def test_every_key_says_what_it_does():
    """No key is without a description, and no default without a reason, but for mere labels."""
    for model, name, field in keys_of(Config, ""):
        said = told(model).get(name, {})
        if model.__module__.startswith("vllm_watch.detectors."):
            continue  # thresholds: tests/test_thresholds.py, where several may share one reason
        assert said.get(""), f"{model.__name__}.{name}"
        reasoned = "Why" in said or field.is_required() or field.default in (None, "", (), {})
        assert reasoned, f"{model.__name__}.{name}"


def keys_of(model, path):
    for name, field in model.model_fields.items():
        inner = model_at(model, (name,))
        if inner is None:
            yield model, name, field
        else:
            yield from keys_of(inner, f"{path}.{name}")


def errors_of(action):
    try:
        action()
    except ConfigError as error:
        each = getattr(error, "problems", (error,))
        return [line for one in each for line in (one.cause, f"  → {one.remedy}")]
    return []


def written(folder, text):
    file = folder / "vllm-watch.yaml"
    file.write_text(text)
    return file


def test_what_people_type_is_taken(tmp_path):
    """Addresses without a scheme, model ids as names, and a list of nothing but URLs."""
    file = written(tmp_path, "targets:\n- http://a:1\n- b:2/prefix\n- Org/Model-7B=[::1]:3\n- {name: Chat.Prod v2, url: d:4}\n")  # fmt: skip

    config = load(file, environ={}, targets=["meta-llama/Llama-3.1=e:5", "https://f"])

    assert [(each.name, each.url) for each in config.targets] == [
        ("a-1", "http://a:1"),
        ("b-2-prefix", "http://b:2/prefix"),
        ("org-model-7b", "http://[::1]:3"),
        ("chat.prod-v2", "http://d:4"),
        ("meta-llama-llama-3.1", "http://e:5"),
        ("f-443", "https://f"),
    ]


def test_a_command_in_one_word_is_refused(tmp_path):
    """No shell takes it apart: it would be found to be missing when it is needed."""
    file = tmp_path / "config.yaml"
    file.write_text("""\
targets: [{name: a, url: http://10.0.0.1:8000}]
restart: {mode: observe, hook: h}
hooks: {command: [{name: h, argv: ["systemctl restart vllm"]}]}
""")
    with pytest.raises(InvalidConfigError, match="is one word, not a program") as raised:
        load(file, environ={})
    assert '["systemctl", "restart", "vllm"]' in str(raised.value)


def test_removed_variable_names_its_replacement():
    error, _ = errors_of(lambda: load(None, environ={"VLLM_WATCH_RESTART__LOCK__CA_FILE": "/a"}))

    assert error == "VLLM_WATCH_RESTART__LOCK__CA_FILE: was removed"


@pytest.mark.parametrize("gone", errors.REMOVED)
def test_what_was_removed_is_no_setting(gone):
    """Or the sentence would stand in place of its own errors."""
    path, _, value = gone.partition("=")
    *above, key = path.split(".")
    fields = model_at(Config, tuple(above)).model_fields
    assert key not in fields or value not in get_args(fields[key].annotation)


def test_messages_link_to_where_people_reach_the_page(tmp_path):
    url = "external_url: https://watch.example/gpu-7/\n"
    found = load(written(tmp_path, url), environ={})
    assert found.external_url == "https://watch.example/gpu-7"
    assert found.notifications_linked.page_url == "https://watch.example/gpu-7"
    own = url + "notifications: {page_url: 'https://b.example'}\n"
    found = load(written(tmp_path, own), environ={})
    assert found.notifications_linked.page_url == "https://b.example"
    assert Config().notifications_linked.page_url is None


def test_links_have_names(tmp_path):
    url = "https://g.example/d?var={target}&from={from}&to={to}"
    file = written(tmp_path, f"links: [{{name: Grafana, url: '{url}'}}]\n")
    assert load(file, environ={}).templates == {"Grafana": url}
