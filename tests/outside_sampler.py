"""A sampler of a user's own, written as CONTRIBUTING.md says: `probabilities` and nothing else."""

from dataclasses import dataclass

import torch

import attnlimit as al


@dataclass(frozen=True)
class Nearby(al.Sampler):
    """Keys kept with a chance that falls with their distance from the query."""

    reach: float
    weighted: bool = False

    def probabilities(self, scores, queries):
        """exp(-distance / reach), not even for the query itself quite one."""
        distance = (queries[:, None] - torch.arange(scores.shape[-1])).abs()
        return (0.9 * torch.exp(-distance / self.reach)).expand(scores.shape)
