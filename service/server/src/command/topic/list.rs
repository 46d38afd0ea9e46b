//! `millstream topic list`: all topics in a line each, or the partitions of those that are named.

use std::{process::ExitCode, sync::Arc};

use futures::{StreamExt, TryStreamExt, stream};
use millstream_types::{LogSystem, PartitionOffsets, TopicInfo, error::chain};
use serde_json::{Value, json};

use super::missing;
use crate::{
    cli::topic::ListArgs,
    command::{
        render::{StatementResult, render},
        say,
    },
};

/// Topics asked at once: each takes a few small requests.
const AT_ONCE: usize = 8;

struct Topic {
    info: TopicInfo,
    offsets: Vec<PartitionOffsets>,
}

pub(crate) async fn run(logs: Arc<dyn LogSystem>, args: &ListArgs) -> Result<ExitCode, String> {
    let names = if args.topics.is_empty() {
        let all = logs.admin().list().await.map_err(|e| chain(&e))?;
        all.into_iter().filter(|n| args.internal || !n.starts_with("__")).collect()
    } else {
        args.topics.clone()
    };
    let topics: Vec<Option<Topic>> =
        stream::iter(names.iter().map(|name| look(logs.as_ref(), name))).buffered(AT_ONCE).try_collect().await?;
    let mut found = Vec::new();
    for (name, topic) in names.iter().zip(topics) {
        match topic {
            Some(topic) => found.push(topic),
            // A topic that was listed and is gone now was deleted meanwhile.
            None if args.topics.is_empty() => {}
            None => return Err(missing(name)),
        }
    }
    let mut tables = vec![if args.topics.is_empty() { topics_table(&found) } else { partitions_table(&found) }];
    if args.configs {
        tables.push(configs_table(&found));
    }
    for table in tables {
        if let Some(text) = render(&table, args.output) {
            say(text);
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn look(logs: &dyn LogSystem, name: &str) -> Result<Option<Topic>, String> {
    let admin = logs.admin();
    let Some(info) = admin.describe(name).await.map_err(|e| chain(&e))? else { return Ok(None) };
    let offsets = admin.offsets(name).await.map_err(|e| chain(&e))?;
    Ok(Some(Topic { info, offsets }))
}

fn table(columns: &[(&str, &str)], rows: Vec<Vec<Value>>) -> StatementResult {
    StatementResult::of_rows(columns, rows)
}

fn topics_table(topics: &[Topic]) -> StatementResult {
    let row = |t: &Topic| {
        let offsets: i64 = t.offsets.iter().map(|o| o.high_watermark.0 - o.start.0).sum();
        let policy = t.info.config.get("cleanup.policy").map(String::as_str);
        vec![json!(t.info.name), json!(t.info.partitions), json!(offsets), json!(policy)]
    };
    table(
        &[("topic", "VARCHAR"), ("partitions", "INT"), ("offsets", "BIGINT"), ("cleanup.policy", "VARCHAR")],
        topics.iter().map(row).collect(),
    )
}

/// `stable_end` is below `end` while a transaction is open.
fn partitions_table(topics: &[Topic]) -> StatementResult {
    let row = |t: &Topic, p: usize, o: &PartitionOffsets| {
        vec![json!(t.info.name), json!(p), json!(o.start.0), json!(o.stable.0), json!(o.high_watermark.0)]
    };
    table(
        &[("topic", "VARCHAR"), ("partition", "INT"), ("start", "BIGINT"), ("stable_end", "BIGINT"), ("end", "BIGINT")],
        topics.iter().flat_map(|t| t.offsets.iter().enumerate().map(move |(p, o)| row(t, p, o))).collect(),
    )
}

fn configs_table(topics: &[Topic]) -> StatementResult {
    let row = |t: &Topic, name: &str, value: &str| vec![json!(t.info.name), json!(name), json!(value)];
    table(
        &[("topic", "VARCHAR"), ("config", "VARCHAR"), ("value", "VARCHAR")],
        topics.iter().flat_map(|t| t.info.config.iter().map(move |(n, v)| row(t, n, v))).collect(),
    )
}
