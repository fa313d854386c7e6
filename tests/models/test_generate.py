"""A model that generates on fewer keys: dense when all are kept, alone what it is in a batch."""

from __future__ import annotations

import pytest
import torch

transformers = pytest.importorskip("transformers")

from attnlimit.models import sampled_attention  # noqa: E402
from attnlimit.samplers import Keep, SinksAndRecent, Threshold, TopK  # noqa: E402
from small_causal import FAMILIES, build, prompts  # noqa: E402

EVERYTHING = (TopK(1000), Threshold(1e9), Keep(TopK(1), sample=1000))


def generate(model, inputs, samplers=None, seed=0, **options):
    options = {"max_new_tokens": 12, "do_sample": False} | options
    torch.manual_seed(9)  # of the sampling of tokens
    if samplers is None:
        return model.generate(**inputs, **options)
    with sampled_attention(model, samplers, seed=seed):
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
        results = {"input_ids": text[None], "attention_mask": torch.ones(1, len(text)).long()}
        alone = generate(model, results, sampler)
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
        with torch.no_grad(), sampled_attention(model, sampler) as whole:
            full = model(text[None], use_cache=False).logits
        with torch.no_grad(), sampled_attention(model, sampler) as steps:
            first = model(text[None, :9], use_cache=True)
            chunk = model(text[None, 9:13], past_key_values=first.past_key_values, use_cache=True)
            rest = [chunk]
            for place in range(13, 16):
                rest.append(
                    model(text[None, place : place + 1], past_key_values=rest[-1].past_key_values)
                )
        stepped = torch.cat([first.logits, *(part.logits for part in rest)], dim=1)
        torch.testing.assert_close(stepped, full, atol=1e-4, rtol=1e-4)
        assert (steps.mean_keys, steps.mean_visible) == (whole.mean_keys, whole.mean_visible)
