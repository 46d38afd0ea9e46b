//! Schema `public`: the objects of one catalog version, with one set of read points.

use std::{collections::HashMap, sync::Arc};

use async_trait::async_trait;
use datafusion::{
    catalog::{SchemaProvider, TableProvider},
    common::DataFusionError,
    logical_expr::Expr,
};
use millstream_storage::Storage;

use super::table_provider::{ReadPoints, RegionTable};
use crate::{
    SqlError,
    catalog::{Catalog, Object},
};

#[derive(Debug)]
pub(crate) struct PublicSchema {
    catalog: Arc<Catalog>,
    storage: Arc<dyn Storage>,
    points: Arc<ReadPoints>,
    /// Why objects cannot be read, by name.
    problems: HashMap<String, String>,
    /// Column defaults of the table that an INSERT names.
    defaults: HashMap<String, HashMap<String, Expr>>,
}

impl PublicSchema {
    pub(crate) fn new(catalog: Arc<Catalog>, storage: Arc<dyn Storage>, problems: HashMap<String, String>) -> Self {
        Self { catalog, storage, points: Arc::default(), problems, defaults: HashMap::new() }
    }

    pub(crate) fn with_defaults(mut self, table: &str, defaults: HashMap<String, Expr>) -> Self {
        self.defaults.insert(table.to_owned(), defaults);
        self
    }
}

#[async_trait]
impl SchemaProvider for PublicSchema {
    fn table_names(&self) -> Vec<String> {
        self.catalog
            .objects
            .iter()
            .filter(|o| !matches!(o.as_ref(), Object::Sink(_)))
            .map(|o| o.name().to_owned())
            .collect()
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>, DataFusionError> {
        let Some(object) = self.catalog.object(name) else {
            return match self.catalog.quarantined.iter().find(|q| q.name == name) {
                Some(q) => {
                    Err(external(SqlError::conflict("QUARANTINED", format!("{name} is quarantined: {}", q.reason))))
                }
                None => Ok(None),
            };
        };
        let defaults = self.defaults.get(name).cloned();
        match RegionTable::new(object, Arc::clone(&self.storage), Arc::clone(&self.points), defaults) {
            Some(table) => Ok(Some(Arc::new(table.with_problem(self.problems.get(name).cloned())))),
            None => Err(external(
                SqlError::invalid(format!("{name} is a sink: its rows are only in its topic"))
                    .hint("create a materialized view to read rows with SQL"),
            )),
        }
    }

    fn table_exist(&self, name: &str) -> bool {
        self.catalog.name_taken(name)
    }
}

fn external(e: SqlError) -> DataFusionError {
    DataFusionError::External(Box::new(e))
}
