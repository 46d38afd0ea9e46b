//! The service over REST, as a user's script would talk to it.

use std::{collections::BTreeMap, time::Duration};

use serde_json::{Value, json};

use crate::eventually::eventually;

/// Error body of the service.
#[derive(Debug, Clone)]
pub struct Refused {
    pub status: u16,
    pub body: Value,
}

impl Refused {
    pub fn message(&self) -> String {
        self.body["message"].as_str().unwrap_or_default().to_owned()
    }
}

#[derive(Debug, Clone)]
pub struct Client {
    pub rest: String,
    pub probes: String,
    http: reqwest::Client,
}

/// Rows of one result: column names and rows in order.
#[derive(Debug, Clone, Default)]
pub struct Rows {
    pub columns: Vec<String>,
    pub rows: Vec<Vec<Value>>,
}

impl Client {
    pub fn new(rest: String, probes: String) -> Self {
        let http = reqwest::Client::builder()
            .timeout(Duration::from_secs(120))
            .build()
            .expect("a client without TLS can be built");
        Self { rest, probes, http }
    }

    /// Sends statements; answers the `results` array.
    pub async fn try_sql(&self, query: &str) -> Result<Vec<Value>, Refused> {
        let answer = self.http.post(format!("{}/v1/sql", self.rest)).json(&json!({ "query": query })).send().await;
        let answer = answer.map_err(|e| Refused { status: 0, body: json!({ "message": e.to_string() }) })?;
        let status = answer.status().as_u16();
        let body: Value =
            answer.json().await.map_err(|e| Refused { status, body: json!({ "message": e.to_string() }) })?;
        if status == 200 {
            Ok(body["results"].as_array().cloned().unwrap_or_default())
        } else {
            Err(Refused { status, body })
        }
    }

    /// # Panics
    /// If the statement is refused.
    pub async fn sql(&self, query: &str) -> Vec<Value> {
        self.try_sql(query).await.unwrap_or_else(|e| panic!("{query}: {} {}", e.status, e.body))
    }

    /// Rows of the last result of a query.
    pub async fn try_rows(&self, query: &str) -> Result<Rows, Refused> {
        let results = self.try_sql(query).await?;
        let last = results.last().cloned().unwrap_or_default();
        let columns = last["columns"]
            .as_array()
            .map(|c| c.iter().map(|c| c["name"].as_str().unwrap_or_default().to_owned()).collect())
            .unwrap_or_default();
        let rows = last["rows"]
            .as_array()
            .map(|rows| {
                rows.iter()
                    .map(|r| match r {
                        Value::Array(cells) => cells.clone(),
                        other => vec![other.clone()],
                    })
                    .collect()
            })
            .unwrap_or_default();
        Ok(Rows { columns, rows })
    }

    pub async fn rows(&self, query: &str) -> Rows {
        self.try_rows(query).await.unwrap_or_else(|e| panic!("{query}: {} {}", e.status, e.body))
    }

    /// The one number of a query such as `SELECT count(*) ..`.
    pub async fn number(&self, query: &str) -> i64 {
        let rows = self.rows(query).await;
        let cell = rows.rows.first().and_then(|r| r.first()).cloned().unwrap_or_default();
        cell.as_i64()
            .or_else(|| cell.as_str().and_then(|s| s.parse().ok()))
            .unwrap_or_else(|| panic!("{query}: no number in {cell}"))
    }

    pub async fn get(&self, path: &str) -> Result<Value, Refused> {
        self.send(self.http.get(format!("{}{path}", self.rest))).await
    }

    pub async fn put(&self, path: &str) -> Result<Value, Refused> {
        self.send(self.http.put(format!("{}{path}", self.rest))).await
    }

    pub async fn post(&self, path: &str, body: &Value) -> Result<Value, Refused> {
        self.send(self.http.post(format!("{}{path}", self.rest)).json(body)).await
    }

    async fn send(&self, request: reqwest::RequestBuilder) -> Result<Value, Refused> {
        let answer =
            request.send().await.map_err(|e| Refused { status: 0, body: json!({ "message": e.to_string() }) })?;
        let status = answer.status().as_u16();
        let text = answer.text().await.map_err(|e| Refused { status, body: json!({ "message": e.to_string() }) })?;
        let body = serde_json::from_str(&text).unwrap_or(Value::String(text));
        if status < 300 { Ok(body) } else { Err(Refused { status, body }) }
    }

    pub async fn metrics(&self) -> String {
        let answer = self.http.get(format!("{}/metrics", self.probes)).send().await;
        match answer {
            Ok(a) => a.text().await.unwrap_or_default(),
            Err(_) => String::new(),
        }
    }

    pub async fn wait_ready(&self, deadline: Duration) {
        eventually(deadline, "/readyz answers 200", || async {
            match self.http.get(format!("{}/readyz", self.probes)).send().await {
                Ok(a) if a.status().is_success() => Ok(()),
                Ok(a) => Err(format!("{} {}", a.status(), a.text().await.unwrap_or_default())),
                Err(e) => Err(e.to_string()),
            }
        })
        .await;
    }

    /// Status of a job by the name of its view or sink.
    pub async fn job(&self, name: &str) -> Result<Value, Refused> {
        let jobs = self.get("/v1/jobs").await?;
        let list = jobs
            .as_array()
            .or_else(|| jobs["jobs"].as_array())
            .or_else(|| jobs["items"].as_array())
            .cloned()
            .unwrap_or_default();
        list.into_iter()
            .find(|j| j["name"] == name)
            .ok_or_else(|| Refused { status: 404, body: json!({ "message": format!("no job {name} in {jobs}") }) })
    }

    /// Waits until the job runs (backfill finished) and its committed positions reach `ends` (partition -> next offset).
    pub async fn wait_caught_up(&self, name: &str, ends: &BTreeMap<i32, i64>, deadline: Duration) {
        eventually(deadline, &format!("{name} has committed {ends:?}"), || async {
            let job = self.job(name).await.map_err(|e| format!("{} {}", e.status, e.body))?;
            if job["state"] != "running" {
                return Err(job.to_string());
            }
            let reached = ends.iter().all(|(p, end)| position(&job, *p).is_some_and(|at| at >= *end));
            if reached { Ok(()) } else { Err(job.to_string()) }
        })
        .await;
    }
}

/// Committed position of a job in the region with number `partition`.
pub fn position(job: &Value, partition: i32) -> Option<i64> {
    job["positions"].as_array()?.iter().find_map(|entry| {
        let (region, seq) = match entry {
            Value::Array(pair) => (pair.first()?.clone(), pair.get(1)?.clone()),
            other => (other["region"].clone(), other["position"].clone()),
        };
        let number = match &region {
            Value::String(text) => text.rsplit('-').next()?.parse().ok()?,
            other => other["number"].as_i64()?,
        };
        (number == i64::from(partition)).then(|| seq.as_i64()).flatten()
    })
}
