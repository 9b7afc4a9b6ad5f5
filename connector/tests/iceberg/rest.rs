//! The REST catalog, against a server of the parts of the protocol that a sink uses.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Json, Router};
use iceberg::spec::{Schema, TableMetadata, TableMetadataBuilder, UnboundPartitionSpec};
use iceberg::{TableCreation, TableRequirement, TableUpdate};
use serde_json::{Value, json};
use tokio::sync::Barrier;
use weir_connector::{ConnectorError, iceberg as weir_iceberg};

use crate::support::*;

/// The tables by namespace and name.
#[derive(Clone, Default)]
struct Server {
    tables: Arc<Mutex<HashMap<String, TableMetadata>>>,
    warehouse: String,
    /// The next commit comes here twice: when it arrives, and before it is looked at.
    hold: Arc<Mutex<Option<Arc<Barrier>>>>,
}

type Answer = (StatusCode, Json<Value>);

fn refused(status: StatusCode, message: &str) -> Answer {
    (status, Json(json!({ "error": { "message": message, "type": "E", "code": status.as_u16() } })))
}

fn loaded(metadata: &TableMetadata) -> Answer {
    (StatusCode::OK, Json(json!({ "metadata-location": "none", "metadata": metadata, "config": {} })))
}

async fn create(State(server): State<Server>, Path(namespace): Path<String>, Json(body): Json<Value>) -> Answer {
    let name = body["name"].as_str().unwrap().to_owned();
    let schema: Schema = serde_json::from_value(body["schema"].clone()).unwrap();
    let spec: Option<UnboundPartitionSpec> = serde_json::from_value(body["partition-spec"].clone()).unwrap();
    let creation = TableCreation::builder()
        .location(format!("{}/{namespace}/{name}", server.warehouse))
        .name(name.clone())
        .schema(schema)
        .partition_spec_opt(spec)
        .build();
    let metadata = TableMetadataBuilder::from_table_creation(creation).unwrap().build().unwrap().metadata;
    let mut tables = server.tables.lock().unwrap();
    if tables.contains_key(&format!("{namespace}.{name}")) {
        return refused(StatusCode::CONFLICT, "it exists");
    }
    let answer = loaded(&metadata);
    tables.insert(format!("{namespace}.{name}"), metadata);
    answer
}

async fn load(State(server): State<Server>, Path((namespace, name)): Path<(String, String)>) -> Answer {
    match server.tables.lock().unwrap().get(&format!("{namespace}.{name}")) {
        Some(metadata) => loaded(metadata),
        None => refused(StatusCode::NOT_FOUND, "no such table"),
    }
}

async fn commit(
    State(server): State<Server>,
    Path((namespace, name)): Path<(String, String)>,
    Json(body): Json<Value>,
) -> Answer {
    let requirements: Vec<TableRequirement> = serde_json::from_value(body["requirements"].clone()).unwrap();
    let updates: Vec<TableUpdate> = serde_json::from_value(body["updates"].clone()).unwrap();
    let hold = server.hold.lock().unwrap().take();
    if let Some(hold) = hold {
        hold.wait().await;
        hold.wait().await;
    }
    let mut tables = server.tables.lock().unwrap();
    let Some(metadata) = tables.get_mut(&format!("{namespace}.{name}")) else {
        return refused(StatusCode::NOT_FOUND, "no such table");
    };
    if requirements.iter().any(|r| r.check(Some(metadata)).is_err()) {
        return refused(StatusCode::CONFLICT, "it has changed");
    }
    let mut builder = metadata.clone().into_builder(None);
    for update in updates {
        builder = update.apply(builder).unwrap();
    }
    *metadata = builder.build().unwrap().metadata;
    loaded(metadata)
}

/// A sink into a table of a server.
async fn served(append_only: bool, options: &[(&str, &str)]) -> (Server, Warehouse) {
    let mut warehouse = Warehouse::new(append_only, options);
    let path = format!("file://{}", warehouse.directory.path().to_str().unwrap());
    let server = Server { warehouse: path, ..Server::default() };
    let namespaces = post(|| async { refused(StatusCode::CONFLICT, "it exists") });
    let routes = Router::new()
        .route("/v1/config", get(|| async { Json(json!({ "defaults": {}, "overrides": { "prefix": "p" } })) }))
        .route("/v1/p/namespaces", namespaces)
        .route("/v1/p/namespaces/{namespace}/tables", post(create))
        .route("/v1/p/namespaces/{namespace}/tables/{name}", get(load).post(commit))
        .with_state(server.clone());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, routes).await });
    warehouse.spec.options.insert("catalog.type".into(), "rest".into());
    warehouse.spec.options.insert("catalog.uri".into(), format!("http://{address}/"));
    warehouse.spec.options.insert("warehouse.path".into(), "w".into());
    (server, warehouse)
}

fn names(server: &Server) -> Vec<String> {
    let tables = server.tables.lock().unwrap();
    let snapshots = tables["d.t"].snapshots();
    let mut named: Vec<String> =
        snapshots.filter_map(|s| s.summary().additional_properties.get("weir.commit").cloned()).collect();
    named.sort();
    named
}

#[tokio::test]
async fn commits_and_take_overs() {
    let (server, warehouse) = served(true, &[("partition_by", "bucket(2, id)")]).await;
    let sink = weir_iceberg::open(&warehouse.spec).unwrap();
    sink.prepare().await.unwrap();
    sink.prepare().await.unwrap();
    let mut committer = fenced(sink.as_ref(), 1).await.unwrap();
    let first = recorded(sink.as_ref(), 1, 1, "+1 a +2 b").await;
    committer.commit(&first).await.unwrap();
    committer.commit(&first).await.unwrap();
    assert!(committer.is_committed(&first).await.unwrap());

    let left = recorded(sink.as_ref(), 1, 2, "+3 c").await;
    let mut newer = fenced(sink.as_ref(), 2).await.unwrap();
    let error = committer.commit(&left).await.unwrap_err();
    assert!(matches!(error, ConnectorError::Fenced { ours: 1, newer: 2 }), "{error}");
    assert!(!newer.is_committed(&left).await.unwrap());
    newer.commit(&left).await.unwrap();
    let mut expected = vec![first.stamp.commit, left.stamp.commit];
    expected.sort();
    assert_eq!(names(&server), expected);
    assert_eq!(newer.clean(SINK, weir_common::Generation(2)).await.unwrap(), 0);

    let next = recorded(sink.as_ref(), 2, 3, "+4 d").await;
    server.tables.lock().unwrap().clear();
    assert_eq!(newer.commit(&next).await.unwrap_err().to_string(), "table d.t is gone");
}

/// The table was loaded before a take-over, and the swap comes after it.
#[tokio::test]
async fn a_take_over_in_the_middle_of_a_commit() {
    let (server, warehouse) = served(true, &[]).await;
    let sink = weir_iceberg::open(&warehouse.spec).unwrap();
    sink.prepare().await.unwrap();
    let mut zombie = fenced(sink.as_ref(), 1).await.unwrap();
    let commit = recorded(sink.as_ref(), 1, 1, "+1 a").await;
    let hold = Arc::new(Barrier::new(2));
    *server.hold.lock().unwrap() = Some(hold.clone());
    let zombie = tokio::spawn(async move { zombie.commit(&commit).await });
    hold.wait().await;
    fenced(sink.as_ref(), 2).await.unwrap();
    hold.wait().await;
    let error = zombie.await.unwrap().unwrap_err();
    assert!(matches!(error, ConnectorError::Fenced { ours: 1, newer: 2 }), "{error}");
    assert!(names(&server).is_empty());
}

#[tokio::test]
async fn columns_are_added() {
    let (server, mut warehouse) = served(true, &[("auto_schema_change", "true")]).await;
    weir_iceberg::open(&warehouse.spec).unwrap().prepare().await.unwrap();
    let mut fields = warehouse.spec.columns.fields().to_vec();
    fields.push(Arc::new(arrow::datatypes::Field::new("more", arrow::datatypes::DataType::Int32, true)));
    warehouse.spec.columns = Arc::new(arrow::datatypes::Schema::new(fields));
    weir_iceberg::open(&warehouse.spec).unwrap().prepare().await.unwrap();
    let tables = server.tables.lock().unwrap();
    assert_eq!(tables["d.t"].current_schema().as_struct().fields().len(), 3);
}
