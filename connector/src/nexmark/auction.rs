//! Auctions.

use std::sync::Arc;

use arrow::array::{ArrayRef, TimestampMicrosecondArray};

use super::bid::{numbers, times};
use super::lanes::{LANES, Lanes, LastTexts};
use super::random::Random;
use super::sequence::{Event, FIRST_AUCTION, FIRST_PERSON, OPEN_EVENTS, time_ms};
use super::strings::Strings;

/// The columns, by their place in the schema.
const ID: usize = 0;
const ITEM_NAME: usize = 1;
const DESCRIPTION: usize = 2;
const INITIAL_BID: usize = 3;
const RESERVE: usize = 4;
const DATE_TIME: usize = 5;
const EXPIRES: usize = 6;
const SELLER: usize = 7;
const CATEGORY: usize = 8;
const EXTRA: usize = 9;

const ITEM_NAME_BYTES: usize = 20;
const DESCRIPTION_BYTES: usize = 100;
/// Letters that come before everything else.
const TEXT_BYTES: usize = ITEM_NAME_BYTES + DESCRIPTION_BYTES;
/// Of so many auctions, all but one are from the hot seller.
const HOT_SELLER_RATIO: u64 = 4;
const FIRST_CATEGORY: i64 = 10;
const CATEGORIES: u64 = 5;
/// Bytes of the fields that the length of `extra` takes into account.
const FIXED_BYTES: u64 = 168;
/// Bytes that an auction has on average.
const AVERAGE_BYTES: u64 = 500;

/// The auctions at these events, in the columns with these places in the schema.
pub fn generate(events: impl Iterator<Item = Event> + Clone, rows: usize, columns: &[usize]) -> Vec<ArrayRef> {
    let wanted = |column: usize| columns.contains(&column);
    let room = |column: usize, bytes: usize| {
        let rows = if wanted(column) { rows } else { 0 };
        Strings::with_capacity(rows, rows * bytes)
    };
    let mut names = room(ITEM_NAME, ITEM_NAME_BYTES);
    let mut descriptions = room(DESCRIPTION, DESCRIPTION_BYTES);
    let mut extras = room(EXTRA, 400);
    let [mut initial_bids, mut reserves, mut expires, mut sellers, mut categories] =
        [(); 5].map(|()| Vec::with_capacity(rows));
    let (keep_name, keep_description, keep_extra) = (wanted(ITEM_NAME), wanted(DESCRIPTION), wanted(EXTRA));
    if columns.iter().any(|c| *c != ID && *c != DATE_TIME) {
        let mut texts = Texts::new(events.clone().take(rows));
        let mut last_texts = LastTexts::new();
        for event in events.clone().take(rows) {
            let random = &mut texts.next();
            if keep_name {
                names.push(&texts.last()[..ITEM_NAME_BYTES]);
            }
            if keep_description {
                descriptions.push(&texts.last()[ITEM_NAME_BYTES..]);
            }
            let initial_bid = random.price();
            initial_bids.push(initial_bid);
            reserves.push(initial_bid + random.price());
            expires.push(draw_expiry_ms(event, random) * 1_000);
            sellers.push(draw_seller(event, random));
            categories.push(FIRST_CATEGORY + random.below(CATEGORIES) as i64);
            if keep_extra {
                let length = random.extra_length(FIXED_BYTES, AVERAGE_BYTES);
                last_texts.push(random, length, &mut extras);
            }
        }
        last_texts.flush(&mut extras);
    }
    let names = names.finish();
    let descriptions = descriptions.finish();
    let extras = extras.finish();
    let (initial_bids, reserves) = (numbers(initial_bids), numbers(reserves));
    let (sellers, categories) = (numbers(sellers), numbers(categories));
    let expires: ArrayRef = Arc::new(TimestampMicrosecondArray::from(expires));
    let arrays = columns.iter().map(|column| match *column {
        ID => numbers(events.clone().take(rows).map(|e| e.last_auction() as i64 + FIRST_AUCTION).collect()),
        ITEM_NAME => names.clone(),
        DESCRIPTION => descriptions.clone(),
        INITIAL_BID => initial_bids.clone(),
        RESERVE => reserves.clone(),
        DATE_TIME => times(events.clone().take(rows)),
        EXPIRES => expires.clone(),
        SELLER => sellers.clone(),
        CATEGORY => categories.clone(),
        _ => extras.clone(),
    });
    arrays.collect()
}

/// The name and the description of each auction, which its generator draws first.
struct Texts<I> {
    events: I,
    lanes: Box<Lanes>,
    /// Per lane, the text and the generator after it.
    drawn: [([u8; TEXT_BYTES], Random); LANES],
    /// The lane that was given last.
    lane: usize,
}

impl<I: Iterator<Item = Event>> Texts<I> {
    fn new(events: I) -> Texts<I> {
        let drawn = std::array::from_fn(|_| ([0; TEXT_BYTES], Random::seed(0)));
        Texts { events, lanes: Lanes::new(), drawn, lane: LANES - 1 }
    }

    /// The generator of the next event, after its text.
    fn next(&mut self) -> Random {
        self.lane = (self.lane + 1) % LANES;
        if self.lane == 0 {
            self.draw();
        }
        self.drawn[self.lane].1.clone()
    }

    /// The text of that event.
    fn last(&self) -> &[u8; TEXT_BYTES] {
        &self.drawn[self.lane].0
    }

    fn draw(&mut self) {
        let seeds: [u64; LANES] = std::array::from_fn(|_| self.events.next().map_or(0, Event::number));
        for (lane, seed) in seeds.iter().enumerate() {
            self.lanes.set(lane, &Random::seed(*seed));
        }
        let rejected = self.lanes.draw(TEXT_BYTES);
        for (lane, (text, random)) in self.drawn.iter_mut().enumerate() {
            if rejected[lane] {
                *random = Random::seed(seeds[lane]);
                text.fill_with(|| random.letter());
            } else {
                text.copy_from_slice(self.lanes.letters(lane, TEXT_BYTES));
                *random = self.lanes.get(lane);
            }
        }
    }
}

/// An auction is open for as long as it takes, on average, until as many have opened as are open at a time.
fn draw_expiry_ms(event: Event, random: &mut Random) -> i64 {
    let horizon = (time_ms(event.number() + OPEN_EVENTS) - event.time_ms()) as u64;
    event.time_ms() + 1 + random.below((2 * horizon).max(1)) as i64
}

fn draw_seller(event: Event, random: &mut Random) -> i64 {
    let seller = if random.below(HOT_SELLER_RATIO) > 0 {
        event.hot_person()
    } else {
        let people = event.people();
        people.start + random.below(people.end - people.start)
    };
    seller as i64 + FIRST_PERSON
}
