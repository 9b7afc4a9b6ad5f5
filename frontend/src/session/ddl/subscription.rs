//! CREATE SUBSCRIPTION.

use weir_common::JobId;
use weir_common::catalog::ObjectKind;
use weir_common::parse::parse_interval;

use super::{check_options, exists, skipped, tag};
use crate::error::{Result, SqlError, SqlState};
use crate::session::show::with_article;
use crate::session::{Reply, Session};
use crate::statement::{CreateSubscription, Statement};

impl Session {
    pub(in crate::session) async fn create_subscription(
        &self,
        create: &CreateSubscription,
        statement: &Statement,
    ) -> Result<Reply> {
        let moment = self.moment()?;
        let kind = ObjectKind::Subscription;
        let new = match self.place(&moment, &create.name, kind, create.if_not_exists, statement)? {
            Ok(new) => new,
            Err(reply) => return Ok(reply),
        };
        let relation = moment.get(&create.from)?;
        if !matches!(relation.kind, ObjectKind::Table | ObjectKind::MaterializedView) {
            let message = format!("\"{}\" is {}", relation.name, with_article(relation.kind));
            let error = create.from.mark(SqlError::new(SqlState::WRONG_OBJECT_TYPE, message));
            return Err(error.with_hint("A subscription is on a table or a materialized view."));
        }
        check_options(&create.options, |name| name == "retention")?;
        let keep_ms = retention(create.options.get("retention").map(String::as_str))?;
        let mut object = new.object(&self.user);
        object.id = JobId(self.meta.allocate_ids(1).await?);
        object.options = create.options.clone();
        object.depends_on = vec![relation.id];
        match self.meta.create_subscription(object, keep_ms).await.map_err(SqlError::from) {
            Ok(()) => Ok(Reply::command(tag("CREATE", kind))),
            Err(error) if error.state == SqlState::DUPLICATE_TABLE => {
                let name = &create.name.name.value;
                if create.if_not_exists { Ok(skipped(name, &tag("CREATE", kind))) } else { Err(exists(name)) }
            }
            Err(error) => Err(error),
        }
    }
}

/// Milliseconds.
fn retention(text: Option<&str>) -> Result<u64> {
    let hint = "Say for how long changes are kept, e.g. WITH (retention = '1 day').";
    let refuse = |message: String| SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message).with_hint(hint);
    let text = text.ok_or_else(|| refuse("a subscription needs a retention".to_string()))?;
    let invalid = || refuse(format!("invalid retention: \"{text}\""));
    let interval = parse_interval(text).map_err(|_| invalid())?;
    let days = i64::from(interval.months) * 30 + i64::from(interval.days);
    let ms = days.checked_mul(86_400_000).and_then(|ms| ms.checked_add(interval.nanoseconds / 1_000_000));
    ms.and_then(|ms| u64::try_from(ms).ok()).filter(|ms| *ms > 0).ok_or_else(invalid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retentions_are_intervals() {
        for (text, expected) in [("1 day", Some(86_400_000)), ("1D", Some(86_400_000)), ("90 s", Some(90_000))] {
            assert_eq!(retention(Some(text)).ok(), expected, "{text}");
        }
        for text in ["", "soon", "0", "-1 day"] {
            assert!(retention(Some(text)).is_err(), "{text}");
        }
        assert!(retention(None).is_err());
    }
}
