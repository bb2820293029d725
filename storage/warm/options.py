"""How RocksDB is tuned: memtables, compression, blocks."""

from rocksdict import BlockBasedOptions, Cache, DBCompressionType, Options

from turnstate.storage.warm.tables import HEADS, LOG, SEGMENTS


def database_options(write_buffer_bytes: int) -> Options:
    """Return the options of the whole database."""
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.create_missing_column_families(True)
    options.set_db_write_buffer_size(write_buffer_bytes)
    options.set_max_total_wal_size(4 * write_buffer_bytes)
    options.set_keep_log_file_num(2)
    options.set_max_log_file_size(1 << 20)
    options.set_max_open_files(256)
    options.set_bytes_per_sync(1 << 20)
    return options


def table_options(table: str, cache: Cache) -> Options:
    """Return the options of one table; all share a block cache."""
    options = Options(raw_mode=True)
    options.set_write_buffer_size(32 << 20)
    options.set_compression_type(DBCompressionType.lz4())
    if table in (HEADS, SEGMENTS, LOG):
        # Measured: the bottom level is read rarely and ZSTD saves a fifth.
        options.set_bottommost_compression_type(DBCompressionType.zstd())
    blocks = BlockBasedOptions()
    blocks.set_block_cache(cache)
    blocks.set_block_size(16 << 10)
    blocks.set_bloom_filter(10, False)
    blocks.set_cache_index_and_filter_blocks(True)
    blocks.set_format_version(5)
    options.set_block_based_table_factory(blocks)
    return options
