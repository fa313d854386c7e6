"""A cache that stays small: draws keep their chances, kept keys stand for all, memory is freed."""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np
import pytest
import torch

transformers = pytest.importorskip("transformers")

from attnlimit.errors import BadInput  # noqa: E402
from attnlimit.models import (  # noqa: E402
    Evict,
    ExpectedAttention,
    SnapKV,
    StreamingLLM,
    Tova,
    evaluate,
    evicting_cache,
    sampled_attention,
)
from attnlimit.models.eviction.rules import (  # noqa: E402
    EvictionRule,
    parse_rule,
    register_rule,
    rule_from_dict,
    rule_to_dict,
)
from attnlimit.samplers import Threshold, TopK  # noqa: E402
from small_causal import build, prompts  # noqa: E402

RULES = (
    Evict(0.5, 8, again=4, recent=4),
    Evict(0.5, 8, again=4, recent=4, sizes="equal"),
    SnapKV(0.5, 8),
    Tova(0.5),
    ExpectedAttention(0.5),
    StreamingLLM(0.5),
)


@pytest.fixture(scope="module")
def model():
    return build()


def generate(model, inputs, rule=None, seed=0, samplers=None, **options):
    options = {"max_new_tokens": 10, "do_sample": False} | options
    torch.manual_seed(9)
    if rule is None:
        return model.generate(**inputs, **options)
    with sampled_attention(model, *([rule] if samplers is None else [samplers]), seed=seed,
               evict=None if samplers is None else rule):  # fmt: skip
        return model.generate(**inputs, **options)


def cut_cache(model, rule, tokens, seed=0, steps=()):
    """The cache after a pass over `tokens` tokens and passes of `steps` more."""
    (text,), _ = prompts((tokens + sum(steps),))
    cache, start = None, 0
    with torch.no_grad(), sampled_attention(model, rule, seed=seed):
        for size in (tokens, *steps):
            cache = model(text[None, start : start + size], past_key_values=cache).past_key_values
            start += size
    return cache


@pytest.mark.parametrize(
    "options",
    [{}, {"do_sample": True}, {"num_beams": 2}, {"prefill_chunk_size": 16}],
    ids=str,
)
def test_everything_kept_is_the_full_cache(model, options):
    _, inputs = prompts((30, 40))
    dense = generate(model, inputs, **options)
    assert torch.equal(generate(model, inputs, Evict(1.0), **options), dense)
    nearly = Evict(0.99, again=4, recent=64)  # cut, and nothing is dropped
    assert torch.equal(generate(model, inputs, nearly, **options), dense)
    assert torch.equal(generate(model, inputs, nearly, samplers=TopK(99), **options), dense)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: f"{rule.name} {rule.shares_size()}")
def test_a_sequence_gives_its_own_result_in_a_padded_batch(model, rule):
    texts, inputs = prompts((30, 44, 37))
    together = generate(model, inputs, rule)
    for row, text in enumerate(texts):
        results = {"input_ids": text[None], "attention_mask": torch.ones(1, len(text)).long()}
        assert torch.equal(generate(model, results, rule)[0], together[row, 44 - len(text) :])


def test_chunks_and_single_steps_read_the_same_cut_cache(model):
    (text,), _ = prompts((50,))
    rule = Evict(0.4, 8, again=None, recent=4)
    with torch.no_grad(), sampled_attention(model, rule):
        first = model(text[None, :40], use_cache=True)
        chunk = model(text[None, 40:], past_key_values=first.past_key_values).logits
    with torch.no_grad(), sampled_attention(model, rule):
        cache = model(text[None, :40], use_cache=True).past_key_values
        steps = [
            model(text[None, place : place + 1], past_key_values=cache).logits
            for place in range(40, 50)
        ]
    assert cache.get_seq_length() == 50
    torch.testing.assert_close(torch.cat(steps, dim=1), chunk, atol=1e-4, rtol=1e-4)


def test_memory_is_freed_and_heads_keep_their_own_keys(model):
    cache = cut_cache(model, Evict(0.25, 8, again=None, recent=4), 80)
    held = sum(layer.bytes for layer in cache.layers)
    dense = sum(layer.dense_bytes for layer in cache.layers)
    assert dense == 3 * 2 * 80 * 16 * 4
    per_key = 16 * 4 + 8  # key and value, what is added to its score, its position
    assert held == 3 * 2 * 20 * per_key
    sizes = {len(entry.offset) for layer in cache.layers for entry in layer.rows[0].kept}
    assert len(sizes) > 1
    for layer in cache.layers:
        for entry in layer.rows[0].kept:
            assert set(range(4)) | set(range(76, 80)) <= set(entry.positions.tolist())
    with sampled_attention(model, Evict(0.25, 8, recent=4)) as stats:
        model.generate(torch.arange(3, 83)[None], max_new_tokens=2, do_sample=False)
    assert stats.cache_bytes < 0.35 * stats.dense_bytes
    assert "MB" in str(stats)


def test_cutting_again_multiplies_chances(model):
    """Draws so far do not depend on what comes, so corrections of survivors only grow."""
    rule = Evict(0.5, 8, again=8, recent=4)
    once = cut_cache(model, rule, 40)
    twice = cut_cache(model, rule, 40, steps=(8, 9))
    assert {layer.get_seq_length() for layer in twice.layers} == {57}
    grown = 0
    for before, after in zip(once.layers, twice.layers, strict=True):
        for old, new in zip(before.rows[0].kept, after.rows[0].kept, strict=True):
            added = dict(zip(old.positions.tolist(), old.offset.tolist(), strict=True))
            survivors = [p for p in new.positions.tolist() if p < 40]
            assert set(survivors) <= set(added)
            for place, value in zip(new.positions.tolist(), new.offset.tolist(), strict=True):
                if place < 40:
                    assert value >= added[place] - 1e-6
                    grown += value > added[place] + 1e-6
    assert grown > 0
    kept = sum(len(entry.offset) for layer in twice.layers for entry in layer.rows[0].kept)
    assert kept == 3 * 2 * int(0.5 * 57)


def test_a_seed_gives_the_same_text_and_another_seed_another(model):
    _, inputs = prompts((60,))
    rule = Evict(0.2, 8, recent=4)
    texts = [generate(model, inputs, rule, seed) for seed in (1, 1, 2)]
    assert torch.equal(texts[0], texts[1])
    assert not torch.equal(texts[0], texts[2])
    reads = generate(model, inputs, rule, 1, samplers=Threshold(6))
    assert torch.equal(reads, generate(model, inputs, rule, 1, samplers=Threshold(6)))


def test_rules_are_tried_beside_the_full_cache(model):
    (text,), _ = prompts((60,))
    rules = {
        "all": Evict(0.999, recent=64),
        "half": Evict(0.5, 8, recent=4),
        "snap": SnapKV(0.5, 8),
    }
    results = {
        name: evaluate(model, text.tolist(), rule, prompt=48, repeats=2)
        for name, rule in rules.items()
    }
    assert results["all"].kl < 1e-6 < results["half"].kl
    assert results["half"].stderr["kl"] > 0
    assert np.isnan(results["snap"].stderr["kl"])
    assert results["half"].cache_bytes < results["half"].dense_cache_bytes
    assert "KL" in str(results["half"])
    with pytest.raises(BadInput, match="leave two"):
        evaluate(model, text.tolist(), rules["half"], prompt=60)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Evict(0.0), "the share of keys that stay"),
        (lambda: Evict(1.5), "the share of keys that stay"),
        (lambda: Evict(0.5, 0), "observe"),
        (lambda: Evict(0.5, again=0), "again"),
        (lambda: Evict(0.5, sizes="mine"), "sizes"),
        (lambda: SnapKV(-1), "the share of keys that stay"),
    ],
)
def test_bad_sizes_are_refused(make, sentence):
    with pytest.raises(BadInput, match=sentence):
        make()


def test_models_whose_cache_cannot_be_cut_are_refused():
    bert = transformers.BertModel(
        transformers.BertConfig(
            hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16
        )
    ).eval()
    with pytest.raises(BadInput, match="no cache to cut"), sampled_attention(bert, Evict()):
        pass
    windowed = build("mistral")
    with (
        pytest.raises(BadInput, match="sliding"),
        sampled_attention(windowed, Evict(0.5, 8, recent=4)),
    ):
        pass


@pytest.mark.parametrize("rule", [RULES[0], RULES[2], RULES[4]], ids=lambda rule: rule.name)
def test_corrections_stay_precise_where_keys_are_not(rule):
    low = build().to(torch.bfloat16)
    cache = cut_cache(low, rule, 40)
    actual = cache.layers[0].rows[0].kept[0]
    assert actual.key.dtype is torch.bfloat16
    assert actual.offset.dtype is torch.float32
    _, inputs = prompts((40,))
    assert generate(low, inputs, rule).shape == (1, 50)


def test_learned_positions_are_cut_too():
    model = build("gpt2")
    _, inputs = prompts((30,))
    assert torch.equal(generate(model, inputs, Evict(0.99, recent=64)), generate(model, inputs))
    generate(model, inputs, Evict(0.5, 8, recent=4))


def gemma3():
    """Layers with sliding windows between layers with full attention, each with its rotation."""
    torch.manual_seed(3)
    config = transformers.Gemma3TextConfig(
        vocab_size=99, hidden_size=32, num_hidden_layers=3, num_attention_heads=4, head_dim=8,
        num_key_value_heads=2, intermediate_size=48, sliding_window=8, pad_token_id=0,
        layer_types=["sliding_attention", "full_attention", "sliding_attention"],
    )  # fmt: skip
    return transformers.Gemma3ForCausalLM(config).eval()


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: f"{rule.name} {rule.shares_size()}")
def test_full_layers_of_gemma3_are_cut_and_sliding_ones_are_left(rule):
    model = gemma3()
    _, inputs = prompts((40,))
    with sampled_attention(model, rule) as stats:
        model.generate(**inputs, max_new_tokens=2, do_sample=False)
    assert stats.cache_bytes < stats.dense_bytes
    nearly = Evict(0.99, again=4, recent=64)
    assert torch.equal(generate(model, inputs, nearly), generate(model, inputs))
    evaluation = evaluate(model, inputs["input_ids"][0].tolist(), rule, repeats=2)
    assert evaluation.kl > 0


def test_an_eviction_alone_states_no_error_of_heads(model):
    _, inputs = prompts((40,))
    with sampled_attention(model, Evict(0.5, 8, recent=4)) as stats:
        model.generate(**inputs, max_new_tokens=2, do_sample=False)
    assert np.isnan(stats.relative_error)
    assert "err by" not in str(stats)


@register_rule("oldest")
@dataclass(frozen=True)
class Oldest(EvictionRule):
    """The first keys: a rule from outside."""

    keep: float = 0.5
    again: int | None = None

    def importance(self, context):
        return 1.0 / (1.0 + context.positions.double())


@pytest.mark.parametrize("rule", [*RULES, Oldest(0.4)], ids=repr)
def test_rules_survive_json(rule):
    assert rule_from_dict(json.loads(json.dumps(rule_to_dict(rule)))) == rule


def test_rules_are_named_by_text(model):
    assert parse_rule("0.25") == Evict(0.25)
    assert parse_rule("snapkv:0.5,window=8") == SnapKV(0.5, 8)
    assert parse_rule("weighted:0.5,again=none") == Evict(0.5, again=None)
    assert parse_rule("oldest:0.4") == Oldest(0.4)
    evaluation = evaluate(model, prompts((40,))[0][0].tolist(), parse_rule("oldest:0.4"))
    assert evaluation.kl > 0
    for text, message in [
        ("50", "the share of keys that stay"),
        ("best:0.5", "no eviction rule 'best'"),
        ("snapkv:half", "keep"),
        ("snapkv:0.5,width=3", "has no width"),
    ]:
        with pytest.raises(BadInput, match=message):
            parse_rule(text)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_an_evicting_cache_is_the_reference(model, rule):
    _, inputs = prompts((30, 40))
    reference = generate(model, inputs, rule, seed=3)
    before = model.config._attn_implementation
    cache = evicting_cache(model, rule, seed=3)
    assert torch.equal(generate(model, inputs, past_key_values=cache), reference)
    assert model.config._attn_implementation == before
    plain = generate(model, inputs)
    assert not torch.equal(plain, reference) or cache.nbytes > 0
    full = evicting_cache(model, Evict(1.0))
    assert torch.equal(generate(model, inputs, past_key_values=full), plain)
    assert cache.nbytes < full.nbytes


@pytest.mark.parametrize("rule", [Evict(0.5), SnapKV(0.5, 8), StreamingLLM(0.5)], ids=repr)
def test_an_evicting_cache_of_gemma3(rule):
    network, (_, inputs) = gemma3(), prompts((40,))
    reference = generate(network, inputs, rule, seed=3)
    cache = evicting_cache(network, rule, seed=3)
    assert torch.equal(generate(network, inputs, past_key_values=cache), reference)


WAYS = {"Qwen2": {"num_key_value_heads": 2}, "GPT2": {}, "OPT": {}}
SHAPE = {"vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}


@pytest.mark.parametrize("way", WAYS)
def test_an_evicting_cache_of_other_architectures(way):
    options = SHAPE | WAYS[way] | {"pad_token_id": 0, "eos_token_id": None}
    config = getattr(transformers, f"{way}Config")(**options)
    network = transformers.AutoModelForCausalLM.from_config(config).eval()
    _, inputs = prompts((40,))
    sizes = []
    for keep in (1.0, 0.5):
        cache = evicting_cache(network, Evict(keep, recent=4))
        assert generate(network, inputs, past_key_values=cache).shape == (1, 50)
        sizes.append(cache.nbytes)
    assert sizes[1] < 0.8 * sizes[0]
    measured = evaluate(network, inputs["input_ids"][0].tolist(), Evict(0.5, recent=4), repeats=2)
    assert measured.cache_bytes < measured.dense_cache_bytes


def test_a_model_with_attention_of_its_own_is_refused():
    config = transformers.FalconConfig(**SHAPE, pad_token_id=0, eos_token_id=None)
    network = transformers.AutoModelForCausalLM.from_config(config).eval()
    with pytest.raises(BadInput, match="never calls"):
        generate(network, prompts((40,))[1], past_key_values=evicting_cache(network, Tova(0.5)))


def test_an_evicting_cache_goes_without_a_trace(model):
    _, inputs = prompts((30,))
    hooks = len(model.base_model._forward_hooks)
    cache = evicting_cache(model, Evict(0.5))
    with pytest.raises(RuntimeError), torch.no_grad():
        model(torch.zeros(1, 3), past_key_values=cache)
    generate(model, inputs, past_key_values=cache)
    del cache
    assert len(model.base_model._forward_hooks) == hooks
    with pytest.raises(BadInput, match="eviction rule"):
        evicting_cache(model, 0.5)
