//! The window functions that number rows, with PostgreSQL's result types: DataFusion's give unsigned numbers.

use std::ops::Range;
use std::sync::{Arc, LazyLock};

use arrow::array::ArrayRef;
use arrow::compute::{SortOptions, cast};
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{Result, ScalarValue};
use datafusion::functions_window::ntile::ntile_udwf;
use datafusion::functions_window::rank::{dense_rank_udwf, rank_udwf};
use datafusion::functions_window::row_number::row_number_udwf;
use datafusion::logical_expr::function::{ExpressionArgs, PartitionEvaluatorArgs, WindowUDFFieldArgs};
use datafusion::logical_expr::window_state::WindowAggState;
use datafusion::logical_expr::{PartitionEvaluator, Signature, WindowUDF, WindowUDFImpl};
use datafusion::physical_expr::PhysicalExpr;

/// `row_number()`.
pub(super) fn row_number() -> Arc<WindowUDF> {
    static FUNCTION: LazyLock<Arc<WindowUDF>> = LazyLock::new(|| numbers(row_number_udwf(), DataType::Int64));
    FUNCTION.clone()
}

/// `rank()`.
pub(super) fn rank() -> Arc<WindowUDF> {
    static FUNCTION: LazyLock<Arc<WindowUDF>> = LazyLock::new(|| numbers(rank_udwf(), DataType::Int64));
    FUNCTION.clone()
}

/// All of them.
pub(super) fn functions() -> Vec<Arc<WindowUDF>> {
    vec![row_number(), rank(), numbers(dense_rank_udwf(), DataType::Int64), numbers(ntile_udwf(), DataType::Int32)]
}

fn numbers(function: Arc<WindowUDF>, data_type: DataType) -> Arc<WindowUDF> {
    Arc::new(WindowUDF::from(Signed { function, data_type }))
}

/// A function with signed results.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Signed {
    function: Arc<WindowUDF>,
    data_type: DataType,
}

impl WindowUDFImpl for Signed {
    fn name(&self) -> &str {
        self.function.name()
    }

    fn signature(&self) -> &Signature {
        self.function.signature()
    }

    fn expressions(&self, args: ExpressionArgs) -> Vec<Arc<dyn PhysicalExpr>> {
        self.function.expressions(args)
    }

    fn partition_evaluator(&self, args: PartitionEvaluatorArgs) -> Result<Box<dyn PartitionEvaluator>> {
        let evaluator = self.function.partition_evaluator_factory(args)?;
        Ok(Box::new(SignedEvaluator { evaluator, data_type: self.data_type.clone() }))
    }

    fn field(&self, args: WindowUDFFieldArgs) -> Result<FieldRef> {
        Ok(Arc::new(Field::new(args.name(), self.data_type.clone(), false)))
    }

    fn sort_options(&self) -> Option<SortOptions> {
        self.function.sort_options()
    }

    fn coerce_types(&self, arg_types: &[DataType]) -> Result<Vec<DataType>> {
        self.function.coerce_types(arg_types)
    }
}

/// Evaluates the function and makes its results signed.
#[derive(Debug)]
struct SignedEvaluator {
    evaluator: Box<dyn PartitionEvaluator>,
    data_type: DataType,
}

impl PartitionEvaluator for SignedEvaluator {
    fn memoize(&mut self, state: &mut WindowAggState) -> Result<()> {
        self.evaluator.memoize(state)
    }

    fn get_range(&self, idx: usize, rows: usize) -> Result<Range<usize>> {
        self.evaluator.get_range(idx, rows)
    }

    fn is_causal(&self) -> bool {
        self.evaluator.is_causal()
    }

    fn evaluate_all(&mut self, values: &[ArrayRef], rows: usize) -> Result<ArrayRef> {
        Ok(cast(&self.evaluator.evaluate_all(values, rows)?, &self.data_type)?)
    }

    fn evaluate(&mut self, values: &[ArrayRef], range: &Range<usize>) -> Result<ScalarValue> {
        self.evaluator.evaluate(values, range)?.cast_to(&self.data_type)
    }

    fn evaluate_all_with_rank(&self, rows: usize, ranks: &[Range<usize>]) -> Result<ArrayRef> {
        Ok(cast(&self.evaluator.evaluate_all_with_rank(rows, ranks)?, &self.data_type)?)
    }

    fn supports_bounded_execution(&self) -> bool {
        self.evaluator.supports_bounded_execution()
    }

    fn uses_window_frame(&self) -> bool {
        self.evaluator.uses_window_frame()
    }

    fn include_rank(&self) -> bool {
        self.evaluator.include_rank()
    }
}
