"""The capture must be the model: attention recomputed from it equals what the model computes."""

from __future__ import annotations

import numpy as np
import pytest
import torch

transformers = pytest.importorskip("transformers")

from attnlimit.errors import BadInput  # noqa: E402
from attnlimit.models.captures import capture  # noqa: E402

VOCABULARY = 99
SMALL = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 64,
}
GROUPED = SMALL | {"num_key_value_heads": 2}


def _gemma2():
    return transformers.Gemma2Config(
        **GROUPED, head_dim=8, sliding_window=6, query_pre_attn_scalar=8, attn_logit_softcapping=3.0
    )


FAMILIES = {
    "bert": lambda: transformers.BertConfig(**SMALL),
    "roberta": lambda: transformers.RobertaConfig(**SMALL, pad_token_id=1),
    "gpt2": lambda: transformers.GPT2Config(
        vocab_size=VOCABULARY, n_embd=32, n_layer=3, n_head=4, n_positions=64
    ),
    "llama": lambda: transformers.LlamaConfig(**GROUPED),
    "qwen2": lambda: transformers.Qwen2Config(**GROUPED),
    "qwen3": lambda: transformers.Qwen3Config(**GROUPED, head_dim=8),
    "mistral": lambda: transformers.MistralConfig(**GROUPED, sliding_window=5),
    "modernbert": lambda: transformers.ModernBertConfig(
        **SMALL, local_attention=8, global_attn_every_n_layers=2, pad_token_id=0,
        bos_token_id=1, eos_token_id=2, cls_token_id=1, sep_token_id=2,
    ),
    "gemma": lambda: transformers.GemmaConfig(**GROUPED, head_dim=8),
    "gemma2": _gemma2,
    "opt": lambda: transformers.OPTConfig(
        vocab_size=VOCABULARY, hidden_size=32, num_hidden_layers=3, num_attention_heads=4,
        ffn_dim=48, max_position_embeddings=64, word_embed_proj_dim=32,
    ),
    "t5": lambda: transformers.T5Config(
        vocab_size=VOCABULARY, d_model=32, d_kv=8, num_layers=3, num_heads=4, d_ff=48
    ),
    "distilbert": lambda: transformers.DistilBertConfig(
        vocab_size=VOCABULARY, dim=32, n_layers=3, n_heads=4, hidden_dim=48,
        max_position_embeddings=64,
    ),
    "vit": lambda: transformers.ViTConfig(
        hidden_size=32, num_hidden_layers=3, num_attention_heads=4, intermediate_size=48,
        image_size=16, patch_size=4,
    ),
}  # fmt: skip


def build(family: str):
    """A small random model whose weights are large enough to make attention uneven."""
    torch.manual_seed(7)
    config = FAMILIES[family]()
    kind = transformers.T5EncoderModel if family == "t5" else transformers.AutoModel
    model = kind(config) if family == "t5" else kind.from_config(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() > 1:
                parameter.normal_(0, 0.3 if "attn" in name or "attention" in name.lower() else 0.2)
    return model.eval().double()  # so that 1e-5 tests the formula, not the rounding


def inputs_for(family: str, length: int = 21) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    if family == "vit":
        return {"pixel_values": torch.randn(1, 3, 16, 16, generator=generator).double()}
    ids = torch.randint(3, VOCABULARY, (1, length), generator=generator)
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def eager(model, inputs):
    """Attention weights of every layer, (H, n, n), from the model's own eager code."""
    model.set_attn_implementation("eager")
    with torch.no_grad():
        return model(**inputs, output_attentions=True)


@pytest.mark.parametrize("family", FAMILIES)
def test_attention_recomputed_from_the_capture_is_the_models_own(family):
    model = build(family)
    inputs = inputs_for(family)
    reference = eager(model, inputs)
    cap = capture(model, inputs)
    assert len(cap.layers) == 3
    assert cap.heads == 4
    spread = []
    for head in cap:
        own = reference.attentions[head.layer][0, head.head]
        torch.testing.assert_close(torch.softmax(head.scores(), -1), own, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(head.output(), own @ head.v, atol=1e-5, rtol=1e-5)
        spread.append(float(own.max()))
    assert max(spread) > 0.2  # uniform attention would make the comparison empty


@pytest.mark.parametrize("family", FAMILIES)
def test_the_pass_of_a_capture_gives_the_models_own_output(family):
    from attnlimit.models.attention import attend_dense, attention_as

    model = build(family)
    inputs = inputs_for(family)
    reference = eager(model, inputs).last_hidden_state
    with torch.no_grad(), attention_as(model, attend_dense):
        ours = model(**inputs).last_hidden_state
    torch.testing.assert_close(ours, reference, atol=1e-5, rtol=1e-5)
    assert model.config._attn_implementation == "eager"


@pytest.mark.parametrize("attention_type", ["original_full", "block_sparse"])
def test_big_bird_is_captured_through_its_projections(attention_type):
    torch.manual_seed(7)
    config = transformers.BigBirdConfig(
        **SMALL, block_size=4, num_random_blocks=1, attention_type="original_full"
    )
    model = transformers.AutoModel.from_config(config).eval()
    inputs = inputs_for("bert", length=48)
    contexts = []
    handles = [
        layer.attention.self.register_forward_hook(lambda m, i, o: contexts.append(o[0]))
        for layer in model.encoder.layer
    ]
    with torch.no_grad():
        model(**inputs)
    for handle in handles:
        handle.remove()
    model.set_attention_type(attention_type)
    cap = capture(model, inputs)
    for layer in range(3):
        ours = torch.cat([cap[layer, head].output() for head in range(4)], dim=1)
        torch.testing.assert_close(ours, contexts[layer][0], atol=1e-5, rtol=1e-5)
    assert model.attention_type == attention_type


@pytest.mark.parametrize("family", ["bert", "llama", "mistral", "t5", "gpt2"])
@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_is_left_out_and_changes_nothing(family, side):
    model = build(family).float()  # in float64 eager attention turns a fully masked row into NaN
    inputs = inputs_for(family, length=16)
    mask = inputs["attention_mask"]
    mask[0, slice(0, 5) if side == "left" else slice(11, 16)] = 0
    cap = capture(model, inputs)
    reference = eager(model, inputs)
    kept = mask[0].bool()
    assert len(cap) == 11
    assert (cap.positions == torch.arange(16)[kept]).all()
    for head in cap:
        own = reference.attentions[head.layer][0, head.head][kept][:, kept]
        torch.testing.assert_close(torch.softmax(head.scores(), -1), own, atol=1e-5, rtol=1e-5)


def test_masks_answer_in_blocks_and_as_arrays():
    cap = capture(build("mistral"), inputs_for("mistral"))
    mask = cap[0, 0].mask
    dense = np.asarray(mask)
    i, j = np.indices(dense.shape)
    np.testing.assert_array_equal(dense, (j <= i) & (j > i - 5))
    np.testing.assert_array_equal(mask.visible(slice(4, 9)).numpy(), dense[4:9])
    assert (mask.full, mask.causal, mask.window) == (False, True, 5)


def test_a_head_unpacks_into_queries_keys_values_and_mask():
    cap = capture(build("llama"), inputs_for("llama"))
    q, k, v, mask = cap[1, 3]
    assert q.shape == k.shape == v.shape == (21, 8)
    assert mask.causal
    assert torch.equal(k, cap[1, 2].k)  # heads 2 and 3 share their keys
    assert not torch.equal(k, cap[1, 1].k)


def test_only_the_layers_asked_for_are_kept():
    cap = capture(build("bert"), inputs_for("bert"), layers=[-1])
    assert list(cap.layers) == [2]
    with pytest.raises(BadInput, match="Layer 0 is not in this capture; ask for one of 2"):
        cap[0, 0]


def test_a_model_that_never_calls_the_interface_is_refused():
    config = transformers.MPNetConfig(**SMALL)
    model = transformers.AutoModel.from_config(config).eval()
    with pytest.raises(BadInput, match="never calls the attention interface"):
        capture(model, inputs_for("bert"))


def test_an_attention_argument_that_is_not_understood_is_refused():
    config = transformers.GptOssConfig(
        **GROUPED, head_dim=8, num_local_experts=2, num_experts_per_tok=1, sliding_window=8,
        layer_types=["full_attention"] * 3,
    )  # fmt: skip
    model = transformers.AutoModel.from_config(config).eval()
    with pytest.raises(BadInput, match="s_aux"):
        capture(model, inputs_for("llama"))


def test_bad_input_is_one_clear_sentence():
    model = build("bert")
    ids = inputs_for("bert")["input_ids"]
    cases = [
        (ids[:, :1], "one token"),
        (torch.arange(3, 80), "77 tokens and the model takes 64"),
        (torch.tensor([5, 500]), "between 0 and 98"),
        (torch.zeros(2, 7, dtype=torch.long), "one list"),
        ({"input_ids": ids, "attention_mask": torch.zeros_like(ids)}, "all padding"),
        ({"input_ids": ids.repeat(2, 1)}, "one sequence at a time"),
        ("a text", "without a tokenizer"),
        ({}, "empty"),
    ]
    for text, message in cases:
        with pytest.raises(BadInput, match=message):
            capture(model, text)
    cap = capture(model, ids)
    for place, message in [((3, 0), "no layer 3"), ((0, 4), "no head 4"), (0, "layer, head")]:
        with pytest.raises(BadInput, match=message):
            cap[place]
    with pytest.raises(BadInput, match="layers must name"):
        capture(model, ids, layers=[3])
    with pytest.raises(BadInput, match="training mode"):
        capture(build("bert").train(), ids)
    with pytest.raises(BadInput, match="must come from"):
        capture(None, ids)


def test_nan_weights_are_named():
    model = build("bert")
    with torch.no_grad():
        model.encoder.layer[1].attention.self.query.weight[0, 0] = torch.nan
    with pytest.raises(BadInput, match="queries of layer 1 contain NaN"):
        capture(model, inputs_for("bert"))


def test_a_text_beyond_the_positions_can_be_cut_there():
    cap = capture(build("bert"), torch.arange(3, 80), truncate=True)
    assert len(cap) == 64
