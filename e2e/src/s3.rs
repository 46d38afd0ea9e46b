//! An S3 server for scenarios: started by `e2e/s3/versitygw.sh` on a temporary folder.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use tempfile::TempDir;

use crate::broker::{installed, skip};

/// A server of this test process with one bucket; stopped when dropped.
#[derive(Debug)]
pub struct S3 {
    dir: TempDir,
    endpoint: String,
}

impl S3 {
    pub const BUCKET: &str = "millstream";
    pub const ACCESS_KEY: &str = "test";
    pub const SECRET_KEY: &str = "testtesttest";

    /// `None`, which is told, if there is no server on this machine and nobody asked for it: with `MILLSTREAM_E2E_S3=1` it is built if need be, with 0 never
    /// used. Building it needs Go.
    ///
    /// # Panics
    /// If it cannot be built or started.
    pub fn start() -> Option<S3> {
        let missing = match std::env::var("MILLSTREAM_E2E_S3").as_deref() {
            Ok("1") => None,
            Ok("0") => Some("MILLSTREAM_E2E_S3=0".to_owned()),
            Ok(other) if !other.is_empty() => panic!("MILLSTREAM_E2E_S3 is 0 or 1, not {other:?}"),
            _ => installed(&script()).err(),
        };
        if let Some(why) = missing {
            let scenario = std::thread::current().name().unwrap_or_default().to_owned();
            skip(&scenario, &why);
            return None;
        }
        let dir = tempfile::Builder::new().prefix("millstream-s3-").tempdir().expect("a temporary folder can be made");
        let mut s3 = S3 { dir, endpoint: String::new() };
        s3.restart();
        Some(s3)
    }

    /// Starts it (again) on the same folder and port.
    pub fn restart(&mut self) {
        let dir = self.dir.path().to_string_lossy().into_owned();
        let parent = std::process::id().to_string();
        let line = run(&["start", "--dir", &dir, "--bucket", Self::BUCKET, "--parent", &parent]);
        let endpoint = line.split_whitespace().find_map(|word| word.strip_prefix("endpoint="));
        self.endpoint = endpoint.unwrap_or_else(|| panic!("no endpoint in {line:?}")).to_owned();
    }

    pub fn kill(&self) {
        run(&["stop", "--dir", &self.dir.path().to_string_lossy(), "--kill"]);
    }

    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// `127.0.0.1:port`.
    pub fn address(&self) -> &str {
        self.endpoint.strip_prefix("http://").unwrap_or(&self.endpoint)
    }

    pub fn url(&self, prefix: &str) -> String {
        format!("s3://{}/{prefix}", Self::BUCKET)
    }

    /// What a client needs to know, by the names of `object_store.options`.
    pub fn options(&self) -> Vec<(String, String)> {
        let pairs = [
            ("aws_endpoint", self.endpoint.as_str()),
            ("aws_region", "us-east-1"),
            ("aws_access_key_id", Self::ACCESS_KEY),
            ("aws_secret_access_key", Self::SECRET_KEY),
        ];
        pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).into()
    }

    /// The same as lines below `object_store:` of a configuration file.
    pub fn yaml(&self) -> String {
        let lines = self.options().into_iter().map(|(name, value)| format!("    {name}: {value:?}\n"));
        format!("  options:\n{}", lines.collect::<String>())
    }

    /// Where the server keeps the objects of the bucket, as files.
    pub fn folder(&self) -> PathBuf {
        self.dir.path().join("data").join(Self::BUCKET)
    }
}

fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("s3/versitygw.sh")
}

fn run(args: &[&str]) -> String {
    let out = Command::new("bash").arg(script()).args(args).stdin(Stdio::null()).output().expect("bash is there");
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(out.status.success(), "versitygw.sh {args:?}: {text}{}", String::from_utf8_lossy(&out.stderr));
    text
}

impl Drop for S3 {
    fn drop(&mut self) {
        self.kill();
    }
}
