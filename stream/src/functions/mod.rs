//! Weir's own scalar functions: what PostgreSQL means where DataFusion means something else, or has nothing.
//!
//! The frontend registers them over DataFusion's; [`crate::expr`] finds them by name when a plan is started. So a name is
//! part of persisted plans: it stays, and keeps its meaning. Functions whose names start with `pg_` stand behind
//! operators and casts; the others are called by users.

use std::sync::{Arc, LazyLock};

use datafusion::logical_expr::ScalarUDF;

mod arithmetic;
mod arrays;
mod cast;
mod datetime;
mod degrees;
mod function;
mod json;
mod make_time;
mod numeric;
mod roots;
mod rounding;
mod text;
mod to_char;
mod window;

pub use cast::{cast_to, parse_type};

/// All of Weir's own functions.
#[derive(Debug)]
pub struct Functions {
    scalars: Vec<Arc<ScalarUDF>>,
}

impl Functions {
    /// The scalar functions.
    pub fn scalars(&self) -> impl Iterator<Item = &Arc<ScalarUDF>> {
        self.scalars.iter()
    }
}

/// The one set of functions.
pub fn registry() -> Arc<Functions> {
    static REGISTRY: LazyLock<Arc<Functions>> = LazyLock::new(|| {
        let files = [
            arithmetic::functions(),
            arrays::functions(),
            cast::functions(),
            datetime::functions(),
            degrees::functions(),
            json::functions(),
            make_time::functions(),
            roots::functions(),
            rounding::functions(),
            text::functions(),
            to_char::functions(),
            window::functions(),
        ];
        let scalars = files.into_iter().flatten().map(|f| Arc::new(ScalarUDF::new_from_impl(f))).collect();
        Arc::new(Functions { scalars })
    });
    REGISTRY.clone()
}

/// The scalar functions.
pub fn scalar_functions() -> Vec<Arc<ScalarUDF>> {
    registry().scalars.clone()
}

#[cfg(test)]
mod tests;
