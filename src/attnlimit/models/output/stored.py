"""How does a capture keep what its model's output feels? Gradients in files, written as they come.

The forward pass is that of the capture, and every backward pass adds one gradient to each layer;
a layer's file is made when the last has reached it. So memory is that of one pass, and what reads
the files later has all that a plan for the output is made of, without the model.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from attnlimit import checks
from attnlimit.errors import BadInput
from attnlimit.models.capture.captured import Captured, OutputGradients, Probes
from attnlimit.models.capture.encode import Encoded, unwrap
from attnlimit.models.capture.interface import Call
from attnlimit.models.capture.run import call_of, layer_of
from attnlimit.models.output.probes import Probed, Reduce, groups_of, run_probes
from attnlimit.models.output.target import NextToken, choose_target
from attnlimit.models.store.tensors import NAMES, Place, mapped, rows_of
from attnlimit.models.store.write import LayersAsFiles, WholeAlready

SPOOL = "gradients.partial"
"""Folder, in the capture's, of gradients that wait for those of the other probes."""


def write_probed(
    model: Any, encoded: Encoded, folder: Path, probes: int, output: str | None, seed: int
) -> None:
    """Capture every layer to a folder, with the gradients of `probes` scalars of the output."""
    network, _ = unwrap(model)
    target = choose_target(network, output)
    kind = "kl" if isinstance(target, NextToken) else "cosine"
    count = checks.count(probes, "probes", smallest=2)
    about = Probes(kind, count, checks.count(seed, "seed", smallest=0))
    depth = int(network.config.num_hidden_layers)
    files = LayersAsFiles(folder, encoded, depth, range(depth), about)
    spool = folder / SPOOL
    try:
        with suppress(WholeAlready):
            run_probes(network, encoded, target, count, about.seed, _Spooled(files, spool, count))
    finally:
        shutil.rmtree(spool, ignore_errors=True)


class _Spooled:
    """Keeps gradients in a file a layer, until the last probe's is there."""

    def __init__(self, files: LayersAsFiles, spool: Path, count: int) -> None:
        self.files, self.spool, self.count = files, spool, count

    def see(self, call: Call) -> None:
        """Begin the folder at the first layer; stop where every file is there already."""
        self.writer = self.files.begun(layer_of(call))

    def begin(self, probed: Probed) -> None:
        """Take the factors of the gradients, and forget those of an interrupted capture."""
        self.probed = probed
        shutil.rmtree(self.spool, ignore_errors=True)
        self.spool.mkdir()

    def feel(self, call: Call, number: int, gradient: Tensor) -> None:
        """Add one gradient to its layer's file, and with the last one write the layer."""
        if call.layer not in self.writer.manifest.missing:
            return
        if not torch.isfinite(gradient).all():
            raise BadInput(
                f"The output's gradients at layer {call.layer} contain NaN or infinite numbers: "
                "the model's precision is too low for this text; load it in float32."
            )
        # The model's own precision: its outputs have it, and so has what comes back to them.
        kept = gradient.to(call.query.dtype)
        path = self.spool / str(call.layer)
        with path.open("ab") as file:
            file.writelines(rows_of(kept))
        if number + 1 < self.count:
            return
        place = Place(NAMES[kept.dtype], (self.count, *kept.shape), 0)
        felt = OutputGradients(mapped(path, place), self.probed.scale, self.probed.limit)
        self.writer.add(call.layer, replace(layer_of(call), gradients=felt))
        path.unlink()


def kept_probes(capture: Captured) -> Probes:
    """Return the probes whose gradients a capture keeps; raise if it keeps none."""
    if capture.probes is None:
        raise BadInput(
            "The capture does not have the gradients of the model's output, which a plan for it is "
            "made of: capture again with --probes 4 (in Python probes=4), or plan with the model."
        )
    return capture.probes


def replay(capture: Captured, reduce: Reduce, layers: Iterable[int] | None = None) -> Probed:
    """Hand on layers' gradients from files, all by default, in the order of the passes they are of.

    Layers know nothing of each other.
    """
    found = []
    chosen = sorted(capture.layers if layers is None else layers, reverse=True)
    for group in groups_of(kept_probes(capture).count):
        for number in chosen:
            layer = capture.layers[number]
            assert layer.gradients is not None
            found.append((layer.gradients.scale, layer.gradients.limit))
            reduce(call_of(number, layer), layer.felt(group), group)
    if len(set(found)) > 1:
        raise BadInput("The layers of the capture are of different passes; capture it again.")
    return Probed(*found[0], len(capture), torch.empty(0))
