//! `millstream topic list`: all topics in a line each, or the partitions of those that are named.

use std::process::ExitCode;

use futures::{StreamExt, TryStreamExt, stream};
use millstream_types::{PartitionOffsets, TopicInfo};
use serde_json::{Value, json};

use super::{Cluster, missing};
use crate::{
    cli::topic::ListArgs,
    command::{
        answer,
        render::{Reader, StatementResult, render},
    },
};

/// Topics asked at once: each takes a few small requests.
const AT_ONCE: usize = 8;

struct Topic {
    info: TopicInfo,
    offsets: Vec<PartitionOffsets>,
}

pub(crate) async fn run(cluster: &Cluster, args: &ListArgs) -> Result<ExitCode, String> {
    let names = if args.topics.is_empty() {
        let all = cluster.logs.admin().list().await.map_err(|e| cluster.failed(&e))?;
        all.into_iter().filter(|n| args.internal || !n.starts_with("__")).collect()
    } else {
        args.topics.clone()
    };
    let topics: Vec<Option<Topic>> =
        stream::iter(names.iter().map(|name| look(cluster, name))).buffered(AT_ONCE).try_collect().await?;
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
    let text: Vec<String> = tables.iter().filter_map(|t| render(t, args.output, Reader::of_stdout())).collect();
    answer(text.join("\n"))
}

async fn look(cluster: &Cluster, name: &str) -> Result<Option<Topic>, String> {
    let admin = cluster.logs.admin();
    let Some(info) = admin.describe(name).await.map_err(|e| cluster.failed(&e))? else { return Ok(None) };
    let offsets = admin.offsets(name).await.map_err(|e| cluster.failed(&e))?;
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
