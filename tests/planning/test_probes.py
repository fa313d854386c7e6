"""A capture that keeps the output's gradients plans as its model does, bit for bit, without it."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch

import attnlimit as al
from attnlimit.models import capture, capture_sensitivities, open_capture
from attnlimit.models import plan as make_plan
from attnlimit.models.passes import encode
from attnlimit.models.store import CaptureWriter
from attnlimit.planning.probes import SPOOL, probe
from attnlimit.planning.target import choose_target

transformers = pytest.importorskip("transformers")

IDS = torch.randint(0, 99, (40,), generator=torch.Generator().manual_seed(2))
OTHER = torch.randint(0, 99, (36,), generator=torch.Generator().manual_seed(4))


@pytest.fixture(scope="module")
def kept(causal, tmp_path_factory):
    folder = tmp_path_factory.mktemp("kept")
    capture_sensitivities(causal, IDS, folder, probes=11, seed=5)
    return folder


@pytest.fixture
def copied(kept, tmp_path):
    open_capture(kept).save(tmp_path / "copy")
    return tmp_path / "copy"


def same(first, second):
    """Whether two plans have the same bits, but for runs of the model."""
    run = ("measured", "measured_stderr", "trusted", "doubt", "digest")
    contents = [{k: v for k, v in p.to_dict().items() if k not in run} for p in (first, second)]
    return contents[0] == contents[1]


def windowed():
    shape = {"vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 2, "intermediate_size": 32}
    torch.manual_seed(3)
    config = transformers.Gemma2Config(
        **shape, num_attention_heads=4, num_key_value_heads=2, head_dim=8, sliding_window=6,
        attn_logit_softcapping=3.0,
    )  # fmt: skip
    return transformers.AutoModelForCausalLM.from_config(config).eval()


def by_distance():
    torch.manual_seed(3)
    shape = {"d_model": 32, "d_kv": 8, "num_layers": 2, "num_heads": 4, "d_ff": 32}
    return transformers.T5EncoderModel(transformers.T5Config(vocab_size=99, **shape)).eval()


@pytest.mark.parametrize(
    "how",
    [{"per": "head"}, {"scheme": "top-k:4+4", "per": "layer"}],
    ids=str,
)
def test_a_plan_from_files_has_the_bits_of_one_from_the_model(causal, kept, how):
    model = make_plan(causal, IDS, kl=0.01, probes=11, seed=5, **how)
    files = make_plan(open_capture(kept), kl=0.01, **how)
    assert same(files, model)
    assert files.sensitivity is not None


def test_several_captures_stand_for_several_texts(causal, kept, tmp_path):
    second = capture_sensitivities(causal, OTHER, tmp_path, probes=11, seed=6)
    model = make_plan(causal, [IDS, OTHER], kl=0.01, probes=11, seed=5)
    assert same(make_plan([open_capture(kept), second], kl=0.01), model)


@pytest.mark.parametrize("kind", ["encoder", "bfloat16", "windowed", "by_distance"])
def test_every_kind_of_model_is_kept(kind, encoder, causal, tmp_path):
    made = {"windowed": windowed, "by_distance": by_distance}
    if kind == "bfloat16":
        model = transformers.AutoModelForCausalLM.from_config(causal.config)
        model.load_state_dict(causal.state_dict())
        model = model.bfloat16().eval()
    else:
        model = encoder if kind == "encoder" else made[kind]()
    causes = kind in ("bfloat16", "windowed")
    target = {"kl": 1e-4} if causes else {"cosine": 0.9999}
    files = capture_sensitivities(model, IDS, tmp_path, probes=3)
    assert files.probes.output == ("kl" if causes else "cosine")
    assert files.layers[0].gradients.g.dtype == model.dtype
    planned = make_plan(model, IDS, **target, per="head", probes=3)
    assert same(make_plan(files, **target, per="head"), planned)


def test_padding_is_left_out(causal, tmp_path):
    padded = torch.cat([torch.zeros(5, dtype=torch.long), IDS])[None]
    inputs = {"input_ids": padded, "attention_mask": (torch.arange(45) >= 5).long()[None]}
    files = capture_sensitivities(causal, inputs, tmp_path, probes=2)
    assert len(files) == 40
    planned = make_plan(causal, inputs, kl=0.01, probes=2)
    assert same(make_plan(files, kl=0.01), planned)


def test_heads_are_those_of_a_capture_without_gradients(causal, kept):
    plain, files = capture(causal, IDS), open_capture(kept)
    for entry, other in zip(plain, files, strict=True):
        assert torch.equal(entry.q, other.q)
        assert torch.equal(entry.v, other.v)
    assert al.budget(files[1, 0], queries=8).schemes == al.budget(plain[1, 0], queries=8).schemes


def test_a_saved_copy_keeps_the_gradients(kept, copied):
    assert same(make_plan(open_capture(copied), kl=0.01), make_plan(open_capture(kept), kl=0.01))


class Halfway(Exception):
    pass


def test_an_interrupted_capture_is_made_again(causal, kept, tmp_path, monkeypatch):
    add = CaptureWriter.add

    def stops(self, number, layer):
        if number == 0:  # the last to be reached on the way back
            raise Halfway
        add(self, number, layer)

    with monkeypatch.context() as patch:
        patch.setattr("attnlimit.models.store.CaptureWriter.add", stops)
        with pytest.raises(Halfway):
            capture_sensitivities(causal, IDS, tmp_path, probes=11, seed=5)
    assert not (tmp_path / SPOOL).exists()
    whole = capture_sensitivities(causal, IDS, tmp_path, probes=11, seed=5)
    for name in ("layer-0000.safetensors", "layer-0002.safetensors"):
        assert (tmp_path / name).read_bytes() == (kept / name).read_bytes()
    monkeypatch.setattr("torch.autograd.grad", None)  # a whole one needs no pass back
    assert len(capture_sensitivities(causal, IDS, tmp_path, probes=11, seed=5)) == len(whole)
    with pytest.raises(al.BadInput, match="holds another capture"):
        capture_sensitivities(causal, IDS, tmp_path, probes=11, seed=6)


def test_what_needs_the_model_is_refused_in_a_sentence(causal, kept, tmp_path):
    files, plain = open_capture(kept), capture(causal, IDS, folder=tmp_path)
    for given, texts, options, says in [
        (files, None, {"kl": 0.01, "scheme": "top-k:4"}, "needs a run of the model"),
        (files, None, {"kl": 0.01, "scheme": "sinks-recent:1,4"}, "needs a run"),
        (files, OTHER, {"kl": 0.01}, "A capture is of its own text"),
        (files, None, {"cosine": 0.99}, "capture again with --output cosine"),
        (files, None, {"kl": 0.01, "probes": 4}, "keeps 11 probes of seed 5"),
        (files, None, {"kl": 0.01, "seed": 1}, "keeps 11 probes of seed 5"),
        (plain, None, {"kl": 0.01}, "capture again with --probes 4"),
        ([files, plain], None, {"kl": 0.01}, "capture again with --probes 4"),
        (causal, None, {"kl": 0.01}, "no texts to plan on"),
    ]:
        with pytest.raises(al.BadInput, match=says):
            make_plan(given, texts, **options)
    for options, says in [
        ({"probes": 1}, "probes must be at least 2"),
        ({"probes": 4, "output": "best"}, "output must be"),
        ({"probes": 4, "seed": -1}, "seed"),
    ]:
        with pytest.raises(al.BadInput, match=says):
            capture_sensitivities(causal, IDS, tmp_path / "x", **options)


def test_an_altered_gradient_is_found_by_its_hash(copied):
    path = copied / "layer-0001.safetensors"
    content = bytearray(path.read_bytes())
    content[-5] ^= 1
    path.write_bytes(content)
    capture = open_capture(copied)
    assert capture[2, 0].q.shape == (40, 8)  # what is whole is read
    with pytest.raises(al.BadInput, match="does not have its SHA-256"):
        make_plan(capture, kl=0.01)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda c: c.update(probes=None), "its tensors are not those"),
        (lambda c: c["probes"].update(count=10**9), "probes.count: Input should be less"),
        (lambda c: c["probes"].update(count=12), "its tensors are not those"),
        (lambda c: c["probes"].update(count="11"), "probes.count: Input should be a valid integer"),
        (lambda c: c["probes"].update(output="../x"), "probes.output: String should match"),
        (lambda c: c["probes"].update(more=1), "probes.more: Unexpected"),
    ],
)
def test_a_hostile_manifest_of_gradients_is_refused(copied, change, says):
    path = copied / "capture.json"
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))
    with pytest.raises(al.BadInput, match=says):
        open_capture(copied)[0, 0]


def test_a_factor_that_is_none_is_refused(kept, tmp_path):
    capture = open_capture(kept)
    layers = {
        number: replace(layer, gradients=replace(layer.gradients, scale=-1.0))
        for number, layer in capture.layers.items()
    }
    replace(capture, layers=layers).save(tmp_path / "bad")
    with pytest.raises(al.BadInput, match="scale: Input should be greater than 0"):
        make_plan(open_capture(tmp_path / "bad"), kl=0.01)


def test_passes_are_not_mixed(kept, tmp_path):
    capture = open_capture(kept)
    layers = dict(capture.layers)
    layers[1] = replace(layers[1], gradients=replace(layers[1].gradients, scale=0.5))
    replace(capture, layers=layers).save(tmp_path / "mixed")
    with pytest.raises(al.BadInput, match="of different passes"):
        make_plan(open_capture(tmp_path / "mixed"), kl=0.01)


@pytest.mark.parametrize("kind", ["causal", "windowed"])
def test_a_prompt_read_without_gradients_changes_none_after_it(kind, causal):
    network, start = (causal if kind == "causal" else windowed()), 30
    target = choose_target(network, "kl").from_position(start)
    gathered = []
    for first in (0, start):
        layers = {}

        def reduce(layer, layers=layers):
            layers[layer.call.layer] = layer

        run = probe(network, encode(network, IDS), target, 3, 7, reduce, first)
        gathered.append((run, layers))
    (whole, every), (split, after) = gathered
    assert split.tokens == whole.tokens == 40
    torch.testing.assert_close(split.read, whole.read)
    for number, layer in every.items():
        other = after[number]
        for name in ("query", "key", "value"):
            torch.testing.assert_close(getattr(other.call, name), getattr(layer.call, name))
        assert other.call.whole
        gradients = layer.gradients[:, :, start:]
        atol = 1e-5 * float(gradients.abs().max())
        torch.testing.assert_close(other.gradients[:, :, start:], gradients, rtol=1e-4, atol=atol)
