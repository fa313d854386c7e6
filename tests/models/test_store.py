"""A capture in files is the capture: bit for bit, and nothing else is taken for it."""

from __future__ import annotations

import json

import pytest
import torch

import attnlimit as al
from attnlimit.errors import BadInput
from attnlimit.models.store import CaptureWriter
from called import call
from every_sampler import made_capture

transformers = pytest.importorskip("transformers")


def tiny(family="llama", **more):
    """A random model of two layers of four heads."""
    torch.manual_seed(5)
    shape = {"vocab_size": 40, "hidden_size": 32, "num_hidden_layers": 2, "intermediate_size": 32}
    configs = {
        "llama": lambda: transformers.LlamaConfig(
            **shape, num_attention_heads=4, num_key_value_heads=2, **more
        ),
        "mistral": lambda: transformers.MistralConfig(
            **shape, num_attention_heads=4, num_key_value_heads=2, sliding_window=5
        ),
        "gemma2": lambda: transformers.Gemma2Config(
            **shape, num_attention_heads=4, num_key_value_heads=2, head_dim=8, sliding_window=6,
            attn_logit_softcapping=3.0,
        ),
        "t5": lambda: transformers.T5Config(
            vocab_size=40, d_model=32, d_kv=8, num_layers=2, num_heads=4, d_ff=32
        ),
        "big_bird": lambda: transformers.BigBirdConfig(
            **shape, num_attention_heads=4, attention_type="original_full"
        ),
    }  # fmt: skip
    config = configs[family]()
    model = transformers.T5EncoderModel(config) if family == "t5" else None
    return (model or transformers.AutoModel.from_config(config)).eval()


IDS = list(range(3, 27))


@pytest.mark.parametrize("family", ["llama", "mistral", "gemma2", "t5", "big_bird"])
@pytest.mark.parametrize("way", ["saved", "written"])
def test_a_stored_capture_is_the_capture(family, way, tmp_path):
    model = tiny(family)
    kept = al.models.capture(model, IDS)
    if way == "saved":
        kept.save(tmp_path / "c")
        stored = al.models.open_capture(tmp_path / "c")
    else:
        stored = al.models.capture(model, IDS, folder=tmp_path / "c")
    assert (stored.tokens, stored.depth, stored.heads) == (kept.tokens, kept.depth, kept.heads)
    assert stored.source == kept.source
    for entry, other in zip(stored, kept, strict=True):
        assert (entry.layer, entry.head, entry.scale) == (other.layer, other.head, other.scale)
        assert (entry.mask.causal, entry.mask.window) == (other.mask.causal, other.mask.window)
        for name in ("q", "k", "v"):
            assert torch.equal(getattr(entry, name), getattr(other, name))
        assert torch.equal(entry.scores(), other.scores())
    if family == "llama":
        assert al.budget(stored[0, 0], queries=8) == al.budget(kept[0, 0], queries=8)


def test_the_files_are_safetensors(tmp_path):
    safetensors = pytest.importorskip("safetensors.torch")
    kept = made_capture()
    kept.save(tmp_path)
    result = safetensors.load_file(tmp_path / "layer-0000.safetensors")
    assert torch.equal(result["q"], kept.layers[0].q)
    assert result["positions"].tolist() == [list(range(96))]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_every_precision_comes_back(dtype, tmp_path):
    q, k, v = (torch.randn(2, 9, 4).to(dtype) for _ in range(3))
    kept = al.models.from_arrays(q, k, v)
    kept.save(tmp_path)
    layer = al.models.open_capture(tmp_path).layers[0]
    assert torch.equal(layer.q, q)
    assert layer.head(0, 1).q.dtype == torch.promote_types(dtype, torch.float32)


class Halfway(Exception):
    pass


def test_an_interrupted_capture_is_none_until_it_is_made_again(tmp_path, monkeypatch):
    model = tiny()
    add = CaptureWriter.add

    def stops(self, number, layer):
        if number == 1:
            raise Halfway
        add(self, number, layer)

    with monkeypatch.context() as patch:
        patch.setattr("attnlimit.models.store.CaptureWriter.add", stops)
        with pytest.raises(Halfway):
            al.models.capture(model, IDS, folder=tmp_path)
    with pytest.raises(BadInput, match="which is written last"):
        al.models.open_capture(tmp_path)
    whole = al.models.capture(model, IDS, folder=tmp_path)
    assert len(list(whole)) == 8
    before = (tmp_path / "layer-0000.safetensors").stat().st_mtime_ns
    al.models.capture(model, IDS, folder=tmp_path)  # what is whole is kept
    assert (tmp_path / "layer-0000.safetensors").stat().st_mtime_ns == before
    (tmp_path / "layer-0001.safetensors").write_bytes(b"damaged")
    again = al.models.capture(model, IDS, folder=tmp_path)
    assert torch.equal(again[1, 0].q, al.models.capture(model, IDS)[1, 0].q)
    with pytest.raises(BadInput, match="holds another capture"):
        al.models.capture(model, IDS[1:], folder=tmp_path)
    with pytest.raises(BadInput, match="holds another capture"):
        al.models.capture(model, IDS, folder=tmp_path, layers=[0])


@pytest.fixture
def stored(tmp_path):
    made_capture(tokens=16).save(tmp_path)
    return tmp_path


def edit(folder, change):
    path = folder / "capture.json"
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


def test_a_truncated_file_is_found(stored):
    path = stored / "layer-0000.safetensors"
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(BadInput, match=r"is damaged: it has \d+ bytes, and its manifest says"):
        al.models.open_capture(stored)[0, 0]


@pytest.mark.parametrize("place", [-3 - 16 * 8, 40])
def test_an_altered_byte_is_found_by_the_hash(stored, place):
    """In the values of the second head, and in the header."""
    path = stored / "layer-0000.safetensors"
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)
    capture = al.models.open_capture(stored)
    for head in (0, 1):
        with pytest.raises(BadInput, match="does not have its SHA-256"):
            capture[0, head]


def test_numbers_that_are_not_finite_are_found(tmp_path):
    q, k, v = (torch.randn(2, 9, 4) for _ in range(3))
    made = al.models.from_arrays(q, k, v)
    made.layers[0].v[1, 2, 3] = torch.nan
    made.save(tmp_path)
    with pytest.raises(BadInput, match="NaN or infinite numbers, in 'v'"):
        al.models.open_capture(tmp_path)[0, 0]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda c: c["layers"][0].update(file="../../etc/passwd"), "layers.0.file: String should"),
        (lambda c: c["layers"][0].update(file="/tmp/layer-0000.safetensors"), "layers.0.file"),
        (lambda c: c["layers"][0].update(bytes=10**18), "its manifest says 10000000"),
        (lambda c: c.update(heads=10**9), "heads: Input should be less"),
        (lambda c: c.update(heads=3), "its tensors are not those of 3 heads"),
        (lambda c: c.update(dtype="F64"), "not those of 2 heads over 16 tokens in F64"),
        (lambda c: c.update(depth=0), "depth: Input should be greater"),
        (lambda c: c.update(tokens=c["tokens"][1:]), "15 tokens and 16 positions"),
        (lambda c: c.update(layers=c["layers"] * 2), "not of layers of the model"),
        (lambda c: c.update(layers=[]), "layers: "),
        (lambda c: c["layers"][0].update(parts={}), "layers.0.parts: Extra inputs"),
        (lambda c: c["layers"][0].update(sha256="f" * 64), "does not have its SHA-256"),
        (lambda c: c.update(schema="other/1"), "not a capture of schema"),
        (lambda c: c.pop("source"), "source: Field required"),
        (lambda c: c.update(positions=[10**30] * 16), "positions"),
        (lambda c: c.update(positions=[-1] * 16), "positions"),
    ],
)
def test_a_hostile_manifest_is_refused_in_a_sentence(stored, change, says):
    edit(stored, change)
    with pytest.raises(BadInput, match=says):
        al.models.open_capture(stored)[0, 0]


@pytest.mark.parametrize(
    "source", [{"notes": 5}, {"notes": [{}]}, {"parts": 10**9}, {"passage": []}, {"model": [1]}]
)
def test_a_source_of_nonsense_is_refused_or_read_as_words(stored, source):
    edit(stored, lambda c: c["source"].update(source))
    page = ["--out", stored / "tokens.html"]
    for command in (["plan"], ["tokens", *page]):
        code, _, err = call(*command, "--capture", stored)
        assert code in (0, 2)
        assert "Traceback" not in err
        assert code == 0 or len(err.strip().splitlines()) == 1


def test_a_link_that_leads_out_is_refused(stored, tmp_path_factory):
    path = stored / "layer-0000.safetensors"
    outside = tmp_path_factory.mktemp("outside") / "file"
    path.rename(outside)
    path.symlink_to(outside)
    with pytest.raises(BadInput, match="leads out of it"):
        al.models.open_capture(stored)[0, 0]


def test_a_folder_without_a_capture_is_named(tmp_path):
    with pytest.raises(BadInput, match=r"holds no capture: it has no capture\.json"):
        al.models.open_capture(tmp_path)
