//! A broker with transactions, which the mock cluster does not have: one node, one topic, everything in memory.

use std::collections::BTreeMap;
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

use super::broker::TOPIC;
use super::wire::{Request, Response, marker};

const UNKNOWN_TOPIC: i16 = 3;
const OFFSET_OUT_OF_RANGE: i16 = 1;
const UNSUPPORTED_VERSION: i16 = 35;
const INVALID_PRODUCER_EPOCH: i16 = 47;
/// What is answered, with versions; of the group's life only that it exists.
const APIS: [(i16, i16, i16); 17] = [
    (PRODUCE, 3, 7),
    (FETCH, 4, 4),
    (LIST_OFFSETS, 1, 2),
    (METADATA, 0, 4),
    (8, 1, 2),
    (OFFSET_FETCH, 1, 1),
    (FIND_COORDINATOR, 0, 1),
    (11, 0, 2),
    (12, 0, 1),
    (13, 0, 1),
    (14, 0, 1),
    (API_VERSIONS, 0, 0),
    (INIT_PRODUCER_ID, 0, 1),
    (ADD_PARTITIONS, 0, 0),
    (ADD_OFFSETS, 0, 0),
    (END, 0, 0),
    (TXN_OFFSET_COMMIT, 0, 0),
];
const PRODUCE: i16 = 0;
const FETCH: i16 = 1;
const LIST_OFFSETS: i16 = 2;
const METADATA: i16 = 3;
const OFFSET_FETCH: i16 = 9;
const FIND_COORDINATOR: i16 = 10;
const API_VERSIONS: i16 = 18;
const INIT_PRODUCER_ID: i16 = 22;
const ADD_PARTITIONS: i16 = 24;
const ADD_OFFSETS: i16 = 25;
const END: i16 = 26;
const TXN_OFFSET_COMMIT: i16 = 28;

/// Runs until the process ends.
pub struct Server {
    pub address: String,
    shared: Arc<Shared>,
}

struct Shared {
    port: i32,
    state: Mutex<State>,
    appended: Condvar,
}

#[derive(Default)]
struct State {
    partitions: Vec<Partition>,
    producers: i64,
    transactions: BTreeMap<String, Transaction>,
    /// By group and partition: offset and metadata.
    offsets: BTreeMap<(String, i32), (i64, String)>,
}

#[derive(Default)]
struct Partition {
    /// First offset, next offset, and the bytes.
    batches: Vec<(i64, i64, Vec<u8>)>,
    /// Producer and first offset.
    open: BTreeMap<i64, i64>,
    /// Producer, first offset, and the offset of the marker.
    aborted: Vec<(i64, i64, i64)>,
}

#[derive(Default)]
struct Transaction {
    producer: (i64, i16),
    partitions: Vec<i32>,
    offsets: Vec<(String, i32, i64, String)>,
}

impl Partition {
    fn end(&self) -> i64 {
        self.batches.last().map_or(0, |b| b.1)
    }

    fn stable_end(&self) -> i64 {
        self.open.values().min().copied().unwrap_or(self.end())
    }

    fn append(&mut self, mut batch: Vec<u8>) -> i64 {
        let first = self.end();
        let last_delta = i32::from_be_bytes(batch[23..27].try_into().unwrap());
        batch[..8].copy_from_slice(&first.to_be_bytes());
        self.batches.push((first, first + i64::from(last_delta) + 1, batch));
        first
    }
}

impl State {
    /// Whether the producer is the newest of its id.
    fn check(&self, id: &str, producer: (i64, i16)) -> i16 {
        let known = self.transactions.get(id).is_some_and(|t| t.producer == producer);
        if known { 0 } else { INVALID_PRODUCER_EPOCH }
    }

    fn end(&mut self, id: &str, committed: bool) {
        let Some(transaction) = self.transactions.get_mut(id) else { return };
        let producer = transaction.producer;
        let offsets = std::mem::take(&mut transaction.offsets);
        for number in std::mem::take(&mut transaction.partitions) {
            let partition = &mut self.partitions[number as usize];
            if let Some(first) = partition.open.remove(&producer.0) {
                let end = partition.append(marker(producer, committed));
                if !committed {
                    partition.aborted.push((producer.0, first, end));
                }
            }
        }
        if committed {
            self.offsets.extend(offsets.into_iter().map(|(group, p, offset, text)| ((group, p), (offset, text))));
        }
    }
}

impl Server {
    pub fn new(partitions: usize) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let mut state = State::default();
        state.partitions.resize_with(partitions, Partition::default);
        let port = i32::from(address.port());
        let shared = Arc::new(Shared { port, state: Mutex::new(state), appended: Condvar::new() });
        let serving = shared.clone();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (shared, mut stream) = (serving.clone(), stream.unwrap());
                thread::spawn(move || while shared.serve(&mut stream).is_ok() {});
            }
        });
        Server { address: address.to_string(), shared }
    }

    /// Makes another partition.
    pub fn grow(&self) {
        self.shared.state.lock().unwrap().partitions.push(Partition::default());
    }
}

impl Shared {
    fn serve(&self, stream: &mut TcpStream) -> std::io::Result<()> {
        let mut request = Request::read(stream)?;
        let mut response = Response::default();
        match request.api {
            API_VERSIONS => {
                response.i16(if request.version == 0 { 0 } else { UNSUPPORTED_VERSION });
                response.array(&APIS, |r, (api, min, max)| {
                    r.i16(*api).i16(*min).i16(*max);
                });
            }
            METADATA => self.metadata(&mut request, &mut response),
            FIND_COORDINATOR => {
                if request.version > 0 {
                    response.i32(0);
                }
                response.i16(0);
                if request.version > 0 {
                    response.null();
                }
                response.i32(1).string("127.0.0.1").i32(self.port);
            }
            PRODUCE => self.produce(&mut request, &mut response),
            FETCH => self.fetch(&mut request, &mut response),
            LIST_OFFSETS => self.list_offsets(&mut request, &mut response),
            OFFSET_FETCH => self.offset_fetch(&mut request, &mut response),
            INIT_PRODUCER_ID => self.init_producer(&mut request, &mut response),
            ADD_PARTITIONS => self.add_partitions(&mut request, &mut response),
            ADD_OFFSETS => {
                let error = self.state.lock().unwrap().check(&request.string(), (request.i64(), request.i16()));
                response.i32(0).i16(error);
            }
            TXN_OFFSET_COMMIT => self.commit_offsets(&mut request, &mut response),
            END => {
                let (id, producer, committed) = (request.string(), (request.i64(), request.i16()), request.i8() != 0);
                let mut state = self.state.lock().unwrap();
                let error = state.check(&id, producer);
                if error == 0 {
                    state.end(&id, committed);
                    self.appended.notify_all();
                }
                response.i32(0).i16(error);
            }
            api => panic!("api {api} is not served"),
        }
        response.send(request.correlation, stream)
    }

    fn metadata(&self, request: &mut Request, response: &mut Response) {
        let mut topics = request.array(Request::string);
        if topics.is_empty() {
            topics.push(TOPIC.into());
        }
        let partitions: Vec<i32> = (0..self.state.lock().unwrap().partitions.len() as i32).collect();
        if request.version >= 3 {
            response.i32(0);
        }
        response.array(&[()], |r, ()| {
            r.i32(1).string("127.0.0.1").i32(self.port);
            if request.version >= 1 {
                r.null();
            }
        });
        if request.version >= 2 {
            response.null();
        }
        if request.version >= 1 {
            response.i32(1);
        }
        response.array(&topics, |r, topic| {
            let known = topic == TOPIC;
            r.i16(if known { 0 } else { UNKNOWN_TOPIC }).string(topic);
            if request.version >= 1 {
                r.i8(0);
            }
            r.array(if known { &partitions } else { &[] }, |r, partition| {
                r.i16(0).i32(*partition).i32(1);
                // Replicas, and those in sync.
                r.i32(1).i32(1).i32(1).i32(1);
            });
        });
    }

    fn produce(&self, request: &mut Request, response: &mut Response) {
        let id = request.string();
        request.i16();
        request.i32();
        let topics = request.array(|r| (r.string(), r.array(|r| (r.i32(), r.bytes()))));
        let mut state = self.state.lock().unwrap();
        response.array(&topics, |r, (topic, partitions)| {
            r.string(topic).array(partitions, |r, (number, batch)| {
                let producer = i64::from_be_bytes(batch[43..51].try_into().unwrap());
                let epoch = i16::from_be_bytes(batch[51..53].try_into().unwrap());
                let error = if id.is_empty() { 0 } else { state.check(&id, (producer, epoch)) };
                let mut first = -1;
                if error == 0 {
                    let partition = &mut state.partitions[*number as usize];
                    first = partition.append(batch.clone());
                    if !id.is_empty() {
                        partition.open.entry(producer).or_insert(first);
                    }
                }
                r.i32(*number).i16(error).i64(first).i64(-1);
                if request.version >= 5 {
                    r.i64(0);
                }
            });
        });
        response.i32(0);
        self.appended.notify_all();
    }

    fn fetch(&self, request: &mut Request, response: &mut Response) {
        request.i32();
        let wait = Duration::from_millis(request.i32() as u64);
        request.i32();
        request.i32();
        let committed = request.i8() == 1;
        let topics = request.array(|r| (r.string(), r.array(|r| (r.i32(), r.i64(), r.i32()))));
        let end = |p: &Partition| if committed { p.stable_end() } else { p.end() };
        let nothing_new = |state: &mut State| {
            topics
                .iter()
                .flat_map(|(_, p)| p)
                .all(|(number, offset, _)| end(&state.partitions[*number as usize]) == *offset)
        };
        let state = self.state.lock().unwrap();
        let (state, _) = self.appended.wait_timeout_while(state, wait, nothing_new).unwrap();
        response.i32(0).array(&topics, |r, (topic, partitions)| {
            r.string(topic).array(partitions, |r, (number, offset, _)| {
                let partition = &state.partitions[*number as usize];
                let error = if (0..=partition.end()).contains(offset) { 0 } else { OFFSET_OUT_OF_RANGE };
                let new = partition.batches.iter().filter(|b| b.1 > *offset && b.0 < end(partition));
                let records: Vec<u8> = new.flat_map(|b| b.2.clone()).collect();
                r.i32(*number).i16(error).i64(partition.end()).i64(partition.stable_end());
                let mut aborted = partition.aborted.clone();
                aborted.retain(|(_, _, marker)| marker >= offset);
                r.array(&aborted, |r, (producer, first, _)| {
                    r.i64(*producer).i64(*first);
                });
                r.bytes(&records);
            });
        });
    }

    fn list_offsets(&self, request: &mut Request, response: &mut Response) {
        request.i32();
        let committed = request.version >= 2 && request.i8() == 1;
        let topics = request.array(|r| (r.string(), r.array(|r| (r.i32(), r.i64()))));
        let state = self.state.lock().unwrap();
        if request.version >= 2 {
            response.i32(0);
        }
        response.array(&topics, |r, (topic, partitions)| {
            r.string(topic).array(partitions, |r, (number, time)| {
                let partition = &state.partitions[*number as usize];
                let end = if committed { partition.stable_end() } else { partition.end() };
                r.i32(*number).i16(0).i64(-1).i64(if *time == -1 { end } else { 0 });
            });
        });
    }

    fn offset_fetch(&self, request: &mut Request, response: &mut Response) {
        let group = request.string();
        let topics = request.array(|r| (r.string(), r.array(Request::i32)));
        let state = self.state.lock().unwrap();
        response.array(&topics, |r, (topic, partitions)| {
            r.string(topic).array(partitions, |r, number| {
                let found = state.offsets.get(&(group.clone(), *number));
                let (offset, metadata) = found.map_or((-1, ""), |(offset, text)| (*offset, text.as_str()));
                r.i32(*number).i64(offset).string(metadata).i16(0);
            });
        });
    }

    fn init_producer(&self, request: &mut Request, response: &mut Response) {
        let id = request.string();
        let mut state = self.state.lock().unwrap();
        state.producers += 1;
        let fresh = (state.producers, 0);
        let producer = if id.is_empty() {
            fresh
        } else {
            state.end(&id, false);
            self.appended.notify_all();
            let transaction = state.transactions.entry(id).or_default();
            let (number, epoch) = transaction.producer;
            transaction.producer = if number == 0 { fresh } else { (number, epoch + 1) };
            transaction.producer
        };
        response.i32(0).i16(0).i64(producer.0).i16(producer.1);
    }

    fn add_partitions(&self, request: &mut Request, response: &mut Response) {
        let (id, producer) = (request.string(), (request.i64(), request.i16()));
        let topics = request.array(|r| (r.string(), r.array(Request::i32)));
        let mut state = self.state.lock().unwrap();
        let error = state.check(&id, producer);
        response.i32(0).array(&topics, |r, (topic, partitions)| {
            r.string(topic).array(partitions, |r, number| {
                if let Some(transaction) = state.transactions.get_mut(&id).filter(|_| error == 0) {
                    transaction.partitions.push(*number);
                }
                r.i32(*number).i16(error);
            });
        });
    }

    fn commit_offsets(&self, request: &mut Request, response: &mut Response) {
        let (id, group, producer) = (request.string(), request.string(), (request.i64(), request.i16()));
        let topics = request.array(|r| (r.string(), r.array(|r| (r.i32(), r.i64(), r.string()))));
        let mut state = self.state.lock().unwrap();
        let error = state.check(&id, producer);
        response.i32(0).array(&topics, |r, (topic, partitions)| {
            r.string(topic).array(partitions, |r, (number, offset, text)| {
                if let Some(transaction) = state.transactions.get_mut(&id).filter(|_| error == 0) {
                    transaction.offsets.push((group.clone(), *number, *offset, text.clone()));
                }
                r.i32(*number).i16(error);
            });
        });
    }
}
