//! Which column a field of an object is.

use rustc_hash::FxHashMap;

use crate::cursor::RawStr;

/// Column places by field name. Records of a topic mostly have their fields in one order, so the place in the last record is tried first.
#[derive(Debug)]
pub(super) struct Names {
    names: Vec<(String, usize)>,
    by_name: FxHashMap<String, usize>,
    /// By place in the object: an index into `names`. Bounded by the member limit.
    order: Vec<usize>,
}

impl Names {
    pub(super) fn new(names: impl Iterator<Item = (String, usize)>) -> Self {
        let names: Vec<_> = names.collect();
        let by_name = names.iter().enumerate().map(|(i, (name, _))| (name.clone(), i)).collect();
        Self { names, by_name, order: Vec::new() }
    }

    /// The column, for formats with exactly one.
    pub(super) fn only(&self) -> Option<(&str, usize)> {
        self.names.first().map(|(name, column)| (name.as_str(), *column))
    }

    /// The column of a field at any place.
    pub(super) fn get(&self, name: RawStr<'_>, scratch: &mut String) -> Option<usize> {
        let index = self.by_name.get(name.get(scratch).ok()?)?;
        Some(self.names[*index].1)
    }

    /// The column of the field that stands at `place` in its object.
    #[inline]
    pub(super) fn find(&mut self, place: usize, name: RawStr<'_>, scratch: &mut String) -> Option<usize> {
        // A name that is no text cannot be a column's and so cannot fail the record.
        let name = name.get(scratch).ok()?;
        if let Some((known, column)) = self.order.get(place).and_then(|i| self.names.get(*i))
            && known == name
        {
            return Some(*column);
        }
        let index = *self.by_name.get(name)?;
        if self.order.len() <= place {
            self.order.resize(place + 1, usize::MAX);
        }
        self.order[place] = index;
        Some(self.names[index].1)
    }
}
