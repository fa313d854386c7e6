"""Moments of the output up to the fourth, against draws."""

import numpy as np
from scipy.special import softmax

from attnlimit.theory.pairs.covariance.output_energy import joint_moments


def test_joint_moments_of_output_and_participation():
    rng = np.random.default_rng(0)
    y = rng.standard_normal((200_000, 8))
    p = softmax(2.0 * y, axis=1)
    g, participation = (p * y).sum(axis=1), (p**2).sum(axis=1)
    samples = {
        "g": g, "g2": g**2, "g3": g**3, "g4": g**4, "P": participation,
        "gP": g * participation, "g2P": g**2 * participation, "PP": participation**2,
    }  # fmt: skip
    for name, value in joint_moments(2.0, np.array([8])).items():
        stderr = samples[name].std() / np.sqrt(len(y))
        assert abs(value[0] - samples[name].mean()) < 4 * stderr
