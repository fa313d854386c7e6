"""Fast decoding inside models: every key kept is dense attention, and what it refuses."""

import os
import subprocess
import sys

import numpy as np
import pytest
import torch
import transformers

import attnlimit as al
from attnlimit.constants import SEEN_BY_BLOCKS
from attnlimit.decoding.attention import current_session
from attnlimit.decoding.control import Controller

os.environ.setdefault("HF_HUB_OFFLINE", "1")
SMALL = {
    "vocab_size": 80, "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 3,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32,
    "max_position_embeddings": 1024, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 79,
}  # fmt: skip
EVERY_KEY = al.Threshold(1e9)


def config_of(name):
    given = dict(SMALL)
    if name == "Gemma2":
        given |= {"sliding_window": 32, "attn_logit_softcapping": 2.0}
    if name == "Gemma3Text":
        given |= {"sliding_window": 32, "layer_types": ["sliding_attention", "full_attention"] * 2}
        given |= {"num_hidden_layers": 4}
    if name == "Mistral":
        given |= {"sliding_window": None}
    if name == "GptOss":
        given |= {"num_local_experts": 2, "num_experts_per_tok": 1, "sliding_window": 32}
        given |= {"num_hidden_layers": 2}
    if name == "OPT":
        given |= {"ffn_dim": 64, "word_embed_proj_dim": 64}
    if name == "DeepseekV3":
        given |= {"q_lora_rank": 16, "kv_lora_rank": 16, "qk_rope_head_dim": 16}
        given |= {"qk_nope_head_dim": 16, "v_head_dim": 32, "first_k_dense_replace": 3}
        given |= {"num_key_value_heads": 4}
    if name in ("Bloom", "GPTNeoX", "Phi", "OPT", "DeepseekV3", "Mamba"):
        del given["head_dim"]
    if name == "GPT2":
        given = {"vocab_size": 80, "n_embd": 64, "n_layer": 2, "n_head": 2, "n_positions": 1024}
        given |= {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 79}
    return getattr(transformers, f"{name}Config")(**given)


def model_of(name, seed=0):
    torch.manual_seed(seed)
    network = transformers.AutoModelForCausalLM.from_config(config_of(name)).eval()
    for name, weight in network.named_parameters():
        if "sinks" in name or (weight.dim() == 2 and "proj" in name):
            weight.data = weight.data * 3
    return network


@pytest.fixture(scope="module")
def llama():
    return model_of("Llama")


def tokens_of(batch, size, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(2, 78, (batch, size), generator=generator)


@torch.no_grad()
def decode(network, ids, prompt, mask=None):
    """Logits of the tokens after a prompt, decoded one by one."""
    logits, cache, start = [], None, 0
    for end in range(prompt, ids.shape[1] + 1):
        given = {"past_key_values": cache, "use_cache": True}
        if mask is not None:
            places = (mask.cumsum(1) - 1).clamp_min(0)
            given |= {"attention_mask": mask[:, :end], "position_ids": places[:, start:end]}
        out = network(ids[:, start:end], **given)
        cache, start = out.past_key_values, end
        if end == prompt:
            continue
        logits.append(out.logits[:, -1])
    return torch.stack(logits, 1)


@pytest.mark.parametrize("levels", [1, 2])
@pytest.mark.parametrize(
    "name",
    [
        "Llama",
        "GPT2",
        "Qwen2",
        "Qwen3",
        "Mistral",
        "Gemma2",
        "Gemma3Text",
        "GptOss",
        "GPTNeoX",
        "Phi",
        "OPT",
    ],
)
def test_with_every_key_it_is_dense_attention(name, levels):
    network = model_of(name)
    if name in ("Gemma2", "GptOss"):
        network.set_attn_implementation("eager")
    ids = tokens_of(2, 330)
    dense = decode(network, ids, 322)
    with al.models.fast_decoding(network, EVERY_KEY, levels=levels, dense_below=0) as stats:
        fast = decode(network, ids, 322)
    torch.testing.assert_close(fast, dense, rtol=1e-4, atol=1e-4)
    assert stats.tokens == 16
    assert stats.keys == pytest.approx(stats.mean_visible, rel=0.05)


@pytest.mark.parametrize("levels", [1, 2])
def test_padding_on_the_left_and_the_batch_change_nothing(llama, levels):
    ids, other = tokens_of(1, 320), tokens_of(1, 320, seed=1)
    short = ids[:, 20:]
    alone, padded = [], []
    sampler = al.Threshold(12.0)
    options = {"levels": levels, "dense_below": 0, "seed": 3}
    with al.models.fast_decoding(llama, sampler, **options):
        alone.append(decode(llama, short, 290))
    batch = torch.cat([other, torch.cat([torch.zeros(1, 20, dtype=torch.long), short], 1)])
    mask = torch.ones_like(batch)
    mask[1, :20] = 0
    with al.models.fast_decoding(llama, sampler, **options):
        padded.append(decode(llama, batch, 310, mask)[1:])
    torch.testing.assert_close(alone[0], padded[0], rtol=1e-4, atol=1e-4)


def test_generate_streams_and_counts(llama):
    ids = tokens_of(2, 300)
    with al.models.fast_decoding(llama, al.TwoLevel(16.0), dense_below=0) as stats:
        first = llama.generate(ids, max_new_tokens=12, do_sample=False)
    with al.models.fast_decoding(llama, al.TwoLevel(16.0), dense_below=0):
        again = llama.generate(ids, max_new_tokens=12, do_sample=False)
    assert torch.equal(first, again)
    assert stats.tokens > 0
    assert len(stats.seconds_each) == stats.tokens / 2
    assert 0 < stats.bytes < stats.dense_bytes
    assert stats.cache_bytes > 0
    assert "keeps" in str(stats)
    assert len(stats.to_frame()) == 12
    assert llama.config._attn_implementation != "attnlimit_decoding"


def test_bfloat16(llama):
    network = model_of("Llama").to(torch.bfloat16)
    ids = tokens_of(1, 300)
    dense = decode(network, ids, 292)
    with al.models.fast_decoding(network, EVERY_KEY, dense_below=0):
        fast = decode(network, ids, 292)
    assert (fast - dense).float().abs().max() < 0.1 * dense.float().std()


def test_short_texts_read_everything(llama):
    ids = tokens_of(1, 60)
    with al.models.fast_decoding(llama, al.Threshold(8.0)) as stats:
        fast = decode(llama, ids, 50)
    torch.testing.assert_close(fast, decode(llama, ids, 50))
    assert stats.dense_tokens == 10
    assert "all keys" in str(stats)


def test_a_cache_filled_before_is_taken_over(llama):
    ids = tokens_of(1, 300)
    with torch.no_grad():
        cache = llama(ids[:, :290], use_cache=True).past_key_values
    with al.models.fast_decoding(llama, EVERY_KEY, dense_below=0), torch.no_grad():
        fast = llama(ids[:, 290:291], past_key_values=cache, use_cache=True).logits
    with torch.no_grad():
        dense = llama(ids[:, :291]).logits[:, -1:]
    torch.testing.assert_close(fast, dense, rtol=1e-4, atol=1e-4)


def test_caches_grow(llama):
    ids = tokens_of(1, 1000)
    with al.models.fast_decoding(llama, EVERY_KEY, levels=2, dense_below=0):
        fast = decode(llama, ids, 260)
    torch.testing.assert_close(fast, decode(llama, ids, 260), rtol=1e-3, atol=1e-3)


def test_what_is_refused(llama):
    ids = tokens_of(1, 300)
    refused = [
        (lambda: al.models.fast_decoding(llama, al.TopK(8)), "thresholds"),
        (lambda: al.models.fast_decoding(llama, al.Threshold(8.0), levels=3), "levels"),
        (lambda: al.models.fast_decoding(llama, al.Threshold(8.0), limit=0.1), "nats"),
        (lambda: al.models.fast_decoding(llama, al.Threshold(8.0), seed=-1), "seed"),
    ]
    for call, words in refused:
        with pytest.raises(al.BadInput, match=words), call():
            pass
    fast = al.models.fast_decoding
    with fast(llama, al.Threshold(8.0), dense_below=0):
        with pytest.raises(al.BadInput, match="beams"):
            llama.generate(ids, max_new_tokens=4, num_beams=2, do_sample=False)
        with pytest.raises(al.BadInput, match="DynamicCache"):
            llama.generate(ids, max_new_tokens=4, cache_implementation="static")
        mask = torch.ones_like(ids)
        mask[:, -3:] = 0
        with pytest.raises(al.BadInput, match="left"), torch.no_grad():
            llama(ids, attention_mask=mask, use_cache=True)
        with pytest.raises(al.BadInput, match="positions"), torch.no_grad():
            llama(tokens_of(1, 1025), use_cache=True)
    encoder = transformers.BertModel(
        transformers.BertConfig(hidden_size=32, num_hidden_layers=1, num_attention_heads=2)
    )
    encoder.eval()
    with pytest.raises(al.BadInput, match="generate"), fast(encoder, al.Threshold(8.0)):
        pass


def test_models_that_cannot_be_read_faster():
    ids = tokens_of(1, 20)
    refused = {
        "Bloom": "attention interface",
        "Mamba": "state",
        "DeepseekV3": "something else than its keys",
    }
    for name, words in refused.items():
        network = model_of(name)
        with (
            pytest.raises(al.BadInput, match=words),
            al.models.fast_decoding(network, al.Threshold(8.0)),
            torch.no_grad(),
        ):
            network(ids, use_cache=True)


def test_generation_that_is_refused(llama, monkeypatch):
    ids = tokens_of(1, 100)
    with al.models.fast_decoding(llama, al.Threshold(8.0), dense_below=0):
        with pytest.raises(al.BadInput, match="assisted"):
            llama.generate(ids, max_new_tokens=6, prompt_lookup_num_tokens=3, do_sample=False)
        with pytest.raises(al.BadInput, match="use_cache"):
            llama.generate(ids, max_new_tokens=6, use_cache=False)
        monkeypatch.setattr("attnlimit.decoding.cache.ROOM", 10**12)
        with pytest.raises(al.BadInput, match="GB"):
            llama.generate(ids, max_new_tokens=6)


def test_a_plan_of_another_model(llama):
    ids = tokens_of(1, 60)[0].tolist()
    plan = al.models.plan(llama, ids, kl=0.01, decode=20, probes=2)
    with al.models.fast_decoding(llama, plan):
        pass
    other = model_of("GPT2")
    with pytest.raises(al.BadInput, match="plan"), al.models.fast_decoding(other, plan):
        pass


def test_models_on_a_gpu_are_refused(llama):
    network = transformers.AutoModelForCausalLM.from_config(config_of("Llama")).to("meta").eval()
    with pytest.raises(al.BadInput, match="CPU"), al.models.fast_decoding(network, EVERY_KEY):
        pass


def test_no_room_for_a_cache(llama, monkeypatch):
    def refuse(shape, dtype):
        raise MemoryError

    monkeypatch.setattr("attnlimit.decoding.cache.zeros", refuse)
    with (
        pytest.raises(al.BadInput, match="no memory"),
        al.models.fast_decoding(llama, EVERY_KEY),
        torch.no_grad(),
    ):
        llama(tokens_of(1, 30), use_cache=True)


@pytest.mark.parametrize("proxy", [None, "4bit"])
def test_a_plan_says_how_many_levels_are_read(llama, proxy):
    sampler = al.Threshold(8.0, proxy)
    with al.models.fast_decoding(llama, sampler, dense_below=0):
        assert current_session().levels == (None if proxy is None else 1)
    with al.models.fast_decoding(llama, al.TwoLevel(8.0), dense_below=0):
        assert current_session().levels == 2


def test_threads_of_torch_are_left_alone():
    code = (
        "import torch, attnlimit as al, transformers as t; torch.set_num_threads(1);"
        "c = t.LlamaConfig(vocab_size=9, hidden_size=32, num_hidden_layers=1,"
        " num_attention_heads=1, intermediate_size=8);"
        "n = t.LlamaForCausalLM(c).eval()\n"
        "with al.models.fast_decoding(n, al.Threshold(8.0)): print(torch.get_num_threads())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "1"


def test_numba_is_not_imported_with_the_library():
    code = "import sys, attnlimit, attnlimit.models; print('numba' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_estimated_squares_follow_the_measured_error(llama):
    ids = tokens_of(1, 600)
    with al.models.fast_decoding(llama, al.Threshold(20.0), levels=1, dense_below=0) as stats:
        decode(llama, ids, 590)
    assert np.isfinite(stats.by_head(2)).all()
    assert (stats.by_head(2) > 0).all()


def test_checks_measure_the_loss_of_every_token(llama):
    ids = tokens_of(2, 330)
    dense = torch.log_softmax(decode(llama, ids, 310), -1)
    options = {"levels": 1, "dense_below": 0, "seed": 5}
    with al.models.fast_decoding(llama, al.Threshold(6.0), **options):
        plain = torch.log_softmax(decode(llama, ids, 310), -1)
    with al.models.fast_decoding(llama, al.Threshold(6.0), check_every=1, **options) as stats:
        checked = torch.log_softmax(decode(llama, ids, 310), -1)
    assert torch.equal(plain, checked)  # checks leave no trace in the cache
    # The first token's cache is the dense model's own.
    kl = (dense.exp() * (dense - plain)).sum(-1)
    assert stats.losses.kl[:2] == pytest.approx(kl[:, 0].tolist(), rel=1e-3, abs=1e-7)
    assert len(stats.losses.kl) == 40
    assert stats.kl == pytest.approx(np.mean(stats.losses.kl), rel=1e-6)
    assert stats.kl_stderr > 0
    assert "measured on 40 tokens" in str(stats)


@pytest.mark.parametrize("levels", [1, 2])
@pytest.mark.parametrize("name", ["Llama", "Gemma2", "Gemma3Text", "GptOss"])
def test_tokens_read_again_are_those_of_the_dense_model(name, levels, monkeypatch):
    monkeypatch.setattr("attnlimit.decoding.control.BLOCK", 7)
    network = model_of(name)
    if name in ("Gemma2", "GptOss"):
        network.set_attn_implementation("eager")
    ids = tokens_of(2, 346)
    dense = torch.log_softmax(decode(network, ids, 328), -1)
    options = {"kl": 0.01, "levels": levels, "dense_below": 0, "seed": 5}
    with al.models.fast_decoding(network, al.Threshold(6.0), **options) as stats:
        fast = torch.log_softmax(decode(network, ids, 328), -1)
    # Earlier tokens' errors are in it, and the second block begins with a clean cache.
    kl = (dense.exp() * (dense - fast)).sum(-1)[:, :14]
    assert len(stats.losses.kl) == 28
    measured = torch.tensor(stats.losses.kl).view(14, 2).T
    torch.testing.assert_close(measured, kl, rtol=2e-2, atol=1e-6)
    assert kl.mean() > 1e-4
    assert "measured on 28 tokens" in str(stats)


def test_batches_with_padding_are_read_again(llama, monkeypatch):
    monkeypatch.setattr("attnlimit.decoding.control.BLOCK", 6)
    ids = tokens_of(1, 320)
    batch = torch.cat([tokens_of(1, 340, seed=1), torch.nn.functional.pad(ids, (20, 0))])
    mask = torch.ones_like(batch)
    mask[1, :20] = 0
    dense = torch.log_softmax(decode(llama, batch, 325, mask), -1)
    options = {"kl": 0.01, "levels": 1, "dense_below": 0, "seed": 3}
    with al.models.fast_decoding(llama, al.Threshold(6.0), **options) as stats:
        fast = torch.log_softmax(decode(llama, batch, 325, mask), -1)
    kl = (dense.exp() * (dense - fast)).sum(-1)[:, :12]
    measured = torch.tensor(stats.losses.kl).view(12, 2).T
    torch.testing.assert_close(measured, kl, rtol=2e-2, atol=1e-6)


@pytest.mark.parametrize("evict", [None, al.Evict(0.5, again=None)], ids=["all", "cut"])
def test_a_rounded_cache_is_read_again(llama, evict, monkeypatch):
    monkeypatch.setattr("attnlimit.decoding.control.BLOCK", 7)
    ids = tokens_of(2, 346)
    options = {"store": al.Quantize("row8", "block8"), "evict": evict, "seed": 3}
    options |= {"levels": 1, "dense_below": 0, "kl": 0.01}
    with al.models.fast_decoding(llama, EVERY_KEY, **options) as stats:
        decode(llama, ids, 328)
    # Nothing is lost but what rounding the decoded tokens themselves does.
    assert 0 < np.mean(stats.losses.kl) < 1e-3
    with al.models.fast_decoding(llama, al.Threshold(6.0), **options) as sampled:
        decode(llama, ids, 328)
    assert np.mean(sampled.losses.kl) > 3 * np.mean(stats.losses.kl)


def test_a_controller_finds_the_threshold_of_its_target():
    rng, log = np.random.default_rng(0), torch.log_softmax(torch.ones(1, 9), -1)
    for scale, predicted in [(0.4, 0.01), (1.0, 0.01), (2.5, 0.01), (1.5, None)]:
        control = Controller(0.01, None, predicted)
        lost, block, size = [], [], control.next_block()
        for _ in range(600):
            control.add(None, log, 1e9)
            lost.append(scale * 0.01 * control.factor**-1.5 * rng.gamma(0.5, 2.0))
            block.append(SEEN_BY_BLOCKS * lost[-1])
            if len(block) == size:
                with control.timed_block():
                    pass
                control.add_block(torch.tensor(block)[:, None])
                block, size = [], control.next_block()
        assert np.mean(lost[200:]) == pytest.approx(0.01, rel=0.25)
        mean, error = control.losses.mean(), control.losses.stderr()
        assert abs(mean - SEEN_BY_BLOCKS * np.mean(lost)) < 4 * error


def test_reading_again_takes_a_share_of_the_time(monkeypatch):
    clock = iter(np.arange(0, 1e6, 0.25))
    monkeypatch.setattr("attnlimit.decoding.control.time.perf_counter", lambda: next(clock))
    control, begun = Controller(0.01, None, 0.01), []
    for step in range(4000):
        if control.next_block():
            with control.timed_block():  # a quarter of a second each
                pass
            begun.append(step)
        control.add(None, torch.log_softmax(torch.ones(1, 9), -1), 0.05)
    assert begun[:4] == [0, 1, 2, 3]  # as many as 450 tokens pay for
    assert begun[4] > 400
    assert control.block_seconds <= 0.05 * (control.block_seconds + 200) + 1e-9
    assert control.block_seconds > 0.04 * 200
    assert Controller(0.01, None, 0.02).factor == pytest.approx(2 ** (1 / 1.5))


@pytest.mark.parametrize("levels", [1, 2])
def test_a_cache_in_few_bits(llama, levels):
    ids = tokens_of(2, 330)
    dense = decode(llama, ids, 310)
    errors = []
    for keys, values in (("row8", "block8"), ("row4", "block4")):
        options = {"store": al.Quantize(keys, values), "levels": levels, "dense_below": 0}
        with al.models.fast_decoding(llama, EVERY_KEY, check_every=5, **options) as stats:
            fast = decode(llama, ids, 310)
        errors.append(float((fast - dense).square().mean().sqrt() / dense.std()))
        with al.models.fast_decoding(llama, EVERY_KEY, **options):
            assert torch.equal(fast, decode(llama, ids, 310))  # checks leave no trace
    assert errors[0] < 0.02
    assert errors[0] < errors[1] < 0.3
    # Room for more is counted: the texts are short.
    whole = 3 * 2 * 2 * 330 * 2 * 32 * 4
    assert stats.cache_bytes < whole
    with (
        pytest.raises(al.BadInput, match="row8"),
        al.models.fast_decoding(llama, EVERY_KEY, store=al.Quantize(8, 8)),
    ):
        pass


def test_a_rounded_cache_with_padding(llama):
    ids = tokens_of(1, 320)
    batch = torch.cat([tokens_of(1, 340, seed=1), torch.nn.functional.pad(ids, (20, 0))])
    mask = torch.ones_like(batch)
    mask[1, :20] = 0
    options = {"store": al.Quantize("row8", "block8"), "levels": 1, "seed": 3}
    for below in (0, 10**6):
        with al.models.fast_decoding(llama, al.Threshold(12.0), dense_below=below, **options):
            alone = decode(llama, ids, 300)
        with al.models.fast_decoding(llama, al.Threshold(12.0), dense_below=below, **options):
            padded = decode(llama, batch, 320, mask)[1:]
        torch.testing.assert_close(alone, padded, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("levels", [1, 2])
@pytest.mark.parametrize("name", ["Llama", "Gemma3Text"])
def test_an_evicted_cache_is_that_of_the_reference(name, levels):
    network = model_of(name)
    ids = tokens_of(2, 530)
    mask = torch.ones_like(ids)
    mask[1, :20] = 0
    rule = al.models.Evict(0.5, again=None)
    with al.models.sampled_attention(network, rule, seed=4):
        reference = decode(network, ids, 520, mask)
    for below in (0, 10**6):
        options = {"levels": levels, "dense_below": below, "evict": rule, "seed": 4}
        with al.models.fast_decoding(network, EVERY_KEY, **options) as stats:
            fast = decode(network, ids, 520, mask)
        torch.testing.assert_close(fast, reference, rtol=1e-3, atol=1e-3)
    assert stats.cache_bytes > 0


def test_an_evicted_cache_in_few_bits(llama):
    ids = tokens_of(1, 530)
    rule, store = al.models.Evict(0.25, again=None), al.Quantize("row8", "row8")
    with al.models.sampled_attention(llama, rule, seed=4):
        reference = decode(llama, ids, 512)
    options = {"dense_below": 0, "levels": 1, "evict": rule, "store": store, "seed": 4}
    with al.models.fast_decoding(llama, EVERY_KEY, check_every=3, **options) as stats:
        fast = decode(llama, ids, 512)
    assert (fast - reference).square().mean().sqrt() < 0.02 * reference.std()
    assert stats.scored == pytest.approx(128 + 9.5, abs=0.5)
    assert stats.mean_visible == pytest.approx(512 + 9.5)
    assert stats.bytes < 0.4 * stats.dense_bytes
    held = stats.cache_bytes
    with al.models.fast_decoding(llama, EVERY_KEY, dense_below=0, levels=1) as stats:
        decode(llama, ids, 512)
    assert held < 0.3 * stats.cache_bytes


def test_a_limit_reads_all_keys_where_a_token_would_lose_more(llama):
    ids = tokens_of(2, 330)
    plan = al.models.plan(llama, ids[0].tolist(), kl=0.01, decode=40, probes=2)
    dense = decode(llama, ids, 320)
    options = {"levels": 1, "dense_below": 0, "seed": 3}
    with al.models.fast_decoding(llama, plan, **options) as free:
        fast = decode(llama, ids, 320)
    assert free.kl > 0
    assert free.dense_layers == 0
    with al.models.fast_decoding(llama, plan, limit=1e-12, **options) as held:
        limited = decode(llama, ids, 320)
    assert held.dense_layers == 3 * 20
    assert held.kl == 0
    torch.testing.assert_close(limited, dense, rtol=1e-4, atol=1e-4)
    with al.models.fast_decoding(llama, plan, limit=free.kl, **options) as some:
        between = decode(llama, ids, 320)
    assert 0 < some.dense_layers < 3 * 20
    assert 0 < some.kl < free.kl
    assert (between - dense).norm() < (fast - dense).norm()
