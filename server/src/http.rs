//! `/health`, `/metrics` and a page that lists the jobs.

use std::fmt::Write;
use std::future::Future;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{Html, IntoResponse};
use axum::routing::get;
use tokio::net::TcpListener;
use weir_meta::{Meta, SinkStatus};

/// Serves until `stopped`.
pub async fn serve(
    meta: Arc<Meta>,
    listener: TcpListener,
    stopped: impl Future<Output = ()> + Send + 'static,
) -> std::io::Result<()> {
    let routes = Router::new()
        .route("/", get(page))
        .route("/health", get(|| async { "ok\n" }))
        .route("/metrics", get(metrics))
        .with_state(meta);
    axum::serve(listener, routes).with_graceful_shutdown(stopped).await
}

/// The jobs in Prometheus' text format.
async fn metrics(State(meta): State<Arc<Meta>>) -> impl IntoResponse {
    let mut text = String::new();
    let jobs = meta.jobs();
    let mut gauge = |name: &str, help: &str, value: &dyn Fn(&weir_meta::JobStatus) -> u64| {
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} gauge");
        for job in &jobs {
            let labels = format!("id=\"{}\",name=\"{}\"", job.object.id, job.object.full_name().replace('"', ""));
            let _ = writeln!(text, "{name}{{{labels}}} {}", value(job));
        }
    };
    gauge("weir_job_frontier_ms", "Newest committed epoch of a job, as Unix time in ms.", &|j| {
        j.state.frontier.unix_ms()
    });
    gauge("weir_job_failures", "Failures of a job.", &|j| j.state.failures);
    gauge("weir_job_rows", "Rows that left the tasks of a job since it was started.", &|j| {
        j.stats.tasks().iter().map(|t| t.rows).sum()
    });
    let _ = writeln!(
        text,
        "# HELP weir_task_rows Rows that left a task, up to its newest barrier.\n# TYPE weir_task_rows counter"
    );
    for job in &jobs {
        for (i, task) in job.stats.tasks().iter().enumerate() {
            let (id, fragment, actor, node, rows) = (job.object.id, task.fragment, task.actor, task.node, task.rows);
            let labels = format!("job=\"{id}\",fragment=\"{fragment}\",actor=\"{actor}\",task=\"{i}\",node=\"{node}\"");
            let _ = writeln!(text, "weir_task_rows{{{labels}}} {rows}");
        }
    }
    sink_metrics(&meta, &mut text);
    ([(CONTENT_TYPE, "text/plain; version=0.0.4")], text)
}

type SinkGauge = (&'static str, &'static str, fn(&SinkStatus) -> u64);

const SINK_GAUGES: [SinkGauge; 6] = [
    ("weir_sink_lag_rows", "Rows in the log of a sink that are not delivered.", |s| s.lag.rows),
    ("weir_sink_lag_bytes", "Bytes in the log of a sink that are not delivered.", |s| s.lag.bytes),
    ("weir_sink_delivered_ms", "Up to which epoch a sink has delivered, as Unix time in ms.", |s| {
        s.delivery.offset.unix_ms()
    }),
    ("weir_sink_rows", "Rows that a sink has delivered since the process began.", |s| s.delivery.rows),
    ("weir_sink_commits", "Commits of a sink since the process began.", |s| s.delivery.commits),
    ("weir_sink_failures", "Failures of a sink since the process began.", |s| s.delivery.failures),
];

fn sink_metrics(meta: &Meta, text: &mut String) {
    let sinks = meta.sinks();
    for (name, help, value) in SINK_GAUGES {
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} gauge");
        for sink in &sinks {
            let labels = format!("id=\"{}\",name=\"{}\"", sink.object.id, sink.object.full_name().replace('"', ""));
            let _ = writeln!(text, "{name}{{{labels}}} {}", value(sink));
        }
    }
}

async fn page(State(meta): State<Arc<Meta>>) -> Html<String> {
    let mut rows = String::new();
    for job in meta.jobs() {
        let cells = [
            job.object.id.to_string(),
            job.object.kind.sql().to_owned(),
            job.object.full_name(),
            job.state.phase.name().to_owned(),
            job.state.frontier.to_string(),
            job.state.failures.to_string(),
            job.state.last_error.clone().unwrap_or_default(),
        ];
        let cells: String = cells.iter().map(|c| format!("<td>{}</td>", escape(c))).collect();
        let _ = writeln!(rows, "<tr>{cells}</tr>");
    }
    Html(format!(
        "<!doctype html><meta charset=utf-8><title>Weir</title>\
         <style>body{{font-family:sans-serif;margin:2em}}td,th{{padding:.2em .8em;text-align:left}}</style>\
         <h1>Weir</h1><table><tr><th>id<th>kind<th>name<th>phase<th>frontier<th>failures<th>last error</tr>{rows}</table>"
    ))
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
