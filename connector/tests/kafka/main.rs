//! Kafka against brokers in this process, by real clients and the real protocol: the mock cluster of librdkafka, and a
//! broker of these tests for what that one lacks, which is transactions and partitions that are added.

#![allow(clippy::unwrap_used)]

mod broker;
mod server;
mod sink;
mod source;
mod transactions;
mod wire;
