//! What a driver sees.

use std::time::Duration;

use tokio::task::JoinHandle;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Error, NoTls, SimpleQueryMessage};

use super::fake::{BATCH_ROWS, Server};

async fn connect(server: &Server) -> (Client, JoinHandle<Result<(), Error>>) {
    let config = format!("host=127.0.0.1 port={} user=root dbname=dev", server.address.port());
    let (client, connection) = tokio_postgres::connect(&config, NoTls).await.unwrap();
    (client, tokio::spawn(connection))
}

/// The rows (as text) and row counts of simple queries.
async fn simple(client: &Client, sql: &str) -> Result<Vec<String>, Error> {
    let messages = client.simple_query(sql).await?;
    Ok(messages
        .into_iter()
        .filter_map(|message| match message {
            SimpleQueryMessage::Row(row) => row.get(0).map(str::to_string),
            SimpleQueryMessage::CommandComplete(count) => Some(format!("complete {count}")),
            _ => None,
        })
        .collect())
}

#[track_caller]
fn assert_state<T: std::fmt::Debug>(outcome: Result<T, Error>, state: SqlState) {
    assert_eq!(outcome.unwrap_err().code(), Some(&state));
}

#[tokio::test]
async fn several_statements_run_until_one_fails() {
    let server = Server::start().await;
    let (client, _) = connect(&server).await;
    assert_eq!(simple(&client, "rows 2; insert 3").await.unwrap(), ["0", "1", "complete 2", "complete 3"]);
    let error = client.simple_query("begin; rows 1; fail; commit").await.unwrap_err();
    let error = error.as_db_error().unwrap();
    assert_eq!((error.severity(), error.code().code(), error.hint()), ("ERROR", "22012", Some("do not")));
    assert_state(simple(&client, "rows 1").await, SqlState::IN_FAILED_SQL_TRANSACTION);
    assert_eq!(simple(&client, "rollback; rows 1").await.unwrap(), ["complete 0", "0", "complete 1"]);
    assert_eq!(simple(&client, " ; ").await.unwrap(), ["complete 0"]);
    let error = client.simple_query("rows 1; wrong").await.unwrap_err();
    let position = error.as_db_error().unwrap().position().cloned();
    assert_eq!(position, Some(tokio_postgres::error::ErrorPosition::Original(9)));
}

#[tokio::test]
async fn statements_are_described_before_they_are_bound() {
    let server = Server::start().await;
    let (client, _) = connect(&server).await;
    let statement = client.prepare("echo int4 varchar _int8 timestamptz").await.unwrap();
    assert_eq!(statement.params(), [Type::INT4, Type::VARCHAR, Type::INT8_ARRAY, Type::TIMESTAMPTZ]);
    assert_eq!(statement.columns()[2].type_(), &Type::INT8_ARRAY);
    let moment = std::time::UNIX_EPOCH + Duration::from_micros(1_234_567);
    let row = client.query_one(&statement, &[&7, &"é", &vec![Some(1i64), None], &moment]).await.unwrap();
    assert_eq!((row.get::<_, i32>(0), row.get::<_, &str>(1)), (7, "é"));
    assert_eq!(row.get::<_, Vec<Option<i64>>>(2), [Some(1), None]);
    assert_eq!(row.get::<_, std::time::SystemTime>(3), moment);
    let row = client.query_one(&statement, &[&None::<i32>, &"", &Vec::<i64>::new(), &moment]).await.unwrap();
    assert_eq!((row.get::<_, Option<i32>>(0), row.get::<_, Vec<i64>>(2)), (None, vec![]));
    let declared = client.prepare_typed("echo int8", &[Type::INT2]).await.unwrap();
    assert_eq!(client.query_one(&declared, &[&5i16]).await.unwrap().get::<_, i16>(0), 5);
    assert_eq!(client.execute("insert 4", &[]).await.unwrap(), 4);
    let column = client.prepare("rows 1").await.unwrap();
    assert_eq!((column.columns()[0].table_oid(), column.columns()[0].column_id()), (Some(7), Some(1)));
}

#[tokio::test]
async fn portals_give_a_few_rows_at_a_time() {
    let server = Server::start().await;
    let (mut client, _) = connect(&server).await;
    let transaction = client.transaction().await.unwrap();
    let rows = (2 * BATCH_ROWS).to_string();
    let statement = transaction.prepare(&format!("rows {rows}")).await.unwrap();
    let portal = transaction.bind(&statement, &[]).await.unwrap();
    let mut numbers = vec![];
    loop {
        let rows = transaction.query_portal(&portal, 300).await.unwrap();
        if rows.is_empty() {
            break;
        }
        numbers.extend(rows.iter().map(|row| row.get::<_, i32>(0)));
    }
    assert_eq!(numbers, (0..2 * BATCH_ROWS as i32).collect::<Vec<_>>());
    transaction.commit().await.unwrap();
}

#[tokio::test]
async fn a_cancelled_statement_ends_and_the_session_goes_on() {
    let server = Server::start().await;
    let (client, _) = connect(&server).await;
    let token = client.cancel_token();
    for sql in ["sleep", "sleep late"] {
        let cancel = async {
            tokio::time::sleep(Duration::from_millis(50)).await;
            token.cancel_query(NoTls).await.unwrap();
        };
        let (outcome, ()) = tokio::join!(client.simple_query(sql), cancel);
        assert_state(outcome, SqlState::QUERY_CANCELED);
        assert_eq!(simple(&client, "rows 1").await.unwrap(), ["0", "complete 1"]);
    }
    // When nothing runs there is nothing to cancel.
    token.cancel_query(NoTls).await.unwrap();
    assert_eq!(client.query("rows 3", &[]).await.unwrap().len(), 3);
}

#[tokio::test]
async fn panics_and_late_errors_fail_the_statement_alone() {
    let server = Server::start().await;
    let (client, _) = connect(&server).await;
    for (sql, state) in [
        ("panic", SqlState::INTERNAL_ERROR),
        ("panic late", SqlState::INTERNAL_ERROR),
        ("fail late", SqlState::DIVISION_BY_ZERO),
    ] {
        assert_state(client.simple_query(sql).await, state.clone());
        assert_state(client.query(sql, &[]).await, state);
        assert_eq!(client.query("rows 3", &[]).await.unwrap().len(), 3);
    }
}

#[tokio::test]
async fn shutdown_ends_idle_and_running_sessions() {
    let server = Server::start().await;
    let (idle, idle_connection) = connect(&server).await;
    let (running, _running_connection) = connect(&server).await;
    let statement = tokio::spawn(async move { running.simple_query("sleep").await });
    while server.registry.len() < 2 {
        tokio::task::yield_now().await;
    }
    tokio::time::sleep(Duration::from_millis(50)).await;
    server.stop().await;
    assert_state(statement.await.unwrap(), SqlState::ADMIN_SHUTDOWN);
    assert_state(idle_connection.await.unwrap(), SqlState::ADMIN_SHUTDOWN);
    assert!(idle.is_closed());
}

#[tokio::test]
async fn unknown_databases_are_refused() {
    let server = Server::start().await;
    let config = format!("host=127.0.0.1 port={} user=root dbname=prod", server.address.port());
    let error = tokio_postgres::connect(&config, NoTls).await.map(|_| ()).unwrap_err();
    let error = error.as_db_error().unwrap();
    assert_eq!((error.severity(), error.code().code()), ("FATAL", "3D000"));
}

#[tokio::test]
async fn many_idle_connections_cost_little() {
    let server = Server::start().await;
    let mut clients = vec![];
    for _ in 0..200 {
        clients.push(connect(&server).await);
    }
    assert_eq!(server.registry.len(), 200);
    for (client, _) in &clients {
        assert_eq!(client.query("rows 1", &[]).await.unwrap().len(), 1);
    }
    drop(clients);
    while !server.registry.is_empty() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
