//! Reads WITH options one by one; what nobody has read in the end is unknown and refused, with its place and the nearest name.

use std::{collections::HashSet, str::FromStr};

use datafusion::sql::sqlparser::tokenizer::Location;

use crate::{
    SqlError,
    error::nearest,
    format::{FormatRefusal, Options},
    parser::statement::OptionEntry,
};

#[derive(Debug)]
pub(super) struct OptionReader<'a> {
    entries: &'a [OptionEntry],
    asked: Vec<&'static str>,
    read: HashSet<&'a str>,
}

impl<'a> OptionReader<'a> {
    pub(super) fn new(entries: &'a [OptionEntry]) -> Self {
        Self { entries, asked: Vec::new(), read: HashSet::new() }
    }

    pub(super) fn entry(&mut self, key: &'static str) -> Option<&'a OptionEntry> {
        self.asked.push(key);
        let found = self.entries.iter().find(|e| e.key.value == key)?;
        self.read.insert(&found.key.value);
        Some(found)
    }

    pub(super) fn number<T>(
        &mut self,
        key: &'static str,
        range: std::ops::RangeInclusive<T>,
    ) -> Result<Option<T>, SqlError>
    where
        T: FromStr + PartialOrd + std::fmt::Display,
    {
        let Some(e) = self.entry(key) else { return Ok(None) };
        match e.value.parse::<T>() {
            Ok(n) if range.contains(&n) => Ok(Some(n)),
            _ => {
                Err(SqlError::option(format!("{key} must be a whole number from {} to {}", range.start(), range.end()))
                    .at(e.value_at))
            }
        }
    }

    pub(super) fn flag(&mut self, key: &'static str, default: bool) -> Result<bool, SqlError> {
        self.choice(key, &[("true", true), ("false", false)], if default { "true" } else { "false" })
    }

    /// One of a few words.
    pub(super) fn choice<T: Copy>(
        &mut self,
        key: &'static str,
        words: &[(&'static str, T)],
        default: &str,
    ) -> Result<T, SqlError> {
        let entry = self.entry(key);
        let word = entry.map_or(default, |e| e.value.as_str());
        if let Some((_, value)) = words.iter().find(|(w, _)| *w == word) {
            return Ok(*value);
        }
        let known: Vec<&str> = words.iter().map(|(w, _)| *w).collect();
        let error = SqlError::option(format!("{key} must be {}", known.join(" or "))).or_hint(nearest(word, known));
        Err(match entry {
            Some(e) => error.at(e.value_at),
            None => error,
        })
    }

    /// Refuses options that exist in the design, but not yet.
    pub(super) fn not_yet(&mut self, keys: &[(&'static str, &'static str)]) -> Result<(), SqlError> {
        for (key, hint) in keys {
            if let Some(e) = self.entry(key) {
                return Err(SqlError::unsupported(format!("option {key} is not supported yet"), *hint).at(e.key.at));
            }
            self.asked.pop();
        }
        Ok(())
    }

    /// Refuses `keys` if given, because `without` is missing.
    pub(super) fn only_with(&mut self, keys: &[&'static str], without: &str) -> Result<(), SqlError> {
        for key in keys {
            if let Some(e) = self.entry(key) {
                return Err(SqlError::option(format!("{key} has no meaning without {without}")).at(e.key.at));
            }
        }
        Ok(())
    }

    /// What is left, for the format, with the names that are known here.
    pub(super) fn rest(&self) -> Options {
        let left = self.entries.iter().filter(|e| !self.read.contains(e.key.value.as_str()));
        left.map(|e| (e.key.value.clone(), e.value.clone())).collect()
    }

    /// Refuses what is left.
    pub(super) fn finish(&self) -> Result<(), SqlError> {
        match self.entries.iter().find(|e| !self.read.contains(e.key.value.as_str())) {
            Some(e) => Err(unknown(e, self.asked.iter().copied())),
            None => Ok(()),
        }
    }

    /// A refusal of the format at the option that it is about.
    pub(super) fn refused(&self, refusal: FormatRefusal) -> SqlError {
        let entry = refusal.option.as_ref().and_then(|o| self.entries.iter().find(|e| e.key.value == *o));
        let error = SqlError::option(refusal.message).or_hint(refusal.hint);
        match entry {
            Some(e) => {
                let own = nearest(&e.key.value, self.asked.iter().copied());
                error.at(e.key.at).or_hint(own)
            }
            None => error,
        }
    }

    pub(super) fn location(&self, key: &str) -> Option<Location> {
        self.entries.iter().find(|e| e.key.value == key).map(|e| e.value_at)
    }
}

fn unknown<'a>(e: &OptionEntry, known: impl Iterator<Item = &'a str>) -> SqlError {
    SqlError::option(format!("unknown option {}", e.key.value)).at(e.key.at).or_hint(nearest(&e.key.value, known))
}

pub(super) fn as_map(entries: &[OptionEntry]) -> Options {
    entries.iter().map(|e| (e.key.value.clone(), e.value.clone())).collect()
}
