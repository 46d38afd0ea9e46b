//! DataFusion's session: one dialect and one set of settings for views, queries, INSERT and defaults.

use std::{ops::ControlFlow, sync::Arc};

use datafusion::{
    catalog::{CatalogProvider, MemoryCatalogProvider, SchemaProvider},
    common::{DataFusionError, ResolvedTableReference, TableReference},
    execution::{
        FunctionRegistry, SessionStateBuilder, TaskContext,
        config::SessionConfig,
        context::SessionState,
        runtime_env::{RuntimeEnv, RuntimeEnvBuilder},
    },
    logical_expr::{Expr, LogicalPlan},
    physical_plan::ExecutionPlan,
    sql::{
        parser::Statement as DfStatement,
        sqlparser::{
            ast::{self, Spanned},
            tokenizer::Location,
        },
    },
};

use super::{
    bounds,
    functions::{self, bounded::Budget},
    meter, stop,
};
use crate::{SqlError, error::nearest, query::aggregates};

const CATALOG: &str = "millstream";
pub(crate) const PUBLIC: &str = "public";
pub(crate) const SYSTEM: &str = "millstream";

fn config() -> SessionConfig {
    let mut config =
        SessionConfig::new().with_default_catalog_and_schema(CATALOG, PUBLIC).with_information_schema(true);
    let options = config.options_mut();
    // 0.1 is exact: money must not pass through a double
    options.sql_parser.parse_float_as_decimal = true;
    // strings are Utf8 in regions; views of strings would be cast back at each step
    options.sql_parser.map_string_types_to_utf8view = false;
    options.sql_parser.collect_spans = true;
    options.sql_parser.dialect = datafusion::config::Dialect::PostgreSQL;
    options.execution.time_zone = Some("UTC".to_owned());
    config
}

/// Memory of all queries together; there are no spill files.
pub(crate) fn runtime(memory_bytes: usize) -> Result<Arc<RuntimeEnv>, SqlError> {
    let pool = Arc::new(datafusion::execution::memory_pool::GreedyMemoryPool::new(memory_bytes));
    let disk = datafusion::execution::disk_manager::DiskManagerBuilder::default()
        .with_mode(datafusion::execution::disk_manager::DiskManagerMode::Disabled);
    Ok(RuntimeEnvBuilder::new().with_memory_pool(pool).with_disk_manager_builder(disk).build_arc()?)
}

/// A session that sees the given schemas. Made per statement: it holds the catalog version and the read points of that statement.
#[derive(Debug, Clone)]
pub(crate) struct Session {
    pub(crate) state: SessionState,
    public: Arc<dyn SchemaProvider>,
    /// What functions may make.
    budget: Arc<Budget>,
}

/// Operators, and what they run with.
#[derive(Debug)]
pub(crate) struct Runnable {
    pub(crate) plan: Arc<dyn ExecutionPlan>,
    pub(crate) context: Arc<TaskContext>,
}

impl Session {
    pub(crate) fn new(
        runtime: Arc<RuntimeEnv>,
        public: Arc<dyn SchemaProvider>,
        system: Option<Arc<dyn SchemaProvider>>,
    ) -> Result<Self, SqlError> {
        let budget = Budget::of_query(Arc::clone(&runtime.memory_pool));
        let mut state = SessionStateBuilder::new()
            .with_expr_planners(vec![Arc::new(functions::TypePlanner(Arc::clone(&budget)))])
            .with_default_features()
            .with_analyzer_rules(stop::analyzer_rules())
            .with_optimizer_rules(stop::optimizer_rules())
            .with_physical_optimizer_rules(stop::physical_optimizer_rules())
            .with_config(config())
            .with_runtime_env(runtime)
            .build();
        // what now() is
        state.mark_start_execution();
        for aggregate in aggregates::all() {
            state.register_udaf(aggregate)?;
        }
        for function in functions::of_types(&budget) {
            state.register_udf(function)?;
        }
        let catalog = MemoryCatalogProvider::new();
        catalog.register_schema(PUBLIC, Arc::clone(&public))?;
        if let Some(system) = system {
            catalog.register_schema(SYSTEM, system)?;
        }
        state.catalog_list().register_catalog(CATALOG.to_owned(), Arc::new(catalog));
        Ok(Self { state, public, budget })
    }

    /// The same session for a view: what its functions may make does not depend on what else runs.
    pub(crate) fn for_view(&self) -> Self {
        Self { budget: Budget::of_view(), ..self.clone() }
    }

    /// The logical plan as written, with names and types checked, small enough, and with bounded functions.
    pub(crate) async fn plan(&self, statement: ast::Statement) -> Result<LogicalPlan, SqlError> {
        let wrapped = DfStatement::Statement(Box::new(statement.clone()));
        self.check_tables(&wrapped, &statement)?;
        let plan = self.state.statement_to_plan(wrapped).await.map_err(SqlError::of_planning)?;
        bounds::check(&plan)?;
        functions::bound_plan(plan, &self.budget)
    }

    /// Optimised, and checked again for what the optimiser has folded.
    pub(crate) fn optimize(&self, plan: &LogicalPlan) -> Result<LogicalPlan, SqlError> {
        let plan = self.state.optimize(plan).map_err(SqlError::of_planning)?;
        bounds::check_constants(&plan)?;
        functions::bound_plan(plan, &self.budget)
    }

    /// Ready to run.
    pub(crate) async fn runnable(&self, plan: &LogicalPlan) -> Result<Runnable, SqlError> {
        let plan = self.physical(&self.optimize(plan)?).await?;
        Ok(Runnable { plan, context: self.state.task_ctx() })
    }

    /// Of an optimised plan.
    pub(crate) async fn physical(&self, optimized: &LogicalPlan) -> Result<Arc<dyn ExecutionPlan>, SqlError> {
        let physical = self.state.query_planner().create_physical_plan(optimized, &self.state).await?;
        Ok(meter::metered(physical)?)
    }

    pub(crate) fn bound_expr(&self, expr: Expr) -> Result<Expr, DataFusionError> {
        functions::bound_expr(expr, &self.budget)
    }

    pub(crate) async fn plan_query(&self, query: ast::Query) -> Result<LogicalPlan, SqlError> {
        self.plan(ast::Statement::Query(Box::new(query))).await
    }

    /// Types coerced, functions resolved; nothing optimised.
    pub(crate) fn analyze(&self, plan: LogicalPlan) -> Result<LogicalPlan, SqlError> {
        Ok(self.state.analyzer().execute_and_check(plan, self.state.config_options(), |_, _| {})?)
    }

    /// Unknown tables are found before DataFusion does, for the place in the text and the nearest name.
    fn check_tables(&self, wrapped: &DfStatement, statement: &ast::Statement) -> Result<(), SqlError> {
        for reference in self.state.resolve_table_references(wrapped)? {
            let ResolvedTableReference { catalog, schema, table } = reference.clone().resolve(CATALOG, PUBLIC);
            let provider = self.state.catalog_list().catalog(&catalog).and_then(|c| c.schema(&schema));
            let known = provider.as_ref().is_some_and(|p| p.table_exist(&table))
                || &*schema == "information_schema"
                || self.state.table_functions().contains_key(&*table);
            if known {
                continue;
            }
            let names = provider.unwrap_or_else(|| Arc::clone(&self.public)).table_names();
            let hint = nearest(&table, names.iter().map(String::as_str));
            let error = SqlError::not_found("table", &table).or_hint(hint);
            return Err(match place_of(statement, &reference) {
                Some(at) => error.at(at),
                None => error,
            });
        }
        Ok(())
    }
}

fn place_of(statement: &ast::Statement, wanted: &TableReference) -> Option<Location> {
    let found = ast::visit_relations(statement, |name| {
        let last = name.0.last().and_then(|p| p.as_ident());
        match last {
            Some(ident) if ident.value.eq_ignore_ascii_case(wanted.table()) => ControlFlow::Break(name.span().start),
            _ => ControlFlow::Continue(()),
        }
    });
    match found {
        ControlFlow::Break(at) => Some(at),
        ControlFlow::Continue(()) => None,
    }
}
