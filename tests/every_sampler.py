"""Every sampler, those of the package and one from outside: one list for what all must do."""

import torch

import attnlimit as al
from attnlimit.models.attention import Mask
from attnlimit.models.captured import CapturedLayer
from attnlimit.models.captures import Capture
from attnlimit.samplers import Products, Quest, Santa, Twilight
from attnlimit.samplers.base import generator_of
from attnlimit.simulate.engine import drawn_outputs
from outside_sampler import Nearby

SAMPLERS = [
    al.Iid(6),
    al.WithoutReplacement(6),
    al.TopK(5),
    al.TopP(0.6),
    al.Threshold(4.0),
    al.Threshold(4.0, proxy="2bit"),
    al.Threshold(4.0, proxy="4bit", floor=0.5),
    al.Threshold(4.0, proxy="page3"),
    al.Window(4, random=4),
    al.Window(5, random=0),
    al.SinksAndRecent(2, 3),
    al.SinksAndWindow(2, 4),
    al.Keep(None, sample=3),
    al.Keep(None, sample=3, weighted=False),
    al.Keep(al.TopK(3), sample=5),
    al.Keep(al.TopK(3), sample=5, weighted=False),
    al.Keep(al.SinksAndRecent(1, 2), sample=4),
    Quest(4, page=2),
    Twilight(0.6, candidate_share=0.5, page=2),
    Santa(6),
    Santa(6, systematic=True),
    Nearby(3.0),
    Nearby(3.0, weighted=True),
]


def made_capture(sharpness=1.0, tokens=96, heads=2, causal=False, seed=0):
    """A capture of random queries, keys and values, one layer of `heads` heads."""
    generator = torch.Generator().manual_seed(seed)
    q, k, v = (torch.randn(heads, tokens, 8, generator=generator) for _ in range(3))
    mask = Mask(torch.arange(tokens), causal)
    layer = CapturedLayer(q * sharpness, k, v + 1.0, mask, 8**-0.5, None, None)
    return Capture(
        layers={0: layer},
        tokens=tuple(f"t{i}" for i in range(tokens)),
        positions=torch.arange(tokens),
        special=torch.zeros(tokens, dtype=torch.bool),
        depth=1,
        heads=heads,
        source={"model": "made"},
    )


def sampled_errors(head, sequence, places, sampler, replicates, seed=0):
    """Errors of attention over drawn keys against all keys: (replicates, queries, d_v).

    Tokens `sequence` (N, d) are queries and keys; `places` are those of the queries.
    """
    rows, keys = torch.as_tensor(places), torch.from_numpy(sequence)
    tilts = torch.from_numpy(head.tilts(sequence[places]))
    bound = sampler.bind(Products(tilts, keys, lambda scores: scores))
    values, generator = torch.from_numpy(sequence @ head.V.T), generator_of(seed)
    blocks = drawn_outputs(bound, tilts @ keys.T, values, rows, replicates, generator)
    return torch.cat(list(blocks)).numpy() - head(sequence[places], sequence)
