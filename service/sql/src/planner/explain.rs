//! The streaming plan as a tree, from output to input.

use millstream_storage::{Storage, api::Estimate};
use millstream_stream::{AggCall, AggFunc};
use millstream_types::{Pos, RegionKind, TableSchema};

use super::draft::{Draft, DraftAgg, DraftNode};
use crate::{catalog::TopicTarget, parser::statement::DerivedKind};

/// What EXPLAIN says of the output beside the plan.
pub(crate) struct ExplainOutput<'a> {
    pub(crate) kind: DerivedKind,
    pub(crate) name: &'a str,
    pub(crate) topic: Option<&'a TopicTarget>,
}

/// One line per text line; VERBOSE adds column types and hidden columns.
pub(crate) fn explain(output: &ExplainOutput<'_>, draft: &Draft, storage: &dyn Storage, verbose: bool) -> Vec<String> {
    let mut lines = Vec::new();
    let mut depth = 0;
    if output.kind == DerivedKind::View {
        let key = match draft.schema.primary_key.as_slice() {
            [] => "none (append-only)".to_owned(),
            key => names(&draft.schema, key),
        };
        push(&mut lines, depth, &format!("materialize {}: key {key}", output.name));
        if verbose {
            for c in &draft.schema.columns {
                let null = if c.nullable { "" } else { " NOT NULL" };
                let hidden = if c.hidden { " hidden" } else { "" };
                push(&mut lines, depth, &format!("    {} {}{null}{hidden}", c.name, c.sql_type));
            }
        }
    }
    if let Some(t) = output.topic {
        let key = if t.key_columns.is_empty() { "none".to_owned() } else { t.key_columns.join(", ") };
        push(
            &mut lines,
            depth,
            &format!("topic {}: {} partitions, envelope {}, key {key}", t.topic, t.partitions, t.envelope.as_str()),
        );
    }
    for node in draft.nodes.iter().rev() {
        depth += 1;
        match node {
            DraftNode::Filter { text, .. } => push(&mut lines, depth, &format!("filter {text}")),
            DraftNode::Project(outputs) => {
                let list: Vec<String> = outputs
                    .iter()
                    .filter(|o| verbose || !o.column.hidden)
                    .map(|o| {
                        if o.text.rsplit('.').next() == Some(&o.column.name) {
                            o.text.clone()
                        } else {
                            format!("{} AS {}", o.text, o.column.name)
                        }
                    })
                    .collect();
                push(&mut lines, depth, &format!("project {}", list.join(", ")));
            }
            DraftNode::Agg(agg) => push(&mut lines, depth, &aggregation(agg)),
        }
    }
    depth += 1;
    let input = &draft.input;
    let changes = match input.schema.kind() {
        RegionKind::Append => "inserts only",
        RegionKind::Keyed => "inserts, updates, deletes",
    };
    let regions =
        if input.regions.len() == 1 { "1 region".to_owned() } else { format!("{} regions", input.regions.len()) };
    push(
        &mut lines,
        depth,
        &format!("scan {}: {regions}, columns {}, {changes}", input.name, names(&input.schema, &input.columns)),
    );
    push(&mut lines, depth, &format!("    backfill: {}", estimate(draft, storage)));
    lines
}

fn push(lines: &mut Vec<String>, depth: usize, text: &str) {
    lines.push(format!("{}{text}", "  ".repeat(depth)));
}

fn names(schema: &TableSchema, places: &[usize]) -> String {
    places.iter().map(|i| schema.columns[*i].name.as_str()).collect::<Vec<_>>().join(", ")
}

fn aggregation(agg: &DraftAgg) -> String {
    let group: Vec<&str> = agg.group.iter().map(|g| agg.input[*g].name.as_str()).collect();
    let calls: Vec<String> = agg.calls.iter().map(|c| call(agg, c)).collect();
    let mut text = "hash agg".to_owned();
    let group = if group.is_empty() { "one row".to_owned() } else { format!("group by {}", group.join(", ")) };
    text.push_str(&format!(": {group}"));
    if !calls.is_empty() {
        text.push_str(&format!(", {}", calls.join(", ")));
    }
    text.push_str(if agg.in_view.is_some() { ", state: in view" } else { ", state: own table" });
    let sets = agg.value_sets.iter().filter(|s| **s).count();
    if sets > 0 {
        text.push_str(&format!(" + {sets} value {}", if sets == 1 { "set" } else { "sets" }));
    }
    text
}

fn call(agg: &DraftAgg, call: &AggCall) -> String {
    let word = match call.func {
        AggFunc::CountStar => return "count(*)".to_owned(),
        AggFunc::Count => "count",
        AggFunc::Sum => "sum",
        AggFunc::Avg => "avg",
        AggFunc::Min => "min",
        AggFunc::Max => "max",
    };
    format!("{word}({})", call.arg.map_or("?", |a| agg.input[a].name.as_str()))
}

fn estimate(draft: &Draft, storage: &dyn Storage) -> String {
    let (mut rows, mut bytes, mut closed) = (0, 0, 0);
    for id in &draft.input.regions {
        match storage.region(*id) {
            Some(region) => {
                let Estimate { rows: r, bytes: b } = region.estimate(None, region.applied(), &Pos::NotStarted);
                rows += r;
                bytes += b;
            }
            None => closed += 1,
        }
    }
    let unknown = if closed > 0 { format!(" ({closed} regions are not open)") } else { String::new() };
    format!("about {rows} rows, {bytes} bytes{unknown}")
}
