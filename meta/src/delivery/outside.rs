//! Carries out what the protocol says, for a destination outside.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;
use weir_common::catalog::Object;
use weir_common::{Epoch, Generation};
use weir_connector::{Commit, Committer, Protocol, Sink, SinkSettings, Stamp, open_sink};
use weir_stream::delivery::{Selection, Writers, spec};
use weir_stream::rate_limit::Allowance;

use super::protocol::{self, Outcome, Step};
use super::{Around, DeliveryState, Failure, back_off, report, uuid};

/// How long what a dropped sink has left outside is given to be removed.
const ABANDON_PATIENCE: Duration = Duration::from_secs(10);

type Ended = Result<Outcome, Failure>;

struct Outside {
    around: Around,
    sink: Box<dyn Sink>,
    settings: SinkSettings,
    selection: Selection,
    state: watch::Sender<DeliveryState>,
    allowance: Allowance,
    generation: Generation,
    committer: Option<Box<dyn Committer>>,
    writers: Option<Writers>,
    /// Rows of the commit that is under way.
    rows: u64,
}

/// Delivers until it is aborted.
pub(super) async fn run(around: Around, state: watch::Sender<DeliveryState>) {
    let object = around.job.object();
    let opened = open_sink(&spec(&object)).and_then(|sink| Ok((sink, SinkSettings::parse(&object.options)?)));
    let (sink, settings) = match opened {
        Ok(opened) => opened,
        Err(error) => {
            // The options were checked when the sink was created: another Weir has.
            report(&state, &object.full_name(), &error.into());
            state.send_modify(|s| s.stopped = true);
            return;
        }
    };
    let selection = Selection {
        columns: object.columns.iter().filter(|c| !c.hidden).count(),
        inserts_only: settings.force_append_only,
    };
    let mut machine = protocol::Delivery::new(sink.protocol(), settings.exactly_once);
    let allowance = Allowance::new(around.job.limits().sink.clone());
    let mut outside = Outside {
        around,
        sink,
        settings,
        selection,
        state,
        allowance,
        generation: Generation(0),
        committer: None,
        writers: None,
        rows: 0,
    };
    let mut step = Step::Claim;
    loop {
        outside.state.send_modify(|s| s.step = name(&step));
        let outcome = match outside.perform(&step).await {
            Ok(outcome) => outcome,
            Err(failure) => {
                report(&outside.state, &object.full_name(), &failure);
                (outside.committer, outside.writers) = (None, None);
                match failure {
                    Failure::Fenced(_) => Outcome::Fenced,
                    Failure::Other(_) => Outcome::Failed,
                }
            }
        };
        step = machine.next(step, outcome);
        if step == Step::Stop {
            outside.state.send_modify(|s| (s.step, s.stopped) = ("stopped", true));
            return;
        }
    }
}

fn name(step: &Step) -> &'static str {
    match step {
        Step::Claim | Step::Open(_) => "opening",
        Step::LookUp(_) | Step::Check(_) | Step::Discard(_) | Step::Forget(_) => "recovering",
        Step::Clean(_) => "cleaning",
        Step::Write { .. } => "writing",
        Step::Record(_) | Step::Commit(_) | Step::Settle(_) => "committing",
        Step::Pause { .. } => "failing",
        Step::Stop => "stopped",
    }
}

impl Outside {
    async fn perform(&mut self, step: &Step) -> Ended {
        match step {
            Step::Claim => self.claim().await,
            Step::Open(generation) => self.open(*generation).await,
            Step::LookUp(commit) => Ok(Outcome::Found(self.committer()?.is_committed(commit).await?)),
            Step::Check(commit) => Ok(Outcome::Found(self.committer()?.is_intact(commit).await?)),
            Step::Discard(commit) => {
                self.committer()?.discard(commit).await.map(|_| Outcome::Done).map_err(Failure::from)
            }
            Step::Clean(generation) => self.clean(*generation).await,
            Step::Write { after } => self.write(*after).await,
            Step::Forget(commit) => {
                let settled = self.around.ledger.settle(commit, self.generation, None).await?;
                self.guarded(settled)
            }
            Step::Record(commit) => {
                let recorded = self.around.ledger.record(commit).await?;
                self.guarded(recorded)
            }
            Step::Commit(commit) => {
                fail::fail_point!("sink::commit::before", |_| std::process::abort());
                self.committer()?.commit(commit).await?;
                fail::fail_point!("sink::commit::after", |_| std::process::abort());
                Ok(Outcome::Done)
            }
            Step::Settle(commit) => self.settle(commit).await,
            Step::Pause { attempt } => {
                back_off(&self.state, *attempt).await;
                Ok(Outcome::Done)
            }
            Step::Stop => Ok(Outcome::Done),
        }
    }

    async fn claim(&mut self) -> Ended {
        let ours = Some(self.generation).filter(|ours| *ours > Generation(0));
        let Some(claim) = self.around.ledger.claim(self.around.job.id, ours).await? else { return self.guarded(false) };
        self.generation = claim.generation;
        self.around.keep_log_after(claim.offset);
        self.state.send_modify(|s| (s.generation, s.offset) = (claim.generation, claim.offset));
        let frontier = self.around.job.state.borrow().frontier;
        Ok(Outcome::Claimed { generation: claim.generation, offset: claim.offset, record: claim.record, frontier })
    }

    async fn open(&mut self, generation: Generation) -> Ended {
        let mut newest = None;
        let sink = self.sink.as_ref();
        match sink.protocol() {
            Protocol::TwoPhase => {
                let mut committer = sink.committer().await?;
                committer.fence(self.around.job.id, generation).await?;
                self.committer = Some(committer);
            }
            Protocol::Transactional => {
                let mut writer = sink.writer(generation, 0).await?;
                newest = writer.resume().await?;
                self.writers = Some(Writers::over(vec![writer], self.selection.clone()));
            }
            Protocol::AtLeastOnce => {}
        }
        if self.writers.is_none() {
            let count = self.settings.writers.unwrap_or(1);
            self.writers = Some(Writers::open(sink, generation, count, self.selection.clone()).await?);
        }
        Ok(Outcome::Opened { newest })
    }

    /// What is left behind does no harm: it may stay until the next time.
    async fn clean(&mut self, generation: Generation) -> Ended {
        let sink = self.around.job.id;
        if let Some(committer) = &mut self.committer {
            match committer.clean(sink, generation).await {
                Ok(0) => {}
                Ok(removed) => tracing::info!(%sink, removed, "removed what earlier deliveries left behind"),
                Err(error) => tracing::warn!(%sink, %error, "remove what earlier deliveries left behind"),
            }
        }
        Ok(Outcome::Done)
    }

    /// Writes what comes, until a commit is due.
    async fn write(&mut self, after: Epoch) -> Ended {
        let mut at = after;
        let mut due: Option<Instant> = None;
        loop {
            let more = self.around.more(at);
            let to = match due {
                None => more.await,
                Some(due) => match tokio::time::timeout_at(due, more).await {
                    Ok(to) => to,
                    Err(_) => break,
                },
            };
            due.get_or_insert_with(|| Instant::now() + self.settings.commit_interval);
            for logged in self.around.store.read_log(self.around.table.id, at, to)? {
                let logged = logged?;
                self.allowance.wait(1).await;
                self.allowance.spend(logged.chunk.len());
                let writers = self.writers.as_mut().ok_or_else(not_open)?;
                writers.write(&logged).await?;
            }
            at = to;
            if due.is_some_and(|due| due <= Instant::now()) {
                break;
            }
        }
        let writers = self.writers.as_mut().ok_or_else(not_open)?;
        self.rows = writers.rows();
        let stamp = Stamp { sink: self.around.job.id, commit: uuid(), generation: self.generation, epoch: at };
        let parts = if self.rows == 0 { Vec::new() } else { writers.flush(&stamp).await? };
        Ok(Outcome::Written(Commit { stamp, parts }))
    }

    async fn settle(&mut self, commit: &Commit) -> Ended {
        let epoch = commit.stamp.epoch;
        if !self.around.ledger.settle(commit, self.generation, Some(epoch)).await? {
            return self.guarded(false);
        }
        self.around.keep_log_after(epoch);
        let rows = std::mem::take(&mut self.rows);
        self.state.send_modify(|s| {
            s.offset = epoch;
            s.rows += rows;
            s.commits += u64::from(rows > 0 || !commit.parts.is_empty());
            s.last_error = None;
        });
        Ok(Outcome::Done)
    }

    fn guarded(&self, done: bool) -> Ended {
        match done {
            true => Ok(Outcome::Done),
            false => Err(Failure::Fenced("the sink was taken over by another process".into())),
        }
    }

    fn committer(&mut self) -> Result<&mut dyn Committer, Failure> {
        match &mut self.committer {
            Some(committer) => Ok(committer.as_mut()),
            None => Err(not_open()),
        }
    }
}

fn not_open() -> Failure {
    Failure::Other("the destination is not open".into())
}

/// Removes what a dropped sink has written, unless it is visible.
pub(super) async fn abandon(object: &Object, commit: &Commit) {
    let removed = async {
        let sink = open_sink(&spec(object))?;
        if sink.protocol() == Protocol::TwoPhase {
            let mut committer = sink.committer().await?;
            if !committer.is_committed(commit).await? {
                committer.discard(commit).await?;
            }
        }
        weir_connector::Result::Ok(())
    };
    match tokio::time::timeout(ABANDON_PATIENCE, removed).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::warn!(sink = %object.full_name(), %error, "remove what a dropped sink left behind"),
        Err(_) => {
            tracing::warn!(sink = %object.full_name(), "what a dropped sink left behind could not be removed in time")
        }
    }
}
