"""The kernels against the reference in float64: the same kept keys, the same outputs."""

import numba
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import attnlimit as al
import decoding_reference as reference
from attnlimit.decoding.dot import BLOCK, make_dot_block
from attnlimit.decoding.index import LARGE_PAGE, KeyIndex, centred_keys, zeros
from attnlimit.decoding.kernels import NEVER, decode_by_keys, decode_by_pages
from attnlimit.decoding.rows import pack_values

FLOOR, PAGE_FLOOR = 0.02, 0.05


class Layer:
    """One layer of random keys and values, its index, and a query for each head."""

    def __init__(self, n, d, groups, shared, seed, batch=1, bits16=False, spread=1.0):
        rng = np.random.default_rng(seed)
        self.heads = groups * shared
        rows = batch * groups
        scale = rng.gamma(1.0, 1.0, (rows, 1, d)) * spread
        keys = rng.standard_normal((rows, n, d)) * scale + rng.standard_normal((rows, 1, d)) * 3
        keys, values = torch.tensor(keys).float(), torch.tensor(rng.standard_normal((rows, n, d)))
        values = values.float()
        self.keys, self.values = keys, values
        arrays = keys.numpy(), values.numpy()
        if bits16:
            self.keys, self.values = keys.bfloat16(), values.bfloat16()
            arrays = [x.view(torch.int16).numpy().view(np.uint16) for x in (self.keys, self.values)]
        self.key_array, self.value_array = arrays
        self.query = torch.tensor(rng.standard_normal((batch * self.heads, d))).float()
        self.first, self.count = np.zeros(rows, np.int64), np.full(rows, n, np.int64)
        self.index = KeyIndex(self.keys.float().mean(1).numpy(), n)
        self.index.append(self.key_array, self.first, self.count)

    def decode(self, levels, c, seed=0, cap=0.0, sinks=None, added=None):
        tasks, d = self.query.shape
        slots = self.index.codes.shape[1] * BLOCK
        out, stats = np.zeros((tasks, d), np.float32), np.zeros((tasks, 4))
        scratch, chosen = np.zeros((tasks, 2 * slots), np.float32), np.zeros((tasks, 3, slots))
        chosen = chosen.astype(np.float32)
        sinks = np.full(self.heads, NEVER, np.float32) if sinks is None else sinks
        common = (
            self.query.numpy(), np.float32(1), self.key_array, self.value_array, self.first,
            self.count, np.zeros((1, 0), np.float32) if added is None else added, np.float32(cap),
            sinks, self.index.codes, self.index.scales, self.index.mean,
        )  # fmt: skip
        c = np.full(self.heads, c, np.float32)
        length = self.count[:: len(self.count) * self.heads // tasks].copy()
        tail = seed, 3, length
        if levels == 1:
            decode_by_keys(*common, c, np.float32(FLOOR), *tail, scratch, chosen, out, stats)
        else:
            pages = self.index.summarise(centred_keys(self.key_array, self.first, self.index.mean))
            masses = np.zeros((tasks, pages.lift.shape[1]), np.float32)
            decode_by_pages(
                *common, *pages.arrays(), c, np.float32(FLOOR),
                np.float32(PAGE_FLOOR), np.float32(1e9), *tail, masses, scratch, chosen, out, stats,
            )  # fmt: skip
        return torch.from_numpy(out).double(), stats

    def expected(
        self, levels, task, c, seed=0, cap=0.0, sink=NEVER, added=None
    ):  # fmt: skip
        row, head = task * len(self.count) // len(self.query), task % self.heads
        stream = reference.stream_of(seed, 3, head, int(self.count[row]))
        mean = torch.from_numpy(self.index.mean[row])
        given = self.query[task], self.keys[row].float(), self.values[row].float(), mean
        # A number between two codes may have either: the reference scores by those of the index.
        coded = torch.from_numpy(self.index.decoded(row, 0, int(self.count[row])))
        if levels == 1:
            extra = None if added is None else torch.from_numpy(added[row])
            return reference.one_level(
                *given, c, FLOOR, stream, cap=cap, sink=float(sink), added=extra, coded=coded
            )
        pages = self.index.pages
        turned = torch.from_numpy(pages.axes[row]), torch.from_numpy(pages.rotation[row])
        return reference.two_levels(
            *given, *turned, c, FLOOR, PAGE_FLOOR, stream, cap=cap, sink=float(sink), coded=coded,
        )  # fmt: skip


def compare(layer, levels, c, **options):
    sinks = options.pop("sinks", None)
    out, stats = layer.decode(levels, c, sinks=sinks, **options)
    for task in range(len(out)):
        sink = NEVER if sinks is None else sinks[task % layer.heads]
        kept, close, wanted = layer.expected(levels, task, c, sink=sink, **options)
        if close:
            continue
        assert int(kept.sum()) == stats[task, 0]
        torch.testing.assert_close(out[task], wanted, rtol=1e-5, atol=1e-5)


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    n=st.integers(1, 700), d=st.sampled_from([32, 64, 72, 128, 256]), groups=st.integers(1, 3),
    shared=st.integers(1, 4), batch=st.integers(1, 2), c=st.floats(2, 300),
    seed=st.integers(0, 2**31), bits16=st.booleans(),
)  # fmt: skip
def test_random_shapes(n, d, groups, shared, batch, c, seed, bits16):
    layer = Layer(n, d, groups, shared, seed, batch, bits16, spread=d**-0.5)
    compare(layer, 1, c, seed=seed)
    if n >= 4 * BLOCK:
        compare(layer, 2, c, seed=seed)


@pytest.mark.parametrize("levels", [1, 2])
def test_soft_caps_and_sinks(levels):
    layer = Layer(600, 64, 2, 3, 5, spread=0.2)
    sinks = np.linspace(-3, 6, 6).astype(np.float32)
    compare(layer, levels, 24.0, cap=3.0)
    compare(layer, levels, 24.0, sinks=sinks)


def test_added_weights_of_a_cut_cache():
    layer = Layer(500, 64, 2, 2, 6, spread=0.2)
    added = np.abs(np.random.default_rng(0).standard_normal((2, 500))).astype(np.float32)
    compare(layer, 1, 24.0, added=added)


@pytest.mark.parametrize("bits", [(8, 8), (8, 4), (4, 4)])
def test_rounded_caches(bits):
    layer = Layer(500, 64, 2, 2, 6, spread=0.2)
    layer.index = KeyIndex(layer.index.mean, 500, bits=bits[0])
    layer.index.append(layer.key_array, layer.first, layer.count)
    codes = np.zeros((2, 512, 64 * bits[1] // 8), np.uint8)
    scales = np.zeros((2, 512, 2), np.uint16)
    pack_values(layer.value_array, layer.first, codes, scales, layer.first, layer.count)
    precision = al.Quantize(f"row{bits[0]}", f"block{bits[1]}")
    held, values = precision.rounded(layer.keys, layer.values)
    decoded = [layer.index.decoded(row, 0, 500) + layer.index.mean[row] for row in range(2)]
    torch.testing.assert_close(torch.tensor(np.stack(decoded)), held, rtol=1e-3, atol=1e-3)
    layer.key_array = layer.index.codes, layer.index.lower, layer.index.scales
    layer.value_array = codes, scales
    out, stats = layer.decode(1, 40.0)
    for task in range(len(out)):
        row = task // 2
        stream = reference.stream_of(0, 3, task % 4, 500)
        mean = torch.from_numpy(layer.index.mean[row])
        given = layer.query[task], layer.keys[row], values[row], mean, 40.0, FLOOR, stream
        kept, _, wanted = reference.one_level(*given, held=torch.tensor(decoded[row]))
        assert int(kept.sum()) == stats[task, 0]
        # Scales of values are bfloat16 in the cache.
        torch.testing.assert_close(out[task], wanted, rtol=0.02, atol=0.02)


@pytest.mark.parametrize("levels", [1, 2])
def test_threads_do_not_change_a_bit(levels):
    layer = Layer(900, 64, 3, 3, 7, batch=2, spread=0.2)
    before = numba.get_num_threads()
    outs = []
    try:
        for threads in (1, before):
            numba.set_num_threads(threads)
            outs.append(layer.decode(levels, 40.0)[0])
    finally:
        numba.set_num_threads(before)
    assert torch.equal(*outs)


@pytest.mark.parametrize("levels", [1, 2])
def test_other_sequences_of_a_batch_do_not_change_a_bit(levels):
    both, alone = (Layer(900, 64, 3, 3, 7, batch=2, spread=0.2) for _ in range(2))
    rows, tasks = slice(3, 6), slice(9, 18)
    for name in ("key_array", "value_array", "first", "count"):
        setattr(alone, name, getattr(alone, name)[rows])
    alone.query = alone.query[tasks]
    alone.index = KeyIndex(both.index.mean[rows], 900)
    alone.index.append(alone.key_array, alone.first, alone.count)
    assert torch.equal(alone.decode(levels, 40.0)[0], both.decode(levels, 40.0)[0][tasks])


def test_pages_of_several_outlying_keys_are_read():
    layer = Layer(20 * BLOCK, 64, 1, 1, 4, spread=0.1)
    query = layer.query[0] / layer.query[0].norm()
    for j in range(610, 614):  # four keys of one page with most of the weight
        layer.keys[0, j] += 12 * query
    layer.index = KeyIndex(layer.keys.mean(1).numpy(), 20 * BLOCK)
    layer.index.append(layer.key_array, layer.first, layer.count)
    out = torch.stack([layer.decode(2, 40.0, seed)[0][0] for seed in range(50)])
    weights = torch.softmax(layer.query @ layer.keys[0].T * np.log(2.0), -1)
    dense = (weights @ layer.values[0])[0].double()
    assert weights[0, 610:614].sum() > 0.5
    assert (out - dense).norm(dim=1).max() < 0.3 * dense.norm()
    compare(layer, 2, 40.0)


@pytest.mark.parametrize("levels", [1, 2])
def test_the_mean_of_many_draws_is_dense_attention(levels):
    layer = Layer(1000, 64, 1, 2, 8, spread=0.15)
    outs = torch.stack([layer.decode(levels, 60.0, seed)[0] for seed in range(400)])
    squares = np.mean([layer.decode(levels, 60.0, s)[1][:, 3] for s in range(400)], 0)
    weights = torch.softmax(layer.query @ layer.keys[0].T * np.log(2.0), -1)
    dense = (weights @ layer.values[0]).double()
    error = (outs - dense).square().sum(-1)
    spread = outs.std(0) / 400**0.5
    # Ratios have a bias of the order of their variance.
    assert ((outs.mean(0) - dense).abs() < 5 * spread + 0.05 * error.mean(0).sqrt()[:, None]).all()
    stderr = error.std(0) / 400**0.5
    assert (np.abs(squares - error.mean(0).numpy()) < 5 * stderr.numpy() + 0.1 * squares).all()


@pytest.mark.parametrize("features", ["", "+avx2", None])
def test_integer_products_are_the_same_on_every_cpu(features):
    dot_block = make_dot_block(features)

    @numba.njit
    def products(codes, coded, chunks, out):
        for block in range(len(codes)):
            dot_block(codes, block, coded, chunks, out[block])

    layer = Layer(200, 72, 1, 1, 9)
    rng = np.random.default_rng(0)
    coded = rng.integers(-127, 128, 72).astype(np.int8)
    out = np.zeros((4, BLOCK), np.int32)
    products(layer.index.codes[0], coded, 9, out)
    codes, _ = reference.codes_of(layer.keys[0], torch.from_numpy(layer.index.mean[0]))
    wanted = (codes @ torch.from_numpy(coded).double()).numpy()
    assert (out.reshape(-1)[:200] == wanted).all()


def test_codes_differ_from_the_reference_only_between_two():
    layer = Layer(700, 64, 1, 1, 3)
    mean = torch.from_numpy(layer.index.mean[0])
    codes, unit = reference.codes_of(layer.keys[0], mean)
    own = torch.from_numpy(layer.index.decoded(0, 0, 700)).double() / unit + 7.5
    place = (layer.keys[0].double() - mean.double()) / unit + 8
    between = (place - place.round()).abs() < 1e-5
    torch.testing.assert_close(own[~between], codes[~between], rtol=0, atol=1e-4)
    assert ((own - codes)[between].abs() < 1.001).all()


def centred(layer):
    return centred_keys(layer.key_array, layer.first, layer.index.mean)


def test_keys_are_appended_one_by_one():
    whole, parts = Layer(700, 64, 2, 1, 3), Layer(700, 64, 2, 1, 3)
    parts.index = KeyIndex(whole.index.mean, 300)
    parts.index.append(parts.key_array, parts.first, np.full(2, 300))
    whole.index.summarise(centred(whole))
    parts.index.summarise(centred(parts))
    for name in ("axes", "rotation"):
        setattr(parts.index.pages, name, getattr(whole.index.pages, name))
    parts.index.pages.done[:] = 0
    for n in range(301, 701):
        parts.index.append(parts.key_array, np.full(2, n - 1), np.full(2, n))
        parts.index.summarise(centred(parts))
    assert torch.equal(whole.decode(2, 30.0)[0], parts.decode(2, 30.0)[0])


def test_large_arrays_are_zero_and_writable():
    array = zeros((3, LARGE_PAGE // 4 + 5), np.float32)
    assert not array.any()
    array[2, -1] = 1
    assert array.sum() == 1
    assert zeros((0, 4), np.uint8).shape == (0, 4)
