//! The planner's golden files: SQL in; plan, fragments and refusals out.
//!
//! A file in `golden/` is a list of cases. Each is a statement, a line `----`, and what is expected, up to an empty line.
//! Statements run in order on one catalog.
//!
//! | statement | output |
//! |---|---|
//! | CREATE TABLE, VIEW, INDEX, MATERIALIZED VIEW | the columns that are kept, and the job's plan |
//! | CREATE TABLE … WITH (connector = …), after `# source` | nothing: each reader reads it for itself |
//! | a query | its columns and parameters, and the bound plan |
//! | `SINK query` | the plan of a sink |
//!
//! With `WEIR_UPDATE_GOLDEN=1` the files are rewritten. Review the difference like code.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;

use datafusion::config::ConfigOptions;
use datafusion::sql::sqlparser::ast::{
    self, ColumnOption, CreateTableOptions, Expr, Statement, TableConstraint, Value,
};
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::parser::Parser;
use weir_common::JobId;
use weir_common::catalog::{ColumnDef, Object, ObjectKind, PUBLIC_SCHEMA, ROW_ID};
use weir_common::key::{KeyOrder, SortColumn};
use weir_common::plan::Conflict;
use weir_common::types::SqlType;
use weir_frontend::SqlError;
use weir_frontend::planner::{
    self, FunctionSet, NoReaders, Planned, Relations, Scope, SourceSpec, TableSpec, plan_index, plan_query, plan_sink,
    plan_table, plan_view,
};

/// A catalog of one schema.
#[derive(Default)]
struct Catalog {
    objects: Vec<Arc<Object>>,
    next_id: u32,
}

impl Relations for Catalog {
    fn find(&self, schema: &str, name: &str) -> Option<Arc<Object>> {
        self.objects.iter().find(|o| o.schema == schema && o.name == name).cloned()
    }
}

/// Actors of each fragment. The plans are the same for any number.
const PARALLELISM: usize = 2;

struct Session {
    catalog: Catalog,
    functions: FunctionSet,
    config: ConfigOptions,
    search_path: Vec<String>,
    source: bool,
}

impl Session {
    fn new() -> Session {
        Session {
            catalog: Catalog { objects: vec![], next_id: 1 },
            functions: FunctionSet::standard(),
            config: ConfigOptions::new(),
            search_path: vec![PUBLIC_SCHEMA.to_string()],
            source: false,
        }
    }

    fn scope(&self) -> Scope<'_> {
        Scope {
            relations: &self.catalog,
            readers: &NoReaders,
            database: "dev",
            search_path: &self.search_path,
            functions: &self.functions,
            config: &self.config,
        }
    }

    fn run(&mut self, sql: &str) -> Result<String, SqlError> {
        if let Some(query) = sql.strip_prefix("SINK ") {
            let bound = plan_query(&self.scope(), &parse_query(query)?, &[])?;
            let options = BTreeMap::from([("connector".to_string(), "blackhole".to_string())]);
            let planned = plan_sink(&bound, &options, PARALLELISM)?;
            return Ok(planner::explain(&planned.plan));
        }
        match parse(sql)? {
            Statement::CreateTable(create) => self.create_table(&create),
            Statement::CreateView(create) => self.create_view(&create),
            Statement::CreateIndex(create) => self.create_index(&create),
            Statement::Query(query) => self.query(&query),
            other => panic!("a golden file has no {other}"),
        }
    }

    fn query(&self, query: &ast::Query) -> Result<String, SqlError> {
        let bound = plan_query(&self.scope(), query, &[])?;
        let columns: Vec<String> = bound.columns.iter().map(|c| format!("{} {}", c.name, c.sql_type)).collect();
        let mut text = format!("{}\n", columns.join(", "));
        if !bound.params.is_empty() {
            let params: Vec<String> = bound.params.iter().map(SqlType::to_string).collect();
            writeln!(text, "params {}", params.join(", ")).unwrap();
        }
        writeln!(text, "{}", bound.plan.display_indent().to_string().replace('\u{1}', "#")).unwrap();
        Ok(text)
    }

    fn create_table(&mut self, create: &ast::CreateTable) -> Result<String, SqlError> {
        let mut columns = Vec::new();
        let mut primary_key = Vec::new();
        for (i, column) in create.columns.iter().enumerate() {
            let mut def = ColumnDef::new(column.name.value.clone(), planner::sql_type(&column.data_type)?);
            for option in &column.options {
                match &option.option {
                    ColumnOption::NotNull => def.not_null = true,
                    ColumnOption::PrimaryKey(_) => primary_key.push(i),
                    ColumnOption::Generated { generation_expr: Some(expr), .. } => {
                        def.generated = Some(expr.to_string());
                    }
                    _ => {}
                }
            }
            columns.push(def);
        }
        for constraint in &create.constraints {
            if let TableConstraint::PrimaryKey(key) = constraint {
                for column in &key.columns {
                    let name = column.column.expr.to_string();
                    primary_key.push(columns.iter().position(|c| c.name == name).unwrap());
                }
            }
        }
        if primary_key.is_empty() {
            columns.push(ColumnDef { hidden: true, not_null: true, ..ColumnDef::new(ROW_ID, SqlType::BigInt) });
        }
        let options = options(&create.table_options);
        let name = create.name.to_string();
        let object = self.object(&name, ObjectKind::Table);
        if self.source {
            self.source = false;
            let object = Object { kind: ObjectKind::Source, columns, options, append_only: true, ..object };
            self.catalog.objects.push(Arc::new(object));
            return Ok("ok\n".into());
        }
        let append_only = options.contains_key("append_only");
        let source = options.contains_key("connector").then(|| SourceSpec { options: options.clone(), format: None });
        let conflict = Conflict::Overwrite;
        let spec = TableSpec { columns, primary_key, append_only, conflict, source };
        let planned = plan_table(&self.scope(), &spec, PARALLELISM)?;
        Ok(self.keep(object, planned))
    }

    fn create_view(&mut self, create: &ast::CreateView) -> Result<String, SqlError> {
        let name = create.name.to_string();
        let bound = plan_query(&self.scope(), &create.query, &[])?;
        if create.materialized {
            let planned = plan_view(&bound, PARALLELISM)?;
            let object = self.object(&name, ObjectKind::MaterializedView);
            return Ok(self.keep(object, planned));
        }
        let columns = bound.columns.iter().map(|c| ColumnDef::new(c.name.clone(), c.sql_type.clone())).collect();
        let object = self.object(&name, ObjectKind::View);
        let object = Object { columns, query: Some(create.query.to_string()), ..object };
        self.catalog.objects.push(Arc::new(object));
        Ok("ok\n".into())
    }

    fn create_index(&mut self, create: &ast::CreateIndex) -> Result<String, SqlError> {
        let relation = self.catalog.find(PUBLIC_SCHEMA, &create.table_name.to_string()).unwrap();
        let place = |name: &str| relation.columns.iter().position(|c| c.name == name).unwrap();
        let sort = |c: &ast::IndexColumn| SortColumn {
            column: place(&c.column.expr.to_string()),
            order: if c.column.options.asc == Some(false) { KeyOrder::DESC } else { KeyOrder::ASC },
        };
        let key: Vec<SortColumn> = create.columns.iter().map(sort).collect();
        let include: Vec<usize> = create.include.iter().map(|i| place(&i.value)).collect();
        let planned = plan_index(&relation, &key, &include, PARALLELISM)?;
        let object = self.object(&create.name.as_ref().unwrap().to_string(), ObjectKind::Index);
        Ok(self.keep(object, planned))
    }

    fn object(&self, name: &str, kind: ObjectKind) -> Object {
        Object {
            id: JobId(0),
            schema: PUBLIC_SCHEMA.to_string(),
            name: name.to_string(),
            kind,
            columns: vec![],
            primary_key: vec![],
            append_only: false,
            definition: String::new(),
            query: None,
            options: BTreeMap::new(),
            format: None,
            depends_on: vec![],
            plan: None,
            owner: "root".to_string(),
            paused: false,
            replaces: None,
            into: None,
            retention: None,
            parallelism: None,
            created_ms: 0,
        }
    }

    fn keep(&mut self, object: Object, planned: Planned) -> String {
        let id = self.catalog.next_id;
        self.catalog.next_id += 1 + planned.ids_needed();
        let planned = planned.number(JobId(id), id + 1);
        let json = serde_json::to_string(&planned.plan).unwrap();
        let _: weir_common::plan::JobPlan = serde_json::from_str(&json).unwrap();
        let columns: Vec<String> = planned
            .columns
            .iter()
            .map(|c| format!("{} {}{}", c.name, c.sql_type, if c.hidden { " hidden" } else { "" }))
            .collect();
        let append_only = if planned.append_only { ", append-only" } else { "" };
        let mut text = format!("job {id}: {}{append_only}\n", columns.join(", "));
        text += &planner::explain(&planned.plan);
        self.catalog.objects.push(Arc::new(Object {
            id: JobId(id),
            columns: planned.columns,
            primary_key: planned.primary_key,
            append_only: planned.append_only,
            plan: Some(planned.plan),
            ..object
        }));
        text
    }
}

fn options(options: &CreateTableOptions) -> BTreeMap<String, String> {
    let (CreateTableOptions::With(options) | CreateTableOptions::Options(options)) = options else {
        return BTreeMap::new();
    };
    let pair = |option: &ast::SqlOption| match option {
        ast::SqlOption::KeyValue { key, value } => {
            let value = match value {
                Expr::Value(v) => match &v.value {
                    Value::SingleQuotedString(text) => text.clone(),
                    other => other.to_string(),
                },
                other => other.to_string(),
            };
            (key.value.clone(), value)
        }
        other => panic!("{other} is no option"),
    };
    options.iter().map(pair).collect()
}

fn parse(sql: &str) -> Result<Statement, SqlError> {
    let parsed = Parser::parse_sql(&PostgreSqlDialect {}, sql).map_err(|e| SqlError::syntax(e.to_string()))?;
    Ok(parsed.into_iter().next().unwrap())
}

fn parse_query(sql: &str) -> Result<ast::Query, SqlError> {
    match parse(sql)? {
        Statement::Query(query) => Ok(*query),
        other => panic!("{other} is no query"),
    }
}

fn outcome(session: &mut Session, sql: &str) -> String {
    match session.run(sql) {
        Ok(text) => text,
        Err(error) => {
            let mut text = format!("{} {}\n", error.state.0, error.message);
            if let Some(detail) = error.detail {
                writeln!(text, "DETAIL {detail}").unwrap();
            }
            if let Some(hint) = error.hint {
                writeln!(text, "HINT {hint}").unwrap();
            }
            text
        }
    }
}

/// The file as it should be.
fn render(file: &str) -> String {
    let mut session = Session::new();
    let mut text = String::new();
    let mut lines = file.lines().peekable();
    let mut statement = String::new();
    while let Some(line) = lines.next() {
        if line == "----" {
            text += "----\n";
            text += &outcome(&mut session, statement.trim().trim_end_matches(';'));
            text += "\n";
            statement.clear();
            while lines.next_if(|l| !l.is_empty()).is_some() {}
            lines.next();
            continue;
        }
        text += line;
        text += "\n";
        if let Some(comment) = line.strip_prefix('#') {
            session.source |= comment.trim() == "source";
        } else {
            statement += line;
            statement += "\n";
        }
    }
    text
}

fn check(topic: &str) {
    // Not `env!`: checkouts share built tests, and each must read its own files.
    let package = std::env::var("CARGO_MANIFEST_DIR").expect("cargo says where the package is");
    let path = Path::new(&package).join("tests/golden").join(format!("{topic}.txt"));
    let file = std::fs::read_to_string(&path).unwrap();
    let rendered = render(&file);
    if std::env::var("WEIR_UPDATE_GOLDEN").is_ok_and(|v| v == "1") {
        std::fs::write(&path, rendered).unwrap();
    } else if file != rendered {
        let differs = file.lines().zip(rendered.lines()).enumerate().find(|(_, (a, b))| a != b);
        panic!("{} differs: {differs:#?}\nWEIR_UPDATE_GOLDEN=1 rewrites it", path.display());
    }
}

macro_rules! topics {
    ($($topic:ident),* $(,)?) => {
        $(#[test]
        fn $topic() {
            check(stringify!($topic));
        })*
    };
}

topics!(
    tables,
    queries,
    projections,
    aggregates,
    joins,
    subqueries,
    top_n,
    shared,
    unions,
    windows,
    over,
    types,
    refusals,
    nexmark,
);
