"""How is a cluster spoken to in secret? With the certificates that Dask's own commands take."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attnlimit.errors import BadInput


@dataclass(frozen=True)
class Tls:
    """Certificates for a `tls://` scheduler, as Dask's own commands take them."""

    ca_file: Path | None = None
    cert: Path | None = None
    key: Path | None = None

    def security(self, distributed: Any) -> Any:
        """Return Dask's security object, or None when no certificate was given."""
        given = {"tls_ca_file": self.ca_file, "tls_client_cert": self.cert}
        given["tls_client_key"] = self.key
        paths = {name: path for name, path in given.items() if path is not None}
        if not paths:
            return None
        for path in paths.values():
            if not path.is_file():
                raise BadInput(f"There is no certificate file {path}.")
        options = {name: str(path) for name, path in paths.items()}
        return distributed.Security(require_encryption=True, **options)
