"""A model folder can read only itself: no pickle, no code, no network, no way out."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch

transformers = pytest.importorskip("transformers")

from attnlimit.errors import BadInput  # noqa: E402
from attnlimit.models import capture, load  # noqa: E402

WORDS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghij")


class Evil:
    """Unpickled without care, this makes a file."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self):
        return (os.system, (f"touch {self.mark}",))


@pytest.fixture(autouse=True)
def no_network(monkeypatch):
    """Refuse every attempt to reach a network, and fail unless the test expected it."""
    attempts = []

    def refuse(*arguments, **options):
        attempts.append(arguments)
        raise OSError("there is no network in this test")

    for name in ("connect", "connect_ex", "sendto"):
        monkeypatch.setattr(socket.socket, name, refuse)
    for name in ("getaddrinfo", "gethostbyname", "create_connection"):
        monkeypatch.setattr(socket, name, refuse)
    monkeypatch.setattr(subprocess, "Popen", refuse)
    yield attempts
    assert attempts == []


@pytest.fixture
def folder(tmp_path):
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=len(WORDS), hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=16, max_position_embeddings=32,
    )  # fmt: skip
    small = tmp_path / "place" / "small"
    transformers.BertModel(config).save_pretrained(small)
    (small / "vocab.txt").write_text("\n".join(WORDS))
    return small


def change_config(folder, **entries):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | entries))


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "model.pth", "model.ckpt"])
def test_pickled_weights_are_never_read(folder, tmp_path, name):
    mark = tmp_path / "ran"
    torch.save({"weight": Evil(mark)}, folder / name)
    (folder / "model.safetensors").unlink()
    with pytest.raises(BadInput, match=f"pickled ones, which can run code .{name}.; load the"):
        load(folder)
    assert not mark.exists()


def test_incomplete_weights_are_refused_rather_than_made_up(folder):
    from safetensors.torch import save_file

    save_file({"weight": torch.ones(2)}, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(BadInput, match=r"incomplete: \d+ are missing, such as embeddings"):
        load(folder)


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "vocab.txt"])
def test_links_that_lead_out_are_refused(folder, name):
    outside = folder.parent / name
    (folder / name).rename(outside)
    (folder / name).symlink_to(outside)
    with pytest.raises(BadInput, match=f"{name} in .* is a link that leads out of it"):
        load(folder)


def test_links_inside_a_folder_and_in_the_hubs_cache_are_fine(folder, tmp_path):
    (folder / "model.safetensors").rename(folder / "weights.safetensors")
    (folder / "model.safetensors").symlink_to("weights.safetensors")
    expected = load(folder).weights
    cache = tmp_path / "models--owner--name"
    (cache / "blobs").mkdir(parents=True)
    (cache / "snapshots" / "abc").mkdir(parents=True)
    for number, file in enumerate(sorted(folder.iterdir())):
        (cache / "blobs" / str(number)).write_bytes(file.read_bytes())
        (cache / "snapshots" / "abc" / file.name).symlink_to(f"../../blobs/{number}")
    assert load(cache / "snapshots" / "abc").weights == expected


@pytest.mark.parametrize("entry", ["../outside.safetensors", "/etc/passwd", "part.bin", 7, ".."])
def test_an_index_cannot_lead_out_or_to_a_pickle(folder, entry):
    (folder / "model.safetensors").rename(folder.parent / "outside.safetensors")
    (folder / "other.safetensors").write_bytes(b"")
    index = {"metadata": {"total_size": 1}, "weight_map": {"embeddings": entry}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(BadInput, match=r"index.json names the weights .*only \.safetensors files"):
        load(folder)


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"weight_map": []}', "[" * 100_000, '{"weight_map": {}}']
)
def test_a_damaged_index_is_one_sentence(folder, text):
    (folder / "model.safetensors.index.json").write_text(text)
    with pytest.raises(BadInput, match="is damaged"):
        load(folder)


def test_a_sharded_model_is_read(folder):
    before = load(folder).model.state_dict()
    load(folder).model.save_pretrained(folder / "sharded", max_shard_size="4KB")
    assert len(list((folder / "sharded").glob("*.safetensors"))) > 1
    after = load(folder / "sharded").model.state_dict()
    assert all(torch.equal(after[key], before[key]) for key in before)


@pytest.mark.parametrize("name", ["adapter_model.bin", "../x.safetensors", 3, "/x.safetensors"])
def test_a_configuration_cannot_name_other_weights(folder, name):
    change_config(folder, transformers_weights=name)
    with pytest.raises(BadInput, match="names the weights"):
        load(folder)


def test_an_adapter_is_refused(folder):
    (folder / "adapter_config.json").write_text('{"base_model_name_or_path": "owner/name"}')
    with pytest.raises(BadInput, match="holds an adapter"):
        load(folder)


def test_code_that_comes_with_a_model_never_runs(folder, tmp_path):
    mark = tmp_path / "ran"
    (folder / "evil.py").write_text(
        f"open({str(mark)!r}, 'w').close()\n"
        "from transformers import BertConfig as Config, BertModel as Model\n"
        "from transformers import BertTokenizer as Tokenizer\n"
    )
    names = {"AutoConfig": "evil.Config", "AutoModel": "evil.Model"}
    change_config(folder, auto_map=names)
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"auto_map": {"AutoTokenizer": ["evil.Tokenizer", None]}})
    )
    load(folder)  # the library's own BERT is used instead
    assert not mark.exists()
    change_config(folder, model_type="not-in-the-library")
    with pytest.raises(BadInput, match="needs code that comes with it, which is never run"):
        load(folder)
    assert not mark.exists()


@pytest.mark.parametrize(
    "changes",
    [
        {"hidden_size": "wide"},
        {"num_attention_heads": 0},
        {"num_attention_heads": 5},
        {"hidden_act": "no-such-function"},
        {"hidden_size": -3},
        {"architectures": 3},
        {"model_type": None},
        {"vocab_size": 1 << 62},
    ],
)
def test_a_wrong_configuration_is_one_sentence(folder, changes):
    change_config(folder, **changes)
    with pytest.raises(BadInput, match="cannot be loaded"):
        load(folder)


def test_damaged_weights_are_one_sentence(folder):
    content = (folder / "model.safetensors").read_bytes()
    for damaged in (b"", content[:7], content[:-1], b"\xff" * 64, content[:100] + b"{" * 100):
        (folder / "model.safetensors").write_bytes(damaged)
        with pytest.raises(BadInput, match="cannot be loaded"):
            load(folder)


def test_a_damaged_tokenizer_is_noted_and_token_ids_still_work(folder):
    (folder / "tokenizer.json").write_text("{")
    model = load(folder)
    assert model.tokenizer is None
    assert model.notes[0].startswith("no tokenizer: ")
    assert len(capture(model, [2, 5, 6, 3])) == 4


@pytest.mark.parametrize(
    "name",
    ["./x", "/x/y", "~/no/such", "~nobody-here/x", ".", "..\\x", "a\\b", "a/b/c", "owner/", "../x",
     "x" * 5000, "a\0b", "\ud800", "a b", "a//b", "-x", Path("x"), Path("minilm"),
     Path("owner/name")],
)  # fmt: skip
def test_what_looks_like_a_path_is_not_asked_of_the_hub(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadInput, match=r"no folder|no model at|neither a bundled|no config"):
        load(name)


def test_a_slip_of_the_finger_is_not_asked_of_the_hub():
    with pytest.raises(BadInput, match="did you mean minilm"):
        load("minlim")


def test_bundled_models_and_folders_never_touch_the_network(no_network, folder, minilm):
    model = load("minilm")
    capture(model, "How many tokens are enough for attention?")
    capture(load(folder), "a b c d")
    assert no_network == []


@pytest.mark.slow
def test_the_bundled_causal_model_never_touches_the_network(no_network):
    from attnlimit.models.loading import BUNDLED

    if BUNDLED["smollm2"].path is None:
        pytest.skip("the weights of smollm2 are not installed")
    capture(load("smollm2"), "How many tokens are enough for attention?", layers=[0])
    assert no_network == []


def test_a_hub_id_is_asked_of_the_hub_and_fails_in_one_sentence(no_network, monkeypatch):
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    with pytest.raises(BadInput, match="the hub cannot be reached from here"):
        load("nobody/no-such-model")
    assert "huggingface" in str(no_network[0])
    no_network.clear()


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("config.json", {"transformers_weights": "adapter_model.bin"}),
        ("model.safetensors.index.json", {"metadata": {}, "weight_map": {"x": "x.bin"}}),
    ],
)
def test_a_hub_model_cannot_have_a_pickle_read(folder, tmp_path, monkeypatch, file, content):
    from huggingface_hub import constants

    place = tmp_path / "cache" / "models--owner--name"
    (place / "refs").mkdir(parents=True)
    (place / "refs" / "main").write_text("0" * 40)
    snapshot = place / "snapshots" / ("0" * 40)
    snapshot.mkdir(parents=True)
    before = json.loads((folder / "config.json").read_text())
    (snapshot / "config.json").write_text(json.dumps(before))
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(sys.modules["attnlimit.models.loading"], "_hub_reachable", lambda: False)
    (snapshot / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes())
    assert load("owner/name").source == "hub id owner/name"
    (snapshot / file).write_text(json.dumps((before if file == "config.json" else {}) | content))
    with pytest.raises(BadInput, match="names the weights"):
        load("owner/name")
