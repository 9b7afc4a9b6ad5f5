//! CREATE SCHEMA and DROP SCHEMA.

use weir_common::JobId;

use super::drop::{Dropped, refusal};
use crate::error::{Result, SqlError, SqlState};
use crate::session::{Reply, Session};
use crate::statement::Ident;
use crate::system;

const DUPLICATE_SCHEMA: SqlState = SqlState("42P06");

impl Session {
    pub(in crate::session) async fn create_schema(&self, name: &Ident, if_not_exists: bool) -> Result<Reply> {
        let exists = || SqlError::new(DUPLICATE_SCHEMA, format!("schema \"{}\" already exists", name.value));
        if name.value.starts_with("pg_") {
            let message = format!("unacceptable schema name \"{}\"", name.value);
            let error = SqlError::new(SqlState("42939"), message);
            return Err(name.mark(error).with_detail("The prefix \"pg_\" is reserved for system schemas."));
        }
        let taken = system::is_system_schema(&name.value) || self.meta.catalog().has_schema(&name.value);
        let created = if taken { Err(exists()) } else { Ok(self.meta.create_schema(&name.value).await?) };
        match created {
            Ok(()) => Ok(Reply::command("CREATE SCHEMA")),
            Err(_) if if_not_exists => {
                let notice = SqlError::notice(format!("schema \"{}\" already exists, skipping", name.value));
                Ok(Reply::noticed("CREATE SCHEMA", vec![notice]))
            }
            Err(error) => Err(name.mark(error)),
        }
    }

    pub(in crate::session) async fn drop_schemas(
        &self,
        names: &[Ident],
        if_exists: bool,
        cascade: bool,
    ) -> Result<Reply> {
        let mut notices = Vec::new();
        for name in names {
            if system::is_system_schema(&name.value) {
                let message =
                    format!("cannot drop schema {} because it is required by the database system", name.value);
                return Err(name.mark(SqlError::new(SqlState::DEPENDENT_OBJECTS, message)));
            }
            let catalog = self.meta.catalog();
            if !catalog.has_schema(&name.value) {
                let message = format!("schema \"{}\" does not exist", name.value);
                if !if_exists {
                    return Err(name.mark(SqlError::new(SqlState::INVALID_SCHEMA_NAME, message)));
                }
                notices.push(SqlError::notice(format!("{message}, skipping")));
                continue;
            }
            let inside: Vec<JobId> = catalog.objects().filter(|o| o.schema == name.value).map(|o| o.id).collect();
            if !inside.is_empty() {
                if !cascade {
                    let lines = inside.iter().filter_map(|id| catalog.get(*id));
                    let lines = lines.map(|o| format!("{} {} depends on schema {}", o.kind.sql(), o.name, name.value));
                    return Err(name.mark(refusal(&format!("schema {}", name.value), &lines.collect::<Vec<_>>())));
                }
                let dropped = Dropped::closure(&catalog, &inside);
                self.meta.drop_objects(&dropped.ids).await?;
                notices.extend(dropped.cascaded(&catalog, &[]));
            }
            self.meta.drop_schema(&name.value).await?;
        }
        Ok(Reply::noticed("DROP SCHEMA", notices))
    }
}
