//! Statements that change objects, one a file: validate completely, append to the catalog, then make what the entry says. What comes after the
//! append is idempotent and done again at the next start until it is complete.

pub(crate) mod alter;
pub(crate) mod bring_up;
pub(crate) mod create_derived;
pub(crate) mod create_table;
pub(crate) mod drop;
mod options;
mod start;
mod target;
pub(crate) mod wait;

use crate::{
    SqlError,
    catalog::{Catalog, Object},
    parser::statement::{Name, ObjectKind},
};

/// `Some` if the object is there and IF NOT EXISTS makes that fine.
fn existing(catalog: &Catalog, kind: ObjectKind, name: &Name, if_not_exists: bool) -> Result<Option<String>, SqlError> {
    let Some(object) = catalog.object(&name.value) else {
        return match catalog.quarantined.iter().find(|q| q.name == name.value) {
            Some(q) => {
                Err(SqlError::conflict("QUARANTINED", format!("{} exists and is quarantined: {}", q.name, q.reason))
                    .at(name.at))
            }
            None => Ok(None),
        };
    };
    if if_not_exists && object.kind() == kind {
        return Ok(Some(format!("{} {} exists, nothing was done", kind.word(), name.value)));
    }
    let code = match object.kind() {
        ObjectKind::Table => "TABLE_EXISTS",
        ObjectKind::View => "VIEW_EXISTS",
        ObjectKind::Sink => "SINK_EXISTS",
    };
    Err(SqlError::conflict(code, format!("{} {} exists", object.kind().word(), name.value))
        .at(name.at)
        .hint("write IF NOT EXISTS, or another name"))
}

/// The object if it is of this kind.
fn of_kind<'a>(catalog: &'a Catalog, kind: ObjectKind, name: &Name) -> Result<&'a Object, SqlError> {
    let names = catalog.objects.iter().filter(|o| o.kind() == kind).map(|o| o.name());
    match catalog.object(&name.value) {
        Some(object) if object.kind() == kind => Ok(object),
        Some(object) => {
            Err(SqlError::invalid(format!("{} is a {}, not a {}", name.value, object.kind().word(), kind.word()))
                .at(name.at)
                .hint(format!("write {}", object.kind().sql())))
        }
        None => Err(SqlError::not_found(kind.word(), &name.value)
            .at(name.at)
            .or_hint(crate::error::nearest(&name.value, names))),
    }
}
