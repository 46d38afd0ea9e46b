//! What a view computes, with its columns laid out, before it has ids and regions.
//!
//! Columns of the input -> nodes -> columns of the output: first those that users see, then hidden ones: key columns that are not selected, and
//! the accumulators of an aggregation whose state is the view itself.

use std::{collections::HashMap, sync::Arc};

use datafusion::{
    logical_expr::LogicalPlan,
    physical_expr::PhysicalExpr,
    sql::sqlparser::{ast::Query, tokenizer::Location},
};
use millstream_stream::plan::{AggCall, AggLayout};
use millstream_types::{Column, RegionId, TableId, TableSchema};

use super::{
    bounds, expr,
    session::Session,
    streamable,
    walk::{Flow, walk},
};
use crate::{SqlError, parser::statement::DerivedKind};

#[derive(Debug, Clone)]
pub(crate) struct Draft {
    pub(crate) input: DraftInput,
    pub(crate) nodes: Vec<DraftNode>,
    /// Columns and key of the last node's output. No key = append-only: nothing is ever deleted or replaced.
    pub(crate) schema: TableSchema,
}

#[derive(Debug, Clone)]
pub(crate) struct DraftInput {
    pub(crate) table: TableId,
    pub(crate) name: Arc<str>,
    pub(crate) schema: Arc<TableSchema>,
    pub(crate) regions: Vec<RegionId>,
    /// Places in `schema` that are read.
    pub(crate) columns: Vec<usize>,
    /// Whether the number of the row's region follows.
    pub(crate) with_region: bool,
}

#[derive(Debug, Clone)]
pub(crate) enum DraftNode {
    Filter { predicate: Arc<dyn PhysicalExpr>, text: String },
    Project(Vec<Output>),
    Agg(DraftAgg),
}

/// One column that a projection puts out.
#[derive(Debug, Clone)]
pub(crate) struct Output {
    pub(crate) expr: Arc<dyn PhysicalExpr>,
    pub(crate) column: Column,
    pub(crate) text: String,
}

#[derive(Debug, Clone)]
pub(crate) struct DraftAgg {
    pub(crate) input: Vec<Column>,
    pub(crate) group: Vec<usize>,
    /// Tells the rows of a group apart, for value sets.
    pub(crate) stream_key: Vec<usize>,
    pub(crate) calls: Vec<AggCall>,
    pub(crate) append_only: bool,
    pub(crate) layout: AggLayout,
    /// Place in the output schema of each layout column; `None` = the state is a table of its own.
    pub(crate) in_view: Option<Vec<usize>>,
    /// Which calls keep the set of their values.
    pub(crate) value_sets: Vec<bool>,
    pub(crate) emit_before: bool,
}

impl Draft {
    /// State tables that the job needs beside its view and progress.
    pub(crate) fn state_tables(&self) -> usize {
        self.aggregation().map_or(0, |a| usize::from(a.in_view.is_none()) + a.value_sets.iter().filter(|s| **s).count())
    }

    pub(crate) fn aggregation(&self) -> Option<&DraftAgg> {
        self.nodes.iter().find_map(|n| match n {
            DraftNode::Agg(a) => Some(a),
            _ => None,
        })
    }

    /// Whether rows can be deleted or replaced.
    pub(crate) fn retracts(&self) -> bool {
        !self.schema.primary_key.is_empty()
    }
}

/// Plans the query of a view or sink, or refuses it with the reason.
pub(crate) async fn draft(
    session: &Session,
    kind: DerivedKind,
    query: &Query,
    at: Location,
) -> Result<Draft, SqlError> {
    streamable::check(&session.state, query, at)?;
    let session = &session.for_view();
    let plan = session.plan_query(query.clone()).await.map_err(|e| e.at(at))?;
    let plan = session.analyze(plan)?;
    let in_view = kind == DerivedKind::View && every_group_reaches_the_view(&plan);
    let flow = walk(&session.state, &plan, in_view).map_err(|e| e.at(at))?;
    finish(flow, in_view).map_err(|e| e.at(at))
}

/// Only projections above the aggregation: then each group is one row of the view.
fn every_group_reaches_the_view(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Projection(p) => every_group_reaches_the_view(&p.input),
        LogicalPlan::SubqueryAlias(s) => every_group_reaches_the_view(&s.input),
        LogicalPlan::Aggregate(_) | LogicalPlan::Distinct(_) => true,
        _ => false,
    }
}

fn finish(mut flow: Flow, in_view: bool) -> Result<Draft, SqlError> {
    let key = flow.key.clone().unwrap_or_default();
    let mut columns = std::mem::take(&mut flow.columns);
    for (i, c) in columns.iter_mut().enumerate() {
        c.id = i as u32 + 1;
        c.default = None;
        c.metadata = None;
        if !c.hidden && c.name.starts_with("__") {
            return Err(SqlError::invalid(format!("column name {} is reserved", c.name))
                .hint("write AS with a name that does not begin with __"));
        }
    }
    if !columns.iter().any(|c| !c.hidden) {
        return Err(SqlError::invalid("the query has no columns"));
    }
    let filtered = flow.nodes.iter().rposition(|n| matches!(n, DraftNode::Filter { .. }));
    let aggregated = flow.nodes.iter().position(|n| matches!(n, DraftNode::Agg(_)));
    if let Some(agg) = flow.nodes.iter_mut().find_map(|n| match n {
        DraftNode::Agg(a) => Some(a),
        _ => None,
    }) {
        agg.in_view = in_view.then(|| flow.carried.clone());
        // a filter above must see the old row, which it may have let pass
        agg.emit_before = filtered > aggregated;
    }
    for node in &flow.nodes {
        if let DraftNode::Project(outputs) = node {
            bounds::constants_fit(outputs.iter().map(|o| expr::constant_bytes(&o.expr)).sum())?;
        }
    }
    prune(&mut flow.nodes, &mut flow.input);
    Ok(Draft { input: flow.input, nodes: flow.nodes, schema: TableSchema { id: 1, columns, primary_key: key } })
}

/// Reads only the columns that the nodes up to the first projection need, and the key.
fn prune(nodes: &mut [DraftNode], input: &mut DraftInput) {
    let Some(first) = nodes.iter().position(|n| matches!(n, DraftNode::Project(_))) else { return };
    let mut used: HashMap<usize, ()> = HashMap::new();
    for node in &nodes[..=first] {
        match node {
            DraftNode::Filter { predicate, .. } => expr::collect(predicate, &mut used),
            DraftNode::Project(outputs) => outputs.iter().for_each(|o| expr::collect(&o.expr, &mut used)),
            DraftNode::Agg(_) => return,
        }
    }
    let key = input.schema.primary_key.clone();
    let kept: Vec<usize> =
        (0..input.columns.len()).filter(|i| used.contains_key(i) || key.contains(&input.columns[*i])).collect();
    // a row must have some column, or its number would be lost
    let kept = if kept.is_empty() { vec![0] } else { kept };
    let mut places: HashMap<usize, usize> = kept.iter().enumerate().map(|(new, old)| (*old, new)).collect();
    // the region's number, where there is one, stays behind the columns
    places.insert(input.columns.len(), kept.len());
    let place = |old: usize| places.get(&old).copied().unwrap_or(old);
    for node in &mut nodes[..=first] {
        match node {
            DraftNode::Filter { predicate, .. } => *predicate = expr::remap(Arc::clone(predicate), &place),
            DraftNode::Project(outputs) => {
                for o in outputs {
                    o.expr = expr::remap(Arc::clone(&o.expr), &place);
                }
            }
            DraftNode::Agg(_) => {}
        }
    }
    input.columns = kept.iter().map(|i| input.columns[*i]).collect();
}
