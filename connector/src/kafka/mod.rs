//! Kafka: a topic as a source and as a destination, through librdkafka.
//!
//! # As a source
//!
//! A split is a partition; its offset is that of the next message. Only what is committed is read. New partitions are found
//! while reading. `FORMAT PLAIN ENCODE JSON` (an object), `CSV` (a record, columns by position) or `BYTES` (one column).
//! From an offset come the same rows as long as the topic keeps its messages; once an offset is gone, because of a short
//! retention or because the topic was made anew, reading ends with an error. Compaction may remove messages in between.
//!
//! | option | |
//! |---|---|
//! | `topic` | the topic |
//! | `properties.bootstrap.server` | brokers to begin with, `host:port,…` |
//! | `properties.*` | of librdkafka, the name behind the point; not those that would break a promise |
//! | `scan.startup.mode` | `earliest`, `latest` or `timestamp`; `earliest` |
//! | `scan.startup.timestamp.millis` | for `timestamp`: milliseconds since 1970 |
//! | `include.key`, `.offset`, `.partition`, `.timestamp` | the column that takes this part of a message |
//! | `delimiter` | CSV: the byte between fields; `,` |
//!
//! A partition that is found later is read from its first message, in mode `latest` too.
//!
//! # As a destination
//!
//! `FORMAT PLAIN`, `UPSERT` or `DEBEZIUM`, `ENCODE JSON`; see `encode.rs` for messages and `crate::json` for values. The key of a
//! message is the object of the primary key, and decides the partition as in Java's client, so the changes of a key stay
//! in order.
//!
//! | option | |
//! |---|---|
//! | `topic`, `properties.*` | as above |
//! | `transactional` | exactly once, see `transaction.rs`, instead of at least once; `false` |
//! | `transactional.id` | what no other sink of these brokers is called; `weir-sink-` and the sink's number |

mod client;
mod config;
mod decode;
mod encode;
mod producer;
mod reader;
mod sink;
mod source;
mod transaction;
mod writer;

pub use config::KafkaConfig;
pub use sink::KafkaSink;
