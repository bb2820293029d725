"""How much longer than its limit something may take on a busy machine."""

from typing import Final

SLACK_S: Final = 10.0
"""Where nothing limits it, it takes for ever."""
