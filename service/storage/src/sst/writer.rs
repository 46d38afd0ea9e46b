//! Writes one sorted run as SSTs: cuts groups and files on key borders, fills the footer, uploads.

use std::{
    io::Write,
    sync::{Arc, Mutex, PoisonError},
};

use arrow::{
    array::{BooleanArray, RecordBatch},
    compute::nullif,
    datatypes::{DataType, SchemaRef},
};
use millstream_types::{Key, RegionId, Seq};
use parquet::{
    arrow::ArrowWriter,
    basic::{Compression, Encoding, ZstdLevel},
    file::metadata::SortingColumn,
    file::properties::{EnabledStatistics, WriterProperties},
    schema::types::ColumnPath,
};

use super::{BATCH_ROWS, FileMeta, GroupMeta, SEGMENT_ROWS, SstOptions, file_types, filter::FilterBuilder};
use crate::{
    StorageError,
    layout::{DELETE, Layout, SEQUENCE, batch_bytes, ops, sequences},
    manifest::FileEntry,
    object_store::{Bucket, Upload, paths},
};

/// Raw bytes after which a row group ends even if it has few rows.
const GROUP_BYTES: usize = 64 << 20;
const PAGE_BYTES: usize = 64 << 10;
const DICTIONARY_BYTES: usize = 256 << 10;
const STATISTICS_BYTES: usize = 64;

/// Takes sorted batches, whole keys each, and makes files of them.
#[derive(Debug)]
pub(crate) struct Writer<'a> {
    bucket: &'a Arc<Bucket>,
    layout: &'a Arc<Layout>,
    region: RegionId,
    range: (Seq, Seq),
    options: &'a SstOptions,
    schema: SchemaRef,
    file: Option<File>,
    done: Vec<FileEntry>,
}

#[derive(Debug)]
struct File {
    name: String,
    writer: ArrowWriter<Sink>,
    sink: Sink,
    upload: Upload,
    meta: FileMeta,
    /// The group in progress, and its raw bytes.
    group: Option<(GroupMeta, usize)>,
    /// Keys of the group in progress.
    filter: Option<FilterBuilder>,
}

/// Where the Parquet writer leaves finished row groups until they are uploaded.
#[derive(Debug, Clone, Default)]
struct Sink(Arc<Mutex<Vec<u8>>>);

impl Sink {
    fn take(&self) -> Vec<u8> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl<'a> Writer<'a> {
    /// `range`: sequence range of the sorted run that the files make.
    pub(crate) fn new(
        bucket: &'a Arc<Bucket>,
        layout: &'a Arc<Layout>,
        region: RegionId,
        range: (Seq, Seq),
        options: &'a SstOptions,
    ) -> Self {
        let schema = file_types::file_schema(&layout.stored);
        Self { bucket, layout, region, range, options, schema, file: None, done: Vec::new() }
    }

    /// Writes stored rows that follow all before. `plain`: no key twice and no delete among them.
    pub(crate) async fn write(&mut self, mut rows: RecordBatch, plain: bool) -> Result<(), StorageError> {
        if let Some(end) = self.full_group() {
            // Append files are cut between sequences, so that their ranges are disjoint; keyed batches begin on key borders.
            let cut = match self.layout.is_keyed() {
                true => 0,
                false => sequences(&rows, self.layout.width()).partition_point(|seq| *seq < end.0),
            };
            if cut > 0 {
                self.append(rows.slice(0, cut), plain)?;
            }
            if cut == rows.num_rows() {
                return Ok(());
            }
            self.end_group().await?;
            if self.file.as_ref().is_some_and(|f| f.writer.bytes_written() >= self.options.target_bytes) {
                self.end_file().await?;
            }
            rows = rows.slice(cut, rows.num_rows() - cut);
        }
        if rows.num_rows() > 0 { self.append(rows, plain) } else { Ok(()) }
    }

    /// The sequence end of the group in progress if it has enough rows.
    fn full_group(&self) -> Option<Seq> {
        let (group, raw) = self.file.as_ref()?.group.as_ref()?;
        (group.rows >= self.options.row_group_rows || *raw >= GROUP_BYTES).then_some(group.end)
    }

    fn append(&mut self, rows: RecordBatch, plain: bool) -> Result<(), StorageError> {
        let bytes = batch_bytes(&rows);
        let n = rows.num_rows();
        let keys = self.layout.keys(&rows)?;
        let (first, last) = match self.layout.is_keyed() {
            true => (Key::from(keys.get(0)), Key::from(keys.get(n - 1))),
            false => (self.layout.key_at(&rows, 0)?, self.layout.key_at(&rows, n - 1)?),
        };
        let seqs = sequences(&rows, self.layout.width());
        let from = Seq(seqs.iter().min().copied().unwrap_or_default());
        let end = Seq(seqs.iter().max().copied().unwrap_or_default()).next();
        let deletes = self.deletes(&rows);
        let (layout, group_rows) = (self.layout, self.options.row_group_rows);
        let keyed = layout.is_keyed();
        let file = self.file()?;
        let (group, raw) = file.group.get_or_insert_with(|| {
            (
                GroupMeta {
                    rows: 0,
                    first,
                    last: last.clone(),
                    from,
                    end,
                    plain: true,
                    segments: Vec::new(),
                    filter: None,
                },
                0,
            )
        });
        let next = group.rows.next_multiple_of(SEGMENT_ROWS) - group.rows;
        for row in (next..n).step_by(SEGMENT_ROWS) {
            group.segments.push(if keyed { keys.get(row).into() } else { layout.key_at(&rows, row)? });
        }
        if keyed {
            let filter = match &mut file.filter {
                Some(filter) => filter,
                none => none.insert(FilterBuilder::new(group_rows + BATCH_ROWS)?),
            };
            (0..n).for_each(|row| filter.add(keys.get(row)));
        }
        group.rows += n;
        group.last = last;
        group.from = group.from.min(from);
        group.end = group.end.max(end);
        group.plain &= plain;
        *raw += bytes;
        file.meta.rows += n as u64;
        file.meta.deletes += deletes.as_ref().map_or(0, |d| d.true_count() as u64);
        let rows = self.file_rows(rows, deletes)?;
        let file = self.file()?;
        file.writer.write(&rows).map_err(|e| StorageError::internal("write parquet", e))
    }

    fn deletes(&self, rows: &RecordBatch) -> Option<BooleanArray> {
        if !self.layout.is_keyed() {
            return None;
        }
        let ops = ops(rows, self.layout.width() + 1);
        ops.contains(&DELETE).then(|| ops.iter().map(|op| Some(*op == DELETE)).collect())
    }

    /// Rows as files have them: of a delete only the key.
    fn file_rows(&self, rows: RecordBatch, deletes: Option<BooleanArray>) -> Result<RecordBatch, StorageError> {
        let Some(deletes) = deletes else { return file_types::relabel_batch(&rows, &self.schema) };
        let mut columns = rows.columns().to_vec();
        for (i, column) in columns.iter_mut().enumerate().take(self.layout.width()) {
            if !self.layout.schema.is_key(i) {
                *column = nullif(column, &deletes)?;
            }
        }
        file_types::relabel_batch(&RecordBatch::try_new(rows.schema(), columns)?, &self.schema)
    }

    fn file(&mut self) -> Result<&mut File, StorageError> {
        if self.file.is_none() {
            let name = format!(
                "{:020}-{:020}-{:016x}.parquet",
                self.range.0.0.max(0),
                self.range.1.0.max(0),
                rand::random::<u64>()
            );
            let sink = Sink::default();
            let writer = ArrowWriter::try_new(sink.clone(), self.schema.clone(), Some(self.properties()))
                .map_err(|e| StorageError::internal("start parquet", e))?;
            let meta = FileMeta {
                region: self.region,
                kind: self.layout.kind,
                sequence_from: self.range.0,
                sequence_end: self.range.1,
                schema_id: self.layout.schema.id,
                leader_epoch: self.options.leader_epoch,
                rows: 0,
                deletes: 0,
                single_version: true,
                writer: self.options.writer.clone(),
                segment_rows: SEGMENT_ROWS as u32,
                groups: Vec::new(),
            };
            let upload = Upload::new(self.bucket.clone(), paths::sst(self.region, &name));
            self.file = Some(File { name, writer, sink, upload, meta, group: None, filter: None });
        }
        Ok(self.file.as_mut().expect("made above"))
    }

    fn properties(&self) -> WriterProperties {
        let zstd = ZstdLevel::try_new(self.options.zstd_level.clamp(1, 22)).unwrap_or_default();
        let sequence = ColumnPath::from(SEQUENCE);
        WriterProperties::builder()
            .set_compression(Compression::ZSTD(zstd))
            // Groups end by `end_group` alone: on key borders.
            .set_max_row_group_row_count(None)
            .set_data_page_size_limit(PAGE_BYTES)
            .set_data_page_row_count_limit(SEGMENT_ROWS)
            .set_dictionary_page_size_limit(DICTIONARY_BYTES)
            .set_statistics_enabled(EnabledStatistics::Page)
            .set_statistics_truncate_length(Some(STATISTICS_BYTES))
            .set_column_index_truncate_length(Some(STATISTICS_BYTES))
            .set_column_dictionary_enabled(sequence.clone(), false)
            .set_column_encoding(sequence, Encoding::DELTA_BINARY_PACKED)
            .set_sorting_columns(Some(self.sorting()))
            .set_created_by(format!("millstream {}", env!("CARGO_PKG_VERSION")))
            .build()
    }

    fn sorting(&self) -> Vec<SortingColumn> {
        let fields = self.schema.fields();
        let leaf = |field: usize| fields[..field].iter().map(|f| leaves(f.data_type())).sum::<usize>() as i32;
        let column =
            |field: usize, descending: bool| SortingColumn { column_idx: leaf(field), descending, nulls_first: true };
        let width = self.layout.width();
        match self.layout.is_keyed() {
            true => {
                self.layout.schema.primary_key.iter().map(|k| column(*k, false)).chain([column(width, true)]).collect()
            }
            false => vec![column(width, false), column(width + 1, false)],
        }
    }

    async fn end_group(&mut self) -> Result<(), StorageError> {
        let Some(file) = &mut self.file else { return Ok(()) };
        let Some((mut group, _)) = file.group.take() else { return Ok(()) };
        file.writer.flush().map_err(|e| StorageError::internal("write parquet", e))?;
        if let Some(filter) = file.filter.take() {
            let bytes = filter.finish()?;
            group.filter = Some((file.writer.bytes_written() as u64, bytes.len() as u32));
            file.writer.write_all(&bytes).map_err(|e| StorageError::internal("write key filter", e))?;
        }
        file.meta.single_version &= group.plain;
        file.meta.groups.push(group);
        file.upload.write(&file.sink.take()).await
    }

    async fn end_file(&mut self) -> Result<(), StorageError> {
        self.end_group().await?;
        let Some(File { name, mut writer, sink, mut upload, mut meta, .. }) = self.file.take() else { return Ok(()) };
        let key = meta.groups.first().zip(meta.groups.last()).map(|(a, b)| (a.first.clone(), b.last.clone()));
        if !self.layout.is_keyed() {
            meta.sequence_from = meta.groups.first().map_or(self.range.0, |g| g.from);
            meta.sequence_end = meta.groups.last().map_or(self.range.1, |g| g.end);
        }
        for entry in meta.to_footer()? {
            writer.append_key_value_metadata(entry);
        }
        writer.close().map_err(|e| StorageError::internal("finish parquet", e))?;
        upload.write(&sink.take()).await?;
        let size = upload.finish().await?;
        self.done.push(FileEntry {
            name,
            origin: self.region,
            size,
            rows: meta.rows,
            deletes: meta.deletes,
            from: meta.sequence_from,
            end: meta.sequence_end,
            key,
            schema: meta.schema_id,
            run: self.range.1.0.max(0) as u64,
            single_version: meta.single_version,
            written_ms: self.options.now_ms,
        });
        Ok(())
    }

    /// Uploads what is left and tells all files made.
    pub(crate) async fn finish(mut self) -> Result<Vec<FileEntry>, StorageError> {
        self.end_file().await?;
        Ok(self.done)
    }
}

fn leaves(t: &DataType) -> usize {
    match t {
        DataType::Struct(fields) => fields.iter().map(|f| leaves(f.data_type())).sum(),
        DataType::List(f) | DataType::Map(f, _) => leaves(f.data_type()),
        _ => 1,
    }
}
