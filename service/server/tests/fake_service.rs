//! A service whose answers to `POST /v1/sql` a test writes, over a plain socket.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    sync::{Arc, Mutex},
};

use serde_json::Value;

/// Status and body for the text of a statement; `None` = no answer, ever.
pub(crate) type Script = fn(&str) -> Option<(u16, Value)>;

pub(crate) struct FakeService {
    pub(crate) url: String,
    seen: Arc<Mutex<Vec<String>>>,
}

impl FakeService {
    pub(crate) fn start(script: Script) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let seen = Arc::new(Mutex::new(Vec::new()));
        let statements = Arc::clone(&seen);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let statements = Arc::clone(&statements);
                std::thread::spawn(move || answer(stream, script, &statements));
            }
        });
        Self { url, seen }
    }

    /// Statements in the order in which they came, without those of completion.
    pub(crate) fn seen(&self) -> Vec<String> {
        let seen = self.seen.lock().unwrap();
        seen.iter().filter(|s| !s.contains("information_schema")).cloned().collect()
    }
}

fn answer(mut stream: TcpStream, script: Script, seen: &Mutex<Vec<String>>) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let (mut line, mut length) = (String::new(), 0);
    while reader.read_line(&mut line).unwrap_or(0) > 0 && line != "\r\n" {
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        line.clear();
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    let request: Value = serde_json::from_slice(&body).unwrap();
    let statement = request["query"].as_str().unwrap().to_owned();
    seen.lock().unwrap().push(statement.clone());
    match script(&statement) {
        Some((status, body)) => {
            let body = body.to_string();
            let head = format!(
                "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
                body.len()
            );
            // The client may be gone already.
            drop(stream.write_all((head + &body).as_bytes()));
        }
        // Until the client goes away.
        None => drop(reader.read(&mut [0])),
    }
}
