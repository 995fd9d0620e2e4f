"""Every message that a rule knows is found, and every rule knows one."""

import pytest

from tests.diagnosis.examples import EXAMPLES
from tests.diagnosis.whole_log import diagnose
from tests.for_each import for_each
from vllm_watch.diagnosis.catalogue import FAILURES, RULES
from vllm_watch.diagnosis.families import memory

LINES = [(failure, line) for failure, lines in EXAMPLES.items() for line in lines]


@pytest.mark.parametrize(("failure", "line"), LINES, ids=[line[:60] for _, line in LINES])
def test_a_message_alone_names_its_class(failure, line):
    """The message stands between lines that say nothing: class and line are right."""
    found = diagnose(f"python -m vllm serve\n{line}\nbye\n".encode())
    assert (found.failure, found.root_cause_line, found.line_number) == (failure, line.strip(), 2)


def test_every_class_has_examples():
    """No class can be named that no test knows."""
    assert set(EXAMPLES) == set(FAILURES)


def test_every_rule_has_an_example():
    """A rule that none of the lines fits is a rule nobody has seen work."""
    idle = [
        (each.failure, each.literals[0])
        for each in RULES
        if not any(
            each.fits(line) and any(literal in line for literal in each.literals)
            for _, line in LINES
        )
    ]
    assert idle == []


def test_every_rule_belongs_to_a_class():
    """Only out-of-memory errors are sorted later, by their phase."""
    assert {each.failure for each in RULES} - set(FAILURES) == {memory.OOM}


def test_what_would_fail_again_is_known_of_each_class():
    """A start is refused only where it cannot succeed; what may mend itself is not."""
    again = {slug for slug, failure in FAILURES.items() if failure.deterministic}
    assert again == {
        "kv_cache_too_small", "oom_loading_weights", "oom_kv_alloc_or_profiling",
        "oom_cuda_graph_capture", "swap_space_too_large", "tp_exceeds_gpus", "tp_not_dividing_heads",
        "hf_gated_or_auth", "hf_not_found_or_offline", "unsupported_architecture",
        "tokenizer_mismatch_or_missing_chat_template", "lora_mismatch", "rope_or_config_mismatch",
        "quantization_unsupported", "dtype_unsupported", "attention_backend_unavailable",
        "driver_cuda_mismatch", "missing_dependency_or_import_error", "compile_failure",
    }  # fmt: skip


@for_each(FAILURES)
def test_every_class_says_what_to_do(failure):
    """A sentence, a reason, and at least one thing to do."""
    assert failure.fixes
    assert failure.why.endswith(".")
    assert not failure.sentence.endswith(".")
