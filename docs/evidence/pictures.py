"""Which pictures of pages are those of runs? Drawn small, from the figure that a run left."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

from PIL import Image

from evidence.runs import Run, Runs

PICTURES = {
    "downstream.png": "downstream --paper",
    "model_baselines.png": "model-baselines --paper",
}
"""Files in docs/images, and the runs whose figures they are."""
WIDTH = 1200
COLOURS = 256


def renewed(folder: Path, runs: Runs) -> list[str]:
    """Draw what is there, and return the names of those that changed."""
    changed = []
    for name, asked in PICTURES.items():
        run = runs.get(asked)
        if not isinstance(run, Run):
            continue
        drawn = small(run.folder.path / f"{run.name}.png")
        if (folder / name).read_bytes() != drawn:
            (folder / name).write_bytes(drawn)
            changed.append(name)
    return changed


def small(path: Path) -> bytes:
    """A picture as wide as a page, in few colours."""
    with Image.open(path) as figure:
        size = WIDTH, round(figure.height * WIDTH / figure.width)
        shrunk = figure.convert("RGB").resize(size, Image.Resampling.LANCZOS)
    told = shrunk.quantize(COLOURS, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    buffer = BytesIO()
    told.save(buffer, "png", optimize=True)
    return buffer.getvalue()
