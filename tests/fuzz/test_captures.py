"""A capture's folder may come from anywhere: it is read, or refused in one sentence."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from attnlimit.models import open_capture, open_passages
from attnlimit.models.captured import OutputGradients, Probes
from attnlimit.planning.probes import replay
from every_sampler import made_capture
from fuzz.hostile import as_json, damaged, json_values, nested, one_sentence, rewritten, share


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A capture that keeps gradients of two probes."""
    place = tmp_path_factory.mktemp("capture")
    made = made_capture(tokens=6)
    layers = {
        number: replace(layer, gradients=OutputGradients(torch.stack([layer.v, layer.v]), 0.5, 0.1))
        for number, layer in made.layers.items()
    }
    replace(made, layers=layers, probes=Probes("kl", 2, 0)).save(place)
    return place


@pytest.fixture(scope="module")
def whole(folder):
    """The files as they were written."""
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def use(folder, whole, **changed):
    """Read every head of the folder with some files changed."""
    files = {**whole, **{name.replace("_", ".") if name == "capture_json" else TENSORS: content
                         for name, content in changed.items()}}  # fmt: skip
    for name, content in files.items():
        (folder / name).write_bytes(content)
    with one_sentence():
        for head in open_capture(folder):
            assert head.output().shape == (6, 8)
    with one_sentence():
        replay(open_capture(folder), lambda layer: None)
    with one_sentence():
        open_passages(folder)


TENSORS = "layer-0000.safetensors"


@share(1)
@given(st.binary(max_size=200) | json_values.map(as_json) | nested.map(str.encode))
def test_noise(folder, whole, content):
    use(folder, whole, capture_json=content)
    use(folder, whole, tensors=content)


@share(2)
@given(st.data())
def test_damaged_files(folder, whole, data):
    use(folder, whole, capture_json=data.draw(damaged(whole["capture.json"])))
    use(folder, whole, tensors=data.draw(damaged(whole[TENSORS])))


@share(3)
@given(st.data())
def test_a_manifest_of_nonsense(folder, whole, data):
    content = json.loads(whole["capture.json"])
    use(folder, whole, capture_json=as_json(data.draw(rewritten(content))))


@share(2)
@given(st.data())
def test_a_header_of_nonsense_with_a_manifest_that_swears_to_it(folder, whole, data):
    """Hashes protect against accidents; whoever writes both files can make them agree."""
    import hashlib

    tensors = whole[TENSORS]
    length = int.from_bytes(tensors[:8], "little")
    header = as_json(data.draw(rewritten(json.loads(tensors[8 : 8 + length]))))
    file = len(header).to_bytes(8, "little") + header + tensors[8 + length :]
    content = json.loads(whole["capture.json"])
    entry = content["layers"][0]
    entry["sha256"] = hashlib.sha256(file).hexdigest()
    entry["bytes"] = len(file)
    use(folder, whole, capture_json=as_json(content), tensors=file)
