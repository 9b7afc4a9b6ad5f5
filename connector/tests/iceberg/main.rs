//! The Iceberg sink through its contract, on local files and a catalog in SQLite: rows are read back with the scan of
//! the
//! `iceberg` crate, and with PyIceberg where `WEIR_PYTHON` names an interpreter that has it.

#![allow(clippy::unwrap_used)]

mod append;
mod crashes;
mod postgres;
mod python;
mod rest;
mod s3;
mod schemas;
mod support;
mod upserts;
