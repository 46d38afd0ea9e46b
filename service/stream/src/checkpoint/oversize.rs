//! Words for a row or a record that is too large to be written: which one it is and what to do, so that a job fails once and clearly.
//!
//! Such a row is never left out: the view would differ from its query. The job is quarantined at once; when the row is gone or smaller in the input, the
//! net change no longer has it, and `resume` goes on from the last checkpoint.

use arrow::{
    array::RecordBatch,
    util::display::{ArrayFormatter, FormatOptions},
};
use millstream_types::{JobId, LogError, OutBatch, TableSchema, error::chain};

use crate::StreamError;

/// Characters of one value in a message.
const SHOWN: usize = 64;

fn cut(text: &str) -> String {
    match text.char_indices().nth(SHOWN) {
        Some((at, _)) => format!("{}..", &text[..at]),
        None => text.to_owned(),
    }
}

/// The key of a row as `a = 1, b = x`; of a row without a key its first columns.
pub(super) fn key_text(schema: &TableSchema, rows: &RecordBatch, row: usize) -> String {
    let visible = schema.visible();
    let places: &[usize] = match schema.user_key() {
        [] => &visible[..visible.len().min(3)],
        key => key,
    };
    let value = |place: usize| {
        let column = rows.columns().get(place)?;
        let options = FormatOptions::default().with_null("NULL");
        let text = ArrayFormatter::try_new(column.as_ref(), &options).ok()?.value(row).try_to_string().ok()?;
        Some(cut(&text))
    };
    let column = |place: &usize| {
        let name = &schema.columns[*place].name;
        let name = name.strip_prefix("__").unwrap_or(name);
        format!("{name} = {}", value(*place).unwrap_or_else(|| "?".to_owned()))
    };
    places.iter().map(column).collect::<Vec<_>>().join(", ")
}

/// The error for records that the log refuses for what they are. It says of which topic and partition at best, so the largest record there is named.
pub(super) fn rejected(job: JobId, batches: &[OutBatch], source: LogError) -> StreamError {
    let refused = |batch: &OutBatch, i: usize| {
        source.topic.as_ref().is_none_or(|t| *t == batch.topic)
            && source.partition.is_none_or(|p| p < 0 || p == batch.partitions[i])
    };
    let mut largest: Option<(usize, &OutBatch, usize)> = None;
    for batch in batches {
        for i in (0..batch.len()).filter(|i| refused(batch, *i)) {
            let bytes = batch.keys.get(i).map_or(0, <[u8]>::len) + batch.values.get(i).map_or(0, <[u8]>::len);
            if largest.is_none_or(|(most, ..)| bytes > most) {
                largest = Some((bytes, batch, i));
            }
        }
    }
    let message = chain(&source).to_lowercase();
    let for_size = ["too large", "max.message.bytes"].iter().any(|w| message.contains(w));
    match largest {
        Some((bytes, batch, i)) if for_size => {
            let key = batch.keys.get(i).map_or_else(|| "NULL".to_owned(), |k| cut(&String::from_utf8_lossy(k)));
            StreamError::RecordTooLarge { job, topic: batch.topic.to_string(), key, bytes, source: Box::new(source) }
        }
        _ => StreamError::Rejected { job, source },
    }
}
