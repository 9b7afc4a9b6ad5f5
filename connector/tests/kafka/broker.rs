//! What tests do to a topic behind the back of a source or sink.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use rdkafka::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::message::Message;
use rdkafka::mocking::MockCluster;
use rdkafka::producer::{BaseProducer, BaseRecord, DefaultProducerContext, Producer};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

use super::server::Server;

pub const TOPIC: &str = "orders";
pub const DEADLINE: Duration = Duration::from_secs(30);

/// Brokers with the topic.
pub struct Broker {
    pub servers: String,
    /// `None`: they are of a [`Server`].
    pub cluster: Option<MockCluster<'static, DefaultProducerContext>>,
    producer: BaseProducer,
}

impl Broker {
    /// The mock cluster of librdkafka.
    pub fn new(partitions: i32) -> Broker {
        let cluster = MockCluster::new(1).unwrap();
        cluster.create_topic(TOPIC, partitions, 1).unwrap();
        Broker::reached_at(cluster.bootstrap_servers(), Some(cluster))
    }

    pub fn of(server: &Server) -> Broker {
        Broker::reached_at(server.address.clone(), None)
    }

    fn reached_at(servers: String, cluster: Option<MockCluster<'static, DefaultProducerContext>>) -> Broker {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", &servers);
        Broker { servers, cluster, producer: config.create().unwrap() }
    }

    /// Options with the topic and these.
    pub fn options(&self, more: &[(&str, &str)]) -> BTreeMap<String, String> {
        let all = [("connector", "kafka"), ("topic", TOPIC), ("properties.bootstrap.server", self.servers.as_str())];
        all.iter().chain(more).map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
    }

    /// Appends messages of time `millis`; `-` is none.
    pub fn send(&self, partition: i32, millis: i64, messages: &[(&str, &str)]) {
        for (key, value) in messages {
            let mut record = BaseRecord::to(TOPIC).partition(partition).timestamp(millis);
            if *key != "-" {
                record = record.key(*key);
            }
            if *value != "-" {
                record = record.payload(*value);
            }
            self.producer.send::<str, str>(record).map_err(|(e, _)| e).unwrap();
        }
        self.producer.flush(DEADLINE).unwrap();
    }

    /// The committed messages of all partitions, `partition: key => value`, each partition in its order.
    pub fn messages(&self, partitions: i32) -> Vec<String> {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", &self.servers).set("group.id", "test").set("enable.partition.eof", "true");
        config.set("fetch.wait.max.ms", "10");
        let consumer: BaseConsumer = config.create().unwrap();
        let mut all = vec![];
        for partition in 0..partitions {
            let mut place = TopicPartitionList::new();
            place.add_partition_offset(TOPIC, partition, Offset::Beginning).unwrap();
            consumer.assign(&place).unwrap();
            let begun = Instant::now();
            loop {
                assert!(begun.elapsed() < DEADLINE, "partition {partition} does not end");
                let message = match consumer.poll(DEADLINE) {
                    None => continue,
                    Some(Err(KafkaError::PartitionEOF(_))) => break,
                    Some(message) => message.unwrap(),
                };
                let text = |bytes: Option<&[u8]>| bytes.map_or("-".into(), |b| String::from_utf8(b.to_vec()).unwrap());
                all.push(format!("{partition}: {} => {}", text(message.key()), text(message.payload())));
            }
        }
        all
    }
}
