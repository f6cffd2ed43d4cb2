//! `runs.parquet` and `epochs.parquet`: the same columns as the CSV files, typed.

use std::path::Path;
use std::sync::Arc;

use parquet::basic::{LogicalType, Repetition, Type as Physical};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::types::{Type, TypePtr};

use super::csv::CHUNK;
use super::table::{self, Column, Table, Values};
use crate::files::write_with;
use crate::sweep::record::RunRecord;

/// Writes `runs.parquet` and `epochs.parquet`; every column may have nulls.
///
/// # Errors
/// If a file cannot be written; an earlier one stays as it is.
pub fn write(directory: &Path, records: &[&RunRecord]) -> anyhow::Result<()> {
    let figures = table::figures(records);
    file(&directory.join("runs.parquet"), table::runs(records), std::iter::empty())?;
    let mut chunks = records.chunks(CHUNK).map(|records| table::epochs(records, &figures));
    let first = chunks.next().unwrap_or_else(|| table::epochs(&[], &figures));
    file(&directory.join("epochs.parquet"), first, chunks)
}

/// A file with a row group per table, all with the columns of the first.
fn file(path: &Path, first: Table, others: impl Iterator<Item = Table>) -> anyhow::Result<()> {
    let created_by = format!("nap {}", env!("CARGO_PKG_VERSION"));
    let properties = WriterProperties::builder().set_created_by(created_by).build();
    let written: Result<(), Error> = write_with(path, |file| {
        let schema = schema(&first)?;
        let mut writer = SerializedFileWriter::new(file, schema, Arc::new(properties))?;
        for table in std::iter::once(first).chain(others) {
            let mut group = writer.next_row_group()?;
            for column in &table.columns {
                if let Some(mut target) = group.next_column()? {
                    write_column(&mut target, &column.values)?;
                    target.close()?;
                }
            }
            group.close()?;
        }
        writer.close()?;
        Ok(())
    });
    written.map_err(|error| anyhow::anyhow!("cannot write {}: {}", path.display(), error.0))
}

fn schema(table: &Table) -> Result<TypePtr, ParquetError> {
    let field = |column: &Column| {
        let (physical, logical) = match column.values {
            Values::Text(_) => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
            Values::Whole(_) => (Physical::INT64, None),
            Values::Number(_) => (Physical::DOUBLE, None),
            Values::Flag(_) => (Physical::BOOLEAN, None),
        };
        let field = Type::primitive_type_builder(&column.name, physical)
            .with_repetition(Repetition::OPTIONAL)
            .with_logical_type(logical);
        Ok(Arc::new(field.build()?))
    };
    let fields = table.columns.iter().map(field).collect::<Result<_, ParquetError>>()?;
    Ok(Arc::new(Type::group_type_builder("schema").with_fields(fields).build()?))
}

fn write_column(
    target: &mut SerializedColumnWriter<'_>,
    values: &Values,
) -> Result<(), ParquetError> {
    fn put<T: DataType>(
        target: &mut SerializedColumnWriter<'_>,
        cells: impl Iterator<Item = Option<T::T>>,
    ) -> Result<(), ParquetError> {
        let (mut values, mut levels) = (Vec::new(), Vec::new());
        for cell in cells {
            // 1: there is a value.
            levels.push(i16::from(cell.is_some()));
            values.extend(cell);
        }
        target.typed::<T>().write_batch(&values, Some(&levels), None)?;
        Ok(())
    }
    match values {
        Values::Text(values) => {
            let bytes = |text: &String| ByteArray::from(text.as_bytes().to_vec());
            put::<ByteArrayType>(target, values.iter().map(|text| text.as_ref().map(bytes)))
        }
        Values::Whole(values) => put::<Int64Type>(target, values.iter().copied()),
        Values::Number(values) => put::<DoubleType>(target, values.iter().copied()),
        Values::Flag(values) => put::<BoolType>(target, values.iter().copied()),
    }
}

struct Error(ParquetError);

impl From<ParquetError> for Error {
    fn from(error: ParquetError) -> Self {
        Self(error)
    }
}

impl From<std::io::Error> for Error {
    fn from(error: std::io::Error) -> Self {
        Self(error.into())
    }
}
