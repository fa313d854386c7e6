"""Speed and memory of attnlimit, as ratios to honest baselines of the same run."""
