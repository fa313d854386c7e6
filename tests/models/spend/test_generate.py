"""A model that generates on fewer keys: dense when all are kept, alone what it is in a batch."""

from __future__ import annotations

import pytest
import torch

transformers = pytest.importorskip("transformers")

from attnlimit.models import spend  # noqa: E402
from attnlimit.samplers import Keep, SinksAndRecent, Threshold, TopK  # noqa: E402

VOCABULARY = 99
SHAPE = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 48,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": None,
}
FAMILIES = {
    "llama": lambda: transformers.LlamaConfig(**SHAPE),
    "mistral": lambda: transformers.MistralConfig(**SHAPE, sliding_window=6),
    "qwen2": lambda: transformers.Qwen2Config(**SHAPE),
    "gpt2": lambda: transformers.GPT2Config(
        vocab_size=VOCABULARY, n_embd=32, n_layer=3, n_head=4, pad_token_id=0, eos_token_id=None
    ),
}
EVERYTHING = (TopK(1000), Threshold(1e9), Keep(TopK(1), sample=1000))


def build(family: str = "llama"):
    torch.manual_seed(3)
    model = transformers.AutoModelForCausalLM.from_config(FAMILIES[family]())
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(0, 0.3)
    return model.eval()


def prompts(lengths, side="left"):
    generator = torch.Generator().manual_seed(5)
    texts = [torch.randint(3, VOCABULARY, (n,), generator=generator) for n in lengths]
    longest = max(lengths)
    ids = torch.zeros(len(texts), longest, dtype=torch.long)
    for row, text in enumerate(texts):
        ids[row, longest - len(text) :] = text
    return texts, {"input_ids": ids, "attention_mask": (ids > 0).long()}


def generate(model, inputs, samplers=None, seed=0, **options):
    options = {"max_new_tokens": 12, "do_sample": False} | options
    torch.manual_seed(9)  # of the sampling of tokens
    if samplers is None:
        return model.generate(**inputs, **options)
    with spend(model, samplers, seed=seed):
        return model.generate(**inputs, **options)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("sampler", EVERYTHING, ids=repr)
def test_everything_kept_generates_what_dense_attention_does(family, sampler):
    model = build(family)
    _, inputs = prompts((9, 14, 11))
    assert torch.equal(generate(model, inputs, sampler), generate(model, inputs))


@pytest.mark.parametrize(
    "options",
    [
        {"do_sample": True, "temperature": 0.7},
        {"num_beams": 3},
        {"use_cache": False},
        {"cache_implementation": "static"},
        {"prefill_chunk_size": 4},
    ],
    ids=str,
)
def test_every_way_to_generate_is_dense_when_everything_is_kept(options):
    model = build()
    _, inputs = prompts((9, 14, 11))
    dense = generate(model, inputs, **options)
    assert torch.equal(generate(model, inputs, TopK(1000), **options), dense)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("sampler", [Threshold(6), SinksAndRecent(2, 3)], ids=repr)
def test_a_sequence_gives_its_own_result_in_a_padded_batch(family, sampler):
    model = build(family)
    texts, inputs = prompts((9, 14, 11))
    together = generate(model, inputs, sampler)
    for row, text in enumerate(texts):
        one = {"input_ids": text[None], "attention_mask": torch.ones(1, len(text)).long()}
        alone = generate(model, one, sampler)
        assert torch.equal(alone[0], together[row, 14 - len(text) :])


def test_a_seed_gives_the_same_text_and_another_seed_another():
    model = build()
    _, inputs = prompts((20,))
    texts = [generate(model, inputs, Threshold(2), seed) for seed in (1, 1, 2)]
    assert torch.equal(texts[0], texts[1])
    assert not torch.equal(texts[0], texts[2])


def test_a_cached_step_reads_what_the_whole_pass_reads():
    """With samplers that draw nothing, steps with a cache are the rows of one forward pass."""
    model = build()
    (text,), _ = prompts((16,))
    for sampler in (SinksAndRecent(2, 4), TopK(5)):
        with torch.no_grad(), spend(model, sampler) as whole:
            full = model(text[None], use_cache=False).logits
        with torch.no_grad(), spend(model, sampler) as steps:
            first = model(text[None, :9], use_cache=True)
            chunk = model(text[None, 9:13], past_key_values=first.past_key_values, use_cache=True)
            rest = [chunk]
            for place in range(13, 16):
                rest.append(
                    model(text[None, place : place + 1], past_key_values=rest[-1].past_key_values)
                )
        stepped = torch.cat([first.logits, *(part.logits for part in rest)], dim=1)
        torch.testing.assert_close(stepped, full, atol=1e-4, rtol=1e-4)
        assert (steps.read, steps.visible) == (whole.read, whole.visible)
