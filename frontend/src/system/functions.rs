//! Functions about the session and the system.
//!
//! They are made per session, around its state, and cannot be used in views: what a view shows must not depend on who
//! made it.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex, PoisonError};

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Int32Array, Int64Array, StringArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int32Type};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};
use weir_meta::Meta;

use super::pg_catalog;
use crate::error::SqlError;
use crate::pg::oid;
use crate::planner::FunctionSet;
use crate::session::{DATABASE, SERVER_VERSION, State};

/// What the functions know.
struct Known {
    user: String,
    state: Arc<Mutex<State>>,
    meta: Arc<Meta>,
}

/// All functions of a session.
pub(crate) fn functions(user: &str, state: Arc<Mutex<State>>, meta: Arc<Meta>) -> FunctionSet {
    let known = Arc::new(Known { user: user.to_string(), state, meta });
    let mut set = FunctionSet::standard();
    for function in FUNCTIONS {
        set.add_scalar(Arc::new(ScalarUDF::new_from_impl(SystemFunction::new(function, known.clone()))));
    }
    set
}

type Rows<'a> = &'a [ArrayRef];

/// A function's name, arguments, result, and what it does for a batch of rows.
struct Function {
    name: &'static str,
    /// The numbers of arguments that it can be called with.
    arguments: &'static [usize],
    returns: Returns,
    call: fn(&Known, Rows<'_>, usize) -> Result<ArrayRef>,
}

#[derive(Clone, Copy)]
enum Returns {
    Text,
    Int4,
    Int8,
    Bool,
    TextArray,
}

impl Returns {
    fn arrow(self) -> DataType {
        match self {
            Returns::Text => DataType::Utf8,
            Returns::Int4 => DataType::Int32,
            Returns::Int8 => DataType::Int64,
            Returns::Bool => DataType::Boolean,
            Returns::TextArray => DataType::new_list(DataType::Utf8, true),
        }
    }
}

const fn function(
    name: &'static str,
    arguments: &'static [usize],
    returns: Returns,
    call: fn(&Known, Rows<'_>, usize) -> Result<ArrayRef>,
) -> Function {
    Function { name, arguments, returns, call }
}

static FUNCTIONS: &[Function] = &[
    function("version", &[0], Returns::Text, |_, _, rows| {
        text(format!("PostgreSQL {SERVER_VERSION}, Weir {}", env!("CARGO_PKG_VERSION")), rows)
    }),
    function("current_database", &[0], Returns::Text, |_, _, rows| text(DATABASE, rows)),
    function("current_catalog", &[0], Returns::Text, |_, _, rows| text(DATABASE, rows)),
    function("current_user", &[0], Returns::Text, |known, _, rows| text(&known.user, rows)),
    function("session_user", &[0], Returns::Text, |known, _, rows| text(&known.user, rows)),
    function("user", &[0], Returns::Text, |known, _, rows| text(&known.user, rows)),
    function("current_role", &[0], Returns::Text, |known, _, rows| text(&known.user, rows)),
    function("current_schema", &[0], Returns::Text, |known, _, rows| match known.search_path().first() {
        Some(schema) => text(schema, rows),
        None => Ok(Arc::new(StringArray::new_null(rows))),
    }),
    function("current_schemas", &[1], Returns::TextArray, current_schemas),
    function("current_setting", &[1, 2], Returns::Text, current_setting),
    function("set_config", &[3], Returns::Text, set_config),
    function("pg_backend_pid", &[0], Returns::Int4, |_, _, rows| int4(std::process::id() as i32, rows)),
    function("pg_is_in_recovery", &[0], Returns::Bool, |_, _, rows| bool(false, rows)),
    function("pg_advisory_unlock_all", &[0], Returns::Text, |_, _, rows| text("", rows)),
    function("txid_current", &[0], Returns::Int8, |_, _, rows| Ok(Arc::new(Int64Array::from(vec![1; rows])))),
    function("inet_server_port", &[0], Returns::Int4, |_, _, rows| Ok(Arc::new(Int32Array::new_null(rows)))),
    function("pg_table_is_visible", &[1], Returns::Bool, table_is_visible),
    function("pg_type_is_visible", &[1], Returns::Bool, |_, _, rows| bool(true, rows)),
    function("pg_function_is_visible", &[1], Returns::Bool, |_, _, rows| bool(true, rows)),
    function("pg_get_userbyid", &[1], Returns::Text, |known, _, rows| text(&known.user, rows)),
    function("pg_encoding_to_char", &[1], Returns::Text, |_, _, rows| text("UTF8", rows)),
    function("format_type", &[2], Returns::Text, format_type),
    function("pg_get_expr", &[2, 3], Returns::Text, |_, args, rows| first_text(args, rows)),
    function("pg_get_viewdef", &[1, 2], Returns::Text, view_definition),
    function("pg_get_indexdef", &[1, 2, 3], Returns::Text, index_definition),
    function("pg_get_constraintdef", &[1, 2], Returns::Text, constraint_definition),
    function("pg_get_statisticsobjdef_columns", &[1], Returns::Text, no_text),
    function("obj_description", &[1, 2], Returns::Text, no_text),
    function("col_description", &[2], Returns::Text, no_text),
    function("shobj_description", &[2], Returns::Text, no_text),
    function("pg_relation_is_publishable", &[1], Returns::Bool, |_, _, rows| bool(false, rows)),
    function("pg_relation_size", &[1, 2], Returns::Int8, relation_size),
    function("pg_table_size", &[1], Returns::Int8, relation_size),
    function("pg_total_relation_size", &[1], Returns::Int8, relation_size),
    function("pg_indexes_size", &[1], Returns::Int8, |_, _, rows| Ok(Arc::new(Int64Array::from(vec![0; rows])))),
    function("has_table_privilege", &[2, 3], Returns::Bool, |_, _, rows| bool(true, rows)),
    function("has_any_column_privilege", &[2, 3], Returns::Bool, |_, _, rows| bool(true, rows)),
    function("has_column_privilege", &[3, 4], Returns::Bool, |_, _, rows| bool(true, rows)),
    function("has_schema_privilege", &[2, 3], Returns::Bool, |_, _, rows| bool(true, rows)),
    function("has_database_privilege", &[2, 3], Returns::Bool, |_, _, rows| bool(true, rows)),
    function("has_function_privilege", &[2, 3], Returns::Bool, |_, _, rows| bool(true, rows)),
    function("pg_get_function_result", &[1], Returns::Text, no_text),
    function("pg_get_function_arguments", &[1], Returns::Text, no_text),
    function("pg_get_function_identity_arguments", &[1], Returns::Text, no_text),
    function("pg_get_partkeydef", &[1], Returns::Text, no_text),
    function("pg_get_ruledef", &[1, 2], Returns::Text, no_text),
    function("pg_get_triggerdef", &[1, 2], Returns::Text, no_text),
    function("regclass", &[1], Returns::Int4, regclass),
    function("regclass_name", &[1], Returns::Text, regclass_name),
    function("to_regclass", &[1], Returns::Int4, to_regclass),
    function("regtype", &[1], Returns::Int4, regtype),
    function("to_regtype", &[1], Returns::Int4, to_regtype),
    function("regnamespace", &[1], Returns::Int4, regnamespace),
    function("array_upper", &[2], Returns::Int4, |_, args, rows| array_bound(args, rows, true)),
    function("array_lower", &[2], Returns::Int4, |_, args, rows| array_bound(args, rows, false)),
    function("quote_ident", &[1], Returns::Text, quote_ident),
];

impl Known {
    fn search_path(&self) -> Vec<String> {
        let path = self.state.lock().unwrap_or_else(PoisonError::into_inner).settings.search_path();
        let catalog = self.meta.catalog();
        path.into_iter().filter(|schema| catalog.has_schema(schema)).collect()
    }
}

fn text(value: impl Into<String>, rows: usize) -> Result<ArrayRef> {
    Ok(Arc::new(StringArray::from(vec![value.into(); rows])))
}

fn int4(value: i32, rows: usize) -> Result<ArrayRef> {
    Ok(Arc::new(Int32Array::from(vec![value; rows])))
}

fn bool(value: bool, rows: usize) -> Result<ArrayRef> {
    Ok(Arc::new(BooleanArray::from(vec![value; rows])))
}

fn no_text(_: &Known, _: Rows<'_>, rows: usize) -> Result<ArrayRef> {
    Ok(Arc::new(StringArray::new_null(rows)))
}

fn as_text(array: &ArrayRef) -> Result<ArrayRef> {
    Ok(cast(array, &DataType::Utf8)?)
}

fn first_text(args: Rows<'_>, _rows: usize) -> Result<ArrayRef> {
    as_text(&args[0])
}

/// Oids, which may come as integers of any width or as text.
fn oids(array: &ArrayRef) -> Result<Vec<Option<u32>>> {
    let ints = cast(array, &DataType::Int32)?;
    Ok(ints.as_primitive::<Int32Type>().iter().map(|oid| oid.map(|oid| oid as u32)).collect())
}

fn current_schemas(known: &Known, args: Rows<'_>, rows: usize) -> Result<ArrayRef> {
    let implicit = args[0].data_type() == &DataType::Boolean && args[0].as_boolean().iter().next() == Some(Some(true));
    let mut schemas = known.search_path();
    if implicit {
        schemas.insert(0, "pg_catalog".to_string());
    }
    let values: Vec<ScalarValue> = schemas.into_iter().map(ScalarValue::from).collect();
    let list = ScalarValue::List(ScalarValue::new_list_nullable(&values, &DataType::Utf8));
    list.to_array_of_size(rows)
}

fn current_setting(known: &Known, args: Rows<'_>, _rows: usize) -> Result<ArrayRef> {
    let names = as_text(&args[0])?;
    let missing_ok =
        args.get(1).is_some_and(|a| a.data_type() == &DataType::Boolean && a.as_boolean().true_count() > 0);
    let settings = known.state.lock().unwrap_or_else(PoisonError::into_inner).settings.clone();
    let values = names.as_string::<i32>().iter().map(|name| match name.map(|name| settings.get(name)) {
        Some(Ok(value)) => Ok(Some(value)),
        Some(Err(_)) if missing_ok => Ok(None),
        Some(Err(error)) => Err(error),
        None => Ok(None),
    });
    Ok(Arc::new(values.collect::<Result<StringArray, SqlError>>()?))
}

fn set_config(known: &Known, args: Rows<'_>, _rows: usize) -> Result<ArrayRef> {
    let (names, values, local) = (as_text(&args[0])?, as_text(&args[1])?, cast(&args[2], &DataType::Boolean)?);
    let mut state = known.state.lock().unwrap_or_else(PoisonError::into_inner);
    let mut set = Vec::with_capacity(names.len());
    for ((name, value), local) in names.as_string::<i32>().iter().zip(values.as_string::<i32>()).zip(local.as_boolean())
    {
        let Some(name) = name else {
            set.push(None);
            continue;
        };
        let value = value.map(|v| vec![v.to_string()]);
        state.settings.set(name, value.as_deref(), local.unwrap_or(false))?;
        set.push(Some(state.settings.get(name)?));
    }
    Ok(Arc::new(set.into_iter().collect::<StringArray>()))
}

fn table_is_visible(known: &Known, args: Rows<'_>, _rows: usize) -> Result<ArrayRef> {
    let (catalog, path) = (known.meta.catalog(), known.search_path());
    let visible = |oid: Option<u32>| {
        let oid = oid?;
        // Oids that are no object's are those of primary keys, which nobody looks up by name.
        Some(catalog.get(weir_common::JobId(oid)).is_none_or(|o| path.contains(&o.schema)))
    };
    Ok(Arc::new(oids(&args[0])?.into_iter().map(visible).collect::<BooleanArray>()))
}

fn format_type(_: &Known, args: Rows<'_>, _rows: usize) -> Result<ArrayRef> {
    let modifiers = cast(&args[1], &DataType::Int32)?;
    let names = oids(&args[0])?.into_iter().zip(modifiers.as_primitive::<Int32Type>()).map(|(oid, modifier)| {
        let oid = oid?;
        let modifier = modifier.filter(|m| *m >= 4 && oid == oid::NUMERIC).map(|m| m - 4);
        Some(match (oid::sql_type(oid), modifier) {
            (_, Some(m)) => format!("numeric({},{})", m >> 16, m & 0xffff),
            (Some(_), None) if oid == oid::TEXT => "text".to_string(),
            (Some(sql_type), None) => sql_type.to_string(),
            (None, None) => "???".to_string(),
        })
    });
    Ok(Arc::new(names.collect::<StringArray>()))
}

fn view_definition(known: &Known, args: Rows<'_>, _rows: usize) -> Result<ArrayRef> {
    let catalog = known.meta.catalog();
    let definition = |oid: Option<u32>| catalog.get(weir_common::JobId(oid?))?.query.clone();
    Ok(Arc::new(oids(&args[0])?.into_iter().map(definition).collect::<StringArray>()))
}

fn index_definition(known: &Known, args: Rows<'_>, rows: usize) -> Result<ArrayRef> {
    let catalog = known.meta.catalog();
    let columns = match args.get(1) {
        Some(columns) => cast(columns, &DataType::Int32)?,
        None => int4(0, rows)?,
    };
    let definitions = oids(&args[0])?.into_iter().zip(columns.as_primitive::<Int32Type>());
    let definitions = definitions.map(|(oid, column)| pg_catalog::index_definition(&catalog, oid?, column?));
    Ok(Arc::new(definitions.collect::<StringArray>()))
}

fn constraint_definition(known: &Known, args: Rows<'_>, _rows: usize) -> Result<ArrayRef> {
    let catalog = known.meta.catalog();
    let definition = |oid: Option<u32>| pg_catalog::constraint_definition(&catalog, oid?);
    Ok(Arc::new(oids(&args[0])?.into_iter().map(definition).collect::<StringArray>()))
}

fn relation_size(known: &Known, args: Rows<'_>, _rows: usize) -> Result<ArrayRef> {
    let catalog = known.meta.catalog();
    let size = |oid: Option<u32>| {
        let object = catalog.get(weir_common::JobId(oid?))?;
        let table = object.plan.as_ref()?.relation.as_ref()?;
        Some(known.meta.store().table_bytes(table.id) as i64)
    };
    Ok(Arc::new(oids(&args[0])?.into_iter().map(size).collect::<Int64Array>()))
}

/// Oids from texts that name something, or that are numbers; integers are oids already.
fn named_oids(array: &ArrayRef, find: impl Fn(&str) -> Result<Option<u32>>) -> Result<ArrayRef> {
    if !matches!(array.data_type(), DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View) {
        return Ok(cast(array, &DataType::Int32)?);
    }
    let names = as_text(array)?;
    let oids = names.as_string::<i32>().iter().map(|name| match name {
        None | Some("-") => Ok(name.map(|_| 0)),
        Some(name) => match name.parse::<u32>() {
            Ok(oid) => Ok(Some(oid as i32)),
            Err(_) => Ok(find(name)?.map(|oid| oid as i32)),
        },
    });
    Ok(Arc::new(oids.collect::<Result<Int32Array>>()?))
}

/// The parts of a name as it is written, folded as SQL folds it.
fn name_parts(name: &str) -> Vec<String> {
    let fold = |part: &str| match part.strip_prefix('"').and_then(|p| p.strip_suffix('"')) {
        Some(quoted) => quoted.replace("\"\"", "\""),
        None => part.to_lowercase(),
    };
    name.split('.').map(|part| fold(part.trim())).collect()
}

fn relation_oid(known: &Known, name: &str) -> Option<u32> {
    let catalog = known.meta.catalog();
    let find = |schema: &str, name: &str| catalog.find(schema, name).map(|o| o.id.0);
    match name_parts(name).as_slice() {
        [name] => {
            let own = known.search_path().iter().find_map(|schema| find(schema, name));
            own.or_else(|| pg_catalog::relation_oid(name))
        }
        [.., schema, name] if schema == "pg_catalog" => pg_catalog::relation_oid(name),
        [.., schema, name] => find(schema, name),
        [] => None,
    }
}

fn regclass(known: &Known, args: Rows<'_>, _rows: usize) -> Result<ArrayRef> {
    named_oids(&args[0], |name| match relation_oid(known, name) {
        Some(oid) => Ok(Some(oid)),
        None => Err(SqlError::undefined_table(name).into()),
    })
}

/// The name of a relation, with its schema where the search path does not lead to it.
fn regclass_name(known: &Known, args: Rows<'_>, _rows: usize) -> Result<ArrayRef> {
    let (catalog, path) = (known.meta.catalog(), known.search_path());
    let name = |oid: Option<u32>| {
        let oid = oid?;
        let Some(object) = catalog.get(weir_common::JobId(oid)) else { return Some(oid.to_string()) };
        let found = path.iter().find_map(|schema| catalog.find(schema, &object.name));
        Some(match found.is_some_and(|found| found.id == object.id) {
            true => object.name.clone(),
            false => format!("{}.{}", object.schema, object.name),
        })
    };
    Ok(Arc::new(oids(&args[0])?.into_iter().map(name).collect::<StringArray>()))
}

fn to_regclass(known: &Known, args: Rows<'_>, _rows: usize) -> Result<ArrayRef> {
    named_oids(&args[0], |name| Ok(relation_oid(known, name)))
}

fn type_oid(name: &str) -> Option<u32> {
    let name = name_parts(name).pop()?;
    let (name, is_array) = match name.strip_suffix("[]") {
        Some(item) => (item.to_string(), true),
        None => (name, false),
    };
    let builtin = oid::BUILTIN_TYPES.iter().find(|t| {
        t.name == name || oid::sql_type(t.oid).is_some_and(|s| t.oid == oid::of(&s) && s.to_string() == name)
    })?;
    Some(if is_array { builtin.array_oid } else { builtin.oid })
}

fn regtype(_: &Known, args: Rows<'_>, _rows: usize) -> Result<ArrayRef> {
    named_oids(&args[0], |name| match type_oid(name) {
        Some(oid) => Ok(Some(oid)),
        None => {
            let message = format!("type \"{name}\" does not exist");
            Err(SqlError::new(weir_common::SqlState::UNDEFINED_OBJECT, message).into())
        }
    })
}

fn to_regtype(_: &Known, args: Rows<'_>, _rows: usize) -> Result<ArrayRef> {
    named_oids(&args[0], |name| Ok(type_oid(name)))
}

fn regnamespace(known: &Known, args: Rows<'_>, _rows: usize) -> Result<ArrayRef> {
    let catalog = known.meta.catalog();
    named_oids(&args[0], |name| {
        let schema = name_parts(name).pop().unwrap_or_default();
        if !catalog.has_schema(&schema) && !super::is_system_schema(&schema) {
            let message = format!("schema \"{name}\" does not exist");
            return Err(SqlError::new(weir_common::SqlState::INVALID_SCHEMA_NAME, message).into());
        }
        Ok(Some(pg_catalog::namespace_oid(&catalog, &schema)))
    })
}

/// The bounds of the first dimension; there is no other here.
fn array_bound(args: Rows<'_>, rows: usize, upper: bool) -> Result<ArrayRef> {
    let Some(list) = args[0].as_list_opt::<i32>() else { return Ok(Arc::new(Int32Array::new_null(rows))) };
    let bound = |row: usize| {
        let length = if list.is_valid(row) { list.value_length(row) } else { 0 };
        (length > 0).then_some(if upper { length } else { 1 })
    };
    Ok(Arc::new((0..list.len()).map(bound).collect::<Int32Array>()))
}

fn quote_ident(_: &Known, args: Rows<'_>, _rows: usize) -> Result<ArrayRef> {
    let names = as_text(&args[0])?;
    Ok(Arc::new(names.as_string::<i32>().iter().map(|name| name.map(pg_catalog::quoted)).collect::<StringArray>()))
}

/// A function of a session, as DataFusion calls it.
struct SystemFunction {
    function: &'static Function,
    known: Arc<Known>,
    signature: Signature,
}

impl SystemFunction {
    fn new(function: &'static Function, known: Arc<Known>) -> SystemFunction {
        let arity = function.arguments.iter().map(|n| match n {
            0 => datafusion::logical_expr::TypeSignature::Nullary,
            n => datafusion::logical_expr::TypeSignature::Any(*n),
        });
        // What changes something must not be run while planning.
        let volatility = if function.name == "set_config" { Volatility::Volatile } else { Volatility::Stable };
        let signature = Signature::one_of(arity.collect(), volatility);
        SystemFunction { function, known, signature }
    }
}

impl fmt::Debug for SystemFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.function.name)
    }
}

impl PartialEq for SystemFunction {
    fn eq(&self, other: &SystemFunction) -> bool {
        self.function.name == other.function.name
    }
}

impl Eq for SystemFunction {}

impl Hash for SystemFunction {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.function.name.hash(state);
    }
}

impl ScalarUDFImpl for SystemFunction {
    fn name(&self) -> &str {
        self.function.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arg_types: &[DataType]) -> Result<DataType> {
        Ok(self.function.returns.arrow())
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let constant = args.args.iter().all(|a| matches!(a, ColumnarValue::Scalar(_)));
        let rows = if constant { 1 } else { args.number_rows };
        let arrays = args.args.iter().map(|a| a.to_array(rows)).collect::<Result<Vec<_>>>()?;
        let result = (self.function.call)(&self.known, &arrays, rows)?;
        Ok(match constant {
            true => ColumnarValue::Scalar(ScalarValue::try_from_array(&result, 0)?),
            false => ColumnarValue::Array(result),
        })
    }
}
