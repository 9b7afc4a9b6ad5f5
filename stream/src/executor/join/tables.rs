//! What a join remembers, and what identifies the rows that come out of it. The planner asks here.

use arrow::datatypes::{DataType, Field, Schema};
use weir_common::plan::JoinKind;
use weir_common::{TableDef, TableId};

/// The column after the input's own that counts the matching rows of the other side.
pub const MATCHES: &str = "matches";

/// The tables of both sides' rows: the input's columns, then `matches bigint` where the kind counts that side.
///
/// ```text
/// key            join key columns in the order of `on`, then the remaining columns of the input's stream key
/// distribution   the join key columns, so both inputs must be distributed by them in this order
/// ```
///
/// A column may be in `on` more than once (`a.x = b.x AND a.x = b.y`); it is then in the key as often, so that the keys
/// of both sides have the same bytes. `matches` counts only in joins with a residual condition and is 0 in others, where
/// the number of rows of a join key says as much.
pub fn tables(
    left: &Schema,
    left_key: &[usize],
    right: &Schema,
    right_key: &[usize],
    kind: JoinKind,
    on: &[(usize, usize)],
    next_id: &mut dyn FnMut() -> TableId,
) -> (TableDef, TableDef) {
    let (left_on, right_on): (Vec<_>, Vec<_>) = on.iter().copied().unzip();
    let left = rows_table(next_id(), left, left_key, &left_on, kind.counts_left());
    let right = rows_table(next_id(), right, right_key, &right_on, kind.counts_right());
    (left, right)
}

/// The columns of the output that identify its rows, given the stream keys of the inputs.
///
/// ```text
/// Inner, Left          left join key | rest of the left key | rest of the right key
/// Right                right join key | rest of the left key | rest of the right key
/// Full                 left join key | rest of the left key | right join key | rest of the right key
/// LeftSemi, LeftAnti   left join key | rest of the left key
/// ```
///
/// The join key of the side whose rows always come out is part of it, though the stream keys alone would do: a row that
/// moves to another join key leaves one actor and arrives at another, and nothing orders the two changes. Key columns of
/// a padded side are NULL.
///
/// A full join is identified by these columns only while [`full_join_needs_marker`] says no.
pub fn stream_key(
    left_width: usize,
    left_key: &[usize],
    right_key: &[usize],
    kind: JoinKind,
    on: &[(usize, usize)],
) -> Vec<usize> {
    let left_on = distinct(on.iter().map(|pair| pair.0));
    let right_on = distinct(on.iter().map(|pair| pair.1 + left_width));
    let left_rest = distinct(left_key.iter().copied()).into_iter().filter(|c| !left_on.contains(c));
    let right_rest = distinct(right_key.iter().map(|c| c + left_width)).into_iter().filter(|c| !right_on.contains(c));
    match kind {
        JoinKind::Inner | JoinKind::Left => left_on.iter().copied().chain(left_rest).chain(right_rest).collect(),
        JoinKind::Right => right_on.iter().copied().chain(left_rest).chain(right_rest).collect(),
        JoinKind::Full => {
            left_on.iter().copied().chain(left_rest).chain(right_on.iter().copied()).chain(right_rest).collect()
        }
        JoinKind::LeftSemi | JoinKind::LeftAnti => left_on.iter().copied().chain(left_rest).collect(),
    }
}

/// Whether two rows of a full join could have the same key: when every key column of both sides may be NULL, an unmatched
/// left row and an unmatched right row may both be all NULL there. `SELECT … FROM (SELECT k, count(*) FROM a GROUP BY k)
/// FULL JOIN (SELECT k, count(*) FROM b GROUP BY k) USING (k)` has the two groups of NULL.
///
/// The planner then adds a column that is never NULL (a constant `true`) to the left input and to its key.
pub fn full_join_needs_marker(
    left: &Schema,
    left_key: &[usize],
    right: &Schema,
    right_key: &[usize],
    on: &[(usize, usize)],
) -> bool {
    let left_nullable = left_key.iter().copied().chain(on.iter().map(|p| p.0)).all(|c| left.field(c).is_nullable());
    let right_nullable = right_key.iter().copied().chain(on.iter().map(|p| p.1)).all(|c| right.field(c).is_nullable());
    left_nullable && right_nullable
}

fn rows_table(id: TableId, input: &Schema, stream_key: &[usize], on: &[usize], counted: bool) -> TableDef {
    let mut fields = input.fields().to_vec();
    if counted {
        fields.push(Field::new(MATCHES, DataType::Int64, false).into());
    }
    let mut key = on.to_vec();
    for column in stream_key {
        if !key.contains(column) {
            key.push(*column);
        }
    }
    TableDef::ascending(id, Schema::new(fields), &key, on)
}

fn distinct(columns: impl Iterator<Item = usize>) -> Vec<usize> {
    let mut seen = Vec::new();
    for column in columns {
        if !seen.contains(&column) {
            seen.push(column);
        }
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schema(nullable: &[bool]) -> Schema {
        let field = |(i, n): (usize, &bool)| Field::new(format!("c{i}"), DataType::Int64, *n);
        Schema::new(nullable.iter().enumerate().map(field).collect::<Vec<_>>())
    }

    #[test]
    fn keys_start_with_the_join_key() {
        let (left, right) = (schema(&[true, true, false]), schema(&[false, true]));
        let mut id = 0;
        let mut next_id = || {
            id += 1;
            TableId(id)
        };
        let (l, r) = tables(&left, &[2, 1], &right, &[0], JoinKind::Left, &[(1, 1), (0, 1)], &mut next_id);
        assert_eq!((l.id, l.key_indices(), l.distribution.clone()), (TableId(1), vec![1, 0, 2], vec![1, 0]));
        assert_eq!((r.id, r.key_indices(), r.distribution.clone()), (TableId(2), vec![1, 1, 0], vec![1, 1]));
        assert_eq!((l.schema.fields().len(), r.schema.fields().len()), (4, 2));
    }

    #[test]
    fn rows_are_identified_by_both_keys() {
        let key = |kind| stream_key(3, &[2, 1], &[0], kind, &[(1, 1), (0, 1)]);
        assert_eq!(key(JoinKind::Inner), [1, 0, 2, 3]);
        assert_eq!(key(JoinKind::Left), [1, 0, 2, 3]);
        assert_eq!(key(JoinKind::Right), [4, 2, 3]);
        assert_eq!(key(JoinKind::Full), [1, 0, 2, 4, 3]);
        assert_eq!(key(JoinKind::LeftSemi), [1, 0, 2]);
        let (left, right) = (schema(&[true, true, false]), schema(&[true, true]));
        assert!(!full_join_needs_marker(&left, &[2, 1], &right, &[0], &[(1, 1)]));
        assert!(full_join_needs_marker(&left, &[0, 1], &right, &[0], &[(1, 1)]));
    }
}
