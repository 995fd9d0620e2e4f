"""What docs/metrics.md promises of counters and joins, asked of a Prometheus that scrapes us and the engines, too."""

import asyncio
import re
from collections.abc import Callable
from pathlib import Path
from random import Random

import yaml

from tests.daemon_process import daemon
from tests.dashboards.prometheus import Prometheus
from vllm_watch.lab.live import Live
from vllm_watch.lab.scene import Scene
from vllm_watch.lab.vllm import SimulatedVllm
from vllm_watch.lab.workload import OpenLoop, Sizes

PATIENCE_SECONDS = 120.0
DOCUMENTED = re.search(
    r"^  `(vllm:\S+ .*)`\.$", (Path(__file__).parents[2] / "docs/metrics.md").read_text(), re.MULTILINE
)  # fmt: skip


def scene() -> Scene:
    """Two engines that are asked for something."""
    rng = Random(1)
    load = [OpenLoop(rng, Sizes(rng, prompt_tokens=50, output_tokens=20), 4.0) for _ in range(2)]
    return Scene([SimulatedVllm(f"chat-{n}", group="chat", workload=load[n]) for n in range(2)])


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not await asyncio.to_thread(true):
            await asyncio.sleep(0.5)


async def test_join_and_counters_across_a_restart(tmp_path: Path) -> None:
    """vLLM's own series get our names; our counters add up and go on where an engine's begin at zero again."""
    live = Live(scene())
    found = await live.start()
    targets = [{"name": each.name, "url": each.url, "group": each.group} for each in found]
    config = tmp_path / "vllm-watch.yaml"
    config.write_text(yaml.safe_dump({"targets": targets}))
    try:
        async with daemon("--config", config) as process:
            engines = [each.url.removeprefix("http://") for each in found]
            with Prometheus(tmp_path, process.url.removeprefix("http://"), *engines) as prometheus:

                def ask(query: str) -> list[tuple[dict[str, str], float]]:
                    result = prometheus.ask("query", {"query": query})["result"]
                    return [(each["metric"], float(each["value"][1])) for each in result]

                def one(query: str) -> float:
                    return next((value for _, value in ask(query)), 0.0)

                assert DOCUMENTED is not None
                join = DOCUMENTED[1]
                await until(lambda: len(ask(join)) == 2)
                assert {(m["target"], m["group"]) for m, _ in ask(join)} == {("chat-0", "chat"), ("chat-1", "chat")}  # fmt: skip
                total = "sum(vllm_watch_engine_generation_tokens_total)"
                await until(lambda: one(total) > 200)
                live.advance()
                live.scene["chat-0"].stop()
                live.scene["chat-0"].start(1.0)
                before = one(total)
                reset = "resets(vllm:generation_tokens_total[5m]) > 0"
                restarted = "vllm_watch_engine_restarts_total > 0"
                await until(lambda: len(ask(reset)) == len(ask(restarted)) == 1)
                await until(lambda: one(total) > before + 200)
                ttft = "vllm_watch_engine_ttft_seconds_bucket"
                for name in ("vllm_watch_engine_generation_tokens_total", ttft):
                    assert ask(f"resets({name}[5m]) > 0") == []
                fleet = f"histogram_quantile(0.95, sum by (le) (rate({ttft}[1m])))"
                await until(lambda: 0 < one(fleet) < 160)
    finally:
        await live.stop()
