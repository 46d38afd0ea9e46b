//! Which functions there are, and how much each may make.
//!
//! A function of DataFusion takes any arguments: `repeat('x', 2000000000)` allocates what it says, in one call that nothing can stop and no pool of memory sees.
//! So every call of a plan is replaced by one that asks first ([`bounded`]), by what [`growth`] knows about the function; a function that nobody has
//! classified there does not exist here. Views have the same functions as queries.

pub(crate) mod bounded;
pub(crate) mod growth;
mod size;

use std::sync::Arc;

use bounded::{Bounded, Budget, ConcatOperator};
use datafusion::{
    common::{
        DFSchema, DataFusionError,
        tree_node::{Transformed, TreeNode},
    },
    logical_expr::{
        BinaryExpr, Expr, LogicalPlan, Operator, ScalarUDF,
        expr::ScalarFunction,
        planner::{ExprPlanner, PlannerResult, RawBinaryExpr},
    },
};

use super::stop;
use crate::SqlError;

/// The plan with every call bounded; refuses functions that are not classified.
pub(crate) fn bound_plan(plan: LogicalPlan, budget: &Arc<Budget>) -> Result<LogicalPlan, SqlError> {
    let bounded = plan.transform_down_with_subqueries(|node| {
        node.map_expressions(|expr| expr.transform_up(|e| bound_call(e, budget)))
    })?;
    Ok(bounded.data)
}

/// The same for one expression without subqueries.
pub(crate) fn bound_expr(expr: Expr, budget: &Arc<Budget>) -> Result<Expr, DataFusionError> {
    Ok(expr.transform_up(|e| bound_call(e, budget))?.data)
}

fn bound_call(expr: Expr, budget: &Arc<Budget>) -> Result<Transformed<Expr>, DataFusionError> {
    match expr {
        Expr::ScalarFunction(ScalarFunction { func, args }) => {
            if let Some(bounded) = func.inner().downcast_ref::<Bounded>() {
                let func = Arc::new(ScalarUDF::from(bounded.within(budget)));
                return Ok(Transformed::yes(Expr::ScalarFunction(ScalarFunction { func, args })));
            }
            let Some(growth) = growth::of_scalar(func.name()) else { return Err(unknown(func.name())) };
            let func = match growth {
                growth::Growth::Fixed => func,
                growth => Arc::new(ScalarUDF::from(Bounded::new(func, growth, Arc::clone(budget)))),
            };
            Ok(Transformed::yes(Expr::ScalarFunction(ScalarFunction { func, args })))
        }
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::StringConcat, right }) => {
            Ok(Transformed::yes(concatenated(*left, *right, budget)))
        }
        Expr::AggregateFunction(f) if !growth::AGGREGATES.contains(&f.func.name()) => Err(unknown(f.func.name())),
        Expr::HigherOrderFunction(f) if !growth::HIGHER_ORDER.contains(&f.func.name()) => Err(unknown(f.func.name())),
        other => Ok(Transformed::no(other)),
    }
}

/// Functions that make a type of types are bounded from the start: such a type can double with each step of a query, long before there is a plan.
pub(crate) fn of_types(budget: &Arc<Budget>) -> Vec<Arc<ScalarUDF>> {
    let functions = datafusion::execution::SessionStateDefaults::default_scalar_functions();
    let of_types = functions.into_iter().filter(|f| TYPE_MAKERS.contains(&f.name()));
    of_types.map(|f| bounded_sum(f, budget)).collect()
}

const TYPE_MAKERS: [&str; 6] = ["struct", "named_struct", "arrays_zip", "map", "map_entries", "make_array"];

fn bounded_sum(func: Arc<ScalarUDF>, budget: &Arc<Budget>) -> Arc<ScalarUDF> {
    let growth = growth::of_scalar(func.name()).unwrap_or(growth::Growth::Sum);
    Arc::new(ScalarUDF::from(Bounded::new(func, growth, Arc::clone(budget))))
}

/// `ROW(a, b)` and arrays in brackets, with the bounded functions.
#[derive(Debug)]
pub(crate) struct TypePlanner(pub(crate) Arc<Budget>);

impl TypePlanner {
    fn call(&self, name: &str, args: Vec<Expr>) -> PlannerResult<Vec<Expr>> {
        match of_types(&self.0).into_iter().find(|f| f.name() == name) {
            Some(func) => PlannerResult::Planned(Expr::ScalarFunction(ScalarFunction { func, args })),
            None => PlannerResult::Original(args),
        }
    }
}

impl ExprPlanner for TypePlanner {
    /// Nothing of its own: a place where planning may end.
    fn plan_binary_op(
        &self,
        expr: RawBinaryExpr,
        _schema: &DFSchema,
    ) -> Result<PlannerResult<RawBinaryExpr>, DataFusionError> {
        stop::check()?;
        Ok(PlannerResult::Original(expr))
    }

    fn plan_struct_literal(
        &self,
        args: Vec<Expr>,
        is_named_struct: bool,
    ) -> Result<PlannerResult<Vec<Expr>>, DataFusionError> {
        Ok(self.call(if is_named_struct { "named_struct" } else { "struct" }, args))
    }

    fn plan_array_literal(
        &self,
        exprs: Vec<Expr>,
        _schema: &DFSchema,
    ) -> Result<PlannerResult<Vec<Expr>>, DataFusionError> {
        Ok(self.call("make_array", exprs))
    }
}

/// A chain of `||` is one call: as calls in calls each level would be typed anew at each other one.
fn concatenated(left: Expr, right: Expr, budget: &Arc<Budget>) -> Expr {
    let (func, mut args) = match left {
        Expr::ScalarFunction(ScalarFunction { func, args }) if func.name() == bounded::CONCAT => (func, args),
        other => {
            let concat = Arc::new(ScalarUDF::from(ConcatOperator::new()));
            (Arc::new(ScalarUDF::from(Bounded::new(concat, growth::Growth::Sum, Arc::clone(budget)))), vec![other])
        }
    };
    args.push(right);
    Expr::ScalarFunction(ScalarFunction { func, args })
}

fn unknown(name: &str) -> DataFusionError {
    DataFusionError::External(Box::new(SqlError::unsupported(
        format!("function {name} is not available here"),
        "nobody has said yet how much it may make; write it with other functions",
    )))
}

/// `a || b` again, for texts that people read.
pub(crate) fn as_written(expr: Expr) -> Expr {
    let written = expr.transform_up(|e| {
        Ok(match e {
            Expr::ScalarFunction(ScalarFunction { func, args }) if func.name() == bounded::CONCAT => {
                let chain = args.into_iter().reduce(|left, right| {
                    Expr::BinaryExpr(BinaryExpr::new(Box::new(left), Operator::StringConcat, Box::new(right)))
                });
                Transformed::yes(chain.expect("a chain has two sides"))
            }
            other => Transformed::no(other),
        })
    });
    written.expect("writing operators returns no error of its own").data
}
