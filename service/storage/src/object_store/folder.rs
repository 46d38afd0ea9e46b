//! Whether a folder that serves as bucket is still the one that was opened. A mount that goes away leaves an empty folder or none, which would be taken for a
//! bucket without objects, and be filled anew.

use std::{
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use millstream_types::ErrorKind;

use crate::StorageError;

#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    /// Device and inode.
    id: (u64, u64),
}

fn id(path: &Path) -> io::Result<(u64, u64)> {
    fs::metadata(path).map(|m| (m.dev(), m.ino()))
}

impl Folder {
    pub(super) fn open(path: PathBuf) -> io::Result<Self> {
        Ok(Self { id: id(&path)?, path })
    }

    /// An error of kind `Unavailable` while another folder, or none, is in its place: nothing was read or written.
    pub(super) fn check(&self, op: &'static str, path: &str) -> Result<(), StorageError> {
        let what = match id(&self.path) {
            Ok(now) if now == self.id => return Ok(()),
            Ok(_) => "is another folder than the one that was opened (a mount that came or went?)".to_owned(),
            Err(e) => format!("is not there: {e}"),
        };
        let source = io::Error::other(format!("the folder {} of the bucket {what}", self.path.display()));
        let source = ::object_store::Error::Generic { store: "folder", source: source.into() };
        Err(StorageError::Bucket { op, path: path.to_owned(), kind: ErrorKind::Unavailable, source })
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use millstream_types::Classified;

    use super::{super::Bucket, *};

    #[tokio::test]
    async fn a_folder_that_is_gone_is_an_error_and_not_made_again() {
        let parent = tempfile::tempdir().unwrap();
        let (here, away) = (parent.path().join("bucket"), parent.path().join("away"));
        let bucket = Bucket::open(&format!("file://{}", here.display()), &[]).unwrap();
        bucket.put("a/b", Bytes::from_static(b"x")).await.unwrap();
        fs::rename(&here, &away).unwrap();
        for made_again in [false, true] {
            if made_again {
                fs::create_dir(&here).unwrap();
            }
            let errors = [
                bucket.get("a/b").await.unwrap_err(),
                bucket.put_if_absent("a/c", Bytes::new()).await.unwrap_err(),
                bucket.put("a/c", Bytes::new()).await.unwrap_err(),
                bucket.list("a").await.unwrap_err(),
            ];
            for e in errors {
                let text = millstream_types::error::chain(&e);
                assert!(e.kind() == ErrorKind::Unavailable && text.contains("the folder"), "{text}");
            }
            assert!(!here.join("a").exists());
        }
        fs::remove_dir(&here).unwrap();
        fs::rename(&away, &here).unwrap();
        assert_eq!(bucket.get("a/b").await.unwrap().unwrap(), Bytes::from_static(b"x"));
    }
}
