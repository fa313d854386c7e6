"""Token distributions, all with the methods of `Tokens`."""

from attnlimit.tokens.base import (
    Form,
    GaussianForm,
    IndependentForm,
    SphericalForm,
    Tail,
    Tokens,
    symmetric_root,
)
from attnlimit.tokens.empirical import Empirical, from_sampler
from attnlimit.tokens.gaussian import Gaussian
from attnlimit.tokens.mixture import Mixture
from attnlimit.tokens.product import Cube, Laplace, Product, Signs, Student
from attnlimit.tokens.score_law import ScoreLaw
from attnlimit.tokens.spherical import Ball, Sphere, Spherical

__all__ = [
    "Ball",
    "Cube",
    "Empirical",
    "Form",
    "Gaussian",
    "GaussianForm",
    "IndependentForm",
    "Laplace",
    "Mixture",
    "Product",
    "ScoreLaw",
    "Signs",
    "Sphere",
    "Spherical",
    "SphericalForm",
    "Student",
    "Tail",
    "Tokens",
    "from_sampler",
    "symmetric_root",
]
