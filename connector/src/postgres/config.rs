//! The options of a sink into PostgreSQL.

use crate::error::{ConnectorError, Result};
use crate::options::Options;
use crate::sink::SinkSpec;

const CONNECTOR: &str = "postgres";
const HOST: &str = "host";
const PORT: &str = "port";
const USER: &str = "user";
const PASSWORD: &str = "password";
const DATABASE: &str = "database";
const SCHEMA: &str = "schema";
const TABLE: &str = "table";
const SINK_ID: &str = "sink_id";

/// Where rows go.
#[derive(Clone)]
pub struct PostgresConfig {
    pub host: String,
    pub port: u16,
    pub user: String,
    pub password: Option<String>,
    pub database: String,
    pub schema: String,
    pub table: String,
    /// The name of the sink in the table of offsets.
    pub id: String,
}

impl PostgresConfig {
    pub fn parse(spec: &SinkSpec) -> Result<PostgresConfig> {
        let known = [HOST, PORT, USER, PASSWORD, DATABASE, SCHEMA, TABLE, SINK_ID];
        let options = Options::new(CONNECTOR, &spec.options, &known)?;
        let needed = |option, expected| match options.get(option) {
            Some(value) if !value.is_empty() => Ok(value.to_owned()),
            _ => Err(options.missing(option, expected)),
        };
        if let Some((format, encode)) = &spec.format {
            let (format, encode) = (format.clone(), encode.clone());
            let expected = "a table of PostgreSQL has no FORMAT";
            return Err(ConnectorError::UnsupportedFormat { connector: CONNECTOR, format, encode, expected });
        }
        if !spec.append_only && spec.primary_key.is_empty() {
            let expected = "the columns that identify a row, as rows are updated and deleted";
            return Err(options.missing("primary_key", expected));
        }
        if options.get(SINK_ID).is_some_and(str::is_empty) {
            return Err(options.invalid(SINK_ID, "a name"));
        }
        let user = needed(USER, "the user to connect as")?;
        Ok(PostgresConfig {
            host: needed(HOST, "the name or address of the server")?,
            port: options.parse(PORT, 5432, |port| *port > 0, "a number from 1 to 65535")?,
            password: options.get_exact(PASSWORD).map(str::to_owned),
            database: options.get(DATABASE).map_or_else(|| user.clone(), str::to_owned),
            user,
            schema: options.get(SCHEMA).unwrap_or("public").to_owned(),
            table: needed(TABLE, "the table that rows go to")?,
            id: options.get(SINK_ID).map_or_else(|| format!("weir-{}", spec.sink), str::to_owned),
        })
    }
}
