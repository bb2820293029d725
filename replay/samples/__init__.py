"""Real dialogues that ship with the project, for the demo and for tests."""

from importlib.resources import files
from pathlib import Path

__all__ = ["sample_paths"]


def sample_paths() -> list[Path]:
    """Return the sample files, one a corpus, in the order of their names.

    Each is gzip'd JSONL in the `corpus` format; `ATTRIBUTION.md` beside them
    says where they are from, under which licence, and what was changed.

    Example:
        >>> sample_paths()[0].name
        'bfcl_multi_turn.jsonl.gz'
    """
    # The wheel is installed unpacked (it holds no zip-safe promise), so the
    # files have paths of their own.
    return sorted(
        Path(str(file))
        for file in files(__name__).iterdir()
        if file.name.endswith(".jsonl.gz")
    )
