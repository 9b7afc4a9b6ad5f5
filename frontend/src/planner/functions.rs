//! The functions that queries can call: DataFusion's, then Weir's own, which win where names meet.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::catalog::TableFunction;
use datafusion::execution::SessionStateDefaults;
use datafusion::logical_expr::{AggregateUDF, HigherOrderUDF, ScalarUDF, WindowUDF};

use super::aggregates::aggregates;
use super::ranks;

/// Functions by name.
#[derive(Clone, Debug, Default)]
pub struct FunctionSet {
    pub(super) scalar: HashMap<String, Arc<ScalarUDF>>,
    pub(super) higher_order: HashMap<String, Arc<HigherOrderUDF>>,
    pub(super) aggregate: HashMap<String, Arc<AggregateUDF>>,
    pub(super) window: HashMap<String, Arc<WindowUDF>>,
    /// Functions in FROM. A closed list: DataFusion has some that open files.
    pub(super) table: HashMap<String, Arc<TableFunction>>,
}

/// Functions of DataFusion that mean something else in PostgreSQL, or tell about the process.
const REMOVED: [&str; 3] = ["version", "arrow_typeof", "uuid"];
/// Functions in FROM that touch nothing outside.
const TABLE_FUNCTIONS: [&str; 2] = ["generate_series", "range"];

impl FunctionSet {
    /// All built-in functions.
    pub fn standard() -> FunctionSet {
        let mut set = FunctionSet::default();
        for function in SessionStateDefaults::default_scalar_functions() {
            set.add_scalar(function);
        }
        for name in REMOVED {
            set.scalar.remove(name);
        }
        // DataFusion's function of that name removes one item, PostgreSQL's all.
        if let Some(remove_all) = set.scalar.get("array_remove_all").cloned() {
            set.scalar.insert("array_remove".into(), remove_all);
        }
        for function in SessionStateDefaults::default_higher_order_functions() {
            for name in function.aliases() {
                set.higher_order.insert(name.clone(), function.clone());
            }
            set.higher_order.insert(function.name().to_string(), function);
        }
        for function in SessionStateDefaults::default_aggregate_functions() {
            set.add_aggregate(function);
        }
        for function in aggregates() {
            set.add_aggregate(function);
        }
        if let Some(bool_and) = set.aggregate.get("bool_and").cloned() {
            set.aggregate.insert("every".into(), bool_and);
        }
        for function in SessionStateDefaults::default_window_functions() {
            set.add_window(function);
        }
        for function in ranks::functions() {
            set.add_window(function);
        }
        for function in SessionStateDefaults::default_table_functions() {
            if TABLE_FUNCTIONS.contains(&function.name()) {
                set.table.insert(function.name().to_string(), function);
            }
        }
        for function in weir_stream::functions::registry().scalars() {
            set.add_scalar(function.clone());
        }
        set
    }

    /// Adds a scalar function under its name and aliases; what had these names is gone.
    pub fn add_scalar(&mut self, function: Arc<ScalarUDF>) {
        for name in function.aliases() {
            self.scalar.insert(name.clone(), function.clone());
        }
        self.scalar.insert(function.name().to_string(), function);
    }

    /// Adds an aggregate function likewise.
    pub fn add_aggregate(&mut self, function: Arc<AggregateUDF>) {
        for name in function.aliases() {
            self.aggregate.insert(name.clone(), function.clone());
        }
        self.aggregate.insert(function.name().to_string(), function);
    }

    /// Adds a window function likewise.
    pub fn add_window(&mut self, function: Arc<WindowUDF>) {
        for name in function.aliases() {
            self.window.insert(name.clone(), function.clone());
        }
        self.window.insert(function.name().to_string(), function);
    }

    /// The scalar function of that name.
    pub fn scalar(&self, name: &str) -> Option<&Arc<ScalarUDF>> {
        self.scalar.get(name)
    }

    /// All scalar functions, each under its own name and its aliases.
    pub fn scalars(&self) -> impl Iterator<Item = &Arc<ScalarUDF>> {
        self.scalar.values()
    }

    /// All aggregate functions, likewise.
    pub fn aggregates(&self) -> impl Iterator<Item = &Arc<AggregateUDF>> {
        self.aggregate.values()
    }

    /// All window functions, likewise.
    pub fn windows(&self) -> impl Iterator<Item = &Arc<WindowUDF>> {
        self.window.values()
    }
}
