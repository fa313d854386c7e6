"""What the tests of runs look at: the bytes that were stored, and what was said on the way."""

SMALL = {"seed": 3, "horizons": [0.5, 1.5], "n": [20, 60], "replicates": 40, "block": 4}
"""A configuration of the experiment clt: twenty quick shards."""


def contents(folder):
    """Bytes of the results; notes on time differ from run to run."""
    names = sorted(folder.path.rglob("*.parquet"))
    return {path.relative_to(folder.path).as_posix(): path.read_bytes() for path in names}


def messages_of(run, *arguments, **options):
    """What a run reported beside its progress."""
    lines = []
    run(*arguments, progress=lambda status: lines.append(status.message), **options)
    return [message for message in lines if message]
