//! `millstream topic create`.

use std::{process::ExitCode, sync::Arc};

use millstream_types::{Created, LogSystem, TopicSpec, error::chain};

use crate::{cli::topic::CreateArgs, command::say};

pub(crate) async fn run(logs: Arc<dyn LogSystem>, args: &CreateArgs) -> Result<ExitCode, String> {
    let spec = TopicSpec {
        name: args.topic.clone(),
        partitions: args.partitions,
        replicas: args.replicas,
        config: args.topic_config.iter().cloned().collect(),
    };
    match logs.admin().create(&spec).await.map_err(|e| chain(&e))? {
        Created::New => {
            let plural = if args.partitions == 1 { "" } else { "s" };
            say(format_args!("created topic {} with {} partition{plural}", args.topic, args.partitions));
        }
        Created::Existed if args.if_not_exists => say(format_args!("topic {} is there already", args.topic)),
        Created::Existed => return Err(format!("topic {:?} is there already", args.topic)),
    }
    Ok(ExitCode::SUCCESS)
}
