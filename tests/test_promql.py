"""The check of the queries is itself checked: it must see a name, a label and a value that is not."""

import pytest

from tests.promql import complaints


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("vllm_watch_target_up == 0", []),
        ("sum by (job) (rate(vllm_watch_source_errors_total[5m]))", []),
        ("rate(vllm_watch_source_failures_total[5m])", ["vllm_watch_source_failures_total is not exported"]),
        ('vllm_watch_target_up{pod="a"}', ["vllm_watch_target_up has no label pod"]),
        ('vllm_watch_engine_state{state=~"down|asleep"}', ["state is never asleep"]),
        ('vllm_watch_restarts_total{outcome="uncertain", trigger="manual"}', []),
        ('vllm_watch_restarts_total{outcome="refused"}', ["outcome is never refused"]),
        ('vllm_watch_restart_waiting{for="breaker"}', ["for is never breaker"]),
        ("up unless vllm_watch_up", ["vllm_watch_up is not exported"]),
    ],
)  # fmt: skip
def test_what_does_not_exist_is_named(expression: str, expected: list[str]) -> None:
    """Series, labels and values of labels that we do not export are each named."""
    assert complaints(expression) == expected
