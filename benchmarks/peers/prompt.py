"""Write what other programs are given: a link to SmolLM2's file, and the tokens of a long text.

python benchmarks/peers/prompt.py FOLDER
"""

import json
import sys
from pathlib import Path

from attnlimit.models import addresses, load
from attnlimit.models.loading import BUNDLED

TITLE, TOKENS = "Taft 1910", 8100


def main() -> None:
    """Write model.gguf and tokens.json."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    link = folder / "model.gguf"
    link.unlink(missing_ok=True)
    path = BUNDLED["smollm2"].path
    assert path is not None, "SmolLM2 is not installed"
    link.symlink_to(path)
    ids = load("smollm2").ids(addresses()[TITLE].text, TOKENS)
    (folder / "tokens.json").write_text(json.dumps(ids))


if __name__ == "__main__":
    main()
