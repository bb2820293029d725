"""Entity upserts as every door shows them."""

from msgspec import Raw

from turnstate.agents.tiering.entities import EntityUpsert
from turnstate.schemas.ids import SessionName
from turnstate.streams.documents import Document


def entity_document(upsert: EntityUpsert, token: str) -> Document:
    """Return what a follower is told of one upsert.

    Args:
        upsert: It.
        token: What resumes after it.

    Returns:
        `{"tenant", "session", "incarnation", "boundary", "version", "entity",
        "token"}`; `entity` is the state without text, null where it is removed.

    Example:
        >>> key = SessionName("t", "s").key()
        >>> entity_document(EntityUpsert(key, 2, 0, None), "9")["entity"] is None
        True
    """
    name = SessionName.from_key(upsert.key)
    return {
        "tenant": name.tenant,
        "session": name.session,
        "incarnation": upsert.incarnation,
        "boundary": upsert.boundary,
        "version": upsert.version,
        "entity": None if upsert.value is None else Raw(upsert.value),
        "token": token,
    }
