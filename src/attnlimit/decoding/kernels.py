"""Kernels of sampled decoding: scores, draws and outputs of the kept keys.

Every query head of every sequence is one task, so results do not depend on threads or on other
sequences. A key's random number is a hash of the seed, the layer, the head, the position of the
query and that of the key. Scores are in units of log 2.

Keys of one sequence and key-value head are a row. Its keys are in slots `first[row]` to
`first[row] + count[row]` of the cache; the index counts from its first key. Values are read by
`rows.read_value`, as numbers or as codes.
"""

from __future__ import annotations

import numpy as np
from numba import njit, prange

from attnlimit.decoding.dot import BLOCK, dot_block, prefetch
from attnlimit.decoding.rows import (
    INNER,
    OPTIONS,
    OUTLIERS,
    F,
    U,
    prefetch_row,
    product_with_key,
    read_value,
    row_of,
    widen,
)

LN2 = F(np.log(2.0))
NEVER = F(-1e30)
FROZEN = F(np.sqrt(2 * np.log(64.0)))
"""Standard deviation of a page's scores from which its largest key has all its mass."""
PAGE_LOG2 = F(np.log2(BLOCK - OUTLIERS))
PARTS = 4
"""Parts of a row's pages whose masses are computed side by side."""
NEAR = 2
"""Last pages that are always read, one of them not full."""
SLOPE, SHIFT = F(2.0**23), F(127 * 2.0**23 - 366393.0)
"""2^x = the float whose bits are SLOPE x + SHIFT, to 3 % (Schraudolph 1999)."""


@njit(inline="always")
def mixed(u):
    """Scramble 32 bits."""
    u = U((u ^ U(u >> U(16))) * U(0x7FEB352D))
    u = U((u ^ U(u >> U(15))) * U(0x846CA68B))
    return U(u ^ U(u >> U(16)))


@njit(inline="always")
def uniform(place, stream):
    """Return the number in [0, 1) that belongs to a place in a stream."""
    return F(mixed(U(U(place) * U(0x9E3779B1) + stream)) >> U(8)) * F(2.0**-24)


@njit
def stream_of(seed, layer, head, position):
    """Return the stream of random numbers of a query."""
    u = mixed(U(U(seed) + U(0x9E3779B9)))
    u = mixed(U(u + U(U(layer) * U(0x85EBCA77)) + U(head)))
    return mixed(U(u + U(U(position) * U(0xC2B2AE3D))))


@njit(inline="always")
def capped(score, cap):
    """Score with a soft cap, if there is one."""
    return cap * F(np.tanh(score / cap)) if cap > 0 else score


@njit(**INNER)
def combine(
    query, keys, values, first, added, cap, sink, mean, base, places, chances, shares, count,
    scores, out,
):  # fmt: skip
    """Attention over kept keys, their weights divided by their probabilities.

    `shares` are the probabilities of their pages. Returns an estimate of the output's squared
    error, from the kept keys alone.
    """
    width = len(out)
    top = sink
    for t in range(count):
        slot = first + places[t]
        x = capped(product_with_key(query, keys, slot, places[t], mean) + base, cap)
        if len(added):
            x += added[slot]
        scores[t] = x
        top = max(top, x)
    total = F(2.0) ** (sink - top)
    out[:] = 0
    held = np.empty((count, width), F)
    for t in range(count):
        x = F(2.0) ** (scores[t] - top) / chances[t]
        scores[t] = x
        total += x
        read_value(values, first + places[t], places[t], held[t])
        for i in range(width):
            out[i] += x * held[t, i]
    for i in range(width):
        out[i] /= total
    square, moved = F(0), np.zeros(width, F)
    for t in range(count):
        x = scores[t] / total
        own = F(0)
        for i in range(width):
            gap = held[t, i] - out[i]
            own += gap * gap
            moved[i] += x * gap
        if chances[t] < 1:
            square += (shares[t] - chances[t]) * x * x * own
        if t + 1 == count or places[t + 1] // BLOCK != places[t] // BLOCK:
            if shares[t] < 1:
                whole = F(0)
                for i in range(width):
                    whole += moved[i] * moved[i]
                square += (F(1) - shares[t]) * whole
            moved[:] = 0
    return square


@njit(**INNER)
def score_block(codes, block, scales, coded, unit, offset, base, cap, sums, scores):
    """Approximate scores of the 64 keys of a block."""
    dot_block(codes, block, coded, codes.shape[1] // (4 * BLOCK), sums)
    scale = scales[BLOCK * block : BLOCK * block + BLOCK]
    for lane in range(BLOCK):
        scores[lane] = (F(sums[lane]) - offset) * unit * scale[lane] + base
    if cap > 0:
        for lane in range(BLOCK):
            scores[lane] = capped(scores[lane], cap)


@njit(**INNER)
def largest(scores):
    """Largest of the scores."""
    top = NEVER
    for j in range(len(scores)):
        top = max(top, scores[j])
    return top


@njit(**INNER)
def exponentiate(scores, top):
    """Replace scores by 2^(score - top), to 3 %; return their sum."""
    bits = scores.view(np.int32)
    for j in range(len(scores)):
        bits[j] = np.int32(SLOPE * min(max(scores[j] - top, F(-100)), F(60)) + SHIFT)
    total = F(0)
    for j in range(len(scores)):
        total += scores[j]
    return total


@njit(**INNER)
def draw_block(weights, ratio, least, share, base, stream, flags):
    """Flag the keys that are kept: with probability min(share, max(ratio weight, least)).

    Returns whether there are some.
    """
    some = np.uint8(0)
    for lane in range(BLOCK):
        chance = max(weights[lane] * ratio, least)
        flag = np.uint8(uniform(base + lane, stream) * share < chance)
        flags[lane] = flag
        some |= flag
    return some != 0


@njit(**INNER)
def flagged(flags, hits):
    """List the lanes that are flagged in `hits`; return their number."""
    words, count = flags.view(np.uint64), 0
    for word in range(BLOCK // 8):
        if words[word] != 0:
            for lane in range(8 * word, 8 * word + 8):
                if flags[lane]:
                    hits[count] = lane
                    count += 1
    return count


@njit(**INNER)
def sink_weight(sink, top):
    """2^(sink - top) of a sink that is a parameter of the model, 0 without one."""
    return F(2.0) ** max(sink - top, F(-100)) if sink > NEVER else F(0)


@njit(**INNER)
def mean_counts(cap, sink):
    """Whether scores need the product with the mean key.

    Without a soft cap or a sink it is the same for all keys; scores without it are smaller, and
    rounded less.
    """
    return cap > 0 or sink > NEVER


@njit(**INNER)
def prepare(query, scale, mean, cap, sink, scaled, coded):
    """Scale and round a query; return the unit and offset of its products, and that of the mean."""
    size, base = F(1e-30), F(0)
    for i in range(len(query)):
        scaled[i] = query[i] * scale
    for i in range(len(query)):
        size = max(size, abs(scaled[i]))
        base += scaled[i] * mean[i]
    total = 0
    for i in range(len(query)):
        x = np.int8(np.rint(scaled[i] * (F(127) / size)))
        coded[i] = x
        total += np.int64(x)
    return size / F(127), F(7.5) * F(total), base if mean_counts(cap, sink) else F(0)


@njit(**INNER)
def keys_of_task(
    query, scale, keys, values, first, n, added, cap, sink, codes, scales, mean, c, floor, stream,
    scores, chosen, out,
):  # fmt: skip
    """One query over all keys of its row; return the keys kept and the squared error."""
    d, blocks = len(query), (n + BLOCK - 1) // BLOCK
    scaled, coded, sums = np.empty(d, F), np.empty(d, np.int8), np.empty(BLOCK, np.int32)
    unit, offset, base = prepare(query, scale, mean, cap, sink, scaled, coded)
    scores = scores[: BLOCK * blocks]
    top, best_block = NEVER, 0
    for block in range(blocks):
        part = scores[BLOCK * block : BLOCK * block + BLOCK]
        score_block(codes, block, scales, coded, unit, offset, base, cap, sums, part)
        if len(added):
            for lane in range(min(BLOCK, n - BLOCK * block)):
                part[lane] += added[first + BLOCK * block + lane]
        if block == blocks - 1:
            part[n - BLOCK * block :] = NEVER
        highest = largest(part)
        if highest > top:
            top, best_block = highest, block
    best = BLOCK * best_block
    while scores[best] < top:
        best += 1
    total = exponentiate(scores, top) + sink_weight(sink, top)
    ratio, least = c / total, c * floor / F(n)
    places, chances, shares = chosen[0].view(np.int32), chosen[1], chosen[2]
    flags, hits = np.empty(BLOCK, np.uint8), np.empty(BLOCK, np.int64)
    kept = np.int64(0)  # a literal would have `combine` compiled twice
    for block in range(blocks):
        at = BLOCK * block
        some = draw_block(scores[at : at + BLOCK], ratio, least, F(1), at, stream, flags)
        if block == best_block:
            flags[best - at], some = 1, True
        if not some:
            continue
        for hit in range(flagged(flags, hits)):
            j = at + hits[hit]
            if j < n:
                places[kept], shares[kept] = j, F(1)
                chances[kept] = min(F(1), max(scores[j] * ratio, least)) if j != best else F(1)
                prefetch_row(keys, first + j)
                prefetch_row(values, first + j)
                kept += 1
    square = combine(
        scaled, keys, values, first, added, cap, sink, mean, base, places, chances, shares, kept,
        scores, out,
    )  # fmt: skip
    return kept, square


@njit(**INNER)
def add_to(stats, kept, scored, square):
    """Add one query's numbers to the sums of its head; the last one is of this query alone."""
    stats[0] += kept
    stats[1] += scored
    stats[2] += square
    stats[3] = square


@njit(parallel=True, cache=True, **OPTIONS)
def decode_by_keys(
    query, scale, keys, values, first, count, added, cap, sinks, codes, scales, mean, c, floor,
    seed, layer, length, scratch, chosen, out, stats,
):  # fmt: skip
    """Attention of one query for each head, over keys that are drawn by their 4-bit scores.

    Parameters
    ----------
    query : (T, d) float32, the heads of one sequence after those of another
    c : (heads,) float32, thresholds
    length : (sequences,) int64, tokens of each sequence, of which the random numbers depend
    scratch : (T, slots) float32, chosen : (T, 3, slots) float32
    out : (T, d_v) float32
    stats : (T, 4) float64, sums of keys kept, keys scored and squared errors, and the last error
    """
    group, heads = len(query) // len(count), len(c)
    for task in prange(len(query)):
        row, head = task // group, task % heads
        stream = stream_of(seed, layer, head, length[task // heads])
        kept, square = keys_of_task(
            query[task], scale, row_of(keys, row), row_of(values, row), first[row], count[row],
            added[row % len(added)], cap, sinks[head], codes[row], scales[row], mean[row], c[head],
            floor, stream, scratch[task], chosen[task], out[task],
        )  # fmt: skip
        add_to(stats[task], kept, count[row], square)


@njit(**INNER)
def masses_of_row(
    query, scale, mean, rotation, centre, spread, lift, rough, cap, sink, pages, low, high, masses,
):  # fmt: skip
    """Logarithms of the masses of a row's pages, in blocks `low` to `high` of 64 pages.

    `pages` of them are drawn; a page that is always read, or is not there, gets no mass.
    """
    group, d = query.shape
    turned, base = np.zeros((group, d), F), np.zeros(group, F)
    m, v = np.empty(BLOCK, F), np.empty(BLOCK, F)
    for g in range(group):
        for k in range(d):
            x = query[g, k] * scale
            base[g] += x * mean[k] if mean_counts(cap, sink) else F(0)
            for i in range(d):
                turned[g, i] += x * rotation[k, i]
    for block in range(low, min(high, (pages + BLOCK - 1) // BLOCK)):
        start = BLOCK * block
        for g in range(group):
            mass = masses[g, start : start + BLOCK]
            m[:] = 0
            v[:] = 0
            for i in range(d):
                x, x2 = turned[g, i], turned[g, i] * turned[g, i]
                first, second = centre[block, i], spread[block, i]
                for lane in range(BLOCK):
                    m[lane] += x * widen(first[lane])
                    v[lane] += x2 * widen(second[lane])
            for lane in range(BLOCK):
                deviation = F(np.sqrt(v[lane]))
                smooth, frozen = F(0.5) * LN2 * v[lane] + PAGE_LOG2, FROZEN * deviation
                x = m[lane] + base[g] + (smooth if deviation * LN2 < FROZEN else frozen)
                mass[lane] = x + lift[start + lane]
            if cap > 0:
                for lane in range(BLOCK):
                    mass[lane] = capped(mass[lane], cap)
            for lane in range(BLOCK):
                if start + lane >= pages or rough[start + lane] or start + lane == 0:
                    mass[lane] = NEVER


@njit(**INNER)
def pages_of_task(
    query, scale, keys, values, first, n, added, cap, sink, codes, scales, mean, rough, lanes,
    far_codes, far_scales, c, floor, page_floor, stream, mass, scores, chosen, out,
):  # fmt: skip
    """One query over drawn pages of its row; return keys kept, keys scored and squared error.

    `scores` holds the pages that are always read, then those that are drawn, and far keys at its
    end.
    """
    d, blocks = len(query), (n + BLOCK - 1) // BLOCK
    pages = blocks - NEAR
    scaled, coded, sums = np.empty(d, F), np.empty(d, np.int8), np.empty(BLOCK, np.int32)
    unit, offset, base = prepare(query, scale, mean, cap, sink, scaled, coded)
    order, page_chances = np.empty(blocks, np.int64), np.empty(blocks, F)
    for number in range(NEAR + 1):
        order[number] = 0 if number == 0 else blocks - number
    always = NEAR + 1
    for page in range(1, pages):
        if rough[page]:
            order[always] = page
            prefetch(codes, page * codes.shape[1], codes.shape[1])
            always += 1
    top, best = NEVER, 0
    for number in range(always):
        page = order[number]
        page_chances[number] = F(1)
        part = scores[BLOCK * number : BLOCK * number + BLOCK]
        score_block(codes, page, scales, coded, unit, offset, base, cap, sums, part)
        for lane in range(BLOCK):
            if BLOCK * page + lane >= n:
                part[lane] = NEVER
            elif len(added):
                part[lane] += added[first + BLOCK * page + lane]
        if number > NEAR:
            for number_far in range(OUTLIERS):
                part[lanes[page, number_far]] = NEVER
        for lane in range(BLOCK):
            if part[lane] > top:
                top, best = part[lane], BLOCK * number + lane
    read = always
    far = OUTLIERS * pages
    far_blocks, start = (far + BLOCK - 1) // BLOCK, BLOCK * blocks
    far_scores = scores[start : start + BLOCK * far_blocks]
    far_places = lanes.reshape(-1)
    for block in range(far_blocks):
        part = far_scores[BLOCK * block : BLOCK * block + BLOCK]
        score_block(far_codes, block, far_scales, coded, unit, offset, base, cap, sums, part)
    if len(added):
        for place in range(far):
            j = BLOCK * (place // OUTLIERS) + far_places[place]
            far_scores[place] += added[first + j]
    far_scores[:OUTLIERS] = NEVER
    far_scores[far:] = NEVER
    top = max(top, max(largest(far_scores), largest(mass)))
    apart = exponentiate(far_scores, top) + sink_weight(sink, top)
    total = apart + exponentiate(scores[: BLOCK * read], top) + exponentiate(mass, top)
    ratio = c / total
    page_stream, far_stream = mixed(U(stream + U(1))), mixed(U(stream + U(2)))
    flags, hits = np.empty(BLOCK, np.uint8), np.empty(BLOCK, np.int64)
    for block in range(len(mass) // BLOCK):
        at = BLOCK * block
        if not draw_block(mass[at : at + BLOCK], ratio, page_floor, F(1), at, page_stream, flags):
            continue
        for hit in range(flagged(flags, hits)):
            page = at + hits[hit]
            if 0 < page < pages and not rough[page]:
                order[read] = page
                page_chances[read] = min(F(1), max(mass[page] * ratio, page_floor))
                prefetch(codes, page * codes.shape[1], codes.shape[1])
                prefetch(scales, page * BLOCK, BLOCK)
                read += 1
    total = apart
    for number in range(read):
        page = order[number]
        part = scores[BLOCK * number : BLOCK * number + BLOCK]
        if number >= always:
            score_block(codes, page, scales, coded, unit, offset, base, cap, sums, part)
            if len(added):
                for lane in range(BLOCK):
                    part[lane] += added[first + BLOCK * page + lane]
            exponentiate(part, top)
            for number_far in range(OUTLIERS):
                part[lanes[page, number_far]] = 0
        x = F(0)
        for lane in range(BLOCK):
            x += part[lane]
        total += x / page_chances[number]
    ratio, least = c / total, c * floor / F(n)
    places, chances, shares = chosen[0].view(np.int32), chosen[1], chosen[2]
    kept = np.int64(0)  # a literal would have `combine` compiled twice
    for number in range(read):
        page, share, at = order[number], page_chances[number], BLOCK * number
        part = scores[at : at + BLOCK]
        some = draw_block(part, ratio, least, share, BLOCK * page, stream, flags)
        if best // BLOCK == number:
            flags[best % BLOCK], some = 1, True
        if not some:
            continue
        if number > NEAR:
            for number_far in range(OUTLIERS):
                flags[lanes[page, number_far]] = 0
        for hit in range(flagged(flags, hits)):
            lane = hits[hit]
            j = BLOCK * page + lane
            if j < n:
                places[kept], shares[kept] = j, share
                chance = min(share, max(part[lane] * ratio, least))
                chances[kept] = F(1) if at + lane == best else chance
                prefetch_row(keys, first + j)
                prefetch_row(values, first + j)
                kept += 1
    for block in range(far_blocks):
        part = far_scores[BLOCK * block : BLOCK * block + BLOCK]
        if not draw_block(part, ratio, least, F(1), BLOCK * block, far_stream, flags):
            continue
        for hit in range(flagged(flags, hits)):
            place = BLOCK * block + hits[hit]
            if OUTLIERS <= place < far:
                j = BLOCK * (place // OUTLIERS) + far_places[place]
                places[kept], shares[kept] = j, F(1)
                chances[kept] = min(F(1), max(part[hits[hit]] * ratio, least))
                prefetch_row(keys, first + j)
                prefetch_row(values, first + j)
                kept += 1
    square = combine(
        scaled, keys, values, first, added, cap, sink, mean, base, places, chances, shares, kept,
        scores, out,
    )  # fmt: skip
    return kept, BLOCK * read + far, square


@njit(parallel=True, cache=True, **OPTIONS)
def decode_by_pages(
    query, scale, keys, values, first, count, added, cap, sinks, codes, scales, mean, rotation,
    centre, spread, lift, rough, lanes, far_codes, far_scales, c, floor, page_floor,
    spare_pages, seed, layer, length, masses, scratch, chosen, out, stats,
):  # fmt: skip
    """Attention over keys drawn in two stages: pages by their cumulants, keys by 4-bit scores.

    A page of n keys has the mass n 2^(m + ln 2 v / 2), m and v the mean and variance of its scores,
    or that of its largest key where v is too large for that. Pages are drawn in proportion to
    their masses; the keys of those that came correct the sum of all masses, and are then drawn as
    with one level. The first page, the last ones, rough ones and the keys kept apart are always
    scored. The least probability of a page falls with the context, so that about `spare_pages` are
    read because of it.
    """
    rows, heads, parts = len(count), len(c), min(PARTS, centre.shape[1])
    group = len(query) // rows
    for part in prange(rows * parts):
        row, number = part // parts, part % parts
        own = slice(row * group, (row + 1) * group)
        pages = (count[row] + BLOCK - 1) // BLOCK - NEAR
        blocks = (pages + BLOCK - 1) // BLOCK
        masses_of_row(
            query[own], scale, mean[row], rotation[row], centre[row], spread[row], lift[row],
            rough[row], cap, sinks[0], pages, blocks * number // parts,
            blocks * (number + 1) // parts, masses[own],
        )  # fmt: skip
    for task in prange(len(query)):
        row, head = task // group, task % heads
        stream = stream_of(seed, layer, head, length[task // heads])
        pages = (count[row] + BLOCK - 1) // BLOCK - NEAR
        whole = (pages + BLOCK - 1) // BLOCK * BLOCK
        least = min(page_floor, F(spare_pages * BLOCK / length[task // heads]))
        kept, scored, square = pages_of_task(
            query[task], scale, row_of(keys, row), row_of(values, row), first[row], count[row],
            added[row % len(added)], cap, sinks[head], codes[row], scales[row], mean[row],
            rough[row], lanes[row], far_codes[row], far_scales[row], c[head], floor,
            least, stream, masses[task, :whole], scratch[task], chosen[task],
            out[task],
        )  # fmt: skip
        add_to(stats[task], kept, scored, square)
