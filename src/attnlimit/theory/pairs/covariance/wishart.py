"""Moments of products with Wishart matrices in them, as polynomials in the degrees of freedom.

X is a sum of N products gg' of standard normal vectors. In E tr(X A_1 X A_2 ... X A_k) each X has
two vectors that share a sample, and the 2k vectors are paired in all ways: a pairing leaves some
sample indices free, each a factor N, and closes the matrices to cycles, each a trace.

A word names its matrices by letters; the other case is the transpose, but M is symmetric.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache, reduce

import numpy as np

from attnlimit.checks import Array

Matrices = Mapping[str, Array]


def moment_polynomial(word: str, matrices: Matrices) -> Array:
    """E tr(X A_1 X A_2 ... X A_k) for the matrices of a word, by powers of N."""
    found = np.zeros(len(word) + 1)
    traces: dict[str, float] = {}
    for (loops, cycles), count in _closed(word).items():
        for cycle in cycles:
            if cycle not in traces:
                traces[cycle] = float(np.trace(_multiplied(cycle, matrices)))
        found[loops] += count * float(np.prod([traces[cycle] for cycle in cycles]))
    return found


def mean_polynomial(word: str, matrices: Matrices) -> list[Array]:
    """E[X A_1 X A_2 ... X] by powers of N: the word that one more matrix would close, left open."""
    size = len(word) + 1
    found = [np.zeros_like(matrices[word[0]]) for _ in range(size + 1)]
    for loops, cycles in _pairings_of_word(word + "O"):
        value, opened = 1.0, np.eye(len(found[0]))
        for cycle in cycles:
            at = cycle.upper().find("O")
            if at < 0:
                value *= float(np.trace(_multiplied(cycle, matrices)))
                continue
            rest = cycle[at + 1 :] + cycle[:at]
            opened = _multiplied(rest if cycle[at] == "O" else _backwards(rest), matrices)
        found[loops] += value * opened
    return found


def _multiplied(word: str, matrices: Matrices) -> Array:
    some = next(iter(matrices.values()))
    return reduce(lambda found, letter: found @ matrices[letter], word, np.eye(len(some)))


@cache
def _closed(word: str) -> Counter[tuple[int, tuple[str, ...]]]:
    """How often each number of free samples comes with each set of cycles."""
    return Counter(
        (loops, tuple(sorted(_canonical(cycle) for cycle in cycles)))
        for loops, cycles in _pairings_of_word(word)
    )


def _backwards(word: str) -> str:
    return "".join("M" if letter == "M" else letter.swapcase() for letter in reversed(word))


@cache
def _canonical(cycle: str) -> str:
    """The same name for all words with the same trace: rotated, or read backwards."""
    both = (cycle, _backwards(cycle))
    return min(one[k:] + one[:k] for one in both for k in range(len(cycle)))


def _pairings_of_word(word: str) -> Iterator[tuple[int, list[str]]]:
    """For each pairing: how many sample indices are free, and the cycles it closes.

    Factor k is the vectors 2k and 2k + 1, which share a sample; matrix k leads from vector 2k + 1
    to vector 2k + 2.
    """
    size = 2 * len(word)
    letters: dict[int, tuple[int, str]] = {}  # from a vector: to which one, by which matrix
    for k, letter in enumerate(word):
        end = (2 * k + 2) % size
        letters[2 * k + 1] = end, letter
        letters[end] = 2 * k + 1, _backwards(letter)
    for partner in _pairings(tuple(range(size))):
        samples = {v: (v ^ 1, "") for v in range(size)}
        yield len(_cycles(partner, samples)), _cycles(partner, letters)


def _pairings(vectors: tuple[int, ...]) -> Iterator[dict[int, int]]:
    if not vectors:
        yield {}
        return
    first, rest = vectors[0], vectors[1:]
    for k, other in enumerate(rest):
        for more in _pairings(rest[:k] + rest[k + 1 :]):
            yield {first: other, other: first, **more}


def _cycles(partner: dict[int, int], steps: Mapping[int, tuple[int, str]]) -> list[str]:
    """What is read along each cycle that alternates between steps and the pairing."""
    left, found = set(partner), []
    while left:
        at, read = min(left), ""
        while at in left:
            end, letter = steps[at]
            left -= {at, end}
            read += letter
            at = partner[end]
        found.append(read)
    return found
