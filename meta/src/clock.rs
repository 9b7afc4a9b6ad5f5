//! The epoch clock: ticks at an interval, and on demand.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::sync::{Notify, watch};
use tokio::time::{Instant, MissedTickBehavior};
use weir_common::Epoch;

/// Ticks that were asked for are at least this far apart; requests between share one.
const SPACING_MIN: Duration = Duration::from_millis(2);

/// Gives out epochs. The newest one is in a watch channel.
pub struct EpochClock {
    requested: Arc<Notify>,
    epochs: watch::Receiver<Epoch>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for EpochClock {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl EpochClock {
    /// Starts after `last`, the newest epoch that was ever given out. `on_tick` is called for each epoch, in order.
    pub fn start(last: Epoch, interval: Duration, on_tick: impl Fn(Epoch) + Send + 'static) -> EpochClock {
        let requested = Arc::new(Notify::new());
        let (sender, epochs) = watch::channel(last);
        let requests = requested.clone();
        let task = tokio::spawn(async move {
            let mut interval = tokio::time::interval(interval);
            interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
            let mut ticked = Instant::now();
            loop {
                tokio::select! {
                    _ = interval.tick() => {}
                    () = requests.notified() => tokio::time::sleep_until(ticked + SPACING_MIN).await,
                }
                ticked = Instant::now();
                let epoch = sender.borrow().next(now_ms());
                sender.send_replace(epoch);
                on_tick(epoch);
            }
        });
        EpochClock { requested, epochs, task }
    }

    /// Asks for an epoch soon.
    pub fn request(&self) {
        self.requested.notify_one();
    }

    /// A handle to ask with.
    pub fn requester(&self) -> Arc<Notify> {
        self.requested.clone()
    }

    /// An epoch that is given out after this call.
    pub async fn fresh(&self) -> Epoch {
        let mut epochs = self.epochs.clone();
        let seen = *epochs.borrow_and_update();
        self.request();
        match epochs.wait_for(|epoch| *epoch > seen).await {
            Ok(epoch) => *epoch,
            // The clock has stopped: the process is ending.
            Err(_) => seen,
        }
    }
}

/// Milliseconds of Unix time.
pub fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_epoch_comes_when_asked_for() {
        let clock = EpochClock::start(Epoch::from_unix_ms(u64::MAX >> 20), Duration::from_secs(3600), |_| {});
        let first = clock.fresh().await;
        let second = clock.fresh().await;
        assert!(second > first && first > Epoch::from_unix_ms(u64::MAX >> 20));
    }
}
