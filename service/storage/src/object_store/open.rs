//! From a URL and options to the client of a bucket. No request is made here.

use std::{collections::BTreeSet, path::PathBuf, sync::Arc};

use ::object_store::{
    ObjectStore, ObjectStoreScheme, RetryConfig,
    aws::{AmazonS3Builder, AmazonS3ConfigKey},
    azure::{AzureConfigKey, MicrosoftAzureBuilder},
    gcp::{GoogleCloudStorageBuilder, GoogleConfigKey},
    local::LocalFileSystem,
    memory::InMemory,
    path::Path,
    prefix::PrefixStore,
};
use url::Url;

use super::RetryPolicy;

type Options = [(String, String)];
type Opened = Result<Arc<dyn ObjectStore>, String>;

/// Two clients of one bucket.
#[derive(Debug)]
pub(super) struct Clients {
    /// Sends each request once: whoever calls decides about a repetition, and after a put-if-absent it must first look what the lost request did.
    pub(super) store: Arc<dyn ObjectStore>,
    /// Repeats by itself, for the parts of an upload: a part cannot be sent again from outside.
    pub(super) uploads: Arc<dyn ObjectStore>,
}

impl Clients {
    pub(super) fn one(store: Arc<dyn ObjectStore>) -> Self {
        Self { uploads: Arc::clone(&store), store }
    }

    /// Credentials, region and the like come from the environment as the vendor's own tools read it (`AWS_*`, `GOOGLE_*`, `AZURE_*`; so a role bound to
    /// a pod works), then from `options`. A name that the scheme does not know is refused.
    pub(super) fn open(url: &str, options: &Options, retry: &RetryPolicy) -> Result<Self, String> {
        let parsed = Url::parse(url).map_err(|e| e.to_string())?;
        if parsed.scheme() == "file" {
            return folder(&parsed).map(Self::one);
        }
        let (scheme, prefix) = ObjectStoreScheme::parse(&parsed).map_err(|e| e.to_string())?;
        let client: fn(&str, &Options, RetryConfig) -> Opened = match scheme {
            ObjectStoreScheme::Memory => return Ok(Self::one(under(Arc::new(InMemory::new()), prefix))),
            ObjectStoreScheme::AmazonS3 => s3,
            ObjectStoreScheme::GoogleCloudStorage => gcs,
            ObjectStoreScheme::MicrosoftAzure => azure,
            _ => return Err(format!("the scheme {} is not supported", parsed.scheme())),
        };
        let once = RetryConfig { max_retries: 0, ..RetryConfig::default() };
        let patient = RetryConfig { retry_timeout: retry.total, ..RetryConfig::default() };
        Ok(Self {
            store: under(client(url, options, once)?, prefix.clone()),
            uploads: under(client(url, options, patient)?, prefix),
        })
    }
}

fn under(store: Arc<dyn ObjectStore>, prefix: Path) -> Arc<dyn ObjectStore> {
    if prefix.as_ref().is_empty() { store } else { Arc::new(PrefixStore::new(store, prefix)) }
}

/// The folder of a `file:` URL.
pub(super) fn folder_of(url: &str) -> Option<PathBuf> {
    Url::parse(url).ok().filter(|u| u.scheme() == "file")?.to_file_path().ok()
}

fn folder(url: &Url) -> Opened {
    let dir = url.to_file_path().map_err(|()| "not an absolute path".to_owned())?;
    std::fs::create_dir_all(&dir).map_err(|e| e.to_string())?;
    let store = LocalFileSystem::new_with_prefix(&dir).map_err(|e| e.to_string())?;
    Ok(Arc::new(store.with_automatic_cleanup(true)))
}

fn key<K: std::str::FromStr>(name: &str) -> Result<K, String> {
    name.to_ascii_lowercase().parse().map_err(|_| {
        format!("object_store.options: `{name}` is not an option of this kind of bucket (names are those of the crate object_store, such as `aws_endpoint`)")
    })
}

fn s3(url: &str, options: &Options, retry: RetryConfig) -> Opened {
    let mut builder = AmazonS3Builder::from_env().with_url(url).with_retry(retry);
    for (name, value) in options {
        builder = builder.with_config(key::<AmazonS3ConfigKey>(name)?, value);
    }
    let endpoint = builder.get_config_value(&AmazonS3ConfigKey::Endpoint);
    let names: BTreeSet<String> = options.iter().map(|(name, _)| name.to_ascii_lowercase()).collect();
    let decided = names.contains("allow_http") || names.contains("aws_allow_http");
    // Who writes `http://` has said that there is no TLS.
    if !decided && endpoint.is_some_and(|e| e.starts_with("http://")) {
        builder = builder.with_allow_http(true);
    }
    Ok(Arc::new(builder.build().map_err(|e| e.to_string())?))
}

fn gcs(url: &str, options: &Options, retry: RetryConfig) -> Opened {
    let mut builder = GoogleCloudStorageBuilder::from_env().with_url(url).with_retry(retry);
    for (name, value) in options {
        builder = builder.with_config(key::<GoogleConfigKey>(name)?, value);
    }
    Ok(Arc::new(builder.build().map_err(|e| e.to_string())?))
}

fn azure(url: &str, options: &Options, retry: RetryConfig) -> Opened {
    let mut builder = MicrosoftAzureBuilder::from_env().with_url(url).with_retry(retry);
    for (name, value) in options {
        builder = builder.with_config(key::<AzureConfigKey>(name)?, value);
    }
    Ok(Arc::new(builder.build().map_err(|e| e.to_string())?))
}

#[cfg(test)]
mod tests {
    use super::{super::RetryPolicy, Clients};

    fn open(url: &str, options: &[(&str, &str)]) -> Result<Clients, String> {
        let options: Vec<_> = options.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        Clients::open(url, &options, &RetryPolicy::default())
    }

    #[test]
    fn a_misspelt_option_is_refused_not_ignored() {
        let keys = [("aws_access_key_id", "a"), ("AWS_SECRET_ACCESS_KEY", "b"), ("aws_endpoint", "http://127.0.0.1:1")];
        open("s3://bucket/prefix", &keys).unwrap();
        let error = open("s3://bucket", &[("aws_endpiont", "http://x")]).unwrap_err();
        assert!(error.contains("`aws_endpiont` is not an option"), "{error}");
        let error = open("gs://bucket", &[("aws_region", "x")]).unwrap_err();
        assert!(error.contains("`aws_region` is not an option"), "{error}");
        let error = open("ftp://bucket", &[]).unwrap_err();
        assert!(error.contains("ftp"), "{error}");
    }
}
