"""Flags that a release of vLLM does not have: removed, not there yet, misspelt; and what is not claimed."""

import importlib.util
from pathlib import Path

import pytest

from vllm_watch.__main__ import main
from vllm_watch.preflight.command import parse, split
from vllm_watch.support import vllm_flags
from vllm_watch.support.vllm_flags import (
    ARCHITECTURE,
    VALUE,
    VARIABLE,
    Answer,
    Standing,
    look_up,
)

GENERATOR = Path(__file__).parents[2] / "docs" / "read_vllm_flags.py"
KNOWN = Answer(Standing.KNOWN)
# Flag, version, how it stands, the releases that are named, the one that removed it. Each checked in vLLM's source.
STANDS: tuple[tuple[str, str | None, Standing, str, str], ...] = (
    ("swap-space", "0.17.1", Standing.KNOWN, "", ""),
    ("swap-space", "0.18.0", Standing.REMOVED, "0.17.1", "0.18.0"),
    ("swap-space", "0.20.0+cu129", Standing.REMOVED, "0.17.1", "0.18.0"),
    ("use-v2-block-manager", "0.10.0", Standing.REMOVED, "0.9.2", "0.10.0"),
    ("num-scheduler-steps", "0.9.2.post1", Standing.KNOWN, "", ""),
    ("num-scheduler-steps", "0.11.0", Standing.REMOVED, "0.10.0", "0.10.1"),
    ("task", "0.13.0", Standing.REMOVED, "0.12.0", "0.13.0"),
    ("disable-log-requests", "0.16.0", Standing.KNOWN, "", ""),
    ("disable-log-requests", "0.17.0", Standing.REMOVED, "0.16.0", "0.17.0"),
    ("disable-log-requests", "0.33.0", Standing.KNOWN, "", ""),  # there again: --disable-x beside each --enable-x
    ("device-memory-utilization", "0.20.0", Standing.NOT_YET, "0.31.0", ""),
    ("headless", "0.8.5", Standing.NOT_YET, "0.9.0", ""),
    ("max-model", "0.20.0", Standing.KNOWN, "", ""),  # a beginning is enough for argparse
    ("no-enable-prefix-caching", "0.20.0", Standing.KNOWN, "", ""),
    ("swap-space", "0.26.1rc1.dev608+g1a2b3c", Standing.REMOVED, "0.17.1", "0.18.0"),
    ("task", "0.13.0rc2", Standing.KNOWN, "", ""),  # 0.12.0 had it: a build between may
    ("swap-space", "0.99.0", Standing.REMOVED, "0.17.1", "0.18.0"),
    ("task", None, Standing.UNSURE, "0.6.4 to 0.12.0", ""),
    ("disable-log-requests", None, Standing.UNSURE, "0.1.7 to 0.16.0 and from 0.33.0 on", ""),
    ("max-model-len", None, Standing.KNOWN, "from 0.2.0 on", ""),
    ("port", "dev", Standing.KNOWN, "from 0.1.7 on", ""),
)  # fmt: skip


@pytest.mark.parametrize(("name", "version", "standing", "releases", "removed_in"), STANDS)
def test_how_a_flag_stands(name: str, version: str | None, standing: Standing, releases: str, removed_in: str) -> None:  # fmt: skip
    found = look_up(name, version)
    assert (found.standing, found.releases, found.removed_in) == (standing, releases, removed_in)


@pytest.mark.parametrize(
    ("kind", "name", "version", "standing", "releases"),
    [(VALUE, "quantization=gguf", "0.24.0", Standing.REMOVED, "0.23.0"), (VALUE, "quantization=mxfp4", "0.9.0", Standing.NOT_YET, "0.10.1"),
     (ARCHITECTURE, "MllamaForConditionalGeneration", "0.11.0", Standing.REMOVED, "0.10.2"), (ARCHITECTURE, "Qwen3MoeForCausalLM", "0.12.0", Standing.KNOWN, ""),
     (VARIABLE, "VLLM_USE_V1", "0.12.0", Standing.REMOVED, "0.11.0"), ("", "architecture", "0.12.0", Standing.NEVER, "")],
)  # fmt: skip
def test_how_a_name_stands(kind: str, name: str, version: str, standing: Standing, releases: str) -> None:  # fmt: skip
    """Names of one kind are never taken for those of another, nor for the beginning of a flag."""
    found = look_up(name, version, kind)
    assert (found.standing, found.releases) == (standing, releases)


@pytest.mark.parametrize(
    ("name", "nearest"),
    [("max-modle-len", "max-model-len"), ("kv-cache-dtpye", "kv-cache-dtype"), ("tensor-paralel-size", "tensor-parallel-size"),
     ("gpu-memory-utilisation", "gpu-memory-utilization"), ("enable-prefix-cachng", "enable-prefix-caching"), ("moon-phase", None)],
)  # fmt: skip
def test_the_nearest_name(name: str, nearest: str | None) -> None:
    """Of those that this release has; none for what is like nothing."""
    found = look_up(name, "0.20.0")
    assert (found.standing, found.nearest) == (Standing.NEVER, nearest)


def test_each_cure_is_of_a_flag_that_is_gone() -> None:
    """And what takes its place is a flag of the newest release."""
    flags, releases = vllm_flags.table()
    flags = {**flags, **vllm_flags.table(VARIABLE)[0]}
    for name, cure in vllm_flags.INSTEAD.items():
        assert any(last < releases[-1] for _, last in flags[name].spans), name
        for word in cure.replace(",", " ").split():
            if word.startswith("--"):
                assert flags[word[2:].partition(".")[0]].within(releases[-1]), word


def host(folder: Path, monkeypatch: pytest.MonkeyPatch, version: str | None, plugin: str = "") -> None:  # fmt: skip
    """A vLLM as pip leaves it, in front of PATH."""
    packages = folder / "lib" / "python3.12" / "site-packages"
    (folder / "bin").mkdir()
    (folder / "bin" / "vllm").write_text("#!/bin/sh\n")
    (folder / "bin" / "vllm").chmod(0o755)
    if version:
        (packages / f"vllm-{version}.dist-info").mkdir(parents=True)
    if plugin:
        (packages / "ours-1.0.dist-info").mkdir()
        (packages / "ours-1.0.dist-info" / "entry_points.txt").write_text(plugin)
    monkeypatch.setenv("PATH", f"{folder / 'bin'}:/usr/bin:/bin")


_PLUGIN = "[vllm.general_plugins]\nours = ours:register\n"
# Story, version, plugin, flag, how the line begins, what it says.
LINES: tuple[tuple[str, str | None, str, str, str, str], ...] = (
    ("removed", "0.20.0", "", "--swap-space=16", "PROBLEM", "--swap-space was removed in vLLM 0.18.0 (0.17.1 had it): vLLM 0.20.0 does not know it"),
    ("with underscores", "0.20.0", "", "--swap_space=16", "PROBLEM", "--swap-space was removed in vLLM 0.18.0"),
    ("not there yet", "0.9.2", "", "--async-scheduling", "PROBLEM", "--async-scheduling comes with vLLM 0.10.0"),
    ("misspelt", "0.20.0", "", "--max-modle-len=8192", "PROBLEM", "no release of vLLM has --max-modle-len; --max-model-len is meant?"),
    ("misspelt, and the release is not known", None, "", "--max-modle-len=8192", "PROBLEM", "--max-model-len is meant?"),
    ("nobody's, and the release is not known", None, "", "--moon-phase", "unknown", "no release of vLLM has --moon-phase"),
    ("nobody's", "0.20.0", "", "--moon-phase", "PROBLEM", "no release of vLLM has --moon-phase"),
    ("a plugin's, maybe", "0.20.0", _PLUGIN, "--moon-phase", "warning", "unless a plugin that is installed brings it"),
    ("removed, and the release is not known", None, "", "--swap-space=16", "unknown", "--swap-space is a flag of vLLM 0.1.7 to 0.17.1: whether this vLLM (its release is not known) has it is unknown"),
    ("removed, and a release that is newer than the table", "0.99.0", "", "--swap-space=16", "warning", "(the flags of 0.33.0 and before are known)"),
)  # fmt: skip


@pytest.mark.parametrize(("version", "plugin", "flag", "word", "says"), [row[1:] for row in LINES], ids=[row[0] for row in LINES])  # fmt: skip
def test_preflight_says_it(version: str | None, plugin: str, flag: str, word: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:  # fmt: skip
    """NO-GO where vLLM is known to end at it, and with what to write instead."""
    host(tmp_path, monkeypatch, version, plugin)
    main(["preflight", "--", "vllm", "serve", "org/model", flag, "--port", "0"])
    lines = [line for line in capsys.readouterr().out.splitlines() if line.split()[1:2] == ["flags"]]  # fmt: skip
    assert [line.split()[0] for line in lines] == [word]
    assert says in lines[0]


def test_what_every_release_has_is_no_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:  # fmt: skip
    """Short forms, beginnings, parts of JSON, no-: as argparse takes them."""
    host(tmp_path, monkeypatch, "0.20.0")
    main(["preflight", "--", "vllm", "serve", "org/model", "-tp", "1", "-O3", "--max-model", "8k", "--hf-overrides.a.b", "3",
          "--no-enable-prefix-caching", "--served-model-name", "a", "b", "--api_key=x", "-q", "fp8"])  # fmt: skip
    assert " flags " not in capsys.readouterr().out


# Story, flag or setting of the environment, how the line begins, what it says. With vLLM 0.24.0.
NAMES: tuple[tuple[str, str, str, str], ...] = (
    ("quantization removed", "--quantization=gguf", "PROBLEM", "--quantization gguf was removed in vLLM 0.24.0 (0.23.0 had it)"),
    ("quantization misspelt", "--quantization=gptq_marln", "PROBLEM", "no release of vLLM has --quantization gptq_marln; gptq_marlin is meant?"),
    ("parser of a later release", "--tool-call-parser=ling3", "PROBLEM", "--tool-call-parser ling3 comes with vLLM 0.28.0"),
    ("parser of another model", "--tool-call-parser=glm46", "PROBLEM", "no release of vLLM has --tool-call-parser glm46"),
    ("parser misspelt", "--reasoning-parser=deepseek-r1", "PROBLEM", "--reasoning-parser deepseek-r1; deepseek_r1 is meant?"),
    ("backend removed", "--attention-backend=xformers", "PROBLEM", "--attention-backend xformers was removed in vLLM 0.12.0"),
    ("backend in small letters", "--attention-backend=flash_attn", "", ""),
    ("format of a loader", "--load-format=instanttensor", "", ""),
    ("type of the cache", "--kv-cache-dtype=int4_per_token_head", "PROBLEM", "comes with vLLM 0.25.0"),
    ("variable removed", "VLLM_ATTENTION_BACKEND=FLASH_ATTN", "warning", "VLLM_ATTENTION_BACKEND was removed in vLLM 0.16.0"),
    ("variable misspelt", "VLLM_USE_DEEP_GEM=1", "warning", "no release of vLLM has VLLM_USE_DEEP_GEM; VLLM_USE_DEEP_GEMM is meant?"),
    ("variable of Kubernetes", "VLLM_SERVICE_HOST=10.0.0.1", "", ""),
    ("variable of a plugin", "VLLM_MOON_PHASE=1", "", ""),
)  # fmt: skip


@pytest.mark.parametrize(("word", "begins", "says"), [row[1:] for row in NAMES], ids=[row[0] for row in NAMES])  # fmt: skip
def test_names_of_other_releases(word: str, begins: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:  # fmt: skip
    """A quantization that is refused is a problem; a variable that is ignored, a warning."""
    host(tmp_path, monkeypatch, "0.24.0")
    flags = [word] if word.startswith("--") else []
    if not flags:
        monkeypatch.setenv(*word.split("="))
    main(["preflight", "--", "vllm", "serve", "org/model", *flags, "--port", "0"])
    lines = [line for line in capsys.readouterr().out.splitlines() if line.split()[1:2] in (["flags"], ["environment"])]  # fmt: skip
    assert [line.split()[0] for line in lines] == ([begins] if begins else [])
    assert says in "".join(lines)


def test_an_architecture_of_a_later_release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:  # fmt: skip
    """The model's config names it, and no download is needed to know it. It may run through Transformers."""
    host(tmp_path, monkeypatch, "0.12.0")
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text('{"architectures": ["GlmMoeDsaForCausalLM"]}')
    main(["preflight", "--", "vllm", "serve", str(tmp_path / "model"), "--port", "0"])
    assert "GlmMoeDsaForCausalLM comes with vLLM 0.16.0" in capsys.readouterr().out


def test_the_commands_that_mend_it() -> None:
    """The flag goes with its values, or keeps them under its right name; what stands in a file is not in the command."""
    words = "vllm serve m --swap_space 16 --servd-model-name=a -tp 2 --guided-decoding-backend x --enforce-eager"  # fmt: skip
    command = parse(split(words.split(), {}), {"task": "generate"})
    assert command.without("swap-space") == words.replace("--swap_space 16 ", "")
    assert command.without("enforce-eager") == words.removesuffix(" --enforce-eager")
    assert command.renamed("servd-model-name", "served-model-name") == words.replace("servd-", "served-")  # fmt: skip
    assert command.without("task") is None
    assert "task" in command.flags


SOURCES = {
    "vllm-0.1.0": {"envs.py": 'x = {"VLLM_OLD": 1}', "model_executor/models/__init__.py": '_MODELS = {"AForCausalLM": ("a", "A")}',
                   "engine/arg_utils.py": "p.add_argument('--old', action='store_true')\np.add_argument('--size', '-s', type=int)"},
    "vllm-0.2.0": {
        "config.py": "class C:\n    many: Optional[list[str]] = None\n    on: bool = False\n    either: bool | str | None = None",
        "engine/arg_utils.py": "c_kwargs = get_kwargs(C)\ng.add_argument('--many', **c_kwargs['many'])\ng.add_argument('--enable-on', **c_kwargs['on'])\n"
                               "g.add_argument('--size', '-s')\ng.add_argument('--either', **c_kwargs['either'])",
        "entrypoints/openai/tool_parsers/a.py": '@ToolParserManager.register_module(["llama", "hermes"])\nclass A: pass', "entrypoints/openai/cli_args.py": "class FrontendArgs:\n    my_hosts: list[str] = ()\n\ndel frontend_kwargs['my_hosts']['nargs']",
        "model_executor/layers/quantization/__init__.py": 'QuantizationMethods = Literal[\n    "fp8",\n]',
        "tool_parsers/__init__.py": '_TOOL_PARSERS_TO_REGISTER = {\n    "hermes": ("a", "A"),\n    "new": (\n        "b",\n    ),\n}\n',
        "platforms/interface.py": "class _Backend(enum.Enum):\n    FLASH_ATTN = enum.auto()\n    OLD = 1\n\nclass B:\n    NO = 1\n",
        "config/cache.py": 'CacheDType = Literal[\n    "auto",\n    "fp8",\n]\n',
        "utils/argparse_utils.py": "class EnableDisableAction: pass",
    },
}  # fmt: skip


def test_the_table_is_read_from_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Literals, keywords that a config's field makes, fields of the frontend, pairs of enable and disable."""
    for name, files in SOURCES.items():
        for path, text in files.items():
            target = tmp_path / name / "vllm" / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text)
    spec = importlib.util.spec_from_file_location("read_vllm_flags", GENERATOR)
    assert spec is not None
    assert spec.loader is not None
    generator = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generator)
    monkeypatch.setattr(generator, "OUT", tmp_path / "out")
    generator.main([tmp_path / name for name in SOURCES])
    assert (tmp_path / "out").read_text().splitlines()[1:] == [
        "releases 0.1.0 0.2.0", "architecture:AForCausalLM name 0.1.0-0.1.0", "disable-on switch 0.2.0-", "either value 0.2.0-", "enable-on switch 0.2.0-",
        "help switch 0.1.0- -h", "many several 0.2.0-", "my-hosts value 0.2.0-", "old switch 0.1.0-0.1.0", "size value 0.1.0- -s", "value:attention-backend=FLASH_ATTN name 0.2.0-", "value:attention-backend=OLD name 0.2.0-", "value:kv-cache-dtype=auto name 0.2.0-", "value:kv-cache-dtype=fp8 name 0.2.0-",
        "value:quantization=fp8 name 0.2.0-", "value:tool-call-parser=hermes name 0.2.0-", "value:tool-call-parser=llama name 0.2.0-", "value:tool-call-parser=new name 0.2.0-", "variable:VLLM_OLD name 0.1.0-0.1.0",
    ]  # fmt: skip
