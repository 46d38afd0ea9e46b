//! The columns of an aggregation: what it puts out is also what it stores, so the planner and the operator take them from one place.
//!
//! Layout: group columns, one column per call, then hidden accumulators that the visible ones do not already contain:
//! * the row count, if rows can leave and there is no `count(*)`: a group with none left disappears;
//! * per sum and avg the number of non-null arguments, unless another column says it;
//! * avg: the exact sum as DECIMAL(38, s); float sums: the two halves of a compensated sum and the numbers of NaN and infinite arguments;
//! * per sum and avg what does not fit into those columns (`__over`, almost always null): a sum out of range is shown as null, but known exactly, so
//!   it is shown again as soon as it is back in range.

use arrow::datatypes::DataType;
use millstream_types::{Column, SqlType, TableSchema};

use super::{AggCall, AggFunc};

/// Output columns and the place of each accumulator in them.
#[derive(Debug, Clone)]
pub struct AggLayout {
    /// Group columns, calls, hidden accumulators.
    pub columns: Vec<Column>,
    /// How many of them are group columns (1 for a global aggregation: the constant key).
    pub group: usize,
    /// Column with the number of rows of the group; `None` if no row ever leaves and no `count(*)` asks for it.
    pub rows: Option<usize>,
    pub calls: Vec<CallLayout>,
}

/// Where one call keeps its accumulators, as places in [`AggLayout::columns`].
#[derive(Debug, Clone, Default)]
pub struct CallLayout {
    /// Number of non-null arguments.
    pub non_null: Option<usize>,
    /// avg over exact numbers: the sum.
    pub sum: Option<usize>,
    /// Float sums: high half, low half, NaN, +infinity, -infinity.
    pub float: Option<[usize; 5]>,
    /// What is out of the range of the columns above.
    pub over: Option<usize>,
}

/// The key of a global aggregation: always 0.
pub fn global_key_column(id: u32) -> Column {
    let mut c = Column::new(id, "__global", SqlType::SmallInt).not_null();
    c.hidden = true;
    c
}

/// Whether a call keeps all values of its group in a region of its own.
pub fn needs_value_set(func: AggFunc, append_only: bool) -> bool {
    !append_only && matches!(func, AggFunc::Min | AggFunc::Max)
}

/// The value set of one retractable min or max: one row per input row whose argument is not null. All columns are the key: group, the encoded value
/// (`__value`; of a max its complement, so that the extreme is the first), stream key.
pub fn minmax_schema(input: &[Column], group: &[usize], stream_key: &[usize]) -> TableSchema {
    let mut columns = group_columns(input, group);
    columns.push(Column::new(0, "__value", SqlType::Bytea).not_null());
    columns.extend(stream_key.iter().map(|k| input[*k].clone()));
    let places = 0..columns.len();
    for (i, c) in columns.iter_mut().enumerate() {
        c.id = i as u32 + 1;
        c.name = if i < group.len().max(1) || c.name == "__value" { c.name.clone() } else { format!("__key_{i}") };
        c.hidden = false;
    }
    TableSchema { id: 1, columns, primary_key: places.collect() }
}

/// How a sum is stored while it fits: integers and decimals as decimals of the argument's scale.
pub fn sum_state_type(arg: &SqlType) -> Option<SqlType> {
    match arg {
        SqlType::SmallInt | SqlType::Int | SqlType::BigInt => Some(SqlType::Decimal(38, 0)),
        SqlType::Decimal(p, s) if *p <= 38 => Some(SqlType::Decimal(38, *s)),
        _ => None,
    }
}

fn group_columns(input: &[Column], group: &[usize]) -> Vec<Column> {
    if group.is_empty() {
        return vec![global_key_column(1)];
    }
    group.iter().map(|g| input[*g].clone()).collect()
}

fn is_float(t: &SqlType) -> bool {
    matches!(t.arrow(), DataType::Float32 | DataType::Float64)
}

/// The hidden columns that the planner appends to the schema of the view or state table, ids from `first_id` on.
pub fn accumulator_columns(
    input: &[Column],
    group: &[usize],
    calls: &[AggCall],
    append_only: bool,
    first_id: u32,
) -> Vec<Column> {
    let layout = agg_layout(input, group, calls, append_only);
    let visible = layout.group + calls.len();
    let mut hidden = layout.columns[visible..].to_vec();
    for (i, c) in hidden.iter_mut().enumerate() {
        c.id = first_id + i as u32;
    }
    hidden
}

/// Column ids count from 1; the planner may replace ids and names.
pub fn agg_layout(input: &[Column], group: &[usize], calls: &[AggCall], append_only: bool) -> AggLayout {
    let mut columns = group_columns(input, group);
    let groups = columns.len();
    for call in calls {
        columns.push(Column::new(0, call.name.clone(), call.output.clone()));
    }
    let place = |func: AggFunc, arg: Option<usize>| {
        calls.iter().position(|c| c.func == func && (func == AggFunc::CountStar || c.arg == arg)).map(|i| groups + i)
    };
    let hide = |columns: &mut Vec<Column>, name: String, t: SqlType| {
        let mut c = Column::new(0, name, t);
        c.hidden = true;
        columns.push(c);
        columns.len() - 1
    };
    let mut rows = place(AggFunc::CountStar, None);
    if rows.is_none() && !append_only {
        rows = Some(hide(&mut columns, "__rows".into(), SqlType::BigInt));
    }
    let mut layouts: Vec<CallLayout> = Vec::with_capacity(calls.len());
    for (i, call) in calls.iter().enumerate() {
        let mut l = CallLayout::default();
        if let (AggFunc::Sum | AggFunc::Avg, Some(arg)) = (call.func, call.arg) {
            let shared = place(AggFunc::Count, Some(arg))
                .or(if input[arg].nullable { None } else { rows })
                .or_else(|| (0..i).filter(|j| calls[*j].arg == Some(arg)).find_map(|j| layouts[j].non_null));
            l.non_null = Some(shared.unwrap_or_else(|| hide(&mut columns, format!("__n_{i}"), SqlType::BigInt)));
            let t = &input[arg].sql_type;
            if is_float(t) {
                l.float = Some([
                    hide(&mut columns, format!("__hi_{i}"), SqlType::Double),
                    hide(&mut columns, format!("__lo_{i}"), SqlType::Double),
                    hide(&mut columns, format!("__nan_{i}"), SqlType::BigInt),
                    hide(&mut columns, format!("__pinf_{i}"), SqlType::BigInt),
                    hide(&mut columns, format!("__ninf_{i}"), SqlType::BigInt),
                ]);
            } else if call.func == AggFunc::Avg
                && let Some(t) = sum_state_type(t)
            {
                l.sum = Some(hide(&mut columns, format!("__sum_{i}"), t));
            }
            l.over = Some(hide(&mut columns, format!("__over_{i}"), SqlType::Bytea));
        }
        layouts.push(l);
    }
    for (i, c) in columns.iter_mut().enumerate() {
        c.id = i as u32 + 1;
    }
    AggLayout { columns, group: groups, rows, calls: layouts }
}
