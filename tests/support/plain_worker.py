"""A command whose stores write blocks as they are, so that a scan sees dead rows."""

import sys

import pytest
from rocksdict import Cache, DBCompressionType, Options

from turnstate.storage.warm import options, rows
from turnstate.streams.cli import main


def write_plain_blocks(patched: pytest.MonkeyPatch) -> None:
    """Have RocksDB compress nothing in this process, until it is undone."""
    real = options.table_options

    def plain(table: str, cache: Cache) -> Options:
        made = real(table, cache)
        made.set_compression_type(DBCompressionType.none())
        made.set_bottommost_compression_type(DBCompressionType.none())
        return made

    patched.setattr(rows, "table_options", plain)


if __name__ == "__main__":
    write_plain_blocks(pytest.MonkeyPatch())
    sys.exit(main.run(sys.argv[1:]))
