//! CREATE SECRET, and options that name secrets.
//!
//! A secret is a value in the catalog that no statement shows. What names it gets the value when it is created.

use std::collections::BTreeMap;

use weir_common::JobId;
use weir_common::catalog::ObjectKind;

use super::check_options;
use crate::error::{Result, SqlError, SqlState};
use crate::session::{Moment, Reply, Session};
use crate::statement::{CreateSecret, CreateTable, SECRET_MARK, Statement};
use crate::system::quoted;

const VALUE: &str = "value";

impl Session {
    pub(in crate::session) async fn create_secret(
        &self,
        create: &CreateSecret,
        statement: &Statement,
    ) -> Result<Reply> {
        let moment = self.moment()?;
        let new = match self.place(&moment, &create.name, ObjectKind::Secret, create.if_not_exists, statement)? {
            Ok(new) => new,
            Err(reply) => return Ok(reply),
        };
        check_options(&create.options, |name| name == "backend")?;
        if create.options.get("backend").is_some_and(|backend| backend != "meta") {
            let error = SqlError::unsupported("this backend of secrets");
            return Err(error.with_hint("Secrets are kept in the meta store: backend = 'meta'."));
        }
        let mut object = new.object(&self.user);
        object.definition = format!("CREATE SECRET {} WITH (backend = 'meta') AS '***'", quoted(&object.name));
        object.options = BTreeMap::from([(VALUE.to_owned(), create.value.clone())]);
        self.create(object, None, true, create.if_not_exists).await
    }

    /// A table or source with the secrets that its connector is given.
    pub(in crate::session) fn with_secrets(&self, create: &CreateTable) -> Result<CreateTable> {
        let (options, _) = resolved(&self.moment()?, &create.options)?;
        Ok(CreateTable { options, ..create.clone() })
    }
}

/// Options with the values of the secrets that they name, and which those are.
pub(super) fn resolved(
    moment: &Moment<'_>,
    options: &BTreeMap<String, String>,
) -> Result<(BTreeMap<String, String>, Vec<JobId>)> {
    let (mut resolved, mut secrets) = (options.clone(), Vec::new());
    for value in resolved.values_mut() {
        let Some(name) = value.strip_prefix(SECRET_MARK) else { continue };
        let (schema, name) = name.split_once('.').map_or((None, name), |(schema, name)| (Some(schema), name));
        let schemas = moment.search_path.iter().map(String::as_str).filter(|_| schema.is_none()).chain(schema);
        let found = schemas.filter_map(|schema| moment.catalog.find(schema, name)).next();
        let Some(secret) = found.filter(|object| object.kind == ObjectKind::Secret) else {
            let message = format!("secret \"{name}\" does not exist");
            return Err(SqlError::new(SqlState::UNDEFINED_OBJECT, message));
        };
        secrets.push(secret.id);
        *value = secret.options.get(VALUE).cloned().unwrap_or_default();
    }
    Ok((resolved, secrets))
}
