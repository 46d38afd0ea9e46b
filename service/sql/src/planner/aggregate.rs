//! GROUP BY: one projection that lays out group columns and arguments, then the aggregation over plain columns.

use datafusion::{
    common::DFSchemaRef,
    execution::context::SessionState,
    logical_expr::{Cast, Expr, ExprSchemable, expr::AggregateFunction, lit, when},
};
use millstream_stream::plan::{AggCall, AggFunc, agg_layout, needs_value_set, sum_state_type};
use millstream_types::{Column, SqlType};

use super::{
    draft::{DraftAgg, DraftNode, Output},
    walk::{Flow, output, place_of},
};
use crate::SqlError;

/// `schema` is that of the group and aggregate expressions' results, in this order.
pub(super) fn aggregate(
    state: &SessionState,
    mut flow: Flow,
    input: &DFSchemaRef,
    group_exprs: &[Expr],
    aggregates: &[Expr],
    schema: &DFSchemaRef,
    in_view: bool,
) -> Result<Flow, SqlError> {
    if flow.nodes.iter().any(|n| matches!(n, DraftNode::Agg(_))) {
        return Err(SqlError::unsupported(
            "an aggregation of an aggregation cannot be kept up to date yet",
            "create a view of the inner query, and a second view over it",
        ));
    }
    let mut layout = ArgumentLayout { state, flow: &flow, input, outputs: Vec::new() };
    let mut group = Vec::with_capacity(group_exprs.len());
    for (expr, field) in group_exprs.iter().zip(schema.fields()) {
        if matches!(expr, Expr::GroupingSet(_)) {
            return Err(SqlError::unsupported(
                "GROUPING SETS cannot be kept up to date yet",
                "create one view per grouping",
            ));
        }
        let place = layout.place(expr, field.name())?;
        let column = &layout.outputs[place].1.column;
        if !column.sql_type.can_be_key() {
            return Err(SqlError::unsupported(
                format!("a view cannot be grouped by {}, which is of type {}", column.name, column.sql_type),
                "CAST it to DECIMAL or VARCHAR",
            ));
        }
        group.push(place);
    }
    let mut calls = Vec::with_capacity(aggregates.len());
    for (i, expr) in aggregates.iter().enumerate() {
        let field = schema.field(group_exprs.len() + i);
        calls.push(call(&mut layout, expr, field.name(), field.data_type())?);
    }
    let mut outputs: Vec<Output> = layout.outputs.into_iter().map(|(_, o)| o).collect();
    let append_only = flow.key.is_none();
    let value_sets: Vec<bool> = calls.iter().map(|c| needs_value_set(c.func, append_only)).collect();
    let key = flow.key.iter().flatten().filter(|_| value_sets.contains(&true));
    let stream_key = key.map(|k| place_of(&mut outputs, &flow.columns, *k)).collect();
    let columns: Vec<Column> = outputs.iter().map(|o| o.column.clone()).collect();
    let result = agg_layout(&columns, &group, &calls, append_only);
    flow.nodes.push(DraftNode::Project(outputs));
    flow.columns.clone_from(&result.columns);
    // the logical plan does not know the constant key of a global aggregation
    let offset = result.group - group.len();
    flow.places = (0..group_exprs.len() + calls.len()).map(|i| i + offset).collect();
    flow.key = Some((0..result.group).collect());
    flow.carried = if in_view { (0..result.columns.len()).collect() } else { Vec::new() };
    flow.nodes.push(DraftNode::Agg(DraftAgg {
        input: columns,
        group,
        stream_key,
        calls,
        append_only,
        layout: result,
        in_view: None,
        value_sets,
        emit_before: false,
    }));
    Ok(flow)
}

/// Whether some call keeps the rows of its group when they can leave.
pub(super) fn keeps_rows(calls: &[Expr]) -> bool {
    calls
        .iter()
        .any(|e| matches!(e.clone().unalias(), Expr::AggregateFunction(f) if matches!(f.func.name(), "min" | "max")))
}

/// Columns that the aggregation reads; equal expressions are computed once.
struct ArgumentLayout<'a> {
    state: &'a SessionState,
    flow: &'a Flow,
    input: &'a DFSchemaRef,
    outputs: Vec<(Expr, Output)>,
}

impl ArgumentLayout<'_> {
    fn place(&mut self, expr: &Expr, name: &str) -> Result<usize, SqlError> {
        let expr = expr.clone().unalias();
        if let Some(found) = self.outputs.iter().position(|(e, _)| *e == expr) {
            return Ok(found);
        }
        let output = output(self.state, self.flow, self.input, &expr, name)?;
        self.outputs.push((expr, output));
        Ok(self.outputs.len() - 1)
    }

    /// An argument is called by its column if it is one.
    fn place_argument(&mut self, argument: &Expr) -> Result<usize, SqlError> {
        let taken = |name: &str| self.outputs.iter().any(|(_, o)| o.column.name == name);
        let name = match argument {
            Expr::Column(c) if !taken(&c.name) => c.name.clone(),
            _ => format!("__arg{}", self.outputs.len()),
        };
        self.place(argument, &name)
    }
}

/// One aggregate call over the laid out columns.
fn call(
    layout: &mut ArgumentLayout<'_>,
    expr: &Expr,
    name: &str,
    result: &arrow::datatypes::DataType,
) -> Result<AggCall, SqlError> {
    let expr = expr.clone().unalias();
    let Expr::AggregateFunction(AggregateFunction { func, params }) = &expr else {
        return Err(SqlError::unsupported(
            format!("{name} is not an aggregate that can be kept up to date"),
            "count, sum, avg, min and max can",
        ));
    };
    if params.distinct || !params.order_by.is_empty() {
        return Err(SqlError::unsupported(
            format!("{name} cannot be kept up to date yet"),
            "leave DISTINCT and ORDER BY out of the aggregate",
        ));
    }
    let func = match func.name() {
        "count" => AggFunc::Count,
        "sum" => AggFunc::Sum,
        "avg" => AggFunc::Avg,
        "min" => AggFunc::Min,
        "max" => AggFunc::Max,
        other => {
            return Err(SqlError::unsupported(
                format!("{other}() cannot be kept up to date yet"),
                "count, sum, avg, min and max can",
            ));
        }
    };
    let output = SqlType::from_arrow(result).ok_or_else(|| {
        SqlError::unsupported(format!("{name} has type {result}, which cannot be stored"), "CAST its argument")
    })?;
    let argument = match params.args.as_slice() {
        [] => None,
        [one] => Some(one),
        _ => {
            return Err(SqlError::unsupported(
                format!("{name}: an aggregate has one argument here"),
                "write one aggregate per column",
            ));
        }
    };
    // count(*) and count(1) are the same
    let counts_rows =
        func == AggFunc::Count && argument.is_none_or(|a| matches!(a, Expr::Literal(v, _) if !v.is_null()));
    if counts_rows && params.filter.is_none() {
        return Ok(AggCall { func: AggFunc::CountStar, arg: None, name: name.to_owned(), output });
    }
    let mut argument = match argument {
        Some(a) if !counts_rows && matches!(func, AggFunc::Sum | AggFunc::Avg) => without_widening(a, layout.input)?,
        Some(a) if !counts_rows => a.clone(),
        _ => lit(1_i64),
    };
    if let Some(filter) = &params.filter {
        argument = when(filter.as_ref().clone(), argument).end()?;
    }
    let place = layout.place_argument(&argument)?;
    let column = &layout.outputs[place].1.column;
    check_argument(func, column)?;
    Ok(AggCall { func, arg: Some(place), name: name.to_owned(), output: kept_type(func, column, output) })
}

/// min and max of a JSONB column would be VARCHAR by their Arrow type; theirs is the argument's own.
fn kept_type(func: AggFunc, argument: &Column, output: SqlType) -> SqlType {
    match func {
        AggFunc::Min | AggFunc::Max if argument.sql_type.arrow() == output.arrow() => argument.sql_type.clone(),
        _ => output,
    }
}

fn check_argument(func: AggFunc, argument: &Column) -> Result<(), SqlError> {
    let t = &argument.sql_type;
    let fine = match func {
        AggFunc::Sum | AggFunc::Avg => sum_state_type(t).is_some() || matches!(t, SqlType::Real | SqlType::Double),
        AggFunc::Min | AggFunc::Max => {
            !matches!(t, SqlType::Jsonb | SqlType::Array(_) | SqlType::Struct(_) | SqlType::Map(..) | SqlType::Interval)
        }
        AggFunc::Count | AggFunc::CountStar => true,
    };
    if fine {
        return Ok(());
    }
    let word = match func {
        AggFunc::Sum => "sum",
        AggFunc::Avg => "avg",
        AggFunc::Min => "min",
        _ => "max",
    };
    Err(SqlError::unsupported(
        format!("{word}() of {t} cannot be kept up to date yet"),
        "CAST the argument to a number, or to DECIMAL of at most 38 digits",
    ))
}

/// DataFusion widens integers before it adds them; the accumulators here are wide enough and exact, also for avg. A cast to a narrower type is the user's.
fn without_widening(argument: &Expr, schema: &DFSchemaRef) -> Result<Expr, SqlError> {
    if let Expr::Cast(Cast { expr, field }) = argument {
        let from = expr.get_type(schema.as_ref())?;
        let to = field.data_type();
        let wider = to.is_signed_integer() && to.primitive_width() > from.primitive_width();
        if from.is_signed_integer() && (*to == arrow::datatypes::DataType::Float64 || wider) {
            return Ok(expr.as_ref().clone());
        }
    }
    Ok(argument.clone())
}
