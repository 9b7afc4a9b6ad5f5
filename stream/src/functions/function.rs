//! A scalar function as a value: its name, the type of its result, and what it computes.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{ScalarValue, internal_err};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDFImpl, Signature, Volatility,
};
use weir_common::{SqlState, SqlType, ValueError};

/// The types and, where they are constant, the values of the arguments.
pub(super) type Arguments<'a> = ReturnFieldArgs<'a>;

/// A scalar function.
pub(super) struct Function {
    name: &'static str,
    signature: Signature,
    aliases: Vec<String>,
    /// The type of the result. Refuses arguments that the function does not take.
    returns: fn(&Arguments<'_>) -> Result<DataType>,
    /// The results, one per row.
    compute: fn(&Call<'_>) -> Result<ArrayRef>,
}

impl Function {
    /// With this many arguments; one number if only that many are taken.
    pub(super) fn new(
        name: &'static str,
        arguments: &[usize],
        returns: fn(&Arguments<'_>) -> Result<DataType>,
        compute: fn(&Call<'_>) -> Result<ArrayRef>,
    ) -> Function {
        use datafusion::logical_expr::TypeSignature;
        let signatures: Vec<_> =
            arguments.iter().map(|n| if *n == 0 { TypeSignature::Nullary } else { TypeSignature::Any(*n) }).collect();
        let signature = match signatures.as_slice() {
            [] => Signature::variadic_any(Volatility::Immutable),
            [one] => Signature::new(one.clone(), Volatility::Immutable),
            _ => Signature::one_of(signatures, Volatility::Immutable),
        };
        Function { name, signature, aliases: vec![], returns, compute }
    }

    /// Under other names, too.
    pub(super) fn alias(mut self, name: &str) -> Function {
        self.aliases.push(name.into());
        self
    }
}

/// A call with its arguments.
pub(super) struct Call<'a> {
    args: &'a ScalarFunctionArgs,
}

impl Call<'_> {
    /// How many results are wanted.
    pub(super) fn rows(&self) -> usize {
        self.args.number_rows
    }

    /// How many arguments there are.
    pub(super) fn len(&self) -> usize {
        self.args.args.len()
    }

    /// The type of argument `i`.
    pub(super) fn type_of(&self, i: usize) -> DataType {
        self.args.args[i].data_type()
    }

    /// The type of the result.
    pub(super) fn result_type(&self) -> &DataType {
        self.args.return_type()
    }

    /// The values of argument `i`, one per row.
    pub(super) fn array(&self, i: usize) -> Result<ArrayRef> {
        self.args.args[i].to_array(self.args.number_rows)
    }

    /// The values of argument `i`, one per row, as this type.
    pub(super) fn array_as(&self, i: usize, data_type: &DataType) -> Result<ArrayRef> {
        convert(&self.array(i)?, data_type)
    }

    /// Argument `i` as it was given.
    pub(super) fn value(&self, i: usize) -> &ColumnarValue {
        &self.args.args[i]
    }

    /// The value of argument `i` if it is the same for all rows.
    pub(super) fn constant(&self, i: usize) -> Option<&ScalarValue> {
        match self.args.args.get(i)? {
            ColumnarValue::Scalar(value) => Some(value),
            ColumnarValue::Array(_) => None,
        }
    }
}

/// The array as another type, by Arrow's cast; an error where a value does not fit.
pub(super) fn convert(array: &ArrayRef, data_type: &DataType) -> Result<ArrayRef> {
    if array.data_type() == data_type {
        return Ok(array.clone());
    }
    let options = CastOptions { safe: false, ..CastOptions::default() };
    Ok(cast_with_options(array.as_ref(), data_type, &options)?)
}

/// A value that is refused.
pub(super) fn refuse(state: SqlState, message: impl Into<String>) -> DataFusionError {
    ValueError::new(state, message).into_error()
}

/// As an error of DataFusion, from which the frontend takes it out again.
pub(super) trait IntoError {
    fn into_error(self) -> DataFusionError;
}

impl IntoError for ValueError {
    fn into_error(self) -> DataFusionError {
        DataFusionError::External(Box::new(self))
    }
}

/// That there is no function for arguments of these types.
pub(super) fn no_such_function(name: &str, args: &Arguments<'_>) -> DataFusionError {
    let type_name = |f: &FieldRef| match f.data_type() {
        DataType::Null => "unknown".to_owned(),
        t => SqlType::from_arrow(t).map_or_else(|| t.to_string(), |t| t.to_string()),
    };
    let types: Vec<String> = args.arg_fields.iter().map(type_name).collect();
    let message = format!("function {name}({}) does not exist", types.join(", "));
    refuse(SqlState::UNDEFINED_FUNCTION, message)
}

/// The type of argument `i`.
pub(super) fn argument<'a>(args: &'a Arguments<'_>, i: usize) -> &'a DataType {
    args.arg_fields[i].data_type()
}

impl fmt::Debug for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl PartialEq for Function {
    fn eq(&self, other: &Function) -> bool {
        self.name == other.name
    }
}

impl Eq for Function {}

impl Hash for Function {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl ScalarUDFImpl for Function {
    fn name(&self) -> &str {
        self.name
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arg_types: &[DataType]) -> Result<DataType> {
        internal_err!("the type of {} depends on its arguments", self.name)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        Ok(Arc::new(Field::new(self.name, (self.returns)(&args)?, true)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let result = (self.compute)(&Call { args: &args })?;
        if result.data_type() != args.return_type() || result.len() != args.number_rows {
            let (got, rows) = (result.data_type(), result.len());
            return internal_err!("{} gave {rows} values of type {got}", self.name);
        }
        Ok(ColumnarValue::Array(result))
    }
}
