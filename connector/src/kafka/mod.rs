//! Kafka: a topic as a source and as a destination.
mod client;
mod config;
mod decode;
mod reader;
mod source;

pub use config::KafkaConfig;
