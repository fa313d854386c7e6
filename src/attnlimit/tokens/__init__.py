"""Where tokens come from: one measure per file, all with the surface of `Tokens`."""

from attnlimit.tokens.base import Tokens
from attnlimit.tokens.empirical import Empirical
from attnlimit.tokens.gaussian import Gaussian
from attnlimit.tokens.mixture import Mixture
from attnlimit.tokens.product import Cube, Laplace, Product, Signs
from attnlimit.tokens.score_law import ScoreLaw
from attnlimit.tokens.spherical import Ball, Sphere, Spherical

__all__ = [
    "Ball",
    "Cube",
    "Empirical",
    "Gaussian",
    "Laplace",
    "Mixture",
    "Product",
    "ScoreLaw",
    "Signs",
    "Sphere",
    "Spherical",
    "Tokens",
]
