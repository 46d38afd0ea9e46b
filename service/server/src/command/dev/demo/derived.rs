//! The derived topic as any `read_committed` consumer sees it: its newest records.

use std::{collections::VecDeque, time::Duration};

use millstream_types::{LogEvent, LogSystem, TopicPartition, error::chain};
use tokio::{sync::mpsc, task::JoinSet};

use crate::command::escape;

const SHOWN: usize = 5;
/// Events between the readers and the screen.
const AHEAD: usize = 4;

pub(crate) struct Derived {
    events: mpsc::Receiver<LogEvent>,
    /// Dropped at the end, which ends the readers.
    _readers: JoinSet<()>,
    newest: VecDeque<String>,
    seen: u64,
}

impl Derived {
    /// From the end of the topic on.
    pub(crate) async fn follow(logs: &dyn LogSystem, topic: &str, partitions: i32) -> Result<Self, String> {
        let (sender, events) = mpsc::channel(AHEAD);
        let mut readers = JoinSet::new();
        for partition in 0..partitions {
            let log = logs.log(&TopicPartition::new(topic, partition));
            let end = log.offsets().await.map_err(|e| chain(&e))?.stable;
            let mut reader = log.read(end).await.map_err(|e| chain(&e))?;
            let sender = sender.clone();
            readers.spawn(async move { while sender.send(reader.next().await).await.is_ok() {} });
        }
        Ok(Self { events, _readers: readers, newest: VecDeque::new(), seen: 0 })
    }

    /// Takes what comes within this time.
    pub(crate) async fn listen(&mut self, time: Duration) -> Result<(), String> {
        let until = tokio::time::Instant::now() + time;
        while let Ok(Some(event)) = tokio::time::timeout_at(until, self.events.recv()).await {
            let LogEvent::Records(batch) = event else { continue };
            self.seen += batch.len() as u64;
            for i in batch.len().saturating_sub(SHOWN)..batch.len() {
                let text = |bytes: Option<&[u8]>| bytes.map_or_else(|| "(null)".to_owned(), escape::bytes);
                self.newest.push_back(format!(
                    "{}:{}  {}  {}",
                    batch.partition.partition,
                    batch.offsets[i],
                    text(batch.keys.get(i)),
                    text(batch.values.get(i))
                ));
            }
            while self.newest.len() > SHOWN {
                self.newest.pop_front();
            }
        }
        Ok(())
    }

    pub(crate) fn seen(&self) -> u64 {
        self.seen
    }

    pub(crate) fn newest(&self) -> impl Iterator<Item = &str> {
        self.newest.iter().map(String::as_str)
    }
}
