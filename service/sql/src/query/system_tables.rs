//! Schema `millstream`: what SHOW tells, as tables that queries can join and filter.

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::{
    catalog::{MemTable, SchemaProvider, TableProvider},
    common::DataFusionError,
};

use crate::{parser::statement::Listing, service::Core, show};

const TABLES: [(&str, Listing); 6] = [
    ("tables", Listing::Tables),
    ("views", Listing::Views),
    ("sinks", Listing::Sinks),
    ("jobs", Listing::Jobs),
    ("backfills", Listing::Backfills),
    ("regions", Listing::Regions),
];

pub(crate) struct SystemSchema {
    core: Arc<Core>,
}

impl SystemSchema {
    pub(crate) fn new(core: Arc<Core>) -> Self {
        Self { core }
    }
}

impl std::fmt::Debug for SystemSchema {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SystemSchema")
    }
}

#[async_trait]
impl SchemaProvider for SystemSchema {
    fn table_names(&self) -> Vec<String> {
        TABLES.iter().map(|(name, _)| (*name).to_owned()).collect()
    }

    /// The rows as they are now: one statement sees one state of each table.
    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>, DataFusionError> {
        let Some((_, listing)) = TABLES.iter().find(|(n, _)| *n == name) else { return Ok(None) };
        let rows = show::table_of(&self.core, *listing).map_err(|e| DataFusionError::External(Box::new(e)))?;
        Ok(Some(Arc::new(MemTable::try_new(rows.schema(), vec![vec![rows]])?)))
    }

    fn table_exist(&self, name: &str) -> bool {
        TABLES.iter().any(|(n, _)| *n == name)
    }
}
