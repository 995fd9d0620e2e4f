"""A launch is read as vLLM reads it, in every spelling."""

import pytest

from vllm_watch.errors import WatchError
from vllm_watch.preflight.command import parse, split


def read(line, config=None, environment=None):
    return parse(split(line.split(" "), environment or {}), config)


SPELLINGS = {
    "a value apart": "vllm serve m --tensor-parallel-size 4",
    "a value in it": "vllm serve m --tensor-parallel-size=4",
    "underscores": "vllm serve m --tensor_parallel_size 4",
    "the short form": "vllm serve m -tp 4",
    "a level apart": "vllm serve -O 3 m -tp 4",
    "a short form with a key": "vllm serve m -cc.mode=3 -tp 4",
    "the model after two dashes": "vllm serve -tp 4 -- m",
    "a beginning that is enough": "vllm serve m --tensor-par 4",
    "the model after a switch": "vllm serve -tp 4 --enforce-eager m",
    "the model after a switch that says no": "vllm serve -tp 4 --no-enable-prefix-caching m",
    "the model by its flag": "vllm serve --model m -tp 4",
    "the last of two counts": "vllm serve m -tp 2 --tensor-parallel-size 4",
    "the older way": "python -m vllm.entrypoints.openai.api_server --model m -tp 4",
    "Python with flags of its own": "python3.12 -u -m vllm.entrypoints.cli.main serve m -tp 4",
    "behind others": "nohup numactl --cpunodebind=0 vllm serve m -tp 4",
    "with several names": "vllm serve m --served-model-name a b -tp 4",
    "an old switch with a word": "vllm serve --enable-chunked-prefill False m -tp 4",
}


@pytest.mark.parametrize("line", SPELLINGS.values(), ids=SPELLINGS)
def test_every_spelling_means_the_same(line):
    command = read(line)
    assert (command.model, command.whole("tensor-parallel-size", 1)) == ("m", 4)


SWITCHES = {
    "vllm serve m": True,
    "vllm serve m --enable-prefix-caching": True,
    "vllm serve m --no-enable-prefix-caching": False,
    "vllm serve m --no_enable_prefix_caching": False,
    "vllm serve m --enable-prefix-caching=False": False,
}


@pytest.mark.parametrize(("line", "on"), SWITCHES.items())
def test_a_switch(line, on):
    assert read(line).switch("enable-prefix-caching", True) is on


def test_the_configuration_file_counts_where_the_command_line_says_nothing():
    """As vLLM has it: command line, then file, then default."""
    config = {"model": "of-file", "port": 9000, "tensor_parallel_size": 2, "enforce-eager": True,
              "enable-prefix-caching": False, "hf-overrides": {"a": 1}, "served-model-name": ["x", "y"]}  # fmt: skip
    command = read("vllm serve --config c.yaml --port 9001", config)
    assert command.model == "of-file"
    assert command.whole("port", 0) == 9001
    assert command.whole("tensor-parallel-size", 1) == 2
    assert command.switch("enforce-eager")
    assert not command.switch("enable-prefix-caching", True)
    assert command.text("hf-overrides") == '{"a": 1}'
    assert command.text("served-model-name") == "x y"
    assert read("vllm serve m --config c.yaml", config).model == "m"
    assert split(["vllm", "serve", "--config", "c.yaml"], {}).config_path == "c.yaml"


def test_a_file_that_vllm_does_not_read():
    command = read("vllm serve m --config=c.yaml")
    assert command.config_ignored == "c.yaml"
    assert split(["vllm", "serve", "m", "--config=c.yaml"], {}).config_path is None


def test_an_object_part_by_part():
    command = read("vllm serve m --speculative-config.method mtp --speculative-config.num_speculative_tokens 2")  # fmt: skip
    assert command.text("speculative-config") == '{"method": "mtp", "num_speculative_tokens": 2}'


def test_variables_before_the_command():
    command = read("env CUDA_VISIBLE_DEVICES=1 vllm serve m", None, {"CUDA_VISIBLE_DEVICES": "0", "A": "b"})  # fmt: skip
    assert command.environment == {"CUDA_VISIBLE_DEVICES": "1", "A": "b"}


def test_a_change_stands_in_its_own_place():
    """So that the command can be copied; a secret is not in it."""
    command = read("vllm serve m -tp 3 --api-key one two --gpu_memory_utilization=0.9 --hf-token=x")
    assert command.shown(tensor_parallel_size="2", gpu_memory_utilization="0.5", port="1") == (
        "vllm serve m -tp 2 --api-key '[hidden]' '[hidden]' --gpu_memory_utilization=0.5 '--hf-token=[hidden]' --port 1"
    )
    assert command.shown({"A": "b"}).startswith("A=b vllm serve m -tp 3 ")


WRONG = {
    "nothing": ([], "no command is named"),
    "another program": (["ls", "-l"], "'ls -l' does not start a vLLM server"),
    "another command of vLLM": (["vllm", "bench", "serve"], "does not start a vLLM server"),
    "a shell's text": (["bash", "-c", "vllm serve m"], "bash -c"),
    "a file left out": (["vllm", "serve", "m", "--config"], "--config without a file"),
}


@pytest.mark.parametrize(("words", "cause"), WRONG.values(), ids=WRONG)
def test_what_is_no_launch(words, cause):
    with pytest.raises(WatchError, match=r".") as error:
        assert split(words, {}).config_path is None
    assert cause in error.value.cause
    assert error.value.remedy
