"""What KV connectors, offload and operations export beside the captures: names as vLLM 0.33's source has them."""

import pytest

from vllm_watch.sources.reading import Reader

BODY = """\
vllm:num_requests_running{engine="0",model_name="m"} 0.0
vllm:nixl_num_failed_transfers_total{engine="0",model_name="m"} 3.0
vllm:nixl_num_kv_expired_reqs_total{engine="0",model_name="m"} 1.0
vllm:mooncake_num_failed_recvs_total{engine="0",model_name="m"} 2.0
vllm:nixl_xfer_time_seconds_bucket{engine="0",model_name="m",le="+Inf"} 40.0
vllm:nixl_xfer_time_seconds_count{engine="0",model_name="m"} 40.0
vllm:nixl_xfer_time_seconds_sum{engine="0",model_name="m"} 0.5
vllm:umbp_transfer_completed_total{engine="0",model_name="m"} 7.0
vllm:sleep_mode_operations_in_flight{engine="0",model_name="m"} 1.0
vllm:num_requests_running{engine="1",model_name="m"} 0.0
http_requests_total{handler="/v1/completions",method="POST",status="5xx"} 4.0
http_requests_total{handler="/v1/chat/completions",method="POST",status="5xx"} 5.0
http_requests_total{handler="/v1/completions",method="POST",status="2xx"} 6.0
"""


@pytest.mark.parametrize("judged", [False, True])
def test_families_of_one_field_are_kept_apart(judged: bool) -> None:
    """By name; what this engine does not export is not there; an engine without any has none."""
    one, two = Reader(judged_only=judged).read(BODY).engines
    failed = {"nixl_num_failed_transfers": 3.0, "nixl_num_kv_expired_reqs": 1.0, "mooncake_num_failed_recvs": 2.0}  # fmt: skip
    assert one.kv_failures == failed
    assert one.http_responses == two.http_responses == {"5xx": 9.0, "2xx": 6.0}
    assert two.kv_failures is None


def test_they_are_known() -> None:
    """Nothing of it is an unknown family."""
    reading = Reader().read(BODY)
    assert reading.unknown_families == ()
    assert reading.engines[0].kv_transfers == {"nixl_xfer_time_seconds": 40.0, "umbp_transfer_completed": 7.0}  # fmt: skip
    assert reading.engines[0].operations_in_flight == {"sleep_mode_operations_in_flight": 1.0}
