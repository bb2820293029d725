"""How much text an operation carries: what sizes are compared with."""

from turnstate.schemas.operation import Op
from turnstate.schemas.wire.tool_calls import argument_bytes_of


def text_bytes_of(op: Op) -> int:
    """Return the UTF-8 bytes of its content and of its tool calls' arguments."""
    body = op.body
    content = body.content
    if type(content) is str:
        size = len(content) if content.isascii() else len(content.encode())
    else:
        size = len(body.parts) if body.parts is not None else 0
    if body.tool_calls is not None:
        size += argument_bytes_of(body.tool_calls)
    return size
