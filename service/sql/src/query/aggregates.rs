//! Aggregates of queries where DataFusion's own would not say what a view says: a sum out of range is an error and not a wrapped number, and min and max of
//! floats follow the total order (-NaN, -inf, .., -0, 0, .., inf, NaN) in every plan, as ORDER BY and the value sets of views do.
//!
//! DataFusion adds in the type of the result and lets it wrap, and its grouped min and max compare floats so that the answer depends on the order of
//! rows. Here sums add in a wider type and are brought back at the end; everything else is DataFusion's. Not here: what a view does with a sum out of
//! range (`on_eval_error`).

use std::sync::Arc;

use arrow::{
    array::{Array, ArrayRef, BooleanArray},
    compute::{CastOptions, cast_with_options},
    datatypes::{DECIMAL128_MAX_PRECISION, DECIMAL256_MAX_PRECISION, DataType, Field, FieldRef},
};
use datafusion::{
    common::{DataFusionError, Result, ScalarValue},
    functions_aggregate::{
        min_max::{Max, Min},
        sum::Sum,
    },
    logical_expr::{
        Accumulator, AggregateUDF, AggregateUDFImpl, EmitTo, GroupsAccumulator, ReversedUDAF, SetMonotonicity,
        Signature,
        function::{AccumulatorArgs, StateFieldsArgs},
        utils::AggregateOrderSensitivity,
    },
};

/// Those that take the place of DataFusion's.
pub(crate) fn all() -> Vec<Arc<AggregateUDF>> {
    vec![
        Arc::new(AggregateUDF::from(ExactSum::default())),
        Arc::new(AggregateUDF::from(Ordered { inner: Min::new(), descending: false })),
        Arc::new(AggregateUDF::from(Ordered { inner: Max::new(), descending: true })),
    ]
}

/// The type that a sum of this type is added in; `None` = its own.
fn wider(t: &DataType) -> Option<DataType> {
    match t {
        DataType::Int64 | DataType::UInt64 => Some(DataType::Decimal128(DECIMAL128_MAX_PRECISION, 0)),
        DataType::Decimal32(_, s) | DataType::Decimal64(_, s) => {
            Some(DataType::Decimal128(DECIMAL128_MAX_PRECISION, *s))
        }
        DataType::Decimal128(_, s) => Some(DataType::Decimal256(DECIMAL256_MAX_PRECISION, *s)),
        _ => None,
    }
}

fn cast(array: &ArrayRef, to: &DataType) -> Result<ArrayRef> {
    if array.data_type() == to {
        return Ok(Arc::clone(array));
    }
    let strict = CastOptions { safe: false, ..CastOptions::default() };
    Ok(cast_with_options(array.as_ref(), to, &strict)?)
}

/// A finished sum in the type of the result.
fn narrow(array: &ArrayRef, to: &DataType) -> Result<ArrayRef> {
    cast(array, to)
        .map_err(|e| DataFusionError::Execution(format!("numeric out of range: a sum does not fit {to} ({e})")))
}

#[derive(Debug, Default, PartialEq, Eq, Hash)]
struct ExactSum {
    inner: Sum,
}

impl ExactSum {
    fn with_wide<T>(
        &self,
        args: AccumulatorArgs<'_>,
        make: impl FnOnce(AccumulatorArgs<'_>) -> Result<T>,
    ) -> Result<T> {
        let Some(wide) = wider(args.return_type()) else { return make(args) };
        let return_field: FieldRef = Arc::new(Field::new(args.return_field.name(), wide.clone(), true));
        let field: FieldRef = Arc::new(Field::new(args.name, wide, true));
        make(AccumulatorArgs { return_field, expr_fields: &[field], ..args })
    }
}

impl AggregateUDFImpl for ExactSum {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        self.inner.return_type(arguments)
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        let result = args.return_type().clone();
        let inner = self.with_wide(args, |args| self.inner.accumulator(args))?;
        Ok(Wide::over(inner, result))
    }

    fn create_sliding_accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        if args.is_distinct {
            return self.inner.create_sliding_accumulator(args);
        }
        let result = args.return_type().clone();
        let inner = self.with_wide(args, |args| self.inner.create_sliding_accumulator(args))?;
        Ok(Wide::over(inner, result))
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        let wide = wider(args.return_type()).unwrap_or_else(|| args.return_type().clone());
        let return_field = Arc::new(Field::new(args.return_field.name(), wide, true));
        self.inner.state_fields(StateFieldsArgs { return_field, ..args })
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs<'_>) -> bool {
        self.inner.groups_accumulator_supported(args)
    }

    fn create_groups_accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn GroupsAccumulator>> {
        let result = args.return_type().clone();
        let inner = self.with_wide(args, |args| self.inner.create_groups_accumulator(args))?;
        Ok(match wider(&result) {
            Some(wide) => Box::new(WideGroups { inner, wide, result }),
            None => inner,
        })
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        ReversedUDAF::Identical
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        AggregateOrderSensitivity::Insensitive
    }

    fn set_monotonicity(&self, result: &DataType) -> SetMonotonicity {
        self.inner.set_monotonicity(result)
    }
}

/// Adds in `wide`, answers in `result`.
#[derive(Debug)]
struct Wide {
    inner: Box<dyn Accumulator>,
    wide: DataType,
    result: DataType,
}

impl Wide {
    fn over(inner: Box<dyn Accumulator>, result: DataType) -> Box<dyn Accumulator> {
        match wider(&result) {
            Some(wide) => Box::new(Self { inner, wide, result }),
            None => inner,
        }
    }

    fn widened(&self, values: &[ArrayRef]) -> Result<Vec<ArrayRef>> {
        values.iter().map(|v| cast(v, &self.wide)).collect()
    }
}

impl Accumulator for Wide {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.inner.update_batch(&self.widened(values)?)
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let sum = self.inner.evaluate()?.to_array()?;
        ScalarValue::try_from_array(&narrow(&sum, &self.result)?, 0)
    }

    fn size(&self) -> usize {
        self.inner.size() + size_of::<Self>()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        self.inner.state()
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.inner.merge_batch(states)
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.inner.retract_batch(&self.widened(values)?)
    }

    fn supports_retract_batch(&self) -> bool {
        self.inner.supports_retract_batch()
    }
}

/// The same for many groups.
struct WideGroups {
    inner: Box<dyn GroupsAccumulator>,
    wide: DataType,
    result: DataType,
}

impl GroupsAccumulator for WideGroups {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        total: usize,
    ) -> Result<()> {
        let values = values.iter().map(|v| cast(v, &self.wide)).collect::<Result<Vec<_>>>()?;
        self.inner.update_batch(&values, groups, filter, total)
    }

    fn evaluate(&mut self, emit: EmitTo) -> Result<ArrayRef> {
        narrow(&self.inner.evaluate(emit)?, &self.result)
    }

    fn state(&mut self, emit: EmitTo) -> Result<Vec<ArrayRef>> {
        self.inner.state(emit)
    }

    fn merge_batch(&mut self, states: &[ArrayRef], groups: &[usize], total: usize) -> Result<()> {
        self.inner.merge_batch(states, groups, total)
    }

    fn convert_to_state(&self, values: &[ArrayRef], filter: Option<&BooleanArray>) -> Result<Vec<ArrayRef>> {
        let values = values.iter().map(|v| cast(v, &self.wide)).collect::<Result<Vec<_>>>()?;
        self.inner.convert_to_state(&values, filter)
    }

    fn size(&self) -> usize {
        self.inner.size() + size_of::<Self>()
    }
}

/// Min or max without DataFusion's accumulator of groups for floats.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Ordered<F> {
    inner: F,
    descending: bool,
}

impl<F: AggregateUDFImpl + PartialEq + Eq + std::hash::Hash> AggregateUDFImpl for Ordered<F> {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        self.inner.coerce_types(arguments)
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        self.inner.return_type(arguments)
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        self.inner.accumulator(args)
    }

    fn create_sliding_accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        self.inner.create_sliding_accumulator(args)
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        self.inner.state_fields(args)
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs<'_>) -> bool {
        !args.return_type().is_floating() && self.inner.groups_accumulator_supported(args)
    }

    fn create_groups_accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn GroupsAccumulator>> {
        self.inner.create_groups_accumulator(args)
    }

    fn is_descending(&self) -> Option<bool> {
        Some(self.descending)
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        ReversedUDAF::Identical
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        AggregateOrderSensitivity::Insensitive
    }

    fn set_monotonicity(&self, result: &DataType) -> SetMonotonicity {
        self.inner.set_monotonicity(result)
    }
}
