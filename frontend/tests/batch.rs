//! Bound queries, run by DataFusion over rows in memory: that what the planner rewrites still means what PostgreSQL says.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, Float64Array, Int32Array, Int64Array, ListArray, RecordBatch, StringArray};
use datafusion::arrow::datatypes::Int32Type;
use datafusion::arrow::util::display::array_value_to_string;
use datafusion::catalog::{MemTable, TableProvider};
use datafusion::config::ConfigOptions;
use datafusion::prelude::SessionContext;
use datafusion::sql::sqlparser::ast::Statement;
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::parser::Parser;
use weir_common::JobId;
use weir_common::catalog::{ColumnDef, Object, ObjectKind};
use weir_common::types::SqlType;
use weir_frontend::planner::{FunctionSet, Readers, Relations, Scope, plan_query, relation_schema};

struct Memory {
    objects: Vec<(Arc<Object>, Vec<ArrayRef>)>,
}

impl Relations for Memory {
    fn find(&self, _schema: &str, name: &str) -> Option<Arc<Object>> {
        self.objects.iter().map(|(o, _)| o).find(|o| o.name == name).cloned()
    }
}

impl Readers for Memory {
    fn relation(&self, object: &Arc<Object>) -> datafusion::common::Result<Option<Arc<dyn TableProvider>>> {
        let (_, columns) = self.objects.iter().find(|(o, _)| o.id == object.id).unwrap();
        let schema = relation_schema(object);
        let batch = RecordBatch::try_new(schema.clone(), columns.clone())?;
        Ok(Some(Arc::new(MemTable::try_new(schema, vec![vec![batch]])?)))
    }

    fn system(&self, _: &str, _: &str) -> datafusion::common::Result<Option<Arc<dyn TableProvider>>> {
        Ok(None)
    }
}

fn object(id: u32, name: &str, columns: Vec<ColumnDef>) -> Arc<Object> {
    Arc::new(Object {
        id: JobId(id),
        schema: "public".into(),
        name: name.into(),
        kind: ObjectKind::Table,
        columns,
        primary_key: vec![],
        append_only: false,
        definition: String::new(),
        query: None,
        options: BTreeMap::new(),
        format: None,
        depends_on: vec![],
        plan: None,
        owner: String::new(),
        replaces: None,
        into: None,
        retention: None,
        parallelism: None,
        paused: false,
        created_ms: 0,
    })
}

/// `t(a int, b varchar, f double precision, l int[])`, hidden `_row_id`; `u(a int, n bigint)`.
fn memory() -> Memory {
    let t = object(
        1,
        "t",
        vec![
            ColumnDef::new("a", SqlType::Integer),
            ColumnDef::new("b", SqlType::Varchar),
            ColumnDef::new("f", SqlType::Double),
            ColumnDef::new("l", SqlType::Array(Box::new(SqlType::Integer))),
            ColumnDef { hidden: true, ..ColumnDef::new("_row_id", SqlType::BigInt) },
        ],
    );
    let rows: Vec<ArrayRef> = vec![
        Arc::new(Int32Array::from(vec![Some(1), Some(1), Some(2), Some(3), None])),
        Arc::new(StringArray::from(vec![Some("x"), Some("x"), Some("y"), None, Some("z")])),
        Arc::new(Float64Array::from(vec![Some(0.0), Some(-0.0), Some(1.5), Some(f64::NAN), None])),
        Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>(vec![
            Some(vec![Some(10), Some(20)]),
            Some(vec![]),
            None,
            Some(vec![Some(30)]),
            Some(vec![None]),
        ])),
        Arc::new(Int64Array::from(vec![0, 1, 2, 3, 4])),
    ];
    let u = object(2, "u", vec![ColumnDef::new("a", SqlType::Integer), ColumnDef::new("n", SqlType::BigInt)]);
    let u_rows: Vec<ArrayRef> = vec![
        Arc::new(Int32Array::from(vec![Some(1), Some(2), Some(4), None])),
        Arc::new(Int64Array::from(vec![i64::MAX, i64::MAX, 7, 8])),
    ];
    let view = |id, name: &str, column: ColumnDef, query: &str| {
        let object = object(id, name, vec![column]);
        let object = Object { kind: ObjectKind::View, query: Some(query.into()), ..object.as_ref().clone() };
        (Arc::new(object), vec![])
    };
    let a = || ColumnDef::new("a", SqlType::Integer);
    let exists = "select a from t where exists (select 1 from (select n from u where u.a >= t.a order by n limit 1) x)";
    let sum = ColumnDef::new("s", SqlType::Numeric(Some((38, 0))));
    Memory {
        objects: vec![
            (t, rows),
            (u, u_rows),
            view(3, "x_except", a(), "select a from t except all select a from u"),
            view(4, "x_exists", a(), exists),
            view(5, "x_sum", sum, "select sum(n) as s from u"),
        ],
    }
}

fn run(sql: &str) -> Result<Vec<String>, String> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(collect(sql))
}

async fn collect(sql: &str) -> Result<Vec<String>, String> {
    let statement = Parser::parse_sql(&PostgreSqlDialect {}, sql).unwrap().remove(0);
    let Statement::Query(query) = statement else { panic!("{sql} is no query") };
    let memory = memory();
    let config = ConfigOptions::new();
    let path = vec!["public".to_string()];
    let functions = FunctionSet::standard();
    let scope = Scope {
        relations: &memory,
        readers: &memory,
        database: "dev",
        search_path: &path,
        functions: &functions,
        config: &config,
    };
    let bound = plan_query(&scope, &query, &[]).map_err(|e| format!("{} {}", e.state.0, e.message))?;
    let frame = SessionContext::new().execute_logical_plan(bound.plan).await.map_err(|e| e.strip_backtrace())?;
    let batches = frame.collect().await.map_err(|e| e.strip_backtrace())?;
    let mut rows = Vec::new();
    for batch in &batches {
        for (field, column) in batch.schema().fields().iter().zip(&bound.columns) {
            assert_eq!(*field.data_type(), column.sql_type.to_arrow(), "{sql}: {}", column.name);
        }
        for row in 0..batch.num_rows() {
            let cell = |c: &ArrayRef| {
                if c.is_null(row) { "NULL".to_string() } else { array_value_to_string(c, row).unwrap() }
            };
            rows.push(batch.columns().iter().map(cell).collect::<Vec<_>>().join(" "));
        }
    }
    Ok(rows)
}

fn check(sql: &str, expected: &[&str]) {
    let mut rows = run(sql).unwrap_or_else(|e| panic!("{sql}: {e}"));
    if !sql.contains("order by") {
        rows.sort();
    }
    assert_eq!(rows, expected, "{sql}");
}

#[test]
fn set_operations_count() {
    check("select a from t except all select a from u", &["1", "3"]);
    check("select a from t intersect all select a from u", &["1", "2", "NULL"]);
    check("select a from t except select a from u", &["3"]);
    check("select a from t intersect select a from u", &["1", "2", "NULL"]);
    check("select a from t union select a from u", &["1", "2", "3", "4", "NULL"]);
}

#[test]
fn first_rows_and_ties() {
    check("select a from t order by a fetch first 1 row with ties", &["1", "1"]);
    check("select a from t order by a fetch first 1 row only", &["1"]);
    check("select a from t order by a desc limit 2", &["NULL", "3"]);
    check("select distinct on (b) b, a from t order by b, a desc", &["x 1", "y 2", "z NULL", "NULL 3"]);
    check("select a from t limit all", &["1", "1", "2", "3", "NULL"]);
}

#[test]
fn joined_columns_stand_once() {
    check(
        "select * from u left join (select a, b from t) t using (a)",
        &["1 9223372036854775807 x", "1 9223372036854775807 x", "2 9223372036854775807 y", "4 7 NULL", "NULL 8 NULL"],
    );
    check("select a, n from t full join u using (a) where a > 2", &["3 NULL", "4 7"]);
    check("select a from t natural right join u order by a", &["1", "1", "2", "4", "NULL"]);
}

#[test]
fn arrays_become_rows() {
    check("select a, x from t, unnest(l) as x", &["1 10", "1 20", "3 30", "NULL NULL"]);
    check("select a, x from t, unnest(array[a, a + 1]) as x where a > 1", &["2 2", "2 3", "3 3", "3 4"]);
    check("select unnest(l) from t where a = 1", &["10", "20"]);
    check("select n from generate_series(1, 3) n", &["1", "2", "3"]);
    check("select n from generate_series(3, 1, -1) as s(n) order by n desc", &["3", "2", "1"]);
    check("select count(*) from generate_series(1, 100000)", &["100000"]);
    check("select a, n from t, generate_series(1, a) n where b = 'y'", &["2 1", "2 2"]);
    check("select generate_series(1, 2)", &["1", "2"]);
}

#[test]
fn numbers_are_exact() {
    check("select sum(n), avg(n) from u where n > 8", &["18446744073709551614 9223372036854775807.0000000000000000"]);
    check("select 7 / 2, -7 / 2, 7 % 3, 7.0 / 2, 1.5 * 2", &["3 -3 1 3.5000000000000000000000000000 3.0"]);
    check("select avg(a), sum(a) from t", &["1.7500000000000000 7"]);
    check("select sum(a * 1.5) from t", &["10.5"]);
    check("select count(*), count(*) from t", &["5 5"]);
    assert!(run("select 1 / 0").unwrap_err().contains("division by zero"));
    assert!(run("select 2147483647 + 1").unwrap_err().contains("out of range"));
    check("select 2147483648 - 1", &["2147483647"]);
    check("select coalesce(sum(a), 0) + 0.5 from t", &["7.5"]);
}

#[test]
fn zeros_and_nans_are_equal() {
    check("select a from t where f = 0", &["1", "1"]);
    check("select a from t where f >= 0 and f <= 0", &["1", "1"]);
    check("select a from t where f between 0 and 1", &["1", "1"]);
    check("select a from t where f in (0, 1.5)", &["1", "1", "2"]);
    check("select a from t where f = 'NaN'", &["3"]);
    check("select x.a from t x join t y on x.f = y.f", &["1", "1", "1", "1", "2", "3"]);
}

#[test]
fn subqueries_keep_nulls() {
    check("select a from t where a not in (select a from u)", &[]);
    check("select a from t where a not in (select a from u where a is not null)", &["3"]);
    check("select a from t where a = any (select a from u)", &["1", "1", "2"]);
    check("select a, (select count(*) from u where u.a = t.a) from t where a > 1", &["2 1", "3 0"]);
    assert!(run("select a from t where a = (select a from u)").is_err());
    check(
        "select x.a, s.n from u x cross join lateral (select count(*) as n from u y where y.a >= x.a) s",
        &["1 3", "2 2", "4 1", "NULL 0"],
    );
}

#[test]
fn comparisons_with_subqueries_have_three_values() {
    // t.a is 1, 1, 2, 3, NULL; u.a is 1, 2, 4, NULL.
    check("select a from t where a not in (select a from u) or a = 3", &["3"]);
    check("select a from t where not (a in (select a from u) and a > 0)", &[]);
    check("select count(*) from t where (a in (select a from u)) is null", &["2"]);
    check(
        "select a, a in (select a from u), a not in (select a from u) from t where a > 1",
        &["2 true false", "3 NULL NULL"],
    );
    check("select a, a in (select a from u where a is not null) from t where a > 1", &["2 true", "3 false"]);
    check("select a in (select a from u where false) from t where a is null", &["false"]);
    check("select case when a not in (select a from u) then 1 else 2 end from t where a > 1", &["2", "2"]);
    check(
        "select bool_or(a in (select a from u)), bool_and(a in (select a from u)) from t where a > 1",
        &["true true"],
    );
    check("select a from t where a > 1 order by a in (select a from u) nulls first", &["3", "2"]);
    check("select a from t group by a having not (a in (select a from u) and count(*) > 0)", &[]);
    check("select a, exists (select 1 from u where u.a > t.a) from t where a > 1", &["2 true", "3 true"]);
    check("select exists (select 1 from u where a = 9), not exists (select 1 from u)", &["false false"]);
    check("select a from t where a > 1 and (exists (select 1 from u where u.a > t.a + 1) or a = 9)", &["2"]);
    check("select a from t where a >= all (select a from u where a is not null and a < 3)", &["2", "3"]);
    check("select a from t where a >= all (select a from u)", &[]);
    check("select a from t where a < any (select a from u where u.a > t.a) and a > 1", &["2", "3"]);
    check(
        "select a, a > any (select a from u), a > all (select a from u where a < 3) from t where a > 1",
        &["2 true false", "3 true true"],
    );
    check("select a from t where not (a < any (select a from u where a is not null)) or a = 1", &["1", "1"]);
    check("select a from t where a not in (select u.a from u where u.a = t.a)", &["3", "NULL"]);
    check("select a, a in (select u.a from u where u.a <> t.a + 1) from t where a > 1", &["2 true", "3 false"]);
    check(
        "select t.a, u.a from t left join u on u.a = t.a and t.a in (select a from u where a > 1) where t.a > 0",
        &["1 NULL", "1 NULL", "2 2", "3 NULL"],
    );
    check("select t.a from t join u on u.a = t.a and exists (select 1 from u x where x.a > t.a + u.a)", &["1", "1"]);
    check("select 3 in (select a from u), 2 < all (select a from u)", &["NULL false"]);
}

#[test]
fn hidden_columns_can_be_named() {
    check("select _row_id, a from t where a = 2", &["2 2"]);
    check("select *, _row_id from (select a, _row_id from t) s where a = 2", &["2 2 2"]);
    check("select t.*, _row_id from t where a = 3", &["3 NULL NaN [30] 3"]);
}

#[test]
fn types_and_casts() {
    check("select '12'::int + 1, 12::text || 'x', 2.5::int, 3.5::int", &["13 12x 3 4"]);
    check("select date '2030-01-02' - date '2030-01-01', date '2030-01-01' + 1", &["1 2030-01-02"]);
    check("select extract(hour from timestamp '2030-01-01 05:00:00')", &["5.0000000000000000000000000000"]);
    check("select sum(a) over (order by a) from t where a < 3", &["2", "2", "4"]);
    check("select row_number() over (order by a desc nulls last) as r, a from t order by r limit 1", &["1 3"]);
    check("select true and null, 1 = null", &["NULL NULL"]);
}

#[test]
fn correlated_subqueries() {
    check("select a, (select max(n) from u where u.a > t.a) from t where a > 1", &["2 7", "3 7"]);
    check("select a, (select count(*) from u where u.a > t.a) from t where a > 1", &["2 1", "3 1"]);
    check("select a from t where exists (select 1 from u where u.a > t.a + 1)", &["1", "1", "2"]);
    check("select a, (select u.n from u where u.a = t.a) from t where a > 2", &["3 NULL"]);
    check("select a, (select n from u where u.a = t.a order by n limit 1) from t where a > 2", &["3 NULL"]);
    check(
        "select x.a, (select count(t.a) from u y left join t on y.a = x.a) from u x order by 1",
        &["1 4", "2 4", "4 4", "NULL 0"],
    );
}

#[test]
fn rows_and_other_syntax() {
    check("select a from t where (a, b) = (2, 'y')", &["2"]);
    check("select a from t where (a, b) in ((2, 'y'), (1, 'z'))", &["2"]);
    check("select a from t where (a, b) in (select a, 'x' from u)", &["1", "1"]);
    check("select a from t where (a, b) not in (select a, 'x' from u where a is not null)", &["2", "3", "NULL"]);
    check("select count(*) from t where (a, 1) < (2, 0)", &["2"]);
    check(
        "with recursive n (i) as (select 1 union all select i + 1 from n where i < 3) select i from n",
        &["1", "2", "3"],
    );
    check("select array(select a from t where a is not null order by a desc)", &["[3, 2, 1, 1]"]);
    check("select (array[1, 2, 3])[2:], (array[1, 2, 3])[:2], array[1] && array[1, 2]", &["[2, 3] [1, 2] true"]);
    check("select ~1, |/ 16.0, @ -3", &["-2 4.0 3"]);
    check(
        "select sum(i), avg(i) from (values (interval '1 day'), (interval '1:00:00')) v(i)",
        &["1 days 1 hours 12 hours 30 mins"],
    );
    check(
        "select avg(a) * 2.0, avg(a) + 1 from t where a > 1",
        &["5.0000000000000000000000000000 3.5000000000000000000000000000"],
    );
    check("select every(a > 0) from t", &["true"]);
    check(
        "select a, (select count(*) from (select a as t, n from u) y where y.t = t.a) from t where a = 1",
        &["1 1", "1 1"],
    );
}

#[test]
fn views_keep_their_meaning() {
    // The queries of views are analyzed when bound, and again as part of the query that names them.
    check("select * from x_except", &["1", "3"]);
    check("select a from x_exists where a = 1", &["1", "1"]);
    check("select * from x_sum", &["18446744073709551629"]);
}
