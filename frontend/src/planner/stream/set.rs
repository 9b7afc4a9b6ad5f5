//! UNION ALL and unnest.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::common::ScalarValue;
use datafusion::logical_expr::{self as logical};
use datafusion::physical_expr::expressions::Column;
use weir_common::plan::{self, Distribution, Node, StreamPlan};

use super::super::properties;
use super::rel::{Phys, Rel, RelColumn, column_index};
use super::{Builder, literal, unsupported};
use crate::error::Result;

/// The last column of a union's inputs: which of them a row is from.
const BRANCH: &str = "_branch";

impl Builder {
    pub(super) fn union(&mut self, union: &logical::Union) -> Result<Rel> {
        let schema = union.schema.inner();
        let mut branches = Vec::with_capacity(union.inputs.len());
        for input in &union.inputs {
            let branch = self.plan(input)?;
            branches.push(branch.with_types(schema.fields().iter().map(|f| f.data_type()))?);
        }
        self.union_all(branches, schema)
    }

    /// All rows of all branches. A row is identified by what identifies it in its branch and by the branch: the columns
    /// that only identify get places behind the others, shared by branches where types allow.
    ///
    /// ```text
    /// columns of the union | places for keys, NULL where a branch has no use for it | branch
    /// ```
    pub(super) fn union_all(&mut self, branches: Vec<Rel>, schema: &SchemaRef) -> Result<Rel> {
        let width = schema.fields().len();
        let mut places: Vec<DataType> = Vec::new();
        let mut filled: Vec<(Rel, Vec<Option<usize>>)> = Vec::with_capacity(branches.len());
        for branch in branches {
            let mut taken: Vec<Option<usize>> = vec![None; places.len()];
            let shown = |key: &usize| branch.columns.iter().any(|c| column_index(&c.expr) == Some(*key));
            for key in properties::stream_key(&branch.plan).into_iter().filter(|key| !shown(key)) {
                let data_type = branch.plan.schema.field(key).data_type();
                let free = (0..places.len()).find(|p| taken[*p].is_none() && places[*p] == *data_type);
                match free {
                    Some(place) => taken[place] = Some(key),
                    None => {
                        places.push(data_type.clone());
                        taken.push(Some(key));
                    }
                }
            }
            filled.push((branch, taken));
        }
        let parallel = filled.iter().any(|(branch, _)| !properties::is_single(&branch.plan));
        let mut inputs = Vec::with_capacity(filled.len());
        for (number, (branch, taken)) in filled.into_iter().enumerate() {
            let names = schema.fields().iter().map(|f| super::shown(f.name()).to_string());
            let mut branch = branch.with_names(names);
            for (place, data_type) in places.iter().enumerate() {
                let expr: Phys = match taken.get(place).copied().flatten() {
                    Some(key) => Arc::new(Column::new(branch.plan.schema.field(key).name(), key)),
                    None => literal(ScalarValue::try_from(data_type)?),
                };
                branch.columns.push(RelColumn { name: format!("_k{place}"), expr });
            }
            let number = literal(ScalarValue::Int16(Some(number as i16)));
            branch.columns.push(RelColumn { name: BRANCH.into(), expr: number });
            let input = branch.settle_exactly()?;
            // A branch at one actor beside others at several would be read by each of them.
            let input = if parallel && properties::is_single(&input) {
                let key = properties::stream_key(&input);
                let key = if key.is_empty() { vec![input.schema.fields().len() - 1] } else { key };
                self.spread(input, Distribution::Hash(key))
            } else {
                input
            };
            inputs.push(input);
        }
        let schema = union_schema(&inputs);
        Ok(Rel::first(StreamPlan { schema, node: Node::Union(plan::Union { inputs }) }, width))
    }

    pub(super) fn unnest(&mut self, unnest: &logical::Unnest) -> Result<Rel> {
        if !unnest.struct_type_columns.is_empty() {
            return Err(unsupported("unnest of a struct").with_hint("Name its fields: (x).a, (x).b."));
        }
        if unnest.options.preserve_nulls {
            return Err(unsupported("an outer join with unnest").with_hint("Use CROSS JOIN, or FROM t, unnest(…)."));
        }
        let [(list, how)] = &unnest.list_type_columns[..] else {
            return Err(unsupported("unnest of several arrays at once").with_hint("Unnest one, then the other."));
        };
        if how.depth != 1 {
            return Err(unsupported("unnest of nested arrays at once").with_hint("Unnest twice."));
        }
        let input = self.plan(&unnest.input)?;
        let width = input.columns.len();
        let plan = input.settle()?;
        // The array is gone after this: when it identifies rows, that takes a copy.
        let (plan, shift) = match properties::stream_key(&plan).contains(list) {
            true => {
                let all = plan.schema.fields().len();
                let columns = Rel::pick(plan.clone(), std::iter::once(*list).chain(0..all)).columns;
                (Rel { plan, columns }.settle_exactly()?, 1)
            }
            false => (plan, 0),
        };
        let column = list + shift;
        let mut fields: Vec<Field> = plan.schema.fields().iter().map(|f| f.as_ref().clone()).collect();
        let element = match fields[column].data_type() {
            DataType::List(item) => item.data_type().clone(),
            other => return Err(unsupported(format!("unnest of type {other}"))),
        };
        fields[column] = Field::new(&how.output_column.name, element, true);
        fields.push(Field::new("_position", DataType::Int64, false));
        let node = Node::Unnest(plan::Unnest { input: Box::new(plan), column });
        let plan = StreamPlan { schema: Arc::new(Schema::new(fields)), node };
        // The columns of the logical node, in its order, which may be another than the input's.
        let places = unnest.schema.fields().len();
        let order = &unnest.dependency_indices;
        assert!(order.len() == places && order.iter().all(|i| *i < width), "unnest of one list keeps its columns");
        Ok(Rel::pick(plan, order.iter().map(|i| i + shift).collect::<Vec<_>>()))
    }
}

/// Names of the first input; NULL where any may be.
fn union_schema(inputs: &[StreamPlan]) -> SchemaRef {
    let Some(first) = inputs.first() else { return Arc::new(Schema::empty()) };
    let field = |(i, f): (usize, &Arc<Field>)| {
        let nullable = inputs.iter().any(|input| input.schema.field(i).is_nullable());
        f.as_ref().clone().with_nullable(nullable)
    };
    Arc::new(Schema::new(first.schema.fields().iter().enumerate().map(field).collect::<Vec<_>>()))
}
