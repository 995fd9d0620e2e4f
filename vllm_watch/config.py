"""The configuration. The environment overrides the file, and the command line overrides both.
docs/configuration.md is generated from this module."""

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

from vllm_watch.errors import ConfigError
from vllm_watch.settings import overrides, yaml_text
from vllm_watch.settings.base import FilePath, HttpUrl, Problem, Sections, problem, problems, quoted
from vllm_watch.settings.detectors import DetectorsSettings, GroupSettings
from vllm_watch.settings.errors import InvalidConfigError, KeyPath, explained
from vllm_watch.settings.hooks import HookSettings, HooksSettings
from vllm_watch.settings.notifications import NotificationsSettings
from vllm_watch.settings.restart import RestartSettings
from vllm_watch.settings.stages import (
    LINKS_MAX,
    ApiSettings,
    CanarySettings,
    FleetSettings,
    GpuSettings,
    LinkSettings,
    LogSettings,
    OtlpSettings,
    RecorderSettings,
    ScrapeSettings,
    SignalsSettings,
    SloSettings,
)
from vllm_watch.settings.target import (
    TARGETS_MAX,
    DiscoverySettings,
    TargetConfig,
    named,
    refuse_duplicates,
)
from vllm_watch.settings.tls import TlsFileError

FILE_BYTES_MAX = 2 << 20  # enough for 10,000 targets with labels
_PORT_MAX = 65535
_LISTEN = re.compile(r"(?:\[(?P<v6>[0-9A-Fa-f:.]+)\]|(?P<host>[A-Za-z0-9_.-]+)):(?P<port>\d{1,5})")


def _listen(value: Any) -> Any:
    match = _LISTEN.fullmatch(value) if isinstance(value, str) else None
    if match is None or int(match["port"]) > _PORT_MAX:
        remedy = "write HOST:PORT, such as 127.0.0.1:9470, [::1]:9470 or, for every interface, 0.0.0.0:9470"
        raise problem(f"{quoted(value)} is not an address to listen on", remedy)
    return value


def _base(url: str) -> str:
    if "?" in url or "#" in url:
        raise problem(f"{quoted(url)} has a query or a fragment", "write the URL without them")
    return url.rstrip("/")


class Config(Sections):
    """All settings."""

    listen: Annotated[str, BeforeValidator(_listen)] = "127.0.0.1:9470"
    """Address of the status page, `/metrics` and the API. Port 0 selects a free port.
    Why: With the default, only this host has access."""

    web_config: FilePath | None = None
    """File with TLS, passwords and headers, in the format of Prometheus exporters ([security.md](security.md)). It is reread when it changes.
    Default: none (plain HTTP without authentication)"""

    external_url: Annotated[HttpUrl, AfterValidator(_base)] | None = None
    """Public URL of the status page for links, such as `https://watch.example.org/gpu-7`.
    Default: none (messages have no links)
    Why: It usually differs from `listen`."""

    state_dir: FilePath | None = None
    """Folder for data that survives a restart of the watcher.
    Default: none (all data stays in memory)
    Why: A sidecar may have no disk."""

    procfs: FilePath = Path("/proc")
    """Mount point of the host's `/proc`.
    Why: Outside a container, `/proc` is the host's own."""

    py_spy: FilePath | None = None
    """Path of py-spy, which adds stacks of hung processes on this host to incidents.
    Default: none (no stacks)
    Why: Reading another process's memory requires that process's user or CAP_SYS_PTRACE."""

    engine_log: FilePath | None = None
    """File with the server's output. With several targets, set `engine_log` of each target instead.
    Default: none
    Why: Most logs do not go to a file on this host."""

    targets: tuple[TargetConfig, ...] = Field((), max_length=TARGETS_MAX)
    """The servers to watch."""

    links: tuple[LinkSettings, ...] = Field((), max_length=LINKS_MAX)
    """Links to dashboards and logs, for every incident and target of the status page."""

    discovery: DiscoverySettings = DiscoverySettings()
    scrape: ScrapeSettings = ScrapeSettings()
    canary: CanarySettings = CanarySettings()
    fleet: FleetSettings = FleetSettings()
    signals: SignalsSettings = SignalsSettings()
    slo: SloSettings = SloSettings()
    detectors: DetectorsSettings = DetectorsSettings()
    groups: dict[str, GroupSettings] = Field({}, max_length=1000)
    """Overrides for the targets of a group, by the group's name: `groups: {chat: {detectors: {...}}}`. Keys: `detectors`."""

    gpu: GpuSettings = GpuSettings()
    recorder: RecorderSettings = RecorderSettings()
    restart: RestartSettings = RestartSettings()
    hooks: HooksSettings = HooksSettings()
    notifications: NotificationsSettings = NotificationsSettings()
    otlp: OtlpSettings = OtlpSettings()
    api: ApiSettings = ApiSettings()
    log: LogSettings = LogSettings()

    @field_validator("targets")
    @classmethod
    def _name_targets(cls, targets: tuple[TargetConfig, ...]) -> tuple[TargetConfig, ...]:
        refuse_duplicates(targets)
        return named(targets)

    @model_validator(mode="after")
    def _check(self) -> "Config":
        places = list(self.places("scrape"))
        found = [each for place in places for each in _timeout_problems(*place)]
        slowest = max(scrape.interval_seconds for _, _, scrape in places)
        if self.signals.window_seconds < 2 * slowest:
            cause = (
                f"{self.signals.window_seconds:g} is less than two scrapes of {slowest:g} seconds"
            )
            remedy = f"set it to {2 * slowest:g} or more, or scrape more often"
            found.append(Problem(("signals", "window_seconds"), cause, remedy))
        several = len(self.targets) > 1 or self.discovery.any
        if self.engine_log is not None and several:
            cause = "one log file for several targets"
            remedy = "set engine_log in each entry of targets instead"
            found.append(Problem(("engine_log",), cause, remedy))
        found += self._restart_problems()
        if found:
            raise problems(found)
        return self

    def _restart_problems(self) -> list[Problem]:
        hooks = self.hooks.by_name()
        found = _duplicate_names(
            [hook for kind in type(self.hooks).model_fields for hook in getattr(self.hooks, kind)]
        )
        seconds = {name: hook.timeout_seconds for name, (_, hook) in hooks.items()}
        for path, _, restart in self.places("restart"):
            found += [
                Problem((*path, *key), cause, remedy)
                for key, cause, remedy in restart.unusable(seconds, self.state_dir is not None)
            ]
        return found

    def places(self, key: Literal["scrape", "restart"]) -> Iterator[tuple[KeyPath, Any, Any]]:
        """Yield the path of the section, and of each target that overrides it, with own and merged settings."""
        common, of_target = getattr(self, key), getattr(self, f"{key}_for")
        yield (key,), common, common
        for number, target in enumerate(self.targets):
            own = getattr(target, key)
            if own.model_fields_set:
                yield ("targets", number, key), own, of_target(target)

    @property
    def listen_address(self) -> tuple[str, int]:
        """Host (an IPv6 address without brackets) and port."""
        host, _, port = self.listen.rpartition(":")
        return host.strip("[]"), int(port)

    def url_here(self, port: int, scheme: str = "http") -> str:
        host, _ = self.listen_address
        any_address = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - text, not a socket
        host = any_address.get(host, host)
        return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"

    @property
    def templates(self) -> dict[str, str]:
        return {each.name: each.url for each in self.links}

    @property
    def notifications_linked(self) -> NotificationsSettings:
        own = self.notifications
        return own.model_copy(update={"page_url": own.page_url or self.external_url})

    def scrape_for(self, target: TargetConfig) -> ScrapeSettings:
        own = target.scrape.model_dump(exclude_unset=True)
        if not own:
            return self.scrape
        return ScrapeSettings.model_validate(self.scrape.model_dump(exclude_unset=True) | own)

    def canary_for(self, target: TargetConfig) -> CanarySettings:
        return self.canary.model_copy(update=target.canary.model_dump(exclude_unset=True))

    def engine_log_for(self, target: TargetConfig) -> Path | None:
        return target.engine_log or self.engine_log

    def slo_for(self, target: TargetConfig) -> SloSettings:
        return self.slo.model_copy(update=target.slo.model_dump(exclude_unset=True))

    def needs_restart(self, other: "Config") -> list[str]:
        """Return the changed keys that need a restart of the watcher."""
        names = ("listen", "state_dir", "recorder", "procfs", "fleet", "api", "web_config", "otlp")
        found = [name for name in names if getattr(self, name) != getattr(other, name)]
        of_hosts = ("gpu_fault", "stale_vram")
        changed = [each for each in of_hosts if self.detectors.of(each) != other.detectors.of(each)]
        return found + [f"detectors.{each}" for each in changed]

    def detectors_for(self, target: TargetConfig) -> DetectorsSettings:
        group = self.groups.get(target.group, GroupSettings())
        return self.detectors.under(group.detectors).under(target.detectors)

    @property
    def wants_restarts(self) -> bool:
        """True if a target or a user of the API may request restarts."""
        modes = {self.restart.mode, *(self.restart_for(target).mode for target in self.targets)}
        return bool(self.api.tokens) or modes != {"off"}

    def restart_for(self, target: TargetConfig) -> RestartSettings:
        own = target.restart.model_dump(exclude_unset=True)
        if not own:
            return self.restart
        merged = self.restart.model_dump(exclude_unset=True)
        for key, value in own.items():
            below = merged.get(key)
            merged[key] = below | value if isinstance(below, dict) else value
        return RestartSettings.model_validate(merged)


def _duplicate_names(hooks: Sequence[HookSettings]) -> list[Problem]:
    names = [hook.name for hook in hooks]
    return [
        Problem(("hooks",), f"{quoted(name)} is the name of two hooks", "give each its own name")
        for name in dict.fromkeys(names)
        if names.count(name) > 1
    ]


def _timeout_problems(path: KeyPath, own: ScrapeSettings, scrape: ScrapeSettings) -> list[Problem]:
    key, value = "connect_timeout_seconds", scrape.connect_timeout_seconds
    bound = scrape.timeout_seconds
    if value <= bound:
        return []
    cause = f"{value:g} is above timeout_seconds ({bound:g})"
    remedy = f"set it to {bound:g} or less, or raise timeout_seconds"
    if key not in own.model_fields_set:
        cause = f"{value:g}, from scrape, is above timeout_seconds ({bound:g})"
        remedy = f"set {key} here too, to {bound:g} or less"
    return [Problem((*path, key), cause, remedy)]


def load(
    path: Path | None,
    *,
    environ: Mapping[str, str],
    targets: Sequence[str] = (),
    targets_from: str = "--target",
    listen: str | None = None,
    state_dir: Path | None = None,
    procfs: Path | None = None,
    engine_log: Path | None = None,
    web_config: Path | None = None,
    tls: Mapping[str, str] | None = None,
) -> Config:
    """Merge the file, the environment and the arguments. Raises ConfigError with all errors."""
    if path is None and environ.get(overrides.CONFIG_VARIABLE):
        path = Path(environ[overrides.CONFIG_VARIABLE])
    file = str(path) if path else "configuration"
    data, found = yaml_text.read(path, FILE_BYTES_MAX) if path else ({}, [])
    merged = overrides.Overrides(file, data)
    merged.environment(Config, environ)
    merged.arguments(
        targets, targets_from, tls or {}, listen=listen, state_dir=state_dir, procfs=procfs, engine_log=engine_log,
        web_config=web_config,
    )  # fmt: skip
    errors = [ConfigError(f"{file}: {cause}", remedy) for cause, remedy in found] + merged.errors
    context: dict[str, Any] = {"folder": path.absolute().parent if path else Path.cwd()}
    try:
        config = Config.model_validate(merged.data, context=context)
    except ValidationError as error:
        errors += explained(error, Config, merged.label)
    else:
        errors += _unusable_files(config, merged.label)
    if errors:
        raise InvalidConfigError(errors)
    return config


def _readable(file: Path) -> bool:
    try:
        return file.is_file() and os.access(file, os.R_OK)
    except OSError:  # e.g. ENAMETOOLONG, if the value is the secret itself
        return False


def _unusable_files(config: Config, label: Callable[[KeyPath], str]) -> list[ConfigError]:
    errors: list[ConfigError] = []
    for path, scrape, _ in config.places("scrape"):
        file = scrape.api_key_file
        if file is not None and not _readable(file):
            cause = f"{label((*path, 'api_key_file'))}: the value (not shown) names no file that can be read"
            remedy = "name a file that holds the key, readable by vllm-watch"
            errors.append(ConfigError(cause, remedy))
        try:
            if scrape.tls_config.files:
                scrape.tls_config.context()
        except TlsFileError as error:
            cause = f"{label((*path, 'tls_config', error.key))}: {error.cause}"
            errors.append(ConfigError(cause, error.remedy))
    return errors
