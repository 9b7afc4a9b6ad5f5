//! Which event has which number, and when it happens.

use std::ops::Range;

/// Events of a cycle: one person, three auctions, then bids.
pub const CYCLE: u64 = 50;
/// The first id of an auction.
pub const FIRST_AUCTION: i64 = 1_000;
/// The first id of a person.
pub const FIRST_PERSON: i64 = 1_000;
/// Auctions of a cycle.
const AUCTIONS: u64 = 3;
/// 2015-07-15 00:00:00 in milliseconds.
const BASE_TIME_MS: i64 = 1_436_918_400_000;
/// People that still sell and bid.
const ACTIVE_PEOPLE: u64 = 1_000;
/// Ids that are drawn although the person comes later only.
const PERSON_LEAD: u64 = 10;
/// Auctions that are open at a time.
pub const OPEN_AUCTIONS: u64 = 100;
/// Ids that are drawn although the auction comes later only.
const AUCTION_LEAD: u64 = 10;
/// Of so many people or auctions one is hot at a time.
const HOT_BATCH: u64 = 100;

/// The types of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventType {
    Person,
    Auction,
    Bid,
}

impl EventType {
    /// Its places in a cycle.
    fn places(self) -> Range<u64> {
        match self {
            EventType::Person => 0..1,
            EventType::Auction => 1..1 + AUCTIONS,
            EventType::Bid => 1 + AUCTIONS..CYCLE,
        }
    }
}

/// The events of one type in one split.
#[derive(Clone, Copy, Debug)]
pub struct Sequence {
    event_type: EventType,
    split: u64,
    splits: u64,
}

impl Sequence {
    /// The events in every `splits`-th cycle, from cycle `split` on.
    pub fn new(event_type: EventType, split: u64, splits: u64) -> Sequence {
        Sequence { event_type, split, splits }
    }

    /// How many of them have a number below `event`.
    pub fn rows_before(&self, event: u64) -> u64 {
        let places = self.event_type.places();
        let (cycle, place) = (event / CYCLE, event % CYCLE);
        let whole = cycle.saturating_sub(self.split).div_ceil(self.splits);
        let own = cycle % self.splits == self.split;
        let rest = if own { place.clamp(places.start, places.end) - places.start } else { 0 };
        whole * (places.end - places.start) + rest
    }

    /// The numbers of the events from the `row`-th on.
    pub fn events_at(&self, row: u64) -> impl Iterator<Item = Event> + Clone + use<> {
        let places = self.event_type.places();
        let per_cycle = places.end - places.start;
        let mut cycle = row / per_cycle * self.splits + self.split;
        let mut place = places.start + row % per_cycle;
        let step = self.splits;
        std::iter::from_fn(move || {
            let event = Event { cycle, place };
            place += 1;
            if place == places.end {
                place = places.start;
                cycle += step;
            }
            Some(event)
        })
    }
}

/// Where an event stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    cycle: u64,
    place: u64,
}

impl Event {
    /// Its number, from 0.
    #[inline(always)]
    pub fn number(self) -> u64 {
        self.cycle * CYCLE + self.place
    }

    /// When it happens, in milliseconds since 1970.
    #[inline(always)]
    pub fn time_ms(self) -> i64 {
        time_ms(self.number())
    }

    /// The newest person, counted from 0.
    #[inline(always)]
    pub fn last_person(self) -> u64 {
        self.cycle
    }

    /// The newest auction, counted from 0; for an auction itself, and bids.
    #[inline(always)]
    pub fn last_auction(self) -> u64 {
        self.cycle * AUCTIONS + (self.place - 1).min(AUCTIONS - 1)
    }

    /// The first person of the hot batch.
    #[inline(always)]
    pub fn hot_person(self) -> u64 {
        self.last_person() / HOT_BATCH * HOT_BATCH
    }

    /// The first auction of the hot batch.
    #[inline(always)]
    pub fn hot_auction(self) -> u64 {
        self.last_auction() / HOT_BATCH * HOT_BATCH
    }

    /// The people to draw from.
    #[inline(always)]
    pub fn people(self) -> Range<u64> {
        let people = self.last_person() + 1;
        people - people.min(ACTIVE_PEOPLE)..people + PERSON_LEAD
    }

    /// The auctions to draw from.
    #[inline(always)]
    pub fn auctions(self) -> Range<u64> {
        let last = self.last_auction();
        last.saturating_sub(OPEN_AUCTIONS)..last + 1 + AUCTION_LEAD
    }
}

/// When the event with this number happens, in milliseconds since 1970: 10,000 events are a second.
#[inline(always)]
pub fn time_ms(number: u64) -> i64 {
    BASE_TIME_MS + ((number + 5) / 10) as i64
}

/// The events that it takes until as many auctions have opened as are open at a time.
pub const OPEN_EVENTS: u64 = OPEN_AUCTIONS * CYCLE / AUCTIONS;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits_share_every_event_once() {
        for splits in [1, 2, 3, 7] {
            let mut numbers = vec![];
            for event_type in [EventType::Person, EventType::Auction, EventType::Bid] {
                for split in 0..splits {
                    let sequence = Sequence::new(event_type, split, splits);
                    let rows = sequence.rows_before(1_234);
                    numbers.extend(sequence.events_at(0).take(rows as usize).map(Event::number));
                    let rest: Vec<_> = sequence.events_at(5).take(100).collect();
                    assert_eq!(rest, sequence.events_at(0).skip(5).take(100).collect::<Vec<_>>());
                }
            }
            numbers.sort_unstable();
            assert_eq!(numbers, (0..1_234).collect::<Vec<_>>(), "{splits} splits");
        }
    }
}
