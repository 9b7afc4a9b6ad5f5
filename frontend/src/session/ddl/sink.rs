//! CREATE SINK. One connector so far: `blackhole`, which takes everything and keeps nothing.

use weir_common::catalog::ObjectKind;

use super::{Planned, dependencies, names, select_all};
use crate::error::{Result, SqlError, SqlState};
use crate::planner::{self, Bound};
use crate::session::{Moment, Reply, Session};
use crate::statement::{CreateSink, SinkInput, Statement};

impl Session {
    pub(in crate::session) async fn create_sink(&self, sink: &CreateSink, statement: &Statement) -> Result<Reply> {
        let moment = self.moment()?;
        let new = match self.place(&moment, &sink.name, ObjectKind::Sink, sink.if_not_exists, statement)? {
            Ok(new) => new,
            Err(reply) => return Ok(reply),
        };
        let (bound, planned) = self.plan_sink(&moment, sink)?;
        let mut object = new.object(&self.user);
        object.depends_on = dependencies(&bound);
        object.options = self.job_options(&moment, ObjectKind::Sink, &sink.options)?;
        object.parallelism = self.wanted_parallelism(&moment, ObjectKind::Sink);
        object.format = sink.format.clone();
        if let SinkInput::Query(query) = &sink.from {
            object.query = Some(names::qualified(&moment, query).to_string());
        }
        let foreground = !moment.settings.is_on("background_ddl");
        self.create(object, Some(planned), foreground, sink.if_not_exists).await
    }

    /// The query of a sink and the plan of its job.
    pub(in crate::session) fn plan_sink(&self, moment: &Moment<'_>, sink: &CreateSink) -> Result<(Bound, Planned)> {
        if let Some(into) = &sink.into {
            return Err(into.mark(SqlError::unsupported("CREATE SINK … INTO a table")));
        }
        match sink.options.get("connector").map(String::as_str) {
            Some("blackhole") => {}
            Some(other) => {
                let error = SqlError::unsupported(format!("sink connector \"{other}\""));
                return Err(error.with_hint("There is one connector for sinks so far: \"blackhole\"."));
            }
            None => {
                return Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, "a sink needs the option \"connector\""));
            }
        }
        let bound = match &sink.from {
            SinkInput::Query(query) => moment.plan_kept(query)?,
            SinkInput::Relation(name) => moment.plan_kept(&select_all(&*moment.get(name)?))?,
        };
        let planned = planner::plan_sink(&bound, &sink.options, self.parallelism(moment, ObjectKind::Sink))?;
        Ok((bound, planned))
    }
}
