"""The totals of a cluster, out of what its workers say of their partitions."""

from collections.abc import Iterable

from turnstate.streams.documents import Document

_SUMMED = (
    "sessions",
    "turns",
    "text_bytes",
    "hot",
    "cold",
    "cold_bytes",
    "hot_bytes",
    "state_bytes",
    "disk_bytes",
)


def totals(pages: Iterable[Document], letters: Document) -> Document:
    """Return what `stats` shows.

    `log_bytes` is null: the brokers know it, and tell it to nobody but their
    own tools.

    Args:
        pages: What workers say of some sessions each; all together.
        letters: The list of dead letters.

    Example:
        >>> totals([{"sessions": 3, "hot": 1}], {"dead_letters": []})["tiers"]["warm"]
        {'sessions': 2, 'bytes': 0}
    """
    sums = dict.fromkeys(_SUMMED, 0)
    for page in pages:
        for name in sums:
            sums[name] += page.get(name, 0)
    warm = {"sessions": sums["sessions"] - sums["hot"] - sums["cold"]}
    return {
        "sessions": sums["sessions"],
        "turns": sums["turns"],
        "text_bytes": sums["text_bytes"],
        "log_bytes": None,
        "state_bytes": sums["state_bytes"] + sums["cold_bytes"],
        "disk_bytes": sums["disk_bytes"],
        "tiers": {
            "hot": {"sessions": sums["hot"], "bytes": sums["hot_bytes"]},
            "warm": {**warm, "bytes": sums["state_bytes"]},
            "cold": {"sessions": sums["cold"], "bytes": sums["cold_bytes"]},
        },
        "dead_letters": len(letters["dead_letters"]),
    }
