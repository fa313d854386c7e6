"""The sparse-token experiments, one file each, run by `attnlimit reproduce sparse-...`."""
