//! The options of an Iceberg sink.

use std::collections::BTreeMap;

use iceberg::{NamespaceIdent, TableIdent};
use parquet::basic::{Compression, GzipLevel, ZstdLevel};

use super::partition::{PartitionColumn, parse_partition_by};
use crate::error::{ConnectorError, Result};
use crate::options::Options;

const CONNECTOR: &str = "iceberg";
const WAREHOUSE: &str = "warehouse.path";
const CATALOG_TYPE: &str = "catalog.type";
const CATALOG_URI: &str = "catalog.uri";
const CATALOG_NAME: &str = "catalog.name";
const CATALOG_TOKEN: &str = "catalog.token";
const DATABASE: &str = "database.name";
const TABLE: &str = "table.name";
const CREATE_TABLE: &str = "create_table_if_not_exists";
const S3_ENDPOINT: &str = "s3.endpoint";
const S3_REGION: &str = "s3.region";
const S3_ACCESS_KEY: &str = "s3.access.key";
const S3_SECRET_KEY: &str = "s3.secret.key";
const S3_PATH_STYLE: &str = "s3.path.style.access";
const PARTITION_BY: &str = "partition_by";
const TARGET_FILE_SIZE: &str = "target_file_size_mb";
const COMPRESSION: &str = "compression";
const AUTO_SCHEMA_CHANGE: &str = "auto_schema_change";
const WRITE_MODE: &str = "write_mode";
const KNOWN: [&str; 18] = [
    WAREHOUSE,
    CATALOG_TYPE,
    CATALOG_URI,
    CATALOG_NAME,
    CATALOG_TOKEN,
    DATABASE,
    TABLE,
    CREATE_TABLE,
    S3_ENDPOINT,
    S3_REGION,
    S3_ACCESS_KEY,
    S3_SECRET_KEY,
    S3_PATH_STYLE,
    PARTITION_BY,
    TARGET_FILE_SIZE,
    COMPRESSION,
    AUTO_SCHEMA_CHANGE,
    WRITE_MODE,
];

/// Which catalog knows the table.
#[derive(Clone, Debug, PartialEq)]
pub enum CatalogConfig {
    /// `url` as sqlx takes it. `name` tells apart the catalogs of one database.
    Sql { url: String, name: String },
    /// Bearer `token`, if there is one.
    Rest { uri: String, token: Option<String> },
}

/// An object store of the S3 kind; what is missing comes from the environment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct S3Config {
    pub endpoint: Option<String>,
    pub region: Option<String>,
    pub access_key: Option<String>,
    pub secret_key: Option<String>,
    pub path_style: bool,
}

/// Everything about an Iceberg sink that its options say.
#[derive(Clone, Debug)]
pub struct IcebergConfig {
    pub catalog: CatalogConfig,
    /// Where tables are made. A location with a scheme, or of a REST catalog whatever it calls its warehouse.
    pub warehouse: Option<String>,
    pub table: TableIdent,
    pub create_table: bool,
    pub s3: S3Config,
    pub partition_by: Option<Vec<PartitionColumn>>,
    /// Bytes after which a data file is closed and the next begun.
    pub target_file_size: u64,
    pub compression: Compression,
    pub auto_schema_change: bool,
}

impl IcebergConfig {
    /// Checks the options.
    pub fn parse(options: &BTreeMap<String, String>) -> Result<IcebergConfig> {
        let options = Options::new(CONNECTOR, options, &KNOWN)?;
        let catalog = parse_catalog(&options)?;
        let warehouse = match (options.get(WAREHOUSE), &catalog) {
            (Some(path), CatalogConfig::Sql { .. }) => Some(parse_warehouse(&options, path)?),
            (Some(path), CatalogConfig::Rest { .. }) => Some(path.to_owned()),
            (None, CatalogConfig::Rest { .. }) => None,
            (None, CatalogConfig::Sql { .. }) => {
                return Err(options.missing(WAREHOUSE, "a directory or s3://bucket/path"));
            }
        };
        match options.get(WRITE_MODE).map(str::to_ascii_lowercase).as_deref() {
            None | Some("merge-on-read") => {}
            Some(_) => return Err(options.invalid(WRITE_MODE, "it is 'merge-on-read'")),
        }
        let megabytes = options.parse(TARGET_FILE_SIZE, 128u64, |m| (1..=65_536).contains(m), "1 to 65536")?;
        Ok(IcebergConfig {
            catalog,
            warehouse,
            table: parse_table(&options)?,
            create_table: options.flag(CREATE_TABLE, false)?,
            s3: S3Config {
                endpoint: options.get(S3_ENDPOINT).map(str::to_owned),
                region: options.get(S3_REGION).map(str::to_owned),
                access_key: options.get(S3_ACCESS_KEY).map(str::to_owned),
                secret_key: options.get(S3_SECRET_KEY).map(str::to_owned),
                path_style: options.flag(S3_PATH_STYLE, false)?,
            },
            partition_by: match options.get(PARTITION_BY) {
                Some(text) => Some(parse_partition_by(text).ok_or_else(|| {
                    options.invalid(PARTITION_BY, "it is columns and transforms, such as 'a, bucket(16, b), day(c)'")
                })?),
                None => None,
            },
            target_file_size: megabytes << 20,
            compression: parse_compression(&options)?,
            auto_schema_change: options.flag(AUTO_SCHEMA_CHANGE, false)?,
        })
    }
}

fn parse_catalog(options: &Options<'_>) -> Result<CatalogConfig> {
    let kind = options.get(CATALOG_TYPE).ok_or_else(|| options.missing(CATALOG_TYPE, "'sql' or 'rest'"))?;
    let uri = options.get(CATALOG_URI).ok_or_else(|| options.missing(CATALOG_URI, "where the catalog is"))?;
    match kind.to_ascii_lowercase().as_str() {
        "sql" | "jdbc" => {
            let url = parse_sql_url(uri).ok_or_else(|| ConnectorError::InvalidOption {
                option: CATALOG_URI.into(),
                value: uri.split("//").next().unwrap_or_default().into(),
                expected: "of an SQL catalog it is sqlite:PATH or postgresql://USER:PASSWORD@HOST/DATABASE",
            })?;
            if options.get(CATALOG_TOKEN).is_some() {
                let expected = "it is for a catalog of type 'rest'";
                return Err(ConnectorError::InvalidOption {
                    option: CATALOG_TOKEN.into(),
                    value: "…".into(),
                    expected,
                });
            }
            Ok(CatalogConfig::Sql { url, name: options.get(CATALOG_NAME).unwrap_or("weir").to_owned() })
        }
        "rest" if uri.starts_with("http://") || uri.starts_with("https://") => Ok(CatalogConfig::Rest {
            uri: uri.trim_end_matches('/').to_owned(),
            token: options.get(CATALOG_TOKEN).map(str::to_owned),
        }),
        "rest" => Err(options.invalid(CATALOG_URI, "of a REST catalog it begins with http:// or https://")),
        _ => Err(options.invalid(CATALOG_TYPE, "it is 'sql' or 'rest'")),
    }
}

/// `sqlite:PATH` with any number of slashes before an absolute path, as different clients write it; PostgreSQL as is.
fn parse_sql_url(uri: &str) -> Option<String> {
    let uri = uri.strip_prefix("jdbc:").unwrap_or(uri);
    if let Some(path) = uri.strip_prefix("sqlite:") {
        let absolute = path.starts_with('/');
        let path = path.trim_start_matches('/');
        let slash = if absolute { "/" } else { "" };
        return (!path.is_empty()).then(|| format!("sqlite:{slash}{path}?mode=rwc"));
    }
    let rest = uri.strip_prefix("postgresql").or_else(|| uri.strip_prefix("postgres"))?;
    // SQLAlchemy names the driver.
    let rest = if rest.starts_with('+') { rest.find("://").map(|at| &rest[at..])? } else { rest };
    rest.starts_with("://").then(|| format!("postgres{rest}"))
}

fn parse_warehouse(options: &Options<'_>, path: &str) -> Result<String> {
    let path = path.trim_end_matches('/');
    if path.starts_with('/') {
        return Ok(format!("file://{path}"));
    }
    let has_name = |scheme: &str| path.strip_prefix(scheme).is_some_and(|p| !p.is_empty());
    if path.starts_with("file:///") || has_name("s3://") || has_name("s3a://") {
        return Ok(path.to_owned());
    }
    Err(options.invalid(WAREHOUSE, "it is an absolute path, file:///PATH or s3://BUCKET/PATH"))
}

fn parse_table(options: &Options<'_>) -> Result<TableIdent> {
    let table = options.get(TABLE).ok_or_else(|| options.missing(TABLE, "the name of the table"))?;
    let database = options.get(DATABASE).ok_or_else(|| options.missing(DATABASE, "the name space of the table"))?;
    let is_name = |name: &str| !name.is_empty() && !name.contains('/') && name != "." && name != "..";
    if !is_name(table) {
        return Err(options.invalid(TABLE, "it is a name without '/'"));
    }
    let levels: Vec<String> = database.split('.').map(str::to_owned).collect();
    if !levels.iter().all(|l| is_name(l)) {
        return Err(options.invalid(DATABASE, "it is a name without '/', or names with dots between them"));
    }
    let namespace = NamespaceIdent::from_vec(levels).map_err(|_| options.invalid(DATABASE, "it is a name"))?;
    Ok(TableIdent::new(namespace, table.to_owned()))
}

fn parse_compression(options: &Options<'_>) -> Result<Compression> {
    match options.get(COMPRESSION).unwrap_or("zstd").to_ascii_lowercase().as_str() {
        "zstd" => Ok(Compression::ZSTD(ZstdLevel::default())),
        "snappy" => Ok(Compression::SNAPPY),
        "gzip" => Ok(Compression::GZIP(GzipLevel::default())),
        "none" => Ok(Compression::UNCOMPRESSED),
        _ => Err(options.invalid(COMPRESSION, "it is 'zstd', 'snappy', 'gzip' or 'none'")),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn parse(options: &[(&str, &str)]) -> Result<IcebergConfig> {
        let mut all = BTreeMap::from([
            ("connector".to_owned(), "iceberg".to_owned()),
            (WAREHOUSE.into(), "/w".into()),
            (CATALOG_TYPE.into(), "sql".into()),
            (CATALOG_URI.into(), "sqlite:///c.db".into()),
            (DATABASE.into(), "d".into()),
            (TABLE.into(), "t".into()),
        ]);
        all.extend(options.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())));
        IcebergConfig::parse(&all)
    }

    #[test]
    fn urls_of_catalogs() {
        for (uri, url) in [
            ("sqlite:c.db", Some("sqlite:c.db?mode=rwc")),
            ("sqlite:/a/c.db", Some("sqlite:/a/c.db?mode=rwc")),
            ("sqlite:///a/c.db", Some("sqlite:/a/c.db?mode=rwc")),
            ("sqlite:////a/c.db", Some("sqlite:/a/c.db?mode=rwc")),
            ("postgresql://u:p@h/d", Some("postgres://u:p@h/d")),
            ("postgresql+psycopg2://u:p@h/d", Some("postgres://u:p@h/d")),
            ("jdbc:postgresql://h/d", Some("postgres://h/d")),
            ("sqlite:", None),
            ("mysql://h/d", None),
        ] {
            assert_eq!(parse_sql_url(uri).as_deref(), url, "{uri}");
        }
    }

    #[test]
    fn wrong_options_are_refused() {
        assert_eq!(parse(&[]).unwrap().warehouse.as_deref(), Some("file:///w"));
        for (option, value, message) in [
            (WRITE_MODE, "copy-on-write", "option `write_mode` cannot be 'copy-on-write': it is 'merge-on-read'"),
            (COMPRESSION, "lzo", "option `compression` cannot be 'lzo': it is 'zstd', 'snappy', 'gzip' or 'none'"),
            (
                WAREHOUSE,
                "w",
                "option `warehouse.path` cannot be 'w': it is an absolute path, file:///PATH or s3://BUCKET/PATH",
            ),
            (TARGET_FILE_SIZE, "0", "option `target_file_size_mb` cannot be '0': 1 to 65536"),
            (CATALOG_TYPE, "hive", "option `catalog.type` cannot be 'hive': it is 'sql' or 'rest'"),
            (TABLE, "a/b", "option `table.name` cannot be 'a/b': it is a name without '/'"),
        ] {
            assert_eq!(parse(&[(option, value)]).unwrap_err().to_string(), message);
        }
        assert!(parse(&[("warehouse", "x")]).unwrap_err().to_string().contains("has no option `warehouse`"));
        let secret = parse(&[(CATALOG_URI, "mysql://u:secret@h")]).unwrap_err().to_string();
        assert!(!secret.contains("secret"), "{secret}");
    }
}
