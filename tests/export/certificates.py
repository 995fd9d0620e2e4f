"""Certificates made with the openssl program: an authority, and what it signs for servers and clients."""

import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Pair:
    """A certificate and its key, in PEM."""

    certificate: Path
    key: Path

    @property
    def as_strings(self) -> tuple[str, str]:
        return str(self.certificate), str(self.key)


class Authority:
    """Signs certificates; its own is what peers trust."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        self._folder = folder
        self.own = Pair(folder / f"{name}.pem", folder / f"{name}.key")
        _openssl(
            "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "30",
            "-subj", f"/CN={name}", "-keyout", self.own.key, "-out", self.own.certificate,
        )  # fmt: skip

    def signs(self, name: str, *, sans: str = "DNS:localhost,IP:127.0.0.1", days: int = 30) -> Pair:
        """A certificate of these names; of less than no days, one that has run out."""
        pair = Pair(self._folder / f"{name}.pem", self._folder / f"{name}.key")
        request, names = self._folder / f"{name}.csr", self._folder / f"{name}.ext"
        names.write_text(f"subjectAltName={sans}\n")
        _openssl(
            "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
            "-subj", f"/CN={name}", "-keyout", pair.key, "-out", request,
        )  # fmt: skip
        _openssl(
            "x509", "-req", "-in", request, "-CA", self.own.certificate, "-CAkey", self.own.key,
            "-CAcreateserial", "-days", str(days), "-extfile", names, "-out", pair.certificate,
        )  # fmt: skip
        return pair


def _openssl(*arguments: object) -> None:
    done = subprocess.run(
        ["openssl", *map(str, arguments)], capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr
