//! People.

use arrow::array::ArrayRef;

use super::bid::{numbers, times};
use super::random::Random;
use super::sequence::{Event, FIRST_PERSON};
use super::strings::Strings;

/// The columns, by their place in the schema.
const ID: usize = 0;
const NAME: usize = 1;
const EMAIL_ADDRESS: usize = 2;
const CREDIT_CARD: usize = 3;
const CITY: usize = 4;
const STATE: usize = 5;
const DATE_TIME: usize = 6;

const FIRST_NAMES: [&str; 11] =
    ["peter", "paul", "luke", "john", "saul", "vicky", "kate", "julie", "sarah", "deiter", "walter"];
const LAST_NAMES: [&str; 9] = ["shultz", "abrams", "spencer", "white", "bartels", "walton", "smith", "jones", "noris"];
const CITIES: [&str; 10] =
    ["phoenix", "los angeles", "san francisco", "boise", "portland", "bend", "redmond", "seattle", "kent", "cheyenne"];
const STATES: [&str; 6] = ["az", "ca", "id", "or", "wa", "wy"];

/// Bytes of the id, which the length of `extra` takes into account.
const ID_BYTES: u64 = 8;
/// Bytes that a person has on average.
const AVERAGE_BYTES: u64 = 200;

/// The people at these events, in the columns with these places in the schema.
pub fn generate(events: impl Iterator<Item = Event> + Clone, rows: usize, columns: &[usize]) -> Vec<ArrayRef> {
    let [mut names, mut emails, mut cards, mut cities, mut states, mut extras] =
        [16, 20, 20, 16, 2, 160].map(|bytes| Strings::with_capacity(rows, rows * bytes));
    if columns.iter().any(|c| *c != ID && *c != DATE_TIME) {
        for event in events.clone().take(rows) {
            let random = &mut Random::seed(event.number());
            let before = [&names, &emails, &cards, &cities, &states].map(|s| s.len()).iter().sum::<usize>();
            draw_name(random, &mut names);
            draw_email(random, &mut emails);
            draw_card(random, &mut cards);
            cities.push(choose(random, &CITIES));
            states.push(choose(random, &STATES));
            let after = [&names, &emails, &cards, &cities, &states].map(|s| s.len()).iter().sum::<usize>();
            let length = random.extra_length(ID_BYTES + (after - before) as u64, AVERAGE_BYTES);
            extras.letters(length, random);
            extras.end();
        }
    }
    let names = names.finish();
    let emails = emails.finish();
    let cards = cards.finish();
    let cities = cities.finish();
    let states = states.finish();
    let extras = extras.finish();
    let arrays = columns.iter().map(|column| match *column {
        ID => numbers(events.clone().take(rows).map(|e| e.last_person() as i64 + FIRST_PERSON).collect()),
        NAME => names.clone(),
        EMAIL_ADDRESS => emails.clone(),
        CREDIT_CARD => cards.clone(),
        CITY => cities.clone(),
        STATE => states.clone(),
        DATE_TIME => times(events.clone().take(rows)),
        _ => extras.clone(),
    });
    arrays.collect()
}

fn choose(random: &mut Random, words: &[&'static str]) -> &'static [u8] {
    words[random.below_u32(words.len() as u32) as usize].as_bytes()
}

fn draw_name(random: &mut Random, names: &mut Strings) {
    names.bytes(choose(random, &FIRST_NAMES));
    names.bytes(b" ");
    names.bytes(choose(random, &LAST_NAMES));
    names.end();
}

fn draw_email(random: &mut Random, emails: &mut Strings) {
    emails.letters(7, random);
    emails.bytes(b"@");
    emails.letters(5, random);
    emails.bytes(b".com");
    emails.end();
}

/// Four groups of four digits.
fn draw_card(random: &mut Random, cards: &mut Strings) {
    for group in 0..4 {
        if group > 0 {
            cards.bytes(b" ");
        }
        let digits = random.below_u32(10_000);
        cards.bytes(&[1_000, 100, 10, 1].map(|unit| b'0' + (digits / unit % 10) as u8));
    }
    cards.end();
}
