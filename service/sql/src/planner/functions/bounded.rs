//! A function that asks before it makes something large.
//!
//! A call is made in slices of rows whose bounds fit together; what they really made is counted, against the memory of all queries as long as the array
//! lives, or, in a view, against a fixed number, so that the outcome depends on the rows only.

use std::{
    hash::{Hash, Hasher},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use arrow::{
    array::{Array, ArrayRef, RecordBatch, RecordBatchOptions, make_array},
    buffer::Buffer,
    compute::concat,
    datatypes::{DataType, Field, FieldRef, Schema},
};
use bytes::Bytes;
use datafusion::{
    common::{DataFusionError, ScalarValue, config::ConfigOptions},
    execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation},
    logical_expr::{
        ColumnarValue, Documentation, Expr, Operator, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
        Signature, Volatility,
        interval_arithmetic::Interval,
        sort_properties::{ExprProperties, SortProperties},
        type_coercion::binary::BinaryTypeCoercer,
    },
    physical_expr::{
        PhysicalExpr,
        expressions::{BinaryExpr, Column},
    },
};
use millstream_types::ErrorKind;

use super::{
    growth::Growth,
    size::{Sizes, array_bytes, bounds, scalar_bytes, size},
};
use crate::{SqlError, planner::stop};

/// Most bytes of one value: no row that is larger can be stored.
pub(crate) const MOST_VALUE: u64 = 8 << 20;
/// Most that one call may need for one row while it works.
const MOST_BOUND: u64 = 64 << 20;
/// Bounds of the rows of one slice together. Also what a call makes without being counted.
const SLICE: u64 = 4 << 20;
const NOT_COUNTED: u64 = 64 << 10;
/// What all calls of one view make of one batch of rows.
const MOST_OF_A_VIEW: u64 = 512 << 20;
/// Parts of the type of what a function makes.
const MOST_TYPE_PARTS: usize = 2_000;
/// Most of the product of two lengths that is worked off in one go, some seconds.
const MOST_PRODUCT: u64 = 2 << 30;

/// What the calls of one statement may make.
#[derive(Debug)]
pub(crate) struct Budget {
    /// Of a query: memory that all queries share.
    pool: Option<Arc<dyn MemoryPool>>,
    /// Calls of a view, each with its part of the whole.
    calls: AtomicU64,
}

impl Budget {
    pub(crate) fn of_query(pool: Arc<dyn MemoryPool>) -> Arc<Self> {
        Arc::new(Self { pool: Some(pool), calls: AtomicU64::new(0) })
    }

    pub(crate) fn of_view() -> Arc<Self> {
        Arc::new(Self { pool: None, calls: AtomicU64::new(0) })
    }

    fn of_one_call(&self) -> u64 {
        match self.pool {
            Some(_) => u64::MAX,
            None => (MOST_OF_A_VIEW / self.calls.load(Ordering::Relaxed).max(1)).max(MOST_VALUE),
        }
    }
}

/// A function of DataFusion within its bounds. Everything but the call is the function's own.
#[derive(Debug)]
pub(crate) struct Bounded {
    inner: Arc<ScalarUDF>,
    growth: Growth,
    budget: Arc<Budget>,
}

impl PartialEq for Bounded {
    fn eq(&self, other: &Self) -> bool {
        self.inner == other.inner && self.growth == other.growth
    }
}

impl Eq for Bounded {}

impl Hash for Bounded {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.inner.hash(state);
        self.growth.hash(state);
    }
}

impl Bounded {
    pub(crate) fn new(inner: Arc<ScalarUDF>, growth: Growth, budget: Arc<Budget>) -> Self {
        budget.calls.fetch_add(1, Ordering::Relaxed);
        Self { inner, growth, budget }
    }

    /// The same function for another statement.
    pub(super) fn within(&self, budget: &Arc<Budget>) -> Self {
        Self::new(Arc::clone(&self.inner), self.growth, Arc::clone(budget))
    }

    fn inner(&self) -> &dyn ScalarUDFImpl {
        self.inner.inner().as_ref()
    }

    fn refuse(&self, bytes: u64, what: &str, most: u64) -> DataFusionError {
        let error = SqlError::new(
            ErrorKind::Invalid,
            "VALUE_TOO_LARGE",
            format!("{}() may make {bytes} bytes {what}, the limit is {most}", self.inner.name()),
        );
        DataFusionError::External(Box::new(
            error.hint("make less of it: a smaller count, shorter texts, or fewer rows at a time"),
        ))
    }

    fn call(&self, args: &ScalarFunctionArgs, from: usize, rows: usize) -> Result<ColumnarValue, DataFusionError> {
        let part = |value: &ColumnarValue| match value {
            ColumnarValue::Array(a) => ColumnarValue::Array(a.slice(from, rows)),
            ColumnarValue::Scalar(s) => ColumnarValue::Scalar(s.clone()),
        };
        self.inner.invoke_with_args(ScalarFunctionArgs {
            args: args.args.iter().map(part).collect(),
            arg_fields: args.arg_fields.clone(),
            number_rows: rows,
            return_field: Arc::clone(&args.return_field),
            config_options: Arc::clone(&args.config_options),
        })
    }

    fn check_values(&self, made: &ArrayRef) -> Result<u64, DataFusionError> {
        let sizes = array_bytes(made);
        match sizes.iter().find(|s| **s > MOST_VALUE) {
            Some(large) => Err(self.refuse(*large, "in one value", MOST_VALUE)),
            None => Ok(Sizes::Each(sizes).sum(made.len())),
        }
    }

    fn for_one_row(&self, args: &ScalarFunctionArgs) -> Result<ColumnarValue, DataFusionError> {
        self.check_bounds(&bounds(self.growth, &args.args, 1))?;
        let value = self.call(args, 0, args.number_rows)?;
        match &value {
            ColumnarValue::Scalar(s) if scalar_bytes(s) > MOST_VALUE => {
                Err(self.refuse(scalar_bytes(s), "in one value", MOST_VALUE))
            }
            ColumnarValue::Scalar(_) => Ok(value),
            ColumnarValue::Array(a) => self.check_values(a).map(|_| value),
        }
    }

    fn check_bounds(&self, bounds: &[u64]) -> Result<(), DataFusionError> {
        if self.growth == Growth::Product {
            let all = Sizes::Each(bounds.to_vec()).sum(bounds.len());
            return if all > MOST_PRODUCT { Err(self.refuse(all, "of work", MOST_PRODUCT)) } else { Ok(()) };
        }
        match bounds.iter().find(|b| **b > MOST_BOUND) {
            Some(large) => Err(self.refuse(*large, "in one value", MOST_VALUE)),
            None => Ok(()),
        }
    }

    fn for_rows(&self, args: &ScalarFunctionArgs) -> Result<ColumnarValue, DataFusionError> {
        let bounds = bounds(self.growth, &args.args, args.number_rows);
        self.check_bounds(&bounds)?;
        let most = self.budget.of_one_call();
        let reservation =
            self.budget.pool.as_ref().map(|p| MemoryConsumer::new(format!("{}()", self.inner.name())).register(p));
        let (mut parts, mut made, mut from) = (Vec::new(), 0_u64, 0);
        while from < args.number_rows {
            let rows = slice_len(&bounds[from..]);
            let part = self.call(args, from, rows)?.into_array(rows)?;
            made = made.saturating_add(self.check_values(&part)?);
            if made > most {
                return Err(self.refuse(made, "of one batch of rows", most));
            }
            if let Some(r) = &reservation {
                r.try_resize(made as usize)?;
            }
            parts.push(part);
            from += rows;
        }
        let whole = match parts.as_slice() {
            [one] => Arc::clone(one),
            // the parts and the whole are there at the same time
            many => {
                if let Some(r) = &reservation {
                    r.try_grow(made as usize)?;
                }
                let whole = concat(&many.iter().map(AsRef::as_ref).collect::<Vec<_>>())?;
                parts.clear();
                if let Some(r) = &reservation {
                    r.resize(made as usize);
                }
                whole
            }
        };
        Ok(ColumnarValue::Array(match reservation {
            Some(r) if made > NOT_COUNTED => counted(&whole, r)?,
            _ => whole,
        }))
    }
}

/// Parts of a type, counted up to a little more than `most`: a struct of two structs of two structs shares them, but nobody who reads it knows.
fn type_parts(of: &DataType, most: usize) -> usize {
    let (mut parts, mut open) = (0, vec![of]);
    while let Some(next) = open.pop() {
        parts += 1;
        if parts > most {
            break;
        }
        match next {
            DataType::List(f) | DataType::LargeList(f) | DataType::FixedSizeList(f, _) | DataType::Map(f, _) => {
                open.push(f.data_type());
            }
            DataType::Struct(fields) => open.extend(fields.iter().map(|f| f.data_type())),
            _ => {}
        }
    }
    parts
}

/// Rows from the first on whose bounds fit into one slice, at least one.
fn slice_len(bounds: &[u64]) -> usize {
    let mut sum = 0_u64;
    let fit = bounds.iter().take_while(|b| {
        sum = sum.saturating_add(**b);
        sum <= SLICE
    });
    fit.count().max(1)
}

/// Bytes that give their memory back to the pool when nobody uses them any more.
struct Counted {
    bytes: Buffer,
    _reservation: MemoryReservation,
}

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        self.bytes.as_slice()
    }
}

/// The same array, which holds its reservation as long as it lives.
pub(crate) fn counted(array: &ArrayRef, reservation: MemoryReservation) -> Result<ArrayRef, DataFusionError> {
    let data = array.to_data();
    let held = hold(data, &mut Some(reservation))?;
    Ok(make_array(held))
}

fn hold(
    data: arrow::array::ArrayData,
    reservation: &mut Option<MemoryReservation>,
) -> Result<arrow::array::ArrayData, DataFusionError> {
    let mut buffers = data.buffers().to_vec();
    if let Some(last) = buffers.last_mut() {
        if let Some(r) = reservation.take() {
            *last = Buffer::from(Bytes::from_owner(Counted { bytes: last.clone(), _reservation: r }));
        }
        return Ok(data.into_builder().buffers(buffers).build()?);
    }
    let mut children = data.child_data().to_vec();
    if let Some(first) = children.first_mut() {
        *first = hold(first.clone(), reservation)?;
        return Ok(data.into_builder().child_data(children).build()?);
    }
    Ok(data)
}

impl ScalarUDFImpl for Bounded {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn schema_name(&self, args: &[Expr]) -> Result<String, DataFusionError> {
        self.inner().schema_name(args)
    }

    fn signature(&self) -> &Signature {
        self.inner().signature()
    }

    fn coerce_types(&self, arg_types: &[DataType]) -> Result<Vec<DataType>, DataFusionError> {
        self.inner().coerce_types(arg_types)
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType, DataFusionError> {
        self.inner().return_type(arg_types)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef, DataFusionError> {
        stop::check()?;
        let field = self.inner().return_field_from_args(args)?;
        if type_parts(field.data_type(), MOST_TYPE_PARTS) > MOST_TYPE_PARTS {
            return Err(DataFusionError::Plan(format!(
                "the type of {}() has more than {MOST_TYPE_PARTS} parts",
                self.inner.name()
            )));
        }
        Ok(field)
    }

    fn with_updated_config(&self, config: &ConfigOptions) -> Option<ScalarUDF> {
        let inner = Arc::new(self.inner().with_updated_config(config)?);
        Some(ScalarUDF::from(Self { inner, growth: self.growth, budget: Arc::clone(&self.budget) }))
    }

    fn is_strict(&self) -> bool {
        self.inner().is_strict()
    }

    fn short_circuits(&self) -> bool {
        self.inner().short_circuits()
    }

    fn evaluate_bounds(&self, input: &[&Interval]) -> Result<Interval, DataFusionError> {
        self.inner().evaluate_bounds(input)
    }

    fn propagate_constraints(
        &self,
        interval: &Interval,
        inputs: &[&Interval],
    ) -> Result<Option<Vec<Interval>>, DataFusionError> {
        self.inner().propagate_constraints(interval, inputs)
    }

    fn output_ordering(&self, inputs: &[ExprProperties]) -> Result<SortProperties, DataFusionError> {
        self.inner().output_ordering(inputs)
    }

    fn preserves_lex_ordering(&self, inputs: &[ExprProperties]) -> Result<bool, DataFusionError> {
        self.inner().preserves_lex_ordering(inputs)
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner().documentation()
    }

    // `simplify` is left out: it would put functions into the plan that nobody has bounded.

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue, DataFusionError> {
        if args.args.iter().all(|a| matches!(a, ColumnarValue::Scalar(_))) {
            return self.for_one_row(&args);
        }
        // most calls are small: no number per row
        let all = args.args.iter().map(|a| size(a).sum(args.number_rows)).fold(0_u64, u64::saturating_add);
        if self.growth == Growth::Sum && all <= NOT_COUNTED {
            return self.call(&args, 0, args.number_rows);
        }
        self.for_rows(&args)
    }
}

/// The operator `||` as a function.
pub(crate) const CONCAT: &str = "||";

#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct ConcatOperator {
    signature: Signature,
}

impl ConcatOperator {
    pub(crate) fn new() -> Self {
        Self { signature: Signature::user_defined(Volatility::Immutable) }
    }
}

/// What the operator makes of all sides, one after the other.
fn concat_type(sides: &[DataType]) -> Result<DataType, DataFusionError> {
    let (first, others) = sides.split_first().ok_or_else(|| DataFusionError::Plan("|| has two sides".to_owned()))?;
    others.iter().try_fold(first.clone(), |left, right| {
        BinaryTypeCoercer::new(&left, &Operator::StringConcat, right).get_result_type()
    })
}

impl ScalarUDFImpl for ConcatOperator {
    fn name(&self) -> &'static str {
        CONCAT
    }

    /// As that of the operator.
    fn schema_name(&self, args: &[Expr]) -> Result<String, DataFusionError> {
        let sides: Vec<String> = args.iter().map(|a| a.schema_name().to_string()).collect();
        Ok(sides.join(" || "))
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arg_types: &[DataType]) -> Result<Vec<DataType>, DataFusionError> {
        Ok(vec![concat_type(arg_types)?; arg_types.len()])
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType, DataFusionError> {
        concat_type(arg_types)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef, DataFusionError> {
        let sides: Vec<DataType> = args.arg_fields.iter().map(|f| f.data_type().clone()).collect();
        let nullable = args.arg_fields.iter().any(|f| f.is_nullable());
        Ok(Arc::new(Field::new(CONCAT, concat_type(&sides)?, nullable)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue, DataFusionError> {
        let scalars = args.args.iter().all(|a| matches!(a, ColumnarValue::Scalar(_)));
        let rows = if scalars { 1 } else { args.number_rows };
        let mut sides = args.args.iter();
        let first = sides.next().ok_or_else(|| DataFusionError::Plan("|| has two sides".to_owned()))?;
        let whole = sides.try_fold(first.to_array(rows)?, |left, right| concat_two(left, right.to_array(rows)?))?;
        Ok(if scalars {
            ColumnarValue::Scalar(ScalarValue::try_from_array(&whole, 0)?)
        } else {
            ColumnarValue::Array(whole)
        })
    }
}

fn concat_two(left: ArrayRef, right: ArrayRef) -> Result<ArrayRef, DataFusionError> {
    let rows = left.len();
    let fields = [&left, &right].map(|side| Field::new("side", side.data_type().clone(), true));
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    let schema = Arc::new(Schema::new(fields.to_vec()));
    let batch = RecordBatch::try_new_with_options(schema, vec![left, right], &options)?;
    let (left, right) = (Arc::new(Column::new("side", 0)), Arc::new(Column::new("side", 1)));
    BinaryExpr::new(left, Operator::StringConcat, right).evaluate(&batch)?.into_array(rows)
}
