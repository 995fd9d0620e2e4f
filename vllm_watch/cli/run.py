"""Run the daemon."""

import argparse
import asyncio
import gc
import os
from collections.abc import Callable
from pathlib import Path

from vllm_watch.config import FILE_BYTES_MAX, Config, load
from vllm_watch.daemon import Daemon
from vllm_watch.errors import ConfigError
from vllm_watch.settings.overrides import CONFIG_VARIABLE
from vllm_watch.settings.stages import GpuSettings
from vllm_watch.settings.target import TargetConfig
from vllm_watch.sources.nvml import NvmlSource
from vllm_watch.sources.processes import ProcReader
from vllm_watch.support import allocator, descriptors, logs, regular_file
from vllm_watch.support.service_manager import ServiceManager
from vllm_watch.watch.host_loop import GpuSource

HELP = """\
Watches vLLM servers and this host's GPUs; serves metrics, an API and a page. Needs no configuration:
without a target it finds this host's vLLM servers by their processes and sockets, and watches new ones as they
start. SIGHUP reloads the configuration; SIGTERM stops the daemon.

examples:
  vllm-watch run
  vllm-watch run --target llama=http://10.0.0.7:8000 --target http://10.0.0.8:8000
  vllm-watch run --config /etc/vllm-watch/vllm-watch.yaml --listen 0.0.0.0:9470"""

DEFAULT_URL = "http://127.0.0.1:8000"

_NEW_OBJECTS_UNCOLLECTED = 20_000
"""Garbage is collected after this many new objects. With Python's default of 700, collections took 5 % of the time."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--config", type=Path, metavar="FILE", help="YAML; every key is in docs/configuration.md")
    add("--target", action="append", default=[], metavar="[NAME=]URL",
        help="a vLLM server; repeatable")  # fmt: skip
    add("--listen", metavar="HOST:PORT", help="address to listen on (default 127.0.0.1:9470)")
    add("--state-dir", type=Path, metavar="DIR",
        help="folder for incidents, learnt baselines and recordings (default: in memory)")  # fmt: skip
    add("--procfs", type=Path, metavar="DIR", help="the host's /proc, if it is mounted elsewhere")
    add("--web-config", type=Path, metavar="FILE",
        help="TLS and passwords, in the format of Prometheus' exporters (see docs/security.md)")  # fmt: skip
    add("--engine-log", type=Path, metavar="FILE",
        help="log file of the only target; its errors are shown with its incidents")  # fmt: skip


def run(arguments: argparse.Namespace) -> int:

    def load_config() -> Config:
        config = load(
            arguments.config, environ=os.environ, targets=arguments.target,
            listen=arguments.listen, state_dir=arguments.state_dir, procfs=arguments.procfs,
            engine_log=arguments.engine_log, web_config=arguments.web_config,
        )  # fmt: skip
        if config.targets or config.discovery.any:
            return config
        if config.engine_log is not None:  # the log of a single server
            only = TargetConfig(name="vllm", url=DEFAULT_URL, group="vllm")
            return config.model_copy(update={"targets": (only,)})
        discovery = config.discovery.model_copy(update={"host": True})
        return config.model_copy(update={"discovery": discovery})

    def load_again() -> Config:
        _refuse_empty(arguments.config or Path(os.environ.get(CONFIG_VARIABLE) or os.devnull))
        return load_config()

    config = load_config()
    if not config.procfs.is_dir():
        remedy = "give the path where the host's /proc is mounted"
        raise ConfigError(f"--procfs {config.procfs}: no such folder", remedy)
    serve(config, load_again)
    return 0


def _refuse_empty(path: Path) -> None:
    # An empty file is probably being written. Loading it would remove every target.
    try:
        empty = path.is_file() and not regular_file.read(path, FILE_BYTES_MAX).strip()
    except OSError:
        return  # `load` reports the error
    if empty:
        remedy = "reload when it is complete; until then the old configuration stays in use"
        raise ConfigError(f"{path} is empty: it is probably being written", remedy)


def collect_rarely() -> None:
    """Make garbage collection rare, and exclude the imported modules."""
    gc.freeze()
    gc.set_threshold(_NEW_OBJECTS_UNCOLLECTED)


def serve(config: Config, load_config: Callable[[], Config]) -> None:
    allocator.fix_threshold()
    descriptors.raise_limit()
    collect_rarely()
    logs.configure(config.log.level, config.log.format)

    def gpus(settings: GpuSettings, config: Config) -> GpuSource:
        return NvmlSource(settings, ProcReader(config.procfs))

    async def main() -> None:
        await Daemon(config, gpus, load_config, ServiceManager(os.environ)).run()

    asyncio.run(main())
