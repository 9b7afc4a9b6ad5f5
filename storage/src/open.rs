//! Opens the database: its directory is checked to be ours, its settings are made.

use std::path::Path;

use rocksdb::{
    BlockBasedIndexType, BlockBasedOptions, Cache, ColumnFamilyDescriptor, DB, DBCompressionType, IteratorMode,
    LogLevel, Options, WriteBufferManager, WriteOptions,
};

use crate::error::StorageError;
use crate::layout::{CHANGELOG, FORMAT_KEY, PROGRESS, STATE, STORE_FORMAT, read_u32};
use crate::store::StoreOptions;

const MIB: usize = 1 << 20;
/// The name RocksDB gives the column family that is always there.
const DEFAULT: &str = "default";
const FAMILIES: [&str; 4] = [DEFAULT, STATE, CHANGELOG, PROGRESS];
/// Bytes of writes that RocksDB gathers before it makes files of them.
const WRITE_BUFFERS_MAX: usize = 256 * MIB;
/// Files that are kept open. Below the usual limit of 1024 per process, which sockets need too.
const OPEN_FILES_MAX: i32 = 512;
/// Log entries below this size stay in the tree; a blob file for each would cost more than it saves.
const BLOB_BYTES_MIN: u64 = 4096;

/// Opens the database, or makes a new one.
pub(crate) fn open(path: &Path, options: &StoreOptions) -> Result<DB, StorageError> {
    std::fs::create_dir_all(path).map_err(|source| StorageError::CreateDirectory { path: path.to_owned(), source })?;
    let failed = |source| StorageError::Open { path: path.to_owned(), source };
    let cache = Cache::new_lru_cache(options.block_cache_bytes);
    let write_buffers = WRITE_BUFFERS_MAX.min(options.block_cache_bytes / 2);
    let general = general_options(&cache, write_buffers);
    if path.join("CURRENT").exists() {
        let families = DB::list_cf(&general, path).map_err(failed)?;
        if families.iter().any(|name| !FAMILIES.contains(&name.as_str())) {
            return Err(StorageError::ForeignDirectory { path: path.to_owned() });
        }
    } else if holds_foreign_files(path)? {
        return Err(StorageError::ForeignDirectory { path: path.to_owned() });
    }

    let families = FAMILIES.map(|name| ColumnFamilyDescriptor::new(name, family_options(name, &cache, write_buffers)));
    let db = DB::open_cf_descriptors(&general, path, families).map_err(failed)?;
    check_format(&db, path)?;
    Ok(db)
}

/// Whether there is a file that RocksDB would not have left behind when it was stopped while making a new database.
fn holds_foreign_files(path: &Path) -> Result<bool, StorageError> {
    let failed = |source| StorageError::CreateDirectory { path: path.to_owned(), source };
    for entry in std::fs::read_dir(path).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        let name = name.to_string_lossy();
        let own = name.starts_with("LOG")
            || name.starts_with("MANIFEST-")
            || name.starts_with("OPTIONS-")
            || name.ends_with(".dbtmp")
            || ["LOCK", "IDENTITY"].contains(&name.as_ref());
        if !own {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Refuses newer formats and other programs' databases; marks a new database as ours.
fn check_format(db: &DB, path: &Path) -> Result<(), StorageError> {
    let failed = |source| StorageError::Open { path: path.to_owned(), source };
    let foreign = || StorageError::ForeignDirectory { path: path.to_owned() };
    if let Some(format) = db.get(FORMAT_KEY).map_err(failed)? {
        let found = read_u32(&format, 0).ok_or_else(foreign)?;
        if found > STORE_FORMAT {
            return Err(StorageError::NewerFormat { path: path.to_owned(), found, supported: STORE_FORMAT });
        }
        return Ok(());
    }
    // No mark: it is new, or its making was cut short. Else it has data of somebody else.
    for name in FAMILIES {
        let family = db.cf_handle(name).expect("all families were just opened");
        if db.iterator_cf(family, IteratorMode::Start).next().transpose().map_err(failed)?.is_some() {
            return Err(foreign());
        }
    }
    let mut write = WriteOptions::default();
    write.set_sync(true);
    db.put_opt(FORMAT_KEY, STORE_FORMAT.to_be_bytes(), &write).map_err(failed)
}

fn general_options(cache: &Cache, write_buffers: usize) -> Options {
    let mut options = Options::default();
    options.create_if_missing(true);
    options.create_missing_column_families(true);
    options.set_max_open_files(OPEN_FILES_MAX);
    options.set_max_background_jobs(std::thread::available_parallelism().map_or(2, |n| n.get().clamp(2, 8)) as i32);
    options.set_bytes_per_sync(MIB as u64);
    // What is in write buffers counts as part of the cache, so that both together keep to its size.
    let manager = WriteBufferManager::new_write_buffer_manager_with_cache(write_buffers, false, cache.clone());
    options.set_write_buffer_manager(&manager);
    // Read again by a start after a crash, at some 250 MB/s.
    options.set_max_total_wal_size(160 * MIB as u64);
    options.set_keep_log_file_num(4);
    options.set_max_log_file_size(16 * MIB);
    options.set_log_level(LogLevel::Warn);
    options.set_stats_dump_period_sec(0);
    options
}

fn family_options(name: &str, cache: &Cache, write_buffers: usize) -> Options {
    let mut blocks = BlockBasedOptions::default();
    blocks.set_block_cache(cache);
    blocks.set_block_size(8 << 10);
    blocks.set_bloom_filter(10.0, false);
    blocks.set_format_version(5);
    // Indexes and filters keep to the cache's size too, in blocks as small as those of data: whole ones of a file would take
    // megabytes to read for one key whenever the cache is short.
    blocks.set_cache_index_and_filter_blocks(true);
    blocks.set_index_type(BlockBasedIndexType::TwoLevelIndexSearch);
    blocks.set_partition_filters(true);
    blocks.set_metadata_block_size(8 << 10);
    blocks.set_pin_top_level_index_and_filter(true);

    let mut options = Options::default();
    options.set_block_based_table_factory(&blocks);
    options.set_level_compaction_dynamic_level_bytes(true);
    options.set_compression_type(DBCompressionType::Lz4);
    options.set_bottommost_compression_type(DBCompressionType::Zstd);
    match name {
        STATE => {
            options.set_write_buffer_size(write_buffers / 4);
            options.set_max_write_buffer_number(4);
            options.set_target_file_size_base(64 * MIB as u64);
            options.set_max_bytes_for_level_base(256 * MIB as u64);
            // New groups and join keys are looked up before they are there.
            options.set_memtable_whole_key_filtering(true);
            options.set_memtable_prefix_bloom_ratio(0.02);
        }
        CHANGELOG => {
            options.set_write_buffer_size(write_buffers / 4);
            options.set_max_write_buffer_number(4);
            options.set_enable_blob_files(true);
            options.set_min_blob_size(BLOB_BYTES_MIN);
            options.set_blob_compression_type(DBCompressionType::Lz4);
            options.set_enable_blob_gc(true);
            // Logs die young and in order: a blob file soon holds nothing at all.
            options.set_blob_gc_age_cutoff(0.5);
        }
        _ => options.set_write_buffer_size(4 * MIB),
    }
    options
}
