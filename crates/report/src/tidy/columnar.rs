//! Tables as Parquet: uncompressed, as dictionaries keep texts small.

use std::sync::Arc;

use parquet::basic::{LogicalType, Repetition, Type as Physical};
use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::{Type, TypePtr};

use super::{Kind, Measure, Schema, Value};

/// The key of the schema in the metadata of a file.
const SCHEMA: &str = "anabranch.schema";

/// The rows so far, by column.
#[derive(Debug)]
pub(super) struct Columns {
    keys: Vec<KeyColumn>,
    measure: Vec<ByteArray>,
    value: Vec<f64>,
    unit: Vec<ByteArray>,
}

/// The values of a key column, and for each row whether it has a value (1) or not (0).
#[derive(Debug)]
struct KeyColumn {
    cells: Cells,
    present: Vec<i16>,
}

#[derive(Debug)]
enum Cells {
    Text(Vec<ByteArray>),
    Integer(Vec<i64>),
    Real(Vec<f64>),
}

impl Columns {
    pub(super) fn new(schema: &Schema) -> Columns {
        let cells = |kind| match kind {
            Kind::Text => Cells::Text(Vec::new()),
            Kind::Integer => Cells::Integer(Vec::new()),
            Kind::Real => Cells::Real(Vec::new()),
        };
        let keys = schema
            .keys
            .iter()
            .map(|key| KeyColumn { cells: cells(key.kind), present: Vec::new() })
            .collect();
        Columns { keys, measure: Vec::new(), value: Vec::new(), unit: Vec::new() }
    }

    /// Adds a row, which must match the schema.
    pub(super) fn row(&mut self, keys: &[Value], measure: &Measure, value: f64) {
        self.record(keys);
        self.measure.push(measure.name.as_str().into());
        self.value.push(value);
        self.unit.push(measure.unit.as_str().into());
    }

    /// Adds a row of a table of records, which must match the schema.
    pub(super) fn record(&mut self, keys: &[Value]) {
        for (column, key) in self.keys.iter_mut().zip(keys) {
            column.present.push(i16::from(*key != Value::Missing));
            match (&mut column.cells, key) {
                (Cells::Text(texts), Value::Text(text)) => texts.push(text.as_str().into()),
                (Cells::Integer(numbers), Value::Integer(number)) => numbers.push(*number),
                (Cells::Real(numbers), Value::Real(number)) => numbers.push(*number),
                _ => {}
            }
        }
    }

    pub(super) fn encode(&self, schema: &Schema) -> Result<Vec<u8>, String> {
        self.encoded(schema).map_err(|error| error.to_string())
    }

    fn encoded(&self, schema: &Schema) -> Result<Vec<u8>, ParquetError> {
        let keys = schema.keys.iter().map(|key| field(&key.name, key.kind, Repetition::OPTIONAL));
        let own = [("measure", Kind::Text), ("value", Kind::Real), ("unit", Kind::Text)];
        let own = own.iter().filter(|_| schema.has_measures);
        let own = own.map(|(name, kind)| field(name, *kind, Repetition::REQUIRED));
        let fields = keys.chain(own).collect::<Result<Vec<TypePtr>, _>>()?;
        let root = Arc::new(Type::group_type_builder("table").with_fields(fields).build()?);
        // Units and meanings, as in the schema file.
        let about = KeyValue::new(SCHEMA.to_owned(), schema.json());
        let mut writer = SerializedFileWriter::new(
            Vec::new(),
            root,
            Arc::new(WriterProperties::builder().set_key_value_metadata(Some(vec![about])).build()),
        )?;
        let mut group = writer.next_row_group()?;
        for column in &self.keys {
            let present = Some(column.present.as_slice());
            match &column.cells {
                Cells::Text(cells) => write::<ByteArrayType>(&mut group, cells, present)?,
                Cells::Integer(cells) => write::<Int64Type>(&mut group, cells, present)?,
                Cells::Real(cells) => write::<DoubleType>(&mut group, cells, present)?,
            }
        }
        if schema.has_measures {
            write::<ByteArrayType>(&mut group, &self.measure, None)?;
            write::<DoubleType>(&mut group, &self.value, None)?;
            write::<ByteArrayType>(&mut group, &self.unit, None)?;
        }
        group.close()?;
        writer.into_inner()
    }
}

fn field(name: &str, kind: Kind, repetition: Repetition) -> Result<TypePtr, ParquetError> {
    let physical = match kind {
        Kind::Text => Physical::BYTE_ARRAY,
        Kind::Integer => Physical::INT64,
        Kind::Real => Physical::DOUBLE,
    };
    let logical = (kind == Kind::Text).then_some(LogicalType::String);
    let field = Type::primitive_type_builder(name, physical)
        .with_repetition(repetition)
        .with_logical_type(logical);
    Ok(Arc::new(field.build()?))
}

fn write<T: parquet::data_type::DataType>(
    group: &mut SerializedRowGroupWriter<'_, Vec<u8>>,
    cells: &[T::T],
    present: Option<&[i16]>,
) -> Result<(), ParquetError> {
    let mut column =
        group.next_column()?.ok_or_else(|| ParquetError::General("a column too many".into()))?;
    column.typed::<T>().write_batch(cells, present, None)?;
    column.close()
}
