//! Faults from another process: a Unix socket that takes one JSON command a line and answers one JSON line, `{"ok":..}` or `{"error":".."}`.
//!
//! ```text
//! {"arm":{"filter":{"api":"EndTxn"},"action":{"drop_response_after_apply":{"times":1}}}}   {"ok":1}
//! {"freeze":["orders",0]}  {"thaw":["orders",0]}  {"trim":["orders",0,5]}  {"truncate":["orders",0,5]}  {"move_leader_epoch":["orders",0]}
//! {"hang_transaction":"id"}  {"release_transaction":"id"}  {"hold_markers":"id"}  {"release_markers":"id"}  {"expire_transaction":"id"}
//! {"recreate_topic":"orders"}  {"grow":["orders",8]}  {"disconnect":"client"}  {"disk_full":true}  {"set_clock":1700000000000}
//! "list"  {"clear":1}  "clear_all"
//! ```

use std::{io, path::Path};

use serde::Deserialize;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{UnixListener, UnixStream},
    sync::watch,
};

use super::armed::{Fault, FaultHandle, is_api};
use crate::node::stopped;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Command {
    Arm(Fault),
    Freeze(String, i32),
    Thaw(String, i32),
    Trim(String, i32, i64),
    Truncate(String, i32, i64),
    MoveLeaderEpoch(String, i32),
    HangTransaction(String),
    ReleaseTransaction(String),
    HoldMarkers(String),
    ReleaseMarkers(String),
    ExpireTransaction(String),
    RecreateTopic(String),
    Grow(String, i32),
    Disconnect(String),
    DiskFull(bool),
    SetClock(i64),
    List,
    Clear(u64),
    ClearAll,
}

/// A command is short.
const LINE_LIMIT: u64 = 64 << 10;

/// Serves commands until the node stops. The socket lies in the data folder, so who may write there may break things.
pub(crate) async fn serve(handle: FaultHandle, path: &Path, mut stopping: watch::Receiver<bool>) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    let listener = UnixListener::bind(path)?;
    loop {
        let (stream, _) = tokio::select! {
            accepted = listener.accept() => accepted?,
            () = stopped(&mut stopping) => return Ok(()),
        };
        let handle = handle.clone();
        tokio::spawn(async move {
            if let Err(e) = client(handle, stream).await {
                tracing::debug!(error = %e, "a fault connection failed");
            }
        });
    }
}

async fn client(handle: FaultHandle, stream: UnixStream) -> io::Result<()> {
    let (read, mut write) = stream.into_split();
    let mut read = BufReader::new(read);
    loop {
        let mut line = String::new();
        if (&mut read).take(LINE_LIMIT).read_line(&mut line).await? == 0 {
            return Ok(());
        }
        let outcome = match serde_json::from_str::<Command>(&line) {
            Ok(command) => run(&handle, command).await.map_err(|e| e.to_string()),
            Err(e) => Err(e.to_string()),
        };
        let answer = match outcome {
            Ok(value) => json!({ "ok": value }),
            Err(e) => json!({ "error": e }),
        };
        write.write_all(format!("{answer}\n").as_bytes()).await?;
    }
}

async fn run(handle: &FaultHandle, command: Command) -> io::Result<Value> {
    match command {
        Command::Arm(fault) => {
            if let Some(api) = fault.filter.api.as_deref().filter(|a| !is_api(a)) {
                return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("no API is called {api}")));
            }
            return Ok(json!(handle.arm(fault)));
        }
        Command::Freeze(t, p) => handle.freeze(&t, p),
        Command::Thaw(t, p) => handle.thaw(&t, p),
        Command::Trim(t, p, at) => return Ok(json!(handle.trim(&t, p, at)?)),
        Command::Truncate(t, p, at) => return Ok(json!(handle.truncate(&t, p, at)?)),
        Command::MoveLeaderEpoch(t, p) => return Ok(json!(handle.move_leader_epoch(&t, p)?)),
        Command::HangTransaction(id) => handle.hang_transaction(&id),
        Command::ReleaseTransaction(id) => handle.release_transaction(&id),
        Command::HoldMarkers(id) => handle.hold_markers(&id),
        Command::ReleaseMarkers(id) => handle.release_markers(&id),
        Command::ExpireTransaction(id) => handle.expire_transaction(&id).await?,
        Command::RecreateTopic(t) => handle.recreate_topic(&t)?,
        Command::Grow(t, n) => handle.grow(&t, n)?,
        Command::Disconnect(c) => handle.disconnect(&c),
        Command::DiskFull(on) => handle.disk_full(on),
        Command::SetClock(ms) => handle.set_clock(ms),
        Command::List => return Ok(json!({ "faults": handle.list(), "marks": handle.marks() })),
        Command::Clear(id) => handle.clear(id),
        Command::ClearAll => handle.clear_all(),
    }
    Ok(Value::Null)
}
