//! DataFusion's analysed plan, bottom up -> nodes. Each logical column has a place in the stream's row; a row has hidden columns beside them.

use std::sync::Arc;

use datafusion::{
    catalog::default_table_source::source_as_provider,
    common::DFSchemaRef,
    execution::context::SessionState,
    logical_expr::{Distinct, Expr, Filter, LogicalPlan, Projection, TableScan},
    scalar::ScalarValue,
};
use millstream_stream::plan::region_column;
use millstream_types::{Column, SqlType};

use super::{
    aggregate,
    draft::{DraftInput, DraftNode, Output},
    expr,
};
use crate::{SqlError, query::table_provider::RegionTable};

/// The stream after the nodes so far.
pub(super) struct Flow {
    pub(super) input: DraftInput,
    pub(super) nodes: Vec<DraftNode>,
    /// The row, hidden columns included.
    pub(super) columns: Vec<Column>,
    /// Place in the row of each column of the logical plan.
    pub(super) places: Vec<usize>,
    /// Places of the stream key; `None` = append-only. The number of the row's region is its last part where partitions may share a key.
    pub(super) key: Option<Vec<usize>>,
    /// After an aggregation whose state is the view: the place of each of its columns, which every projection has to hand on.
    pub(super) carried: Vec<usize>,
}

pub(super) fn walk(state: &SessionState, plan: &LogicalPlan, in_view: bool) -> Result<Flow, SqlError> {
    step(state, plan, in_view, true)
}

/// `region` = what is above keeps rows apart by their region too: the view itself, or an aggregation with the rows of its groups.
fn step(state: &SessionState, plan: &LogicalPlan, in_view: bool, region: bool) -> Result<Flow, SqlError> {
    match plan {
        LogicalPlan::TableScan(t) => scan(t, region),
        LogicalPlan::SubqueryAlias(s) => step(state, &s.input, in_view, region),
        LogicalPlan::Filter(f) => filter(state, f, step(state, &f.input, in_view, region)?),
        LogicalPlan::Projection(p) => project(state, p, step(state, &p.input, in_view, region)?),
        LogicalPlan::Aggregate(a) => {
            let flow = step(state, &a.input, in_view, aggregate::keeps_rows(&a.aggr_expr))?;
            aggregate::aggregate(state, flow, a.input.schema(), &a.group_expr, &a.aggr_expr, &a.schema, in_view)
        }
        LogicalPlan::Distinct(Distinct::All(input)) => {
            let flow = step(state, input, in_view, false)?;
            let group: Vec<Expr> = input.schema().columns().into_iter().map(Expr::Column).collect();
            aggregate::aggregate(state, flow, input.schema(), &group, &[], input.schema(), in_view)
        }
        other => {
            let what = other.display().to_string();
            Err(SqlError::unsupported(
                format!("{} cannot be kept up to date yet", what.split([':', ' ']).next().unwrap_or("this step")),
                "a view is SELECT over one table or view, with WHERE, GROUP BY and HAVING",
            ))
        }
    }
}

fn scan(t: &TableScan, region: bool) -> Result<Flow, SqlError> {
    let provider = source_as_provider(&t.source)?;
    let Some(table) = provider.downcast_ref::<RegionTable>() else {
        return Err(SqlError::unsupported(
            format!("{} is not a table or view", t.table_name),
            "system tables can be queried, but not be the input of a view",
        ));
    };
    let schema = table.table_schema();
    // visible columns first, as the logical plan has them, then key columns that users do not see
    let mut places = schema.visible();
    let visible = places.len();
    places.extend(schema.primary_key.iter().copied().filter(|k| schema.columns[*k].hidden));
    let mut columns: Vec<Column> = places.iter().map(|p| schema.columns[*p].clone()).collect();
    let mut key: Vec<usize> = schema.primary_key.iter().filter_map(|k| places.iter().position(|p| p == k)).collect();
    let with_region = region && !key.is_empty() && table.partitions_may_share_keys();
    key.extend(with_region.then_some(columns.len()));
    columns.extend(with_region.then(region_column));
    Ok(Flow {
        input: DraftInput {
            table: table.id(),
            name: table.name(),
            schema: Arc::clone(schema),
            regions: table.regions().to_vec(),
            columns: places,
            with_region,
        },
        nodes: Vec::new(),
        columns,
        places: (0..visible).collect(),
        key: (!key.is_empty()).then_some(key),
        carried: Vec::new(),
    })
}

fn filter(state: &SessionState, f: &Filter, mut flow: Flow) -> Result<Flow, SqlError> {
    let predicate = expr::simplify(state, &f.predicate, f.input.schema())?;
    if matches!(predicate, Expr::Literal(ScalarValue::Boolean(Some(true)), _)) {
        return Ok(flow);
    }
    let text = expr::text(&predicate);
    let predicate = expr::physical(&predicate, f.input.schema(), &flow.places)?;
    flow.nodes.push(DraftNode::Filter { predicate, text });
    Ok(flow)
}

/// One column of a projection: its expression over the row, its type, and how it reads.
pub(super) fn output(
    state: &SessionState,
    flow: &Flow,
    schema: &DFSchemaRef,
    expr: &Expr,
    name: &str,
) -> Result<Output, SqlError> {
    let simple = expr::simplify(state, &expr.clone().unalias(), schema)?;
    let physical = expr::physical(&simple, schema, &flow.places)?;
    let mut column = match expr::as_column(&physical) {
        // JSONB and VARCHAR have one Arrow type: a column that is passed on keeps its own
        Some(i) => flow.columns[i].clone(),
        None => {
            let row: Vec<_> = flow
                .columns
                .iter()
                .map(|c| arrow::datatypes::Field::new(&c.name, c.sql_type.arrow(), c.nullable))
                .collect();
            let row = arrow::datatypes::Schema::new(row);
            let data_type = physical.data_type(&row)?;
            let sql_type = SqlType::from_arrow(&data_type).ok_or_else(|| {
                SqlError::unsupported(
                    format!("column {name} has type {data_type}, which cannot be stored"),
                    "CAST it to a type of CREATE TABLE",
                )
            })?;
            let mut c = Column::new(0, name, sql_type);
            c.nullable = physical.nullable(&row)?;
            c
        }
    };
    name.clone_into(&mut column.name);
    column.hidden = false;
    Ok(Output { expr: physical, column, text: expr::text(&simple) })
}

fn project(state: &SessionState, p: &Projection, mut flow: Flow) -> Result<Flow, SqlError> {
    let mut outputs = Vec::with_capacity(p.expr.len());
    for (expr, field) in p.expr.iter().zip(p.schema.fields()) {
        outputs.push(output(state, &flow, p.input.schema(), expr, field.name())?);
    }
    let visible = outputs.len();
    let hand_on = |outputs: &mut Vec<Output>, wanted: &[usize]| -> Vec<usize> {
        wanted.iter().map(|i| place_of(outputs, &flow.columns, *i)).collect()
    };
    let key = flow.key.as_ref().map(|key| hand_on(&mut outputs, key));
    let carried = hand_on(&mut outputs, &flow.carried);
    flow.columns = outputs.iter().map(|o| o.column.clone()).collect();
    flow.places = (0..visible).collect();
    flow.key = key;
    flow.carried = carried;
    flow.nodes.push(DraftNode::Project(outputs));
    Ok(flow)
}

/// Where the row's column `index` is in `outputs`; it is added as a hidden one if no output passes it on.
pub(super) fn place_of(outputs: &mut Vec<Output>, row: &[Column], index: usize) -> usize {
    if let Some(found) = outputs.iter().position(|o| expr::as_column(&o.expr) == Some(index)) {
        return found;
    }
    let mut column = row[index].clone();
    column.hidden = true;
    let base = if column.name.starts_with("__") { column.name.clone() } else { format!("__{}", column.name) };
    column.name.clone_from(&base);
    let mut n = 1;
    while outputs.iter().any(|o| o.column.name == column.name) {
        n += 1;
        column.name = format!("{base}_{n}");
    }
    outputs.push(Output { expr: expr::column(&row[index].name, index), text: column.name.clone(), column });
    outputs.len() - 1
}
