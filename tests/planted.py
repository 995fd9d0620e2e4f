"""Secrets that are planted in all the places where operators have them, and a search for them in all that comes out."""

import base64
import gzip
import io
import json
import secrets
import subprocess
import sys
import tarfile
import zlib
from pathlib import Path

import bcrypt
import yaml

PLACES = (
    "api_key", "api_token", "wrong_token", "password", "wrong_password", "webhook_key", "webhook_query",
    "hook_environment", "hook_says", "url_password", "url_query", "bad_yaml_key", "plain_password",
    "own_environment", "command_line", "command_line_list", "command_line_equals", "command_line_url",
    "process_environment", "log_dict", "log_assigned", "log_bearer", "log_url", "log_fatal", "garbled_body",
    "journal_override",
)  # fmt: skip

SAYS = """\
#!/bin/sh
env > {folder}/hook.env
echo "Authorization: Bearer {hook_says}" >&2
echo "restart_token={hook_says}"
exit 1
"""

LOG = """\
INFO 11-21 17:00:00 [api_server.py:1600] vLLM API server version 0.11.0
INFO 11-21 17:00:00 [utils.py:253] non-default args: {{'model': 'm', 'api_key': ['{log_dict}'], 'port': 8000}}
INFO 11-21 17:00:00 [api_server.py:1601] args: Namespace(host=None, api_key='{log_assigned}', hf_token="{log_assigned}")
DEBUG 11-21 17:00:01 [connection.py:9] GET https://user:{log_url}@hub.example.org/m?token={log_url}
DEBUG 11-21 17:00:01 [connection.py:9] headers: {{'Authorization': 'Bearer {log_bearer}'}}
"""

FATAL = """\
ERROR 11-21 17:00:02 [core.py:700] EngineCore failed to start.
ERROR 11-21 17:00:02 [core.py:700] ValueError: No available memory for the cache blocks. token={log_fatal}
"""


class Planted:
    """The secrets by place, and the files that hold them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.values = {place: f"Kq{secrets.token_hex(10)}Zw" for place in PLACES}

    def __getitem__(self, place: str) -> str:
        return self.values[place]

    def file(self, name: str, text: str, mode: int = 0o600) -> str:
        """Write a file; returns its path."""
        path = self.folder / name
        path.write_text(text)
        path.chmod(mode)
        return str(path)

    def configure(self, engine: str) -> Path:
        """Write the configuration of a daemon that has a secret in each place that takes one."""
        hashed = bcrypt.hashpw(self["password"].encode(), bcrypt.gensalt(4)).decode()
        self.file("web.yaml", f"basic_auth_users:\n  ana: {hashed}\n")
        self.file("engine.log", LOG.format(**self.values))
        self.file("fatal.log", (LOG + FATAL).format(**self.values))
        userinfo = f"me:{self['url_password']}@10.9.9.9:8000"
        self.file("found.json", json.dumps([{"targets": [userinfo]}]))
        document = {
            "state_dir": "state", "web_config": "web.yaml",
            "targets": [
                {"name": "a", "url": engine, "engine_log": "engine.log"},
                {"name": "b", "url": "http://127.0.0.1:9", "engine_log": "fatal.log"},
            ],
            "discovery": {"file_sd": ["found.json"], "refresh_seconds": 1},
            "scrape": {"api_key_file": self.file("key", self["api_key"])},
            "canary": {"enabled": True, "interval_seconds": 10, "timeout_seconds": 2},
            "gpu": {"interval_seconds": 0.2},
            "api": {"tokens": [{"name": "ana", "file": self.file("token", self["api_token"])}]},
            "restart": {
                "mode": "auto", "hook": "says", "peers": "none", "cooldown_seconds": 1, "new_version_seconds": 0,
                "drain": {"deadline_seconds": 1}, "verify": {"start_seconds": 2, "settle_seconds": 1},
            },
            "hooks": {
                "command": [{
                    "name": "says", "environment": ["PATH"],
                    "argv": [self.file("says", SAYS.format(folder=self.folder, **self.values), 0o700)],
                }],
                "webhook": [{
                    "name": "posts", "url": f"http://127.0.0.1:9/restart?sig={self['webhook_query']}",
                    "secret_file": self.file("webhook.key", self["webhook_key"]),
                }],
            },
        }  # fmt: skip
        return Path(self.file("config.yaml", yaml.safe_dump(document)))

    def break_configuration(self) -> None:
        """Write what an operator might in a hurry: secrets where none belong."""
        document = {
            "targets": [
                {"url": f"http://x:{self['url_password']}@h:8000"},
                {"url": f"http://h:8000/?access={self['url_query']}"},
            ],
            "scrape": {"api_key_file": self["bad_yaml_key"]},
            "api_key": self["bad_yaml_key"],
            "password": {"token": self["bad_yaml_key"]},
        }
        self.file("config.yaml", yaml.safe_dump(document))
        self.file("web.yaml", f"basic_auth_users:\n  ana: {self['plain_password']}\n")

    def environment(self) -> dict[str, str]:
        """What the daemon has in its environment."""
        return {
            "HF_TOKEN": self["own_environment"],
            "AWS_SECRET_ACCESS_KEY": self["hook_environment"],
        }

    def engine_process(self) -> "subprocess.Popen[bytes]":
        """A process that looks like vLLM's and has secrets in its command line, as many have."""
        code = "import time; print(flush=True); time.sleep(600)"
        return subprocess.Popen(
            [
                sys.executable, "-c", code, "vllm", "serve", "m", "--api-key", self["command_line"],
                self["command_line_list"], f"--hf-token={self['command_line_equals']}",
                "--download-dir", f"https://u:{self['command_line_url']}@hub/m?sig={self['command_line_url']}",
            ],
            env={"PATH": "/usr/bin:/bin", "VLLM_API_KEY": self["process_environment"]},
            stdout=subprocess.DEVNULL,
        )  # fmt: skip

    def found_in(self, outputs: dict[str, bytes]) -> list[str]:
        """Return where which secret came out: "output: place"."""
        found = []
        for name, content in outputs.items():
            for place, value in self.values.items():
                encoded = base64.b64encode(value.encode()).rstrip(b"=")[:-1]
                if value.encode() in content or encoded in content:
                    found.append(f"{name}: {place}")
        return found


def unpacked(name: str, content: bytes) -> dict[str, bytes]:
    """A file with all that is packed in it, by name."""
    found = {name: content}
    if content[:2] == b"\x1f\x8b":
        found[f"{name} unpacked"] = gzip.decompress(content)
    elif name.endswith(".flight"):
        found[f"{name} unpacked"] = _inflated(content)
    elif name.endswith(".tar"):
        with tarfile.open(fileobj=io.BytesIO(content)) as archive:
            for member in archive.getmembers():
                file = archive.extractfile(member)
                found |= unpacked(f"{name}/{member.name}", file.read() if file else b"")
    return found


def _inflated(content: bytes) -> bytes:
    """What the flight recorder packed: pieces, one behind the other."""
    whole = b""
    while content:
        unpack = zlib.decompressobj()
        try:
            whole += unpack.decompress(content)
        except zlib.error:
            content = content[1:]
            continue
        content = unpack.unused_data
    return whole
