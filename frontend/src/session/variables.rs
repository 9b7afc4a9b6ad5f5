//! The settings that exist.

/// A setting.
#[derive(Debug)]
pub struct Variable {
    pub name: &'static str,
    pub default: &'static str,
    pub kind: Kind,
    /// The name under which clients are told its value whenever it changes.
    pub reported_as: Option<&'static str>,
    pub description: &'static str,
}

/// What values a setting takes.
#[derive(Debug)]
pub enum Kind {
    Bool,
    /// One of these; a boolean word stands for `on` or `off`.
    Only(&'static [&'static str]),
    Integer(i64, i64),
    Milliseconds,
    TimeZone,
    DateStyle,
    Encoding,
    /// Names separated by commas.
    List,
    Text,
    ReadOnly,
}

/// The setting of this name, in lower case.
pub fn find(name: &str) -> Option<&'static Variable> {
    SETTINGS.iter().find(|v| v.name == name)
}

const fn variable(name: &'static str, default: &'static str, kind: Kind, description: &'static str) -> Variable {
    Variable { name, default, kind, reported_as: None, description }
}

const fn reported(name: &'static str, shown: &'static str, default: &'static str, kind: Kind) -> Variable {
    Variable { name, default, kind, reported_as: Some(shown), description: "Told to clients when it changes." }
}

/// A variable of RisingWave that only tunes; taken and remembered, nothing more.
const fn tuning(name: &'static str, default: &'static str, kind: Kind) -> Variable {
    variable(name, default, kind, "Accepted for compatibility; has no effect.")
}

const ISOLATION: &[&str] = &["read committed", "read uncommitted", "repeatable read", "serializable"];
const INT: Kind = Kind::Integer(i32::MIN as i64, i32::MAX as i64);

/// Every setting, by name.
pub static SETTINGS: &[Variable] = &[
    reported("application_name", "application_name", "", Kind::Text),
    variable(
        "backfill_rate_limit",
        "default",
        Kind::Text,
        "Rows per second that new materialized views read of what exists; default: no limit.",
    ),
    variable(
        "background_ddl",
        "off",
        Kind::Bool,
        "CREATE MATERIALIZED VIEW, INDEX and SINK return before they are built.",
    ),
    tuning("batch_enable_distributed_dml", "off", Kind::Bool),
    tuning("batch_expr_strict_mode", "on", Kind::Bool),
    tuning("batch_parallelism", "default", Kind::Text),
    tuning("bypass_cluster_limits", "off", Kind::Bool),
    variable("bytea_output", "hex", Kind::Only(&["hex"]), "How bytea is shown."),
    reported("client_encoding", "client_encoding", "UTF8", Kind::Encoding),
    variable(
        "client_min_messages",
        "notice",
        Kind::Only(&[
            "debug5", "debug4", "debug3", "debug2", "debug1", "debug", "log", "info", "notice", "warning", "error",
        ]),
        "Messages below this severity are not sent.",
    ),
    tuning("create_compaction_group_for_mv", "off", Kind::Bool),
    variable(
        "cursor_fetch_timeout",
        "0",
        Kind::Milliseconds,
        "How long FETCH waits for a change when there is none; 0: not at all.",
    ),
    tuning("database", "dev", Kind::Text),
    reported("datestyle", "DateStyle", "ISO, MDY", Kind::DateStyle),
    variable("default_table_access_method", "heap", Kind::Text, "For clients that ask."),
    variable("default_transaction_deferrable", "off", Kind::Bool, "Whether new blocks are deferrable."),
    variable("default_transaction_isolation", "read committed", Kind::Only(ISOLATION), "The isolation of new blocks."),
    reported("default_transaction_read_only", "default_transaction_read_only", "off", Kind::Only(&["off"])),
    variable(
        "dml_rate_limit",
        "default",
        Kind::Text,
        "Rows per second that new tables take from statements; default: no limit.",
    ),
    tuning("enable_index_selection", "on", Kind::Bool),
    tuning("enable_join_ordering", "on", Kind::Bool),
    tuning("enable_locality_backfill", "off", Kind::Bool),
    tuning("enable_mv_selection", "off", Kind::Bool),
    tuning("enable_share_plan", "on", Kind::Bool),
    tuning("enable_two_phase_agg", "on", Kind::Bool),
    variable(
        "extra_float_digits",
        "1",
        Kind::Integer(-15, 3),
        "Floats are always shown with as few digits as read back the same.",
    ),
    tuning("force_two_phase_agg", "off", Kind::Bool),
    variable("idle_in_transaction_session_timeout", "0", Kind::Milliseconds, "Not enforced."),
    variable("idle_session_timeout", "0", Kind::Milliseconds, "Not enforced."),
    tuning("implicit_flush", "off", Kind::Bool),
    reported("in_hot_standby", "in_hot_standby", "off", Kind::ReadOnly),
    reported("integer_datetimes", "integer_datetimes", "on", Kind::ReadOnly),
    reported("intervalstyle", "IntervalStyle", "postgres", Kind::Only(&["postgres"])),
    reported("is_superuser", "is_superuser", "on", Kind::ReadOnly),
    variable("jit", "off", Kind::Bool, "For clients that ask."),
    variable("lc_collate", "C", Kind::ReadOnly, "Text sorts by code point."),
    variable("lc_ctype", "C", Kind::ReadOnly, "For clients that ask."),
    variable("lc_messages", "C", Kind::Text, "For clients that ask."),
    variable("lc_monetary", "C", Kind::Text, "For clients that ask."),
    variable("lc_numeric", "C", Kind::Text, "For clients that ask."),
    variable("lc_time", "C", Kind::Text, "For clients that ask."),
    tuning("locality_backfill_mode", "default", Kind::Text),
    variable(
        "lock_timeout",
        "0",
        Kind::Milliseconds,
        "How long a statement waits for others that write to its table; 0: no limit.",
    ),
    variable("max_identifier_length", "63", Kind::ReadOnly, "For clients that ask."),
    variable("max_index_keys", "32", Kind::ReadOnly, "For clients that ask."),
    tuning("max_split_range_gap", "8", INT),
    variable(
        "query_consistency",
        "latest",
        Kind::Only(&["latest", "aligned"]),
        "Queries read each relation as it is, or all their relations at one epoch.",
    ),
    variable(
        "query_epoch",
        "0",
        Kind::Integer(0, i64::MAX),
        "Queries read their relations as of this epoch; 0: as they are.",
    ),
    tuning("query_mode", "auto", Kind::Text),
    variable(
        "read_your_writes",
        "on",
        Kind::Bool,
        "A query waits until the relations it reads hold the last writes of its session.",
    ),
    variable(
        "read_your_writes_timeout",
        "30s",
        Kind::Milliseconds,
        "How long a query waits for its session's writes; 0: no limit.",
    ),
    variable("role", "none", Kind::Text, "For clients that ask."),
    variable("row_security", "on", Kind::Bool, "For clients that ask."),
    tuning("rw_batch_enable_lookup_join", "on", Kind::Bool),
    tuning("rw_batch_enable_sort_agg", "on", Kind::Bool),
    tuning("rw_enable_join_ordering", "on", Kind::Bool),
    tuning("rw_enable_share_plan", "on", Kind::Bool),
    tuning("rw_enable_two_phase_agg", "on", Kind::Bool),
    tuning("rw_force_delta_join", "off", Kind::Bool),
    tuning("rw_force_split_distinct_agg", "off", Kind::Bool),
    tuning("rw_force_two_phase_agg", "off", Kind::Bool),
    tuning("rw_implicit_flush", "off", Kind::Bool),
    tuning("rw_streaming_allow_jsonb_in_stream_key", "off", Kind::Bool),
    tuning("rw_streaming_enable_bushy_join", "on", Kind::Bool),
    tuning("rw_streaming_enable_delta_join", "off", Kind::Bool),
    tuning("rw_streaming_over_window_cache_policy", "full", Kind::Text),
    reported("search_path", "search_path", "\"$user\", public", Kind::List),
    reported("server_encoding", "server_encoding", "UTF8", Kind::ReadOnly),
    reported("server_version", "server_version", super::SERVER_VERSION, Kind::ReadOnly),
    variable(
        "server_version_num",
        super::SERVER_VERSION_NUM,
        Kind::ReadOnly,
        "The version of PostgreSQL that Weir speaks like.",
    ),
    reported("session_authorization", "session_authorization", "root", Kind::Text),
    tuning("sink_decouple", "default", Kind::Text),
    variable(
        "sink_rate_limit",
        "default",
        Kind::Text,
        "Rows per second that each actor of a new sink hands out; default: no limit.",
    ),
    variable(
        "source_rate_limit",
        "default",
        Kind::Text,
        "Rows per second that the sources of new tables and materialized views give; default: no limit.",
    ),
    reported("standard_conforming_strings", "standard_conforming_strings", "on", Kind::Only(&["on"])),
    variable("statement_timeout", "0", Kind::Milliseconds, "Statements that take longer are canceled; 0: no limit."),
    tuning("streaming_allow_jsonb_in_stream_key", "off", Kind::Bool),
    tuning("streaming_enable_arrangement_backfill", "on", Kind::Bool),
    tuning("streaming_enable_bushy_join", "on", Kind::Bool),
    tuning("streaming_enable_delta_join", "off", Kind::Bool),
    tuning("streaming_enable_materialized_expressions", "on", Kind::Bool),
    tuning("streaming_enable_unaligned_join", "off", Kind::Bool),
    tuning("streaming_max_parallelism", "256", Kind::Text),
    tuning("streaming_over_window_cache_policy", "full", Kind::Text),
    variable(
        "streaming_parallelism",
        "default",
        Kind::Text,
        "Parallel actors of each fragment of a new job; default: one per core, at most.",
    ),
    tuning("streaming_parallelism_for_backfill", "default", Kind::Text),
    variable("streaming_parallelism_for_index", "default", Kind::Text, "The same for indexes."),
    variable("streaming_parallelism_for_materialized_view", "default", Kind::Text, "The same for materialized views."),
    variable("streaming_parallelism_for_sink", "default", Kind::Text, "The same for sinks."),
    tuning("streaming_parallelism_for_source", "default", Kind::Text),
    variable("streaming_parallelism_for_table", "default", Kind::Text, "The same for tables."),
    tuning("streaming_separate_consecutive_join", "off", Kind::Bool),
    tuning("streaming_separate_sink", "off", Kind::Bool),
    tuning("streaming_sync_log_store_buffer_size", "2048", INT),
    tuning("streaming_unsafe_allow_unmaterialized_impure_expr", "off", Kind::Bool),
    tuning("streaming_unsafe_allow_upsert_sink", "off", Kind::Bool),
    tuning("streaming_use_arrangement_backfill", "on", Kind::Bool),
    tuning("streaming_use_shared_source", "on", Kind::Bool),
    tuning("streaming_use_snapshot_backfill", "on", Kind::Bool),
    variable("synchronize_seqscans", "on", Kind::Bool, "For clients that ask."),
    reported("timezone", "TimeZone", "UTC", Kind::TimeZone),
    variable("transaction_deferrable", "off", Kind::Bool, "For clients that ask."),
    variable("transaction_isolation", "read committed", Kind::Only(ISOLATION), "The isolation of the current block."),
    variable("transaction_read_only", "off", Kind::Bool, "Whether the current block refuses writes."),
    tuning("unsafe_enable_storage_retention_for_non_append_only_tables", "off", Kind::Bool),
    tuning("upsert_dml", "off", Kind::Bool),
    tuning("visibility_mode", "default", Kind::Text),
    variable("xmloption", "content", Kind::Text, "For clients that ask."),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_in_order_and_once() {
        assert!(SETTINGS.is_sorted_by(|a, b| a.name < b.name));
    }
}
