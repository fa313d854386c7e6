"""One small text and one capture of the bundled model, shared by the tests of this folder."""

from __future__ import annotations

import pytest

pytest.importorskip("transformers")

from attnlimit.models import capture, load, wikipedia
from attnlimit.models.loading import BUNDLED


@pytest.fixture(scope="session")
def minilm():
    if BUNDLED["minilm"].path is None:
        pytest.skip("the weights of minilm are not installed")
    return load("minilm")


@pytest.fixture(scope="session")
def text():
    pytest.importorskip("gensim")
    return wikipedia()["Anarchism"].text


@pytest.fixture(scope="session")
def cap(minilm, text):
    """MiniLM on 128 tokens: small enough for simulation, real all the same."""
    ids = minilm.tokenizer(text, truncation=True, max_length=128)["input_ids"]
    return capture(minilm, ids)
