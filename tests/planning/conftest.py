"""Small random models whose attention is uneven and whose outputs are nearly linear in it."""

from __future__ import annotations

import pytest
import torch

transformers = pytest.importorskip("transformers")

from attnlimit.models import load, wikipedia  # noqa: E402
from attnlimit.models.loading import BUNDLED  # noqa: E402

IDS = torch.randint(0, 99, (60,), generator=torch.Generator().manual_seed(2))
SMALL = {"vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4}


def uneven(model, size):
    """Large queries and keys, everything else small."""
    torch.manual_seed(5)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.dim() > 1:
                sharp = any(part in name for part in ("q_proj", "k_proj", "query", "key"))
                weight.normal_(0, 0.3 if sharp else size)
    return model.eval()


@pytest.fixture(scope="session")
def causal():
    config = transformers.LlamaConfig(**SMALL, num_key_value_heads=2, intermediate_size=48)
    return uneven(transformers.AutoModelForCausalLM.from_config(config), 0.15)


@pytest.fixture(scope="session")
def encoder():
    config = transformers.BertConfig(**SMALL, intermediate_size=48)
    return uneven(transformers.AutoModel.from_config(config), 0.15)


@pytest.fixture(scope="session")
def minilm():
    if BUNDLED["minilm"].path is None:
        pytest.skip("the weights of minilm are not installed")
    return load("minilm")


@pytest.fixture(scope="session")
def text():
    pytest.importorskip("gensim")
    return wikipedia()["Anarchism"].text
