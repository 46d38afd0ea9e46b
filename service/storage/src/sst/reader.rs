//! Reads SSTs. Footers and the segments that look-ups decode are cached, limits in bytes; scans stream past the cache.
//!
//! Columns are found by field id, so files of older schemas read as the newest one: a column that a file lacks is null.

use std::{ops::Range, sync::Arc};

use arrow::array::{ArrayRef, RecordBatch, new_null_array};
use bytes::Bytes;
use futures::{FutureExt, future::BoxFuture};
use millstream_types::schema::FIELD_ID;
use parquet::{
    arrow::{
        ParquetRecordBatchStreamBuilder, ProjectionMask,
        arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader, RowSelection, RowSelector},
        async_reader::{AsyncFileReader, MetadataFetch},
    },
    errors::ParquetError,
    file::metadata::{PageIndexPolicy, ParquetMetaData, ParquetMetaDataReader},
};

use super::{BATCH_ROWS, CacheLimits, FileMeta, file_types::relabel, filter::KeyFilter, lru::Lru};
use crate::{
    StorageError,
    layout::Layout,
    manifest::FileEntry,
    object_store::Bucket,
    read::block::{Projection, batch},
};

/// Read with the footer in one request; larger footers need a second one.
const FOOTER_BYTES: usize = 128 << 10;

/// Which piece of which file, and the columns.
type SegmentKey = (Arc<str>, u32, u32, u64);

/// One per bucket, shared by all regions.
#[derive(Debug)]
pub struct SstReader {
    bucket: Arc<Bucket>,
    footers: Lru<String, Arc<SstFile>>,
    /// By file and row group.
    filters: Lru<(Arc<str>, u32), Arc<KeyFilter>>,
    segments: Lru<SegmentKey, RecordBatch>,
}

/// An SST whose footer is known.
#[derive(Debug)]
pub(crate) struct SstFile {
    path: Arc<str>,
    metadata: ArrowReaderMetadata,
    pub(crate) meta: FileMeta,
}

/// Batches of one row group, decoded as they are asked for.
pub(crate) struct GroupReader {
    path: Arc<str>,
    batches: Option<ParquetRecordBatchReader>,
    /// For each decoded column its place in the file's batch.
    places: Vec<Option<usize>>,
    projection: Arc<Projection>,
}

impl std::fmt::Debug for GroupReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GroupReader").field("path", &self.path).finish_non_exhaustive()
    }
}

impl SstReader {
    pub fn new(bucket: Arc<Bucket>, limits: CacheLimits) -> Arc<Self> {
        Arc::new(Self {
            bucket,
            footers: Lru::new(limits.footers),
            filters: Lru::new(limits.filters),
            segments: Lru::new(limits.pages),
        })
    }

    pub fn bucket(&self) -> &Arc<Bucket> {
        &self.bucket
    }

    /// Bytes held in caches: (footers and filters, decoded segments).
    pub fn cached_bytes(&self) -> (usize, usize) {
        (self.footers.bytes() + self.filters.bytes(), self.segments.bytes())
    }

    /// The key filter of a row group, if it has one.
    pub(crate) async fn filter(&self, file: &SstFile, group: usize) -> Result<Option<Arc<KeyFilter>>, StorageError> {
        let Some((offset, len)) = file.meta.groups[group].filter else { return Ok(None) };
        let key = (file.path.clone(), group as u32);
        if let Some(filter) = self.filters.get(&key) {
            return Ok(Some(filter));
        }
        let bytes = self.bucket.get_range(&file.path, offset..offset + u64::from(len)).await?;
        let filter = KeyFilter::from_bytes(&bytes).filter(|f| f.size_bytes() == len as usize);
        let bad =
            || StorageError::corrupt(file.path.as_ref(), format!("the key filter of row group {group} is no filter"));
        let filter = Arc::new(filter.ok_or_else(bad)?);
        self.filters.put(key, filter.clone(), filter.size_bytes());
        Ok(Some(filter))
    }

    /// The footer of a file, which must agree with its manifest entry.
    pub(crate) async fn open(&self, entry: &FileEntry) -> Result<Arc<SstFile>, StorageError> {
        let path = entry.path();
        if let Some(file) = self.footers.get(&path) {
            return Ok(file);
        }
        let fetch = Fetch { bucket: self.bucket.clone(), path: path.as_str().into() };
        let metadata = ParquetMetaDataReader::new()
            .with_page_index_policy(PageIndexPolicy::Optional)
            .with_prefetch_hint(Some(FOOTER_BYTES))
            .load_and_finish(fetch, entry.size)
            .await
            .map_err(|e| parquet_error(&path, e))?;
        let footer = metadata.file_metadata().key_value_metadata().cloned().unwrap_or_default();
        let meta = FileMeta::from_footer(&path, &footer, entry)?;
        let groups: Vec<usize> = metadata.row_groups().iter().map(|g| g.num_rows() as usize).collect();
        if groups != meta.groups.iter().map(|g| g.rows).collect::<Vec<_>>() {
            return Err(StorageError::corrupt(path, "row groups do not agree with millstream.groups"));
        }
        let bytes = metadata.memory_size()
            + meta.groups.iter().map(|g| 128 + g.segments.iter().map(|k| k.0.len() + 24).sum::<usize>()).sum::<usize>();
        let metadata = ArrowReaderMetadata::try_new(Arc::new(metadata), ArrowReaderOptions::new())
            .map_err(|e| parquet_error(&path, e))?;
        let file = Arc::new(SstFile { path: path.as_str().into(), metadata, meta });
        self.footers.put(path, file.clone(), bytes);
        Ok(file)
    }

    /// Fetches `rows` of one row group and returns the reader of their batches. Pages outside are neither fetched nor decoded.
    pub(crate) async fn group(
        &self,
        file: &Arc<SstFile>,
        projection: &Arc<Projection>,
        group: usize,
        rows: Range<usize>,
    ) -> Result<GroupReader, StorageError> {
        let all = file.meta.groups[group].rows;
        let part = (rows != (0..all)).then(|| selection(std::iter::once(rows), all));
        self.select(file, projection, group, BATCH_ROWS, part).await
    }

    async fn select(
        &self,
        file: &Arc<SstFile>,
        projection: &Arc<Projection>,
        group: usize,
        batch_rows: usize,
        selection: Option<RowSelection>,
    ) -> Result<GroupReader, StorageError> {
        let (mask, places) = file.columns(projection);
        let fetch = Fetch { bucket: self.bucket.clone(), path: file.path.clone() };
        let mut builder = ParquetRecordBatchStreamBuilder::new_with_metadata(fetch, file.metadata.clone())
            .with_row_groups(vec![group])
            .with_projection(mask)
            .with_batch_size(batch_rows);
        if let Some(selection) = selection {
            builder = builder.with_row_selection(selection);
        }
        let failed = |e| parquet_error(&file.path, e);
        let batches = builder.build().map_err(failed)?.next_row_group().await.map_err(failed)?;
        Ok(GroupReader { path: file.path.clone(), batches, places, projection: projection.clone() })
    }

    /// Decoded segments of one row group, from the cache or in one read. `segments` ascending.
    pub(crate) async fn segments(
        &self,
        file: &Arc<SstFile>,
        projection: &Arc<Projection>,
        group: usize,
        segments: &[u32],
    ) -> Result<Vec<RecordBatch>, StorageError> {
        let fingerprint = projection.fingerprint();
        let key = |segment: u32| (file.path.clone(), group as u32, segment, fingerprint);
        let mut found: Vec<Option<RecordBatch>> = segments.iter().map(|s| self.segments.get(&key(*s))).collect();
        let missing: Vec<u32> = segments.iter().zip(&found).filter(|(_, f)| f.is_none()).map(|(s, _)| *s).collect();
        if !missing.is_empty() {
            let (size, rows) = (file.meta.segment_rows as usize, file.meta.groups[group].rows);
            let ranges = missing.iter().map(|s| *s as usize * size..(*s as usize * size + size).min(rows));
            let mut reader = self.select(file, projection, group, size, Some(selection(ranges, rows))).await?;
            let mut fetched = missing.iter();
            for slot in found.iter_mut().filter(|f| f.is_none()) {
                let segment = *fetched.next().expect("one for each missing");
                let want = size.min(rows - segment as usize * size);
                let batch = reader.next()?.filter(|b| b.num_rows() == want);
                let batch = batch.ok_or_else(|| {
                    StorageError::corrupt(file.path.as_ref(), format!("row group {group} ends early"))
                })?;
                self.segments.put(key(segment), batch.clone(), crate::layout::batch_bytes(&batch) + 128);
                *slot = Some(batch);
            }
        }
        Ok(found.into_iter().flatten().collect())
    }
}

/// Some ascending ranges of the `rows` of a row group.
fn selection(ranges: impl Iterator<Item = Range<usize>>, rows: usize) -> RowSelection {
    let mut selectors = Vec::new();
    let mut at = 0;
    for range in ranges {
        if range.start > at {
            selectors.push(RowSelector::skip(range.start - at));
        }
        at = range.end;
        selectors.push(RowSelector::select(range.len()));
    }
    if at < rows {
        selectors.push(RowSelector::skip(rows - at));
    }
    selectors.into()
}

impl SstFile {
    /// Leaf columns to decode, and where each decoded column of the projection stands among them.
    fn columns(&self, projection: &Projection) -> (ProjectionMask, Vec<Option<usize>>) {
        let fields = self.metadata.schema().fields();
        let layout: &Layout = &projection.layout;
        let find = |stored: usize| {
            let field = layout.stored.field(stored);
            match field.metadata().get(FIELD_ID) {
                Some(id) => fields.iter().position(|f| f.metadata().get(FIELD_ID) == Some(id)),
                None => fields.iter().position(|f| f.name() == field.name()),
            }
        };
        let roots: Vec<Option<usize>> = projection.decoded.iter().map(|s| find(*s)).collect();
        let mut present: Vec<usize> = roots.iter().flatten().copied().collect();
        present.sort_unstable();
        let places = roots.iter().map(|r| r.and_then(|r| present.binary_search(&r).ok())).collect();
        (ProjectionMask::roots(self.metadata.parquet_schema(), present), places)
    }
}

impl GroupReader {
    /// The next batch with the decoded columns of the projection; `None` at the end of the row group.
    pub(crate) fn next(&mut self) -> Result<Option<RecordBatch>, StorageError> {
        let Some(read) = self.batches.as_mut().and_then(Iterator::next) else { return Ok(None) };
        let read = read.map_err(|e| StorageError::Corrupt {
            path: self.path.to_string(),
            what: "decode".to_owned(),
            source: Some(e.into()),
        })?;
        let fields = self.projection.layout.stored.fields();
        let column = |(stored, place): (&usize, &Option<usize>)| -> Result<ArrayRef, StorageError> {
            let want = fields[*stored].data_type();
            match place {
                None => Ok(new_null_array(want, read.num_rows())),
                Some(place) => self.typed(read.column(*place), want),
            }
        };
        let columns = self.projection.decoded.iter().zip(&self.places).map(column).collect::<Result<Vec<_>, _>>()?;
        Ok(Some(batch(&self.projection.decoded_schema, columns, read.num_rows())?))
    }

    /// Stand-in types back to their own; a column whose type was widened by ALTER is cast.
    fn typed(&self, column: &ArrayRef, want: &arrow::datatypes::DataType) -> Result<ArrayRef, StorageError> {
        if column.data_type() == want {
            return Ok(column.clone());
        }
        let cast = arrow::compute::can_cast_types(column.data_type(), want);
        let done = if cast && !want.is_nested() {
            arrow::compute::cast(column, want).map_err(Into::into)
        } else {
            relabel(column, want)
        };
        done.map_err(|e| StorageError::Corrupt {
            path: self.path.to_string(),
            what: format!("column of type {} where {want} is wanted", column.data_type()),
            source: Some(e.into()),
        })
    }
}

/// Ranges of one object, for the Parquet reader.
#[derive(Debug)]
struct Fetch {
    bucket: Arc<Bucket>,
    path: Arc<str>,
}

fn outside(e: StorageError) -> ParquetError {
    ParquetError::External(Box::new(e))
}

/// Errors of the bucket keep their kind; all else means that the bytes are not what they should be.
fn parquet_error(path: &str, e: ParquetError) -> StorageError {
    match e {
        ParquetError::External(inner) => match inner.downcast::<StorageError>() {
            Ok(ours) => *ours,
            Err(other) => StorageError::Corrupt { path: path.to_owned(), what: "read".to_owned(), source: Some(other) },
        },
        other => StorageError::Corrupt { path: path.to_owned(), what: "read".to_owned(), source: Some(other.into()) },
    }
}

impl MetadataFetch for Fetch {
    fn fetch(&mut self, range: Range<u64>) -> BoxFuture<'_, parquet::errors::Result<Bytes>> {
        self.get_bytes(range)
    }
}

impl AsyncFileReader for Fetch {
    fn get_bytes(&mut self, range: Range<u64>) -> BoxFuture<'_, parquet::errors::Result<Bytes>> {
        async move { self.bucket.get_range(&self.path, range).await.map_err(outside) }.boxed()
    }

    fn get_byte_ranges(&mut self, ranges: Vec<Range<u64>>) -> BoxFuture<'_, parquet::errors::Result<Vec<Bytes>>> {
        async move { self.bucket.get_ranges(&self.path, &ranges).await.map_err(outside) }.boxed()
    }

    fn get_metadata<'a>(
        &'a mut self,
        _options: Option<&'a ArrowReaderOptions>,
    ) -> BoxFuture<'a, parquet::errors::Result<Arc<ParquetMetaData>>> {
        // The metadata is handed to the builder, so nobody asks.
        async { Err(ParquetError::General("metadata is read by SstReader::open".to_owned())) }.boxed()
    }
}
