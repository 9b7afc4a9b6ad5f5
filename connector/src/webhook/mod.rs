//! A web server as a destination: changes are sent with POST as JSON.
//!
//! ```text
//! [{"op":"insert","row":{…}}, {"op":"update_before","row":{…}}, {"op":"update_after","row":{…}}, {"op":"delete","row":{…}}]
//! ```
//!
//! Rows are as in [`crate::json`]. A delete and an insert of the same key side by side are an update, and are never torn
//! apart by the end of a request.
//!
//! | header | |
//! |---|---|
//! | `weir-sink`, `weir-generation`, `weir-writer` | who sends: the sink, the number of its start, the number of its writer |
//! | `weir-sequence` | of the requests of a writer, from 1 |
//! | `weir-commit`, `weir-epoch` | of the last request of a commit only: its id and the epoch up to which it has the changes |
//!
//! At least once: what was sent before a crash is sent again, under a newer generation. A receiver that must see each change
//! once keeps what came since the last `weir-commit`, and drops it when a newer generation begins.
//!
//! An answer of 2xx acknowledges a request. 5xx, 408, 425, 429 and no answer in time are failures that may pass; any other
//! is a refusal. Either fails the delivery, which tries again. Redirects are not followed.
//!
//! # Options
//!
//! | option | |
//! |---|---|
//! | `url` | where to: `http://…` or `https://…` |
//! | `header.<name>` | a header of every request, such as `header.authorization` |
//! | `timeout_ms` | for a request and its answer; 10000 |
//! | `batch_rows` | changes of a request; 100 |

mod batch;
mod config;
mod sink;
mod writer;

pub use sink::open;
