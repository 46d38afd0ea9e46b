//! Key columns of rows, and deletes. The rules are at the head of `table_format.rs`.

use std::{str, sync::Arc};

use millstream_types::BadReason;

use super::{TableDecoder, metadata, utf8};
use crate::{
    builder::Values,
    cursor::{Cursor, Kind},
    fail::{Fail, Result},
    options::Format,
    table_format::KeyMode,
};

impl TableDecoder {
    /// Key columns of a row.
    pub(super) fn key(&mut self, key: Option<&[u8]>) -> Result<()> {
        match self.format.key_mode {
            KeyMode::Ignored => Ok(()),
            KeyMode::Explicit => match key {
                Some(key) => self.explicit_key(key),
                None => self.null_key(),
            },
            KeyMode::Fallback => {
                let missing = self.format.key_columns.iter().any(|c| self.columns[*c].len() == self.rows);
                if missing && let Some(key) = key {
                    self.fallback_key(key);
                }
                Ok(())
            }
        }
    }

    /// Columns of a key that is null: NULL, unless the primary key is among them.
    fn null_key(&mut self) -> Result<()> {
        let format = Arc::clone(&self.format);
        for column in &format.key_columns {
            if format.columns[*column].key {
                let fail = Fail::new(BadReason::NullKey, "the record has no key");
                return Err(fail.inside(&format.schema.columns[*column].name));
            }
            self.columns[*column].push_null();
        }
        Ok(())
    }

    fn explicit_key(&mut self, key: &[u8]) -> Result<()> {
        let format = Arc::clone(&self.format);
        let single = match format.key_columns.as_slice() {
            [column] => Some(*column),
            _ => None,
        };
        match (format.key_format, single) {
            (Format::Bytes, Some(column)) => metadata::raw(&mut self.columns[column], Some(key)),
            (Format::String, Some(column)) => {
                let text = utf8(key)?;
                let done = self.plain(column, text);
                done.map_err(|f| f.inside(&format.schema.columns[column].name))
            }
            _ => {
                let text = utf8(key)?;
                let mut cursor = Cursor::new(text);
                match (cursor.kind()?, single) {
                    (Kind::Object, _) => self.key_object(&mut cursor)?,
                    (_, Some(column)) => self
                        .reader
                        .json(&mut cursor, &mut self.columns[column])
                        .map_err(|f| f.inside(&format.schema.columns[column].name))?,
                    (_, None) => {
                        let found = cursor.skip()?;
                        return Err(Fail::mismatch("an object with the key fields", found));
                    }
                }
                cursor.end()
            }
        }
    }

    /// A whole text as the value of a column.
    fn plain(&mut self, column: usize, text: &str) -> Result<()> {
        let builder = &mut self.columns[column];
        if let Values::Binary(_) = builder.values {
            return metadata::raw(builder, Some(text.as_bytes()));
        }
        self.reader.text(text, builder)
    }

    /// Key columns from the fields of an object; others are skipped, missing ones stay missing.
    fn key_object(&mut self, cursor: &mut Cursor<'_>) -> Result<()> {
        let format = Arc::clone(&self.format);
        cursor.enter()?;
        let mut first = true;
        while let Some(name) = cursor.member(first)? {
            first = false;
            let name = name.get(&mut self.scratch).ok();
            let column = name.and_then(|name| format.key_columns.iter().find(|c| format.key_field(**c) == name));
            match column {
                Some(column) => {
                    let builder = &mut self.columns[*column];
                    builder.truncate(self.rows);
                    let done = self.reader.json(cursor, builder);
                    done.map_err(|f| f.inside(&format.schema.columns[*column].name))?;
                }
                None => {
                    cursor.skip()?;
                }
            }
        }
        Ok(())
    }

    /// Tries to read the primary key columns that are missing from a key of unknown form. They all grow, or none does.
    fn fallback_key(&mut self, key: &[u8]) -> bool {
        let format = Arc::clone(&self.format);
        let missing: Vec<usize> =
            format.key_columns.iter().copied().filter(|c| self.columns[*c].len() == self.rows).collect();
        let done = match str::from_utf8(key) {
            Ok(text) if text.trim_start().starts_with('{') => self.fallback_object(text, &missing),
            Ok(text) => match format.key_columns.as_slice() {
                [column] => self.fallback_scalar(text, *column),
                _ => false,
            },
            Err(_) => match format.key_columns.as_slice() {
                [column] if matches!(self.columns[*column].values, Values::Binary(_)) => {
                    metadata::raw(&mut self.columns[*column], Some(key)).is_ok()
                }
                _ => false,
            },
        };
        if !done {
            missing.iter().for_each(|c| self.columns[*c].truncate(self.rows));
        }
        done
    }

    fn fallback_object(&mut self, text: &str, missing: &[usize]) -> bool {
        let format = Arc::clone(&self.format);
        let mut cursor = Cursor::new(text);
        if cursor.kind().is_err() || cursor.enter().is_err() {
            return false;
        }
        let mut first = true;
        loop {
            let name = match cursor.member(first) {
                Ok(Some(name)) => name,
                Ok(None) => break,
                Err(_) => return false,
            };
            first = false;
            let name = name.get(&mut self.scratch).ok();
            let column = name.and_then(|name| missing.iter().copied().find(|c| format.key_field(*c) == name));
            let read = match column {
                Some(column) => {
                    self.columns[column].truncate(self.rows);
                    self.reader.json(&mut cursor, &mut self.columns[column])
                }
                None => cursor.skip().map(|_| ()),
            };
            if read.is_err() {
                return false;
            }
        }
        cursor.end().is_ok() && missing.iter().all(|c| self.columns[*c].len() > self.rows)
    }

    fn fallback_scalar(&mut self, text: &str, column: usize) -> bool {
        let rows = self.rows;
        let builder = &mut self.columns[column];
        let mut cursor = Cursor::new(text);
        let read = self.reader.json(&mut cursor, builder).and_then(|()| cursor.end());
        if read.is_ok() && builder.valid.is_valid(rows) {
            return true;
        }
        builder.truncate(rows);
        self.plain(column, text).is_ok()
    }

    /// A delete: the primary key from the record's key, all else NULL.
    pub(super) fn tombstone(&mut self, key: Option<&[u8]>) -> Result<()> {
        let format = Arc::clone(&self.format);
        let unreadable = |what: &str| Err(Fail::new(BadReason::TombstoneWithoutKey, what));
        let covered = format.schema.primary_key.iter().all(|c| format.key_columns.contains(c));
        match (format.key_mode, key) {
            (KeyMode::Ignored, _) => return unreadable("the value is null and the key is not read"),
            (KeyMode::Explicit, _) if !covered => {
                return unreadable("the value is null and the primary key is not in key.fields");
            }
            (KeyMode::Explicit, None) => self.null_key()?,
            (KeyMode::Explicit, Some(key)) => self.explicit_key(key)?,
            (KeyMode::Fallback, None) => return unreadable("key and value are null"),
            (KeyMode::Fallback, Some(key)) => {
                if !self.fallback_key(key) {
                    return unreadable(
                        "the value is null and the key is neither an object with the primary key nor its text",
                    );
                }
            }
        }
        for (i, plan) in format.columns.iter().enumerate() {
            let builder = &mut self.columns[i];
            if !plan.key {
                builder.truncate(self.rows);
                builder.push_null();
            } else if builder.len() == self.rows || !builder.valid.is_valid(self.rows) {
                return Err(
                    Fail::new(BadReason::NullKey, "the key has no value for it").inside(&format.schema.columns[i].name)
                );
            }
        }
        Ok(())
    }
}
