#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{AsArray, RecordBatch};
use arrow::compute::concat_batches;
use arrow::datatypes::{Int64Type, Schema, SchemaRef, TimestampMicrosecondType};
use nexmark::EventGenerator;
use nexmark::config::NexmarkConfig as CrateConfig;
use nexmark::event::{Event, EventType as CrateType};

use crate::{ConnectorError, Source, open, validate};

fn options(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    let all = [("connector", "nexmark"), ("nexmark.min.event.gap.in.ns", "0")];
    all.iter().chain(pairs).map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
}

/// All columns of a type, or those named.
fn columns(table: &str, names: &[&str]) -> SchemaRef {
    let all = validate(&options(&[("nexmark.table.type", table)]), None, None).unwrap();
    if names.is_empty() {
        return all;
    }
    Arc::new(Schema::new(names.iter().map(|n| all.field_with_name(n).unwrap().clone()).collect::<Vec<_>>()))
}

fn source(table: &str, names: &[&str], events: u64, splits: u64) -> Box<dyn Source> {
    let (events, splits) = (events.to_string(), splits.to_string());
    let pairs = [("nexmark.table.type", table), ("nexmark.event.num", &events), ("nexmark.split.num", &splits)];
    open(&options(&pairs), None, &columns(table, names)).unwrap()
}

/// All rows of a split from an offset, in batches of this size, and the offsets after each.
async fn read(source: &mut dyn Source, split: &str, offset: Option<&str>, rows: usize) -> Vec<(RecordBatch, String)> {
    let mut reader = source.reader(split, offset).unwrap();
    let mut out = vec![];
    while let Some(batch) = reader.next(rows).await.unwrap() {
        out.push((batch.batch, batch.offset));
    }
    assert!(reader.is_finished());
    out
}

async fn all(table: &str, names: &[&str], events: u64) -> RecordBatch {
    let batches: Vec<_> = read(&mut *source(table, names, events, 1), "0", None, 1_000).await;
    concat_batches(&columns(table, names), batches.iter().map(|(b, _)| b)).unwrap()
}

fn numbers(batch: &RecordBatch, name: &str) -> Vec<usize> {
    let column = batch.column_by_name(name).unwrap().as_primitive::<Int64Type>();
    column.values().iter().map(|v| usize::try_from(*v).unwrap()).collect()
}

fn times(batch: &RecordBatch, name: &str) -> Vec<u64> {
    let column = batch.column_by_name(name).unwrap().as_primitive::<TimestampMicrosecondType>();
    column.values().iter().map(|v| u64::try_from(*v).unwrap() / 1_000).collect()
}

fn strings(batch: &RecordBatch, name: &str) -> Vec<String> {
    let column = batch.column_by_name(name).unwrap().as_string::<i32>();
    column.iter().map(|v| v.unwrap().to_owned()).collect()
}

/// The crate's events of a type, with its clock set to ours. Its floats are exact for the first events only.
fn crates(event_type: CrateType, rows: usize) -> Vec<Event> {
    let config = CrateConfig { base_time: 1_436_918_400_000, ..CrateConfig::default() };
    EventGenerator::new(config).with_type_filter(event_type).take(rows).collect()
}

macro_rules! assert_columns {
    ($batch:expr, $events:expr, $kind:path, $($read:ident($column:ident)),*) => {
        $(
            let theirs: Vec<_> = $events
                .iter()
                .map(|e| if let $kind(e) = e { e.$column.clone() } else { unreachable!() })
                .collect();
            assert_eq!($read(&$batch, stringify!($column)), theirs, stringify!($column));
        )*
    };
}

#[tokio::test]
async fn events_are_those_of_the_crate() {
    let bids = all("bid", &[], 20_000).await;
    assert_eq!(bids.num_rows(), 18_400);
    assert_columns!(
        bids,
        crates(CrateType::Bid, 18_400),
        Event::Bid,
        numbers(auction),
        numbers(bidder),
        numbers(price),
        strings(channel),
        strings(url),
        times(date_time),
        strings(extra)
    );
    let auctions = all("auction", &[], 20_000).await;
    assert_columns!(
        auctions,
        crates(CrateType::Auction, 1_200),
        Event::Auction,
        numbers(id),
        strings(item_name),
        strings(description),
        numbers(initial_bid),
        numbers(reserve),
        times(date_time),
        times(expires),
        numbers(seller),
        numbers(category),
        strings(extra)
    );
    let people = all("person", &[], 20_000).await;
    assert_columns!(
        people,
        crates(CrateType::Person, 400),
        Event::Person,
        numbers(id),
        strings(name),
        strings(email_address),
        strings(credit_card),
        strings(city),
        strings(state),
        times(date_time),
        strings(extra)
    );
}

#[tokio::test]
async fn reading_from_any_offset_gives_the_rest() {
    for (table, events) in [("person", 5_000), ("auction", 3_000), ("bid", 1_234)] {
        let mut source = source(table, &[], events, 3);
        for split in source.splits().await.unwrap() {
            let batches = read(&mut *source, &split, None, 37).await;
            for (i, (_, offset)) in batches.iter().enumerate() {
                assert_eq!(read(&mut *source, &split, Some(offset), 37).await, batches[i + 1..]);
            }
        }
    }
}

#[tokio::test]
async fn a_column_does_not_depend_on_the_others() {
    for table in ["person", "auction", "bid"] {
        let whole = all(table, &[], 2_000).await;
        for field in whole.schema().fields() {
            let alone = all(table, &[field.name()], 2_000).await;
            assert_eq!(alone.column(0), whole.column_by_name(field.name()).unwrap(), "{}", field.name());
        }
    }
}

#[tokio::test]
async fn no_column_is_rows_all_the_same() {
    let pairs = [("nexmark.table.type", "bid"), ("nexmark.event.num", "100"), ("nexmark.split.num", "1")];
    let mut source = open(&options(&pairs), None, &Arc::new(Schema::empty())).unwrap();
    let batches = read(&mut *source, "0", None, 1_000).await;
    assert_eq!(batches[0].0.num_rows(), 92);
}

#[tokio::test]
async fn bidders_and_sellers_exist() {
    let (bids, auctions) =
        (all("bid", &["auction", "bidder"], 50_000).await, all("auction", &["id", "seller"], 50_000).await);
    let people = numbers(&all("person", &["id"], 50_000).await, "id");
    let auction_ids = numbers(&auctions, "id");
    // Ids may lead the newest by ten.
    let known = |ids: &[usize], id: &usize| ids.binary_search(id).is_ok() || *id <= ids.last().unwrap() + 10;
    assert!(numbers(&bids, "bidder").iter().all(|id| known(&people, id)));
    assert!(numbers(&bids, "auction").iter().all(|id| known(&auction_ids, id)));
    assert!(numbers(&auctions, "seller").iter().all(|id| known(&people, id)));
}

#[tokio::test]
async fn a_pace_holds_events_back() {
    let pairs = [("nexmark.table.type", "bid"), ("nexmark.min.event.gap.in.ns", "1000000000000")];
    let mut source = open(&options(&pairs), None, &columns("bid", &["price"])).unwrap();
    let mut reader = source.reader("0", None).unwrap();
    assert!(reader.next(100).await.unwrap().is_none());
    assert!(!reader.is_finished());
}

#[test]
fn what_is_wrong_is_refused_with_what_is_right() {
    let check = |pairs: &[(&str, &str)], names: Option<&SchemaRef>, message: &str| {
        let error: ConnectorError = validate(&options(pairs), None, names).unwrap_err();
        assert_eq!(error.to_string(), message);
        assert_eq!(error.remedy(), weir_common::Remedy::Reject);
    };
    check(
        &[],
        None,
        "connector `nexmark` needs option `nexmark.table.type`: 'person', 'auction' or 'bid'; make a source for each \
         type, they read the same events",
    );
    check(
        &[("nexmark.table.type", "bids")],
        None,
        "option `nexmark.table.type` cannot be 'bids': it is 'person', 'auction' or 'bid'",
    );
    check(
        &[("nexmark.table.type", "Bid"), ("nexmark.split.num", "0")],
        None,
        "option `nexmark.split.num` cannot be '0': a number from 1 to 1024",
    );
    check(
        &[("nexmark.table.type", "Bid"), ("nexmark.splits", "1")],
        None,
        "connector `nexmark` has no option `nexmark.splits`; it has `nexmark.table.type`, `nexmark.split.num`, \
         `nexmark.event.num`, `nexmark.min.event.gap.in.ns` and `nexmark.max.chunk.size`",
    );
    check(
        &[("nexmark.table.type", "person")],
        Some(&columns("bid", &["price"])),
        "nexmark's person has no column `price`; it has `id`, `name`, `email_address`, `credit_card`, `city`, `state`, \
         `date_time` and `extra`",
    );
    let offset = source("bid", &[], 10, 1).reader("0", Some("x")).err().unwrap();
    assert_eq!(offset.remedy(), weir_common::Remedy::Stop);
    assert!(source("bid", &[], 10, 1).reader("1", None).is_err());
}

/// The processor time of this thread: other processes do not count.
fn cpu_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    text.split(' ').next().unwrap().parse::<f64>().unwrap() / 1e9
}

/// `cargo test -p weir-connector --config 'profile.dev.package.weir-connector.opt-level=3' -- --ignored --nocapture speed`
#[tokio::test]
#[ignore = "measures, and asserts nothing"]
async fn speed() {
    let cases: [(&str, &[&str]); 7] = [
        ("bid", &["auction", "bidder", "price", "date_time"]),
        ("bid", &["auction", "bidder", "price", "channel", "url", "date_time"]),
        ("bid", &[]),
        ("bid", &["date_time"]),
        ("auction", &["id", "category", "date_time", "expires", "seller"]),
        ("auction", &[]),
        ("person", &[]),
    ];
    for (table, names) in cases {
        let mut source = source(table, names, 50_000_000, 1);
        let mut reader = source.reader("0", None).unwrap();
        let start = cpu_seconds();
        let (mut rows, mut bytes) = (0, 0);
        while cpu_seconds() < start + 0.5
            && let Some(batch) = reader.next(4_096).await.unwrap()
        {
            rows += batch.batch.num_rows();
            bytes += batch.batch.get_array_memory_size();
        }
        let seconds = cpu_seconds() - start;
        let (rate, volume) = (rows as f64 / seconds / 1e6, bytes as f64 / seconds / 1e6);
        println!("{table} {names:?}: {rate:.2} M rows/s, {volume:.0} MB/s");
    }
}
