//! Where bids come from: channels and their URLs.

use std::sync::LazyLock;

use super::random::Random;

/// Channels that half of all bids come from.
const HOT_NAMES: [&str; 4] = ["Google", "Facebook", "Baidu", "Apple"];
/// How many channels share the other half.
const COLD_CHANNELS: u32 = 10_000;

/// A channel.
pub struct Channel {
    pub name: String,
    pub url: String,
}

/// All channels.
pub struct Channels {
    hot: Vec<Channel>,
    cold: Vec<Channel>,
}

static CHANNELS: LazyLock<Channels> = LazyLock::new(|| Channels {
    hot: (0u64..).zip(HOT_NAMES).map(|(i, name)| Channel { name: name.to_owned(), url: base_url(i) }).collect(),
    cold: (0..COLD_CHANNELS).map(cold).collect(),
});

impl Channels {
    /// The channels, which are always the same.
    pub fn get() -> &'static Channels {
        &CHANNELS
    }

    /// The channel of a bid.
    #[inline(always)]
    pub fn draw(&self, random: &mut Random) -> &Channel {
        const HOT_RATIO: u64 = 2;
        if random.below(HOT_RATIO) > 0 {
            &self.hot[random.below(HOT_NAMES.len() as u64) as usize]
        } else {
            &self.cold[random.below_u32(COLD_CHANNELS) as usize]
        }
    }
}

/// Nine in ten name themselves in the URL.
fn cold(number: u32) -> Channel {
    let mut url = base_url(number.into());
    if Random::seed(number.into()).below_u32(10) > 0 {
        let id = i64::from((number as i32).reverse_bits()).abs();
        url.push_str(&format!("&channel_id={id}"));
    }
    Channel { name: format!("channel-{number}"), url }
}

fn base_url(seed: u64) -> String {
    let random = &mut Random::seed(seed);
    let (a, b, c) = (path(random), path(random), path(random));
    format!("https://www.nexmark.com/{a}/{b}/{c}/item.htm?query=1")
}

/// Three or four letters, some of them `_`.
fn path(random: &mut Random) -> String {
    let length = 3 + random.below(2);
    (0..length).map(|_| if random.below_u32(13) == 0 { '_' } else { char::from(random.letter()) }).collect()
}
