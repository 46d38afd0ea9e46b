//! The list of functions, each with the bound of what one call makes of one row. A test compares it with what DataFusion registers.

/// How the size of a value follows from the arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Growth {
    /// A number, a time, a short text, or one of its arguments: no larger than a column that is there anyway.
    Fixed,
    /// A few times all arguments together.
    Sum,
    /// First argument, as often as the second says: `repeat`, `array_repeat`.
    Repeat,
    /// As many characters as the second argument says: `lpad`, `rpad`.
    Pad,
    /// From, to, step: `range`, `generate_series`.
    Range,
    /// A list of as many elements as the second argument says, filled with the third.
    Resize,
    /// Each place of the first that is the second becomes the third: `replace`, `array_replace`.
    Replace,
    /// Each match of a pattern becomes the third argument, which may name parts of the match.
    ReplacePattern,
    /// Each group of a pattern holds a part of the first argument.
    MatchPattern,
    /// Arguments with the first between them.
    ConcatWith,
    /// Elements of the first with the second between them, the third for null.
    JoinList,
    /// Lists beside each other, all as long as the longest.
    Zip,
    /// A number, but its time is the product of the lengths.
    Product,
}

pub(crate) fn of_scalar(name: &str) -> Option<Growth> {
    let found = SCALAR.iter().find(|(_, names)| names.contains(&name));
    found.map(|(growth, _)| *growth)
}

/// By canonical name. `||` is the operator.
pub(crate) const SCALAR: &[(Growth, &[&str])] = &[
    (
        Growth::Fixed,
        &[
            // conditions and types
            "arrow_cast",
            "arrow_try_cast",
            "arrow_field",
            "arrow_metadata",
            "arrow_typeof",
            "cast_to_type",
            "coalesce",
            "get_field",
            "greatest",
            "input_file_name",
            "file_row_index",
            "least",
            "nullif",
            "nvl",
            "nvl2",
            "try_cast_to_type",
            "union_extract",
            "union_tag",
            "version",
            "with_metadata",
            // texts to numbers
            "ascii",
            "bit_length",
            "character_length",
            "chr",
            "contains",
            "ends_with",
            "find_in_set",
            "octet_length",
            "regexp_count",
            "regexp_instr",
            "regexp_like",
            "starts_with",
            "strpos",
            "to_hex",
            "uuid",
            // times
            "current_date",
            "current_time",
            "date_bin",
            "date_part",
            "date_trunc",
            "from_unixtime",
            "make_date",
            "make_time",
            "now",
            "to_date",
            "to_local_time",
            "to_time",
            "to_timestamp",
            "to_timestamp_micros",
            "to_timestamp_millis",
            "to_timestamp_nanos",
            "to_timestamp_seconds",
            "to_unixtime",
            // numbers
            "abs",
            "acos",
            "acosh",
            "asin",
            "asinh",
            "atan",
            "atan2",
            "atanh",
            "cbrt",
            "ceil",
            "cos",
            "cosh",
            "cot",
            "degrees",
            "exp",
            "factorial",
            "floor",
            "gcd",
            "isnan",
            "iszero",
            "lcm",
            "ln",
            "log",
            "log10",
            "log2",
            "nanvl",
            "pi",
            "power",
            "radians",
            "random",
            "round",
            "signum",
            "sin",
            "sinh",
            "sqrt",
            "tan",
            "tanh",
            "trunc",
            // lists to numbers
            "array_avg",
            "array_dims",
            "array_distance",
            "array_has",
            "array_has_all",
            "array_has_any",
            "array_length",
            "array_max",
            "array_min",
            "array_ndims",
            "array_position",
            "array_product",
            "array_sum",
            "cardinality",
            "cosine_distance",
            "empty",
            "inner_product",
        ],
    ),
    (
        Growth::Sum,
        &[
            "||",
            "btrim",
            "concat",
            "decode",
            "encode",
            "initcap",
            "left",
            "lower",
            "ltrim",
            "named_struct",
            "overlay",
            "reverse",
            "right",
            "rtrim",
            "split_part",
            "struct",
            "substr",
            "substr_index",
            "to_char",
            "translate",
            "upper",
            "array_add",
            "array_any_value",
            "array_append",
            "array_compact",
            "array_concat",
            "array_distinct",
            "array_element",
            "array_except",
            "array_intersect",
            "array_normalize",
            "array_pop_back",
            "array_pop_front",
            "array_positions",
            "array_prepend",
            "array_remove",
            "array_remove_all",
            "array_remove_n",
            "array_reverse",
            "array_scale",
            "array_slice",
            "array_sort",
            "array_subtract",
            "array_union",
            "flatten",
            "make_array",
            "map",
            "map_entries",
            "map_extract",
            "map_keys",
            "map_values",
            "string_to_array",
        ],
    ),
    (Growth::Repeat, &["repeat", "array_repeat"]),
    (Growth::Pad, &["lpad", "rpad"]),
    (Growth::Range, &["range", "generate_series"]),
    (Growth::Resize, &["array_resize"]),
    (Growth::Replace, &["replace", "array_replace", "array_replace_all", "array_replace_n"]),
    (Growth::ReplacePattern, &["regexp_replace"]),
    (Growth::MatchPattern, &["regexp_match"]),
    (Growth::ConcatWith, &["concat_ws"]),
    (Growth::JoinList, &["array_to_string"]),
    (Growth::Zip, &["arrays_zip"]),
    (Growth::Product, &["levenshtein"]),
];

/// Their bodies are expressions, whose calls are bounded; what they make is a list of what the body makes, or a part of the list.
pub(crate) const HIGHER_ORDER: &[&str] = &["array_any_match", "array_filter", "array_first", "array_transform"];

/// Their state is counted by the pool of the query.
pub(crate) const AGGREGATES: &[&str] = &[
    "any_value",
    "approx_distinct",
    "approx_median",
    "approx_percentile_cont",
    "approx_percentile_cont_with_weight",
    "array_agg",
    "avg",
    "bit_and",
    "bit_or",
    "bit_xor",
    "bool_and",
    "bool_or",
    "corr",
    "count",
    "covar_pop",
    "covar_samp",
    "first_value",
    "grouping",
    "last_value",
    "max",
    "median",
    "min",
    "nth_value",
    "percentile_cont",
    "regr_avgx",
    "regr_avgy",
    "regr_count",
    "regr_intercept",
    "regr_r2",
    "regr_slope",
    "regr_sxx",
    "regr_sxy",
    "regr_syy",
    "stddev",
    "stddev_pop",
    "string_agg",
    "sum",
    "var",
    "var_pop",
];

/// One value a row; their input is counted by [`super::super::meter`].
#[cfg(test)]
pub(crate) const WINDOWS: &[&str] = &[
    "cume_dist",
    "dense_rank",
    "first_value",
    "lag",
    "last_value",
    "lead",
    "nth_value",
    "ntile",
    "percent_rank",
    "rank",
    "row_number",
];

/// They make their rows batch by batch, as they are asked for.
#[cfg(test)]
pub(crate) const TABLES: &[&str] = &["generate_series", "range"];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use datafusion::execution::SessionStateDefaults;

    use super::*;

    fn sorted<'a>(names: impl IntoIterator<Item = &'a str>) -> BTreeSet<String> {
        names.into_iter().map(str::to_owned).collect()
    }

    /// A new version of DataFusion with a new function fails here until somebody says how much the function may make.
    #[test]
    fn every_function_that_datafusion_registers_is_classified_and_no_other() {
        let scalar = SessionStateDefaults::default_scalar_functions();
        let listed = SCALAR.iter().flat_map(|(_, names)| names.iter().copied()).filter(|n| *n != "||");
        assert_eq!(sorted(scalar.iter().map(|f| f.name())), sorted(listed));
        let aggregates = SessionStateDefaults::default_aggregate_functions();
        assert_eq!(sorted(aggregates.iter().map(|f| f.name())), sorted(AGGREGATES.iter().copied()));
        let higher = SessionStateDefaults::default_higher_order_functions();
        assert_eq!(sorted(higher.iter().map(|f| f.name())), sorted(HIGHER_ORDER.iter().copied()));
        let windows = SessionStateDefaults::default_window_functions();
        assert_eq!(sorted(windows.iter().map(|f| f.name())), sorted(WINDOWS.iter().copied()));
        let tables = SessionStateDefaults::default_table_functions();
        assert_eq!(sorted(tables.iter().map(|f| f.name())), sorted(TABLES.iter().copied()));
    }

    #[test]
    fn no_function_is_in_two_classes() {
        let all: Vec<&str> = SCALAR.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        assert_eq!(all.len(), sorted(all.iter().copied()).len());
    }
}
