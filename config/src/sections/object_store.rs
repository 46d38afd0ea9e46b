//! Section `object_store`: the bucket. Not here: building the client and its options (`service/storage`).

use std::{collections::BTreeMap, fmt, io, path, str::FromStr, time::Duration};

use serde_json::Value as Json;
use serde_yaml_ng::Value as Yaml;
use url::Url;

use crate::{
    field::{Field, Reader, Shape},
    secret::Secret,
    section::{between, section},
};

section! {
    /// The bucket that holds tables, views and the catalog.
    pub struct ObjectStore {
        /// Where the bucket is. Required to serve. One of
        /// `file:///var/lib/bucket` or, from the working directory, `file:relative/folder` (one machine only);
        /// `memory:` (lost at exit: for tests); `s3://bucket/prefix`; `gs://bucket/prefix`; `az://container/prefix`.
        url: Option<BucketUrl> = None;

        /// Options of the client, as the object_store crate names them: `aws_endpoint`, `aws_region`, `aws_access_key_id`, `aws_secret_access_key`,
        /// `google_service_account`, `azure_storage_account_name`. What is not given is taken from the environment (`AWS_*`, `GOOGLE_*`, `AZURE_*`), so a
        /// role bound to a pod works. Shown as `***` everywhere.
        options: BTreeMap<String, Secret<String>> = BTreeMap::new();

        /// How long one request is repeated while the bucket is down or slow, before the flush or read that needs it fails and is tried again later.
        retry_total: Duration = Duration::from_secs(60), between(Duration::from_secs(1), Duration::from_secs(3600));

        /// At start, let two writers race for one scratch object and refuse a bucket that lets both win: on such a bucket two leaders could overwrite
        /// each other's manifest. Costs a few requests.
        check_on_start: bool = true;
    }
}

/// The address of a bucket, checked for form only.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BucketUrl(String);

const FORMS: &str =
    "file:///folder, file:relative/folder, memory:, s3://bucket/prefix, gs://bucket/prefix or az://container/prefix";

impl BucketUrl {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The URL the object_store crate takes. A relative folder is taken from the working directory of the process; the folder need not exist yet.
    pub fn to_url(&self) -> Result<Url, io::Error> {
        let invalid = |message: String| io::Error::new(io::ErrorKind::InvalidInput, message);
        match self.0.strip_prefix("file:") {
            Some(folder) => {
                let folder = path::absolute(folder.strip_prefix("//").unwrap_or(folder))?;
                Url::from_file_path(&folder)
                    .map_err(|()| invalid(format!("{} cannot be written as a URL", folder.display())))
            }
            None => Url::parse(if self.is_memory() { "memory:///" } else { &self.0 })
                .map_err(|error| invalid(error.to_string())),
        }
    }

    /// The bucket is lost when the process ends.
    pub fn is_memory(&self) -> bool {
        self.0.starts_with("memory:")
    }

    /// Only processes on this machine can reach the bucket.
    pub fn is_local(&self) -> bool {
        self.is_memory() || self.0.starts_with("file:")
    }
}

impl FromStr for BucketUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<BucketUrl, String> {
        let refused = || format!("`{text}` is not {FORMS}");
        let (scheme, rest) = text.split_once(':').ok_or_else(refused)?;
        match scheme {
            // Not parsed as a URL: that would turn a relative folder into one under `/`.
            "file" => {
                let folder = rest.strip_prefix("//").unwrap_or(rest);
                if folder.is_empty() || (rest.starts_with("//") && !folder.starts_with('/')) {
                    return Err(format!(
                        "`{text}` does not name a folder: three slashes for an absolute one, none for a relative one"
                    ));
                }
            }
            "memory" if matches!(rest, "" | "//" | "///") => {}
            "s3" | "gs" | "az" => {
                let url = Url::parse(text).map_err(|error| format!("`{scheme}:..` is not a URL: {error}"))?;
                if !url.username().is_empty() || url.password().is_some() {
                    return Err(
                        "a bucket URL must not hold credentials: put them into `object_store.options`".to_owned()
                    );
                }
                if url.query().is_some() || url.fragment().is_some() {
                    return Err(
                        "a bucket URL ends with the prefix: put settings into `object_store.options`".to_owned()
                    );
                }
                if url.host_str().is_none_or(str::is_empty) {
                    return Err(refused());
                }
            }
            _ => return Err(refused()),
        }
        Ok(BucketUrl(text.to_owned()))
    }
}

impl fmt::Display for BucketUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Field for BucketUrl {
    fn read(&mut self, value: &Yaml, reader: &mut Reader) {
        match value.as_str().map(str::parse) {
            Some(Ok(url)) => *self = url,
            Some(Err(message)) => reader.problem(format!("has a wrong value: {message}")),
            None => reader.problem(format!("must be {FORMS}")),
        }
    }

    fn show(&self) -> Json {
        Json::from(self.as_str())
    }

    fn shape() -> Shape {
        let pattern = r"^(file:.+|memory:/{0,3}|(s3|gs|az)://.+)$|\$\{";
        Shape::of([("type", Json::from("string")), ("pattern", Json::from(pattern))])
    }
}

#[cfg(test)]
mod tests {
    use super::BucketUrl;

    #[test]
    fn bucket_urls_become_what_the_client_takes() {
        let here = std::env::current_dir().expect("a working directory");
        for (text, url) in [
            ("file:///var/lib/bucket", "file:///var/lib/bucket".to_owned()),
            ("file:data/bucket", format!("file://{}/data/bucket", here.display())),
            ("file:./data/bucket", format!("file://{}/data/bucket", here.display())),
            ("memory:", "memory:///".to_owned()),
            ("s3://bucket/some/prefix", "s3://bucket/some/prefix".to_owned()),
        ] {
            let bucket: BucketUrl = text.parse().expect(text);
            assert_eq!(bucket.to_url().expect(text).as_str(), url);
        }
        for text in [
            "",
            "/var/lib",
            "file:",
            "file://data",
            "ftp://x/y",
            "s3://",
            "s3://key:secret@bucket",
            "gs://b?x=1",
            "memory:x",
        ] {
            assert!(text.parse::<BucketUrl>().is_err(), "{text}");
        }
    }
}
