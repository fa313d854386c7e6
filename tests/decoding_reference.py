"""Sampled decoding in plain PyTorch, in float64: what the kernels are held to.

Random numbers and probabilities follow the definitions in the documentation of the kernels; sums
are exact. Only the 3 % exponential, which decides probabilities, is rounded as the kernels do.
"""

import math

import numpy as np
import torch

LOG2E = 1 / math.log(2)
PAGE, OUTLIERS, NEAR, ROUGH = 64, 2, 2, 2.0


def mixed(u):
    u = np.asarray(u, np.uint64) & 0xFFFFFFFF
    u = ((u ^ (u >> np.uint64(16))) * np.uint64(0x7FEB352D)) & np.uint64(0xFFFFFFFF)
    u = ((u ^ (u >> np.uint64(15))) * np.uint64(0x846CA68B)) & np.uint64(0xFFFFFFFF)
    return u ^ (u >> np.uint64(16))


def stream_of(seed, layer, head, position):
    u = mixed(seed + 0x9E3779B9)
    u = mixed(int(u) + layer * 0x85EBCA77 + head)
    return int(mixed(int(u) + position * 0xC2B2AE3D))


def uniform(places, stream):
    u = (np.asarray(places, np.uint64) * np.uint64(0x9E3779B1) + np.uint64(stream)) & np.uint64(
        0xFFFFFFFF
    )
    return torch.from_numpy((mixed(u) >> np.uint64(8)).astype(np.float64) * 2.0**-24)


def rough_power(x):
    """2^x as the kernels have it: the float whose bits are a linear function of x."""
    bits = (2.0**23 * x.clamp(-100, 60) + 127 * 2.0**23 - 366393.0).to(torch.int32)
    return bits.view(torch.float32).double()


def codes_of(keys, mean):
    """4-bit codes and scales of keys (n, d)."""
    centred = keys.float() - mean.float()
    unit = (centred.abs().amax(-1, keepdim=True) / (127.5 / 16)).clamp_min(1e-30)
    return torch.floor(centred / unit + 8).clamp(0, 15).double(), unit.double()


def coded_query(scaled):
    size = scaled.abs().max().clamp_min(1e-30)
    return torch.round(scaled.float() * (127 / size.float())).double(), (size / 127)


def index_scores(scaled, keys, mean, coded=None):
    """Scores by codes, in units of log 2; `coded` are keys as an index has them, less the mean."""
    query, unit = coded_query(scaled)
    if coded is None:
        codes, scales = codes_of(keys, mean)
        coded = (codes - 7.5) * scales
    return coded.double() @ query * unit + scaled @ mean.double()


def capped(scores, cap):
    return scores if not cap else cap * torch.tanh(scores / cap)


def outputs(scaled, keys, values, kept, chance, added, cap, sink):
    """Attention over kept keys, in float64."""
    scores = capped(keys[kept].double() @ scaled, cap) + added[kept]
    top = max(float(scores.max()), sink)
    weights = 2 ** (scores - top) / chance[kept]
    total = weights.sum() + (2 ** (sink - top) if sink > -1e29 else 0)
    return (weights / total) @ values[kept].double()


def near_a_tie(draw, chance):
    """Whether rounding may decide if a key is kept."""
    return bool(((draw - chance).abs() < 1e-5 * chance).any())


def between_codes(scaled):
    """Whether a number of the query lies in the middle of two codes."""
    place = scaled / coded_query(scaled)[1]
    return bool(((place - place.round()).abs() > 0.5 - 1e-4).any())


def one_level(
    query,
    keys,
    values,
    mean,
    c,
    floor,
    stream,
    *,
    added=None,
    cap=0.0,
    sink=-1e30,
    held=None,
    coded=None,
):
    """Kept keys, if rounding may decide of one, and output of a query (d,) in units of log 2.

    `held` are the keys that kept ones are read as, if a cache has rounded them.
    """
    held = keys if held is None else held
    n = len(keys)
    scaled = query.double()
    added = torch.zeros(n, dtype=torch.double) if added is None else added.double()
    scores = capped(index_scores(scaled, keys, mean, coded), cap) + added
    weights = rough_power(scores - scores.max())
    total = weights.sum() + (2 ** max(sink - float(scores.max()), -100) if sink > -1e29 else 0)
    chance = (c * weights / total).clamp_min(c * floor / n)
    draw = uniform(np.arange(n), stream)
    kept, close = draw < chance, between_codes(scaled) or near_a_tie(draw, chance)
    best = int(scores.argmax())
    chance = chance.clamp_max(1.0)
    kept[best], chance[best] = True, 1.0
    return kept, close, outputs(scaled, held, values, kept, chance, added, cap, sink)


def pages_of(keys, mean, axes):
    """Far keys, means and variances of the full pages, and which of them are always read."""
    full = len(keys) // PAGE
    turned = ((keys[: full * PAGE].float() - mean.float()) @ axes.float()).double()
    turned = turned.unflatten(0, (full, PAGE))
    near = torch.ones(full, PAGE, dtype=torch.bool)
    order = []
    for number in range(OUTLIERS + 1):
        weight = near[..., None].double()
        m = (turned * weight).sum(1, keepdim=True) / (PAGE - number)
        v = ((turned - m) ** 2 * weight).sum(1, keepdim=True) / (PAGE - number)
        if number < OUTLIERS:
            far = ((turned - m) ** 2).sum(-1) * near
            near[torch.arange(full), far.argmax(1)] = False
            order.append(far.argmax(1))
    rough = (((turned - m) ** 2).sum(-1) * near).amax(1) > ROUGH * turned.shape[-1]
    m, v = (x[:, 0].bfloat16().double() for x in (m, v))
    return torch.stack(order, 1), m, v, rough


def padded(flags, size):
    return torch.cat([flags, torch.zeros(size - len(flags), dtype=torch.bool)])


def two_levels(
    query,
    keys,
    values,
    mean,
    axes,
    rotation,
    c,
    floor,
    page_floor,
    stream,
    *,
    cap=0.0,
    sink=-1e30,
    coded=None,
):
    """Kept keys, if rounding may decide of one, and output of a query; pages are drawn first."""
    n, scaled = len(keys), query.double()
    blocks = -(-n // PAGE)
    pages = blocks - NEAR
    far, centre, spread, rough = pages_of(keys, mean, axes)
    exact = capped(index_scores(scaled, keys, mean, coded), cap)
    base = scaled @ mean.double()
    turned = scaled @ rotation.double()
    m, v = centre[:pages] @ turned, spread[:pages] @ turned**2
    ln2 = math.log(2)
    frozen = math.sqrt(2 * math.log(PAGE))
    mass = (
        m
        + base
        + torch.where(
            v.sqrt() * ln2 < frozen, 0.5 * ln2 * v + math.log2(PAGE - OUTLIERS), frozen * v.sqrt()
        )
    )
    mass = capped(mass, cap)
    rough[0] = False
    mass[0] = -1e30
    mass[rough[:pages]] = -1e30
    is_far = torch.zeros(blocks * PAGE, dtype=torch.bool)
    for page in range(1, pages):
        is_far[page * PAGE + far[page]] = True
    is_far = is_far[:n]
    near = torch.arange(n) // PAGE
    near = ((near == 0) | (near >= pages) | padded(rough[:pages], blocks)[near]) & ~is_far
    top = max(float(exact[near | is_far].max()), float(mass.max()))
    weights = rough_power(exact - top)
    masses = rough_power(mass - top)
    sinks = 2 ** max(sink - top, -100) if sink > -1e29 else 0
    total = weights[near | is_far].sum() + masses.sum() + sinks
    page_chance = (c * masses / total).clamp_min(page_floor)
    draw = uniform(np.arange(pages), int(mixed(stream + 1)))
    came, close = draw < page_chance, between_codes(scaled) or near_a_tie(draw, page_chance)
    came[0] = False
    came[rough[:pages]] = False
    page_chance = page_chance.clamp_max(1.0)
    share = torch.ones(n, dtype=torch.double)
    read = near.clone()
    for page in range(1, pages):
        own = torch.arange(page * PAGE, page * PAGE + PAGE)
        if rough[page]:
            continue
        share[own] = torch.where(is_far[own], 1.0, page_chance[page])
        read[own] = came[page] & ~is_far[own]
    total = (weights[is_far]).sum() + sinks + (weights[read] / share[read]).sum()
    wanted = (c * weights / total).clamp_min(c * floor / n)
    chance = wanted.minimum(share)
    draw = uniform(np.arange(n), stream)
    kept, close = read & (draw * share < wanted), close or near_a_tie(draw * share, wanted)
    far_stream = int(mixed(stream + 2))
    for page in range(1, pages):
        for number in range(OUTLIERS):
            j = page * PAGE + int(far[page, number])
            draw = uniform([OUTLIERS * page + number], far_stream)
            kept[j], close = bool(draw[0] < wanted[j]), close or near_a_tie(draw, wanted[j])
    best = torch.where(near)[0][exact[near].argmax()]
    kept[best], chance[best] = True, 1.0
    added = torch.zeros(n, dtype=torch.double)
    chance = chance.clamp_max(1.0)
    return kept, close, outputs(scaled, keys, values, kept, chance, added, cap, sink)
