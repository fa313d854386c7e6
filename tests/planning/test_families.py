"""Other kinds of attention are predicted as well: softcaps, windows, position biases."""

from __future__ import annotations

import numpy as np
import pytest
import torch

transformers = pytest.importorskip("transformers")

import attnlimit as al  # noqa: E402
from attnlimit.models import evaluate, output_error  # noqa: E402

IDS = torch.randint(3, 99, (40,), generator=torch.Generator().manual_seed(2))
SHAPE = {
    "vocab_size": 99,
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 48,
    "head_dim": 8,
}
MODELS = {
    "gpt2": lambda: transformers.GPT2LMHeadModel(
        transformers.GPT2Config(vocab_size=99, n_embd=32, n_layer=3, n_head=4)
    ),
    "gemma2": lambda: transformers.Gemma2ForCausalLM(
        transformers.Gemma2Config(
            **SHAPE, sliding_window=12, query_pre_attn_scalar=8, attn_logit_softcapping=3.0
        )
    ),
    "t5": lambda: transformers.T5EncoderModel(
        transformers.T5Config(vocab_size=99, d_model=32, d_kv=8, d_ff=48, num_layers=3, num_heads=4)
    ),
}


@pytest.mark.parametrize("family", MODELS)
def test_the_prediction_is_measured(family):
    torch.manual_seed(4)
    model = MODELS[family]().eval()
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() > 1:
                weight.normal_(0, 0.15)
    sampler = al.Threshold(40)
    result = output_error(model, IDS, sampler, probes=32)
    measured = evaluate(model, IDS, sampler, repeats=60)
    if family == "t5":
        value, error = 1 - measured.embedding_cosine, measured.stderr["embedding_cosine"]
    else:
        value, error = measured.kl, measured.stderr["kl"]
    assert result.trusted
    assert abs(result.value - value) < 0.1 * value + 4 * np.hypot(result.stderr, error)
