#![allow(clippy::unwrap_used)]

use super::*;

fn one(sql: &str) -> Statement {
    let mut statements = Statement::parse(sql).unwrap();
    assert_eq!(statements.len(), 1, "{sql}");
    statements.remove(0)
}

fn fails(sql: &str) -> (String, &'static str, Option<usize>) {
    let error = Statement::parse(sql).unwrap_err();
    (error.message, error.state.0, error.position)
}

#[test]
fn a_string_has_several_statements_each_with_its_text() {
    let sql = " SELECT 1 ;;\n CREATE MATERIALIZED VIEW é AS\n  SELECT 'a;b' -- note\n; flush;";
    let statements = Statement::parse(sql).unwrap();
    let texts: Vec<_> = statements.iter().map(|s| s.text.as_str()).collect();
    assert_eq!(texts, ["SELECT 1", "CREATE MATERIALIZED VIEW é AS\n  SELECT 'a;b' -- note", "flush"]);
    assert!(matches!(statements[2].body, Body::Flush));
    assert!(Statement::parse("").unwrap().is_empty());
    assert!(Statement::parse(" -- nothing\n ; /* more */").unwrap().is_empty());
}

#[test]
fn syntax_errors_name_the_token_and_the_place() {
    assert_eq!(fails("SELEC 1"), ("syntax error at or near \"SELEC\"".into(), "42601", Some(1)));
    assert_eq!(fails("select 1;\nselect a b c"), ("syntax error at or near \"c\"".into(), "42601", Some(22)));
    assert_eq!(fails("SELECT 1 1"), ("syntax error at or near \"1\"".into(), "42601", Some(10)));
    assert_eq!(fails("create table").0, "syntax error at end of input");
    assert_eq!(fails("create table t (a int").0, "syntax error at end of input");
    assert_eq!(fails("select 'abc").0, "unterminated quoted string");
    assert_eq!(fails("insert into"), ("syntax error at end of input".into(), "42601", Some(12)));
    let nested = format!("select {}1{}", "(".repeat(5000), ")".repeat(5000));
    assert_eq!(fails(&nested).1, "54001");
}

#[test]
fn tables_have_risingwave_clauses() {
    let sql = "CREATE TABLE IF NOT EXISTS s.\"T\" (k int PRIMARY KEY, v varchar NOT NULL DEFAULT 'x') APPEND ONLY \
               ON CONFLICT DO NOTHING WITH (connector = 'nexmark', nexmark.table.type = 'bid', n = 5) \
               FORMAT PLAIN ENCODE JSON (a.b = true)";
    let Body::CreateTable(table) = one(sql).body else { panic!() };
    assert_eq!(table.name.to_string(), "s.T");
    assert!(table.if_not_exists && table.append_only);
    assert_eq!(table.primary_key[0].value, "k");
    assert_eq!(table.columns.len(), 2);
    assert!(table.columns[1].not_null && table.columns[1].default.is_some());
    assert_eq!(table.conflict, Some(OnConflict::DoNothing));
    assert_eq!(table.format, Some(("PLAIN".into(), "JSON".into())));
    let options: Vec<_> = table.options.iter().map(|(k, v)| format!("{k}={v}")).collect();
    assert_eq!(options, ["a.b=true", "connector=nexmark", "n=5", "nexmark.table.type=bid"]);

    let Body::CreateTable(table) = one("create table t (a int, b int, primary key (a, B))").body else { panic!() };
    assert_eq!(table.primary_key.iter().map(|i| i.value.as_str()).collect::<Vec<_>>(), ["a", "b"]);
    let Body::CreateTable(table) = one("create table t (a timestamp, watermark for a as a - interval '1' second)").body
    else {
        panic!()
    };
    assert_eq!(table.refused.unwrap().state.0, "0A000");
    let Body::CreateTable(table) = one("create table t as select 1 as a").body else { panic!() };
    assert!(table.query.is_some() && table.columns.is_empty());
    assert_eq!(fails("create table t (a int primary key, b int primary key)").1, "42P16");
}

#[test]
fn views_indexes_and_sinks() {
    let Body::CreateView(view) =
        one("create materialized view if not exists m (a, b) with (x = 1) as select 1, 2").body
    else {
        panic!()
    };
    assert!(view.materialized && view.if_not_exists);
    assert_eq!(view.columns.len(), 2);
    let Body::CreateIndex(index) = one("create index on t (a, b desc) include (c) distributed by (a)").body else {
        panic!()
    };
    assert!(index.name.is_none());
    assert_eq!((index.columns.len(), index.include.unwrap().len()), (2, 1));
    let Body::CreateSink(sink) = one("create sink s from m with (connector = 'blackhole')").body else { panic!() };
    assert!(matches!(sink.from, SinkInput::Relation(_)));
    assert!(matches!(one("create sink s as select 1 with (connector='blackhole')").body, Body::CreateSink(_)));
    assert_eq!(fails("create view v as select 1 emit on window close").1, "0A000");
}

#[test]
fn drops_settings_and_transactions() {
    let Body::Drop(drop) = one("drop materialized view if exists a, b.c cascade").body else { panic!() };
    assert_eq!(
        (drop.kind, drop.names.len(), drop.if_exists, drop.cascade),
        (ObjectKind::MaterializedView, 2, true, true)
    );
    let set = |sql: &str| match one(sql).body {
        Body::Set(Set::Variable { local, name, value }) => (local, name, value.map(|v| v.join("|"))),
        other => panic!("{other:?}"),
    };
    let some = |s: &str| Some(s.to_string());
    assert_eq!(set("set rw_implicit_flush to true"), (false, "rw_implicit_flush".into(), some("true")));
    assert_eq!(set("SET LOCAL search_path = a, \"B\""), (true, "search_path".into(), some("a|B")));
    assert_eq!(set("set session timezone = 'UTC'"), (false, "timezone".into(), some("UTC")));
    assert_eq!(set("set time zone local"), (false, "timezone".into(), some("local")));
    assert_eq!(set("set extra_float_digits to -1"), (false, "extra_float_digits".into(), some("-1")));
    assert_eq!(set("reset datestyle"), (false, "datestyle".into(), None));
    assert!(matches!(one("begin isolation level repeatable read, read only").body,
        Body::Begin(TransactionModes { isolation: Some(level), read_only: Some(true) }) if level == "repeatable read"));
    assert!(matches!(one("start transaction").body, Body::Begin(_)));
    assert!(matches!(one("END").body, Body::Commit));
    assert!(matches!(one("abort").body, Body::Rollback));
    assert!(matches!(
        one("set session characteristics as transaction isolation level read committed").body,
        Body::Set(Set::Transaction { session: true, .. })
    ));
}

#[test]
fn show_and_explain() {
    let show = |sql: &str| match one(sql).body {
        Body::Show(show) => show,
        other => panic!("{other:?}"),
    };
    assert!(matches!(show("show materialized views"), Show::Objects { kind: ObjectKind::MaterializedView, .. }));
    assert!(matches!(show("show tables from public like 'a%'"), Show::Objects { like: Some(_), schema: Some(_), .. }));
    assert!(matches!(show("show indexes from t"), Show::Indexes { .. }));
    assert!(matches!(show("show columns from t"), Show::Columns { .. }));
    assert!(matches!(show("describe t"), Show::Describe { .. }));
    assert!(matches!(show("show create table t"), Show::Create { kind: ObjectKind::Table, .. }));
    assert!(matches!(show("show transaction isolation level"), Show::Variable(v) if v == "transaction_isolation"));
    let Body::Explain(explain) = one("explain (verbose, costs off) create materialized view m as select 1").body else {
        panic!()
    };
    assert!(explain.verbose);
    assert_eq!(explain.statement.text, "create materialized view m as select 1");
    assert!(
        matches!(one("alter table t add column x int").body, Body::Unsupported(what) if what == "ALTER TABLE ADD COLUMN")
    );
    assert_eq!(fails("copy t from '/etc/passwd'").1, "0A000");
    assert_eq!(fails("copy t to program 'rm'").1, "0A000");
    let Body::Copy(copy) = one("copy t (a, b) from stdin with (format csv, header, delimiter ';')").body else {
        panic!()
    };
    assert!(copy.from_client && copy.options.len() == 3);
    assert!(matches!(one("COPY (select 1) TO STDOUT (FORMAT binary)").body, Body::Copy(_)));
    assert!(
        matches!(one("copy t to stdout csv header delimiter as '|'").body, Body::Copy(copy) if copy.options.len() == 3)
    );
    assert!(matches!(one("cancel jobs 1, 2").body, Body::CancelJobs(jobs) if jobs == [1, 2]));
}

#[test]
fn spellings_of_tools_become_plain() {
    let Body::Query(query) =
        one("select pg_catalog.upper(a) from t where a OPERATOR(pg_catalog.~) '^x$' COLLATE pg_catalog.default").body
    else {
        panic!()
    };
    let Body::Query(table) = one("table s.t order by 1").body else { panic!() };
    assert_eq!(table.to_string(), "SELECT * FROM s.t ORDER BY 1");
    assert_eq!(query.to_string(), "SELECT upper(a) FROM t WHERE a ~ '^x$'");
}
