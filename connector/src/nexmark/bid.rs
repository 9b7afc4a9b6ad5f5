//! Bids.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, TimestampMicrosecondArray};

use super::channels::Channels;
use super::lanes::LastTexts;
use super::random::Random;
use super::sequence::{Event, FIRST_AUCTION, FIRST_PERSON};
use super::strings::Strings;

/// The columns, by their place in the schema.
const AUCTION: usize = 0;
const BIDDER: usize = 1;
const PRICE: usize = 2;
const CHANNEL: usize = 3;
const URL: usize = 4;
const DATE_TIME: usize = 5;
const EXTRA: usize = 6;

/// Of so many bids, all but one are on the hot auction.
const HOT_AUCTION_RATIO: u64 = 2;
/// Of so many bids, all but one are from the hot bidder.
const HOT_BIDDER_RATIO: u64 = 4;
/// Bytes of the fields that the length of `extra` takes into account.
const FIXED_BYTES: u64 = 32;
/// Bytes that a bid has on average.
const AVERAGE_BYTES: u64 = 100;

/// The bids at these events, in the columns with these places in the schema.
pub fn generate(events: impl Iterator<Item = Event> + Clone, rows: usize, columns: &[usize]) -> Vec<ArrayRef> {
    let wanted = |column: usize| columns.contains(&column);
    let room = |column: usize, bytes: usize| {
        let rows = if wanted(column) { rows } else { 0 };
        Strings::with_capacity(rows, rows * bytes)
    };
    let mut auctions = Vec::with_capacity(rows);
    let mut bidders = Vec::with_capacity(rows);
    let mut prices = Vec::with_capacity(rows);
    let (mut channels, mut urls, mut extras) = (room(CHANNEL, 12), room(URL, 72), room(EXTRA, 84));
    let with_extra = wanted(EXTRA);
    let with_channel = wanted(CHANNEL) || wanted(URL) || with_extra;
    let with_price = wanted(PRICE) || with_channel;
    let with_bidder = wanted(BIDDER) || with_price;
    let (keep_channel, keep_url) = (wanted(CHANNEL), wanted(URL));
    let all = Channels::get();
    let mut texts = LastTexts::new();
    if with_bidder || wanted(AUCTION) {
        for event in events.clone().take(rows) {
            let random = &mut Random::seed(event.number());
            auctions.push(draw_auction(event, random));
            if with_bidder {
                bidders.push(draw_bidder(event, random));
            }
            if with_price {
                prices.push(random.price());
            }
            if with_channel {
                let channel = all.draw(random);
                if keep_channel {
                    channels.push(channel.name());
                }
                if keep_url {
                    urls.push(channel.url());
                }
            }
            if with_extra {
                let length = random.extra_length(FIXED_BYTES, AVERAGE_BYTES);
                texts.push(random, length, &mut extras);
            }
        }
    }
    texts.flush(&mut extras);
    let (auctions, bidders, prices) = (numbers(auctions), numbers(bidders), numbers(prices));
    let channels = channels.finish();
    let urls = urls.finish();
    let extras = extras.finish();
    let arrays = columns.iter().map(|column| match *column {
        AUCTION => auctions.clone(),
        BIDDER => bidders.clone(),
        PRICE => prices.clone(),
        CHANNEL => channels.clone(),
        URL => urls.clone(),
        DATE_TIME => times(events.clone().take(rows)),
        _ => extras.clone(),
    });
    arrays.collect()
}

/// A column of numbers.
pub fn numbers(values: Vec<i64>) -> ArrayRef {
    Arc::new(Int64Array::from(values))
}

/// When these events happen.
pub fn times(events: impl Iterator<Item = Event>) -> ArrayRef {
    Arc::new(TimestampMicrosecondArray::from_iter_values(events.map(|e| e.time_ms() * 1_000)))
}

#[inline(always)]
fn draw_auction(event: Event, random: &mut Random) -> i64 {
    let auction = if random.below(HOT_AUCTION_RATIO) > 0 {
        event.hot_auction()
    } else {
        let open = event.auctions();
        open.start + random.below(open.end - open.start)
    };
    auction as i64 + FIRST_AUCTION
}

#[inline(always)]
fn draw_bidder(event: Event, random: &mut Random) -> i64 {
    let bidder = if random.below(HOT_BIDDER_RATIO) > 0 {
        // The second of the batch, for the first one is the hot seller.
        event.hot_person() + 1
    } else {
        let people = event.people();
        people.start + random.below(people.end - people.start)
    };
    bidder as i64 + FIRST_PERSON
}
