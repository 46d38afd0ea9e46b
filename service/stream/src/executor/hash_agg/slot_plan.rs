//! Which accumulators a node has and which output columns they fill; the same for all groups, checked once when the operator is made.

use arrow::datatypes::DataType;

use super::scalar;
use crate::plan::{AggCall, AggFunc, AggLayout};

/// What one output column shows.
#[derive(Debug, Clone, Copy)]
pub(super) enum Source {
    Counter(usize),
    Sum(usize),
    Avg(usize),
    SumState(usize),
    FloatSum(usize),
    FloatAvg(usize),
    FloatPart(usize, usize),
    SumOver(usize),
    FloatOver(usize),
    Extreme(usize),
}

#[derive(Debug, Clone)]
pub(super) struct Counter {
    /// `None` counts rows.
    pub(super) arg: Option<usize>,
    /// Output column that stores it.
    pub(super) column: usize,
}

#[derive(Debug, Clone)]
pub(super) struct ExactSum {
    pub(super) arg: usize,
    /// Counter of non-null arguments.
    pub(super) non_null: usize,
    pub(super) scale: i8,
    /// Output column that stores the sum.
    pub(super) column: usize,
    /// Output column that stores it when it does not fit there.
    pub(super) over: usize,
    pub(super) name: String,
    pub(super) avg: bool,
    /// What the sum must fit into to be stored in its column.
    pub(super) limit: DataType,
}

#[derive(Debug, Clone)]
pub(super) struct FloatSum {
    pub(super) arg: usize,
    pub(super) non_null: usize,
    pub(super) columns: [usize; 5],
    pub(super) over: usize,
}

#[derive(Debug, Clone)]
pub(crate) struct Extreme {
    pub(crate) arg: usize,
    pub(crate) max: bool,
    /// Whether a value set decides (retractable) instead of a comparison.
    pub(crate) from_set: bool,
    pub(crate) call: usize,
    pub(super) column: usize,
    pub(super) int: bool,
}

/// Which accumulators there are and which columns they fill; the same for all groups.
#[derive(Debug, Clone)]
pub(crate) struct SlotPlan {
    /// Per output column after the group columns.
    pub(super) sources: Vec<Source>,
    pub(super) types: Vec<DataType>,
    pub(super) group: usize,
    pub(super) counters: Vec<Counter>,
    pub(super) sums: Vec<ExactSum>,
    pub(super) floats: Vec<FloatSum>,
    pub(crate) extremes: Vec<Extreme>,
    /// Counter of rows.
    pub(crate) rows: Option<usize>,
}

impl SlotPlan {
    pub(crate) fn new(
        input: &[DataType],
        layout: &AggLayout,
        calls: &[AggCall],
        has_set: impl Fn(usize) -> bool,
    ) -> Result<Self, String> {
        let types: Vec<DataType> = layout.columns[layout.group..].iter().map(|c| c.sql_type.arrow()).collect();
        let mut plan = Self {
            sources: Vec::new(),
            types,
            group: layout.group,
            counters: Vec::new(),
            sums: Vec::new(),
            floats: Vec::new(),
            extremes: Vec::new(),
            rows: None,
        };
        let mut sources: Vec<Option<Source>> = vec![None; plan.types.len()];
        let group = layout.group;
        let mut counter = |plan: &mut Self, arg: Option<usize>, column: usize| {
            let i = plan.counters.iter().position(|c| c.column == column).unwrap_or_else(|| {
                plan.counters.push(Counter { arg, column });
                plan.counters.len() - 1
            });
            sources[column - group] = Some(Source::Counter(i));
            i
        };
        plan.rows = layout.rows.map(|column| counter(&mut plan, None, column));
        for (i, call) in calls.iter().enumerate() {
            match (call.func, call.arg) {
                (AggFunc::CountStar, _) => _ = counter(&mut plan, None, group + i),
                (AggFunc::Count, Some(arg)) => _ = counter(&mut plan, Some(arg), group + i),
                _ => {}
            }
        }
        let non_null: Vec<Option<usize>> = layout
            .calls
            .iter()
            .zip(calls)
            .map(|(l, c)| l.non_null.map(|column| counter(&mut plan, c.arg, column)))
            .collect();
        for (i, call) in calls.iter().enumerate() {
            let l = &layout.calls[i];
            let column = group + i;
            let source = match (call.func, call.arg) {
                (AggFunc::CountStar | AggFunc::Count, _) => continue,
                (_, None) => return Err(format!("{:?} needs an argument", call.func)),
                (AggFunc::Sum | AggFunc::Avg, Some(arg)) => {
                    let Some(non_null) = non_null[i] else { return Err("a sum lacks its counter".into()) };
                    let Some(over) = l.over else {
                        return Err("a sum lacks the column for what is out of range".into());
                    };
                    let avg = call.func == AggFunc::Avg;
                    if let Some(columns) = l.float {
                        plan.floats.push(FloatSum { arg, non_null, columns, over });
                        let f = plan.floats.len() - 1;
                        sources[over - group] = Some(Source::FloatOver(f));
                        for (k, c) in columns.iter().enumerate() {
                            sources[c - group] = Some(Source::FloatPart(f, k));
                        }
                        if avg { Source::FloatAvg(f) } else { Source::FloatSum(f) }
                    } else {
                        let stored = l.sum.unwrap_or(column);
                        let s = exact(arg, non_null, stored, over, &input[arg], &plan.types[i], call)?;
                        if let Some(c) = l.sum {
                            sources[c - group] = Some(Source::SumState(plan.sums.len()));
                        }
                        sources[over - group] = Some(Source::SumOver(plan.sums.len()));
                        plan.sums.push(s);
                        let s = plan.sums.len() - 1;
                        if avg { Source::Avg(s) } else { Source::Sum(s) }
                    }
                }
                (AggFunc::Min | AggFunc::Max, Some(arg)) => {
                    let t = &input[arg];
                    if *t != plan.types[i] || !(scalar::is_int(t) || scalar::is_bytes(t)) {
                        return Err(format!("{:?} of {t} as {} is not supported", call.func, plan.types[i]));
                    }
                    let max = call.func == AggFunc::Max;
                    let int = scalar::is_int(t);
                    plan.extremes.push(Extreme { arg, max, from_set: has_set(i), call: i, column, int });
                    Source::Extreme(plan.extremes.len() - 1)
                }
            };
            sources[i] = Some(source);
        }
        let missing = || "an output column has no accumulator".to_owned();
        plan.sources = sources.into_iter().collect::<Option<_>>().ok_or_else(missing)?;
        Ok(plan)
    }

    /// Output column of an extreme.
    pub(crate) fn extreme_column(&self, i: usize) -> usize {
        self.extremes[i].column
    }

    pub(crate) fn extreme_type(&self, i: usize) -> &DataType {
        &self.types[self.extremes[i].column - self.group]
    }
}

fn exact(
    arg: usize,
    non_null: usize,
    column: usize,
    over: usize,
    from: &DataType,
    output: &DataType,
    call: &AggCall,
) -> Result<ExactSum, String> {
    let scale = match from {
        DataType::Int16 | DataType::Int32 | DataType::Int64 => 0,
        DataType::Decimal128(_, s) => *s,
        other => return Err(format!("{:?} of {other} is not supported", call.func)),
    };
    let avg = call.func == AggFunc::Avg;
    let fits = match output {
        DataType::Int64 | DataType::Int32 => scale == 0 && !avg,
        DataType::Decimal128(_, s) => *s == scale || (avg && *s >= scale),
        DataType::Float64 => avg,
        _ => false,
    };
    if !fits {
        return Err(format!("{:?} of {from} as {output} is not supported", call.func));
    }
    let limit = if avg { DataType::Decimal128(38, scale) } else { output.clone() };
    Ok(ExactSum { arg, non_null, scale, column, over, name: call.name.clone(), avg, limit })
}
