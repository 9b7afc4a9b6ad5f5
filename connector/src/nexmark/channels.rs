//! Where bids come from: channels and their URLs.

use std::sync::LazyLock;

use super::random::Random;

/// Channels that half of all bids come from.
const HOT_NAMES: [&str; 4] = ["Google", "Facebook", "Baidu", "Apple"];
/// How many channels share the other half.
const COLD_CHANNELS: u32 = 10_000;
/// Bytes of the longest name and URL.
const NAME_BYTES: usize = 16;
const URL_BYTES: usize = 96;

/// A channel. Its texts stand in place, so that drawing one touches two lines of the cache and not six.
#[derive(Clone)]
#[repr(align(64))]
pub struct Channel {
    name: [u8; NAME_BYTES],
    name_length: u8,
    url_length: u8,
    url: [u8; URL_BYTES],
}

impl Channel {
    fn new(name: &str, url: &str) -> Channel {
        let mut channel = Channel {
            name: [0; NAME_BYTES],
            name_length: name.len() as u8,
            url_length: url.len() as u8,
            url: [0; URL_BYTES],
        };
        channel.name[..name.len()].copy_from_slice(name.as_bytes());
        channel.url[..url.len()].copy_from_slice(url.as_bytes());
        channel
    }

    /// Its name.
    #[inline(always)]
    pub fn name(&self) -> &[u8] {
        &self.name[..self.name_length.into()]
    }

    /// Its URL.
    #[inline(always)]
    pub fn url(&self) -> &[u8] {
        &self.url[..self.url_length.into()]
    }
}

/// All channels.
pub struct Channels {
    hot: Vec<Channel>,
    cold: Vec<Channel>,
}

static CHANNELS: LazyLock<Channels> = LazyLock::new(|| Channels {
    hot: (0u64..).zip(HOT_NAMES).map(|(i, name)| Channel::new(name, &base_url(i))).collect(),
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
    Channel::new(&format!("channel-{number}"), &url)
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
