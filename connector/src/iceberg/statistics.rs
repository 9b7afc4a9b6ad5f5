//! What a manifest says about a Parquet file: sizes, counts and bounds of its columns, by field id.

use std::collections::HashMap;

use iceberg::spec::{DataContentType, DataFileBuilder, DataFileFormat, Datum, PrimitiveType};
use parquet::basic::Type as PhysicalType;
use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData};

/// Bytes of a text or binary bound.
pub const BOUND_BYTES_MAX: usize = 16;

/// The smallest and the largest value of a column.
#[derive(Default)]
struct Bounds {
    lower: Option<Datum>,
    upper: Option<Datum>,
    /// A part of the file has values and no bounds.
    unknown: bool,
}

impl Bounds {
    fn add(&mut self, chunk: &ColumnChunkMetaData, field_type: &PrimitiveType) {
        let Some(statistics) = chunk.statistics() else {
            self.unknown = true;
            return;
        };
        if statistics.null_count_opt() == Some(chunk.num_values().unsigned_abs()) {
            return;
        }
        let datum = |bytes: Option<&[u8]>| datum(bytes?, chunk.column_type(), field_type);
        match (datum(statistics.min_bytes_opt()), datum(statistics.max_bytes_opt())) {
            (Some(lower), Some(upper)) => {
                let lower = self
                    .lower
                    .take()
                    .filter(|known| known.partial_cmp(&lower).is_some_and(|o| o.is_le()))
                    .unwrap_or(lower);
                let upper = self
                    .upper
                    .take()
                    .filter(|known| known.partial_cmp(&upper).is_some_and(|o| o.is_ge()))
                    .unwrap_or(upper);
                (self.lower, self.upper) = (Some(lower), Some(upper));
            }
            _ => self.unknown = true,
        }
    }
}

/// A bound as Iceberg writes it. It differs from Parquet in the byte order of short decimals only.
fn datum(bytes: &[u8], physical: PhysicalType, field_type: &PrimitiveType) -> Option<Datum> {
    let integer = matches!(physical, PhysicalType::INT32 | PhysicalType::INT64);
    if integer && matches!(field_type, PrimitiveType::Decimal { .. }) {
        let reversed: Vec<u8> = bytes.iter().rev().copied().collect();
        return Datum::try_from_bytes(&reversed, field_type.clone()).ok();
    }
    Datum::try_from_bytes(bytes, field_type.clone()).ok()
}

/// Describes a file of `content` with columns of these types. What remains to be set is its partition.
pub fn describe(
    metadata: &ParquetMetaData,
    types: &HashMap<i32, PrimitiveType>,
    content: DataContentType,
    location: String,
    bytes: u64,
) -> DataFileBuilder {
    let (mut sizes, mut values, mut nulls) = (HashMap::new(), HashMap::new(), HashMap::new());
    let mut bounds: HashMap<i32, Bounds> = HashMap::new();
    for chunk in metadata.row_groups().iter().flat_map(|group| group.columns()) {
        let info = chunk.column_descr().self_type().get_basic_info();
        // A column within a list has a count of its own, which is not the one of rows.
        if !info.has_id() || chunk.column_descr().max_rep_level() > 0 {
            continue;
        }
        *sizes.entry(info.id()).or_insert(0) += chunk.compressed_size().unsigned_abs();
        *values.entry(info.id()).or_insert(0) += chunk.num_values().unsigned_abs();
        if let Some(count) = chunk.statistics().and_then(|s| s.null_count_opt()) {
            *nulls.entry(info.id()).or_insert(0) += count;
        }
        if let Some(field_type) = types.get(&info.id()) {
            bounds.entry(info.id()).or_default().add(chunk, field_type);
        }
    }
    bounds.retain(|_, b| !b.unknown);
    let bound = |of: fn(&Bounds) -> Option<&Datum>| {
        bounds.iter().filter_map(|(id, b)| Some((*id, of(b)?.clone()))).collect::<HashMap<i32, Datum>>()
    };
    let offsets = metadata.row_groups().iter().filter_map(|group| group.file_offset()).collect();
    let mut file = DataFileBuilder::default();
    file.content(content)
        .file_path(location)
        .file_format(DataFileFormat::Parquet)
        .record_count(metadata.file_metadata().num_rows().unsigned_abs())
        .file_size_in_bytes(bytes)
        .lower_bounds(bound(|b| b.lower.as_ref()))
        .upper_bounds(bound(|b| b.upper.as_ref()))
        .column_sizes(sizes)
        .value_counts(values)
        .null_value_counts(nulls)
        .split_offsets(Some(offsets));
    file
}
