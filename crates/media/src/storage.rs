//! The object storage. What is written here is on the disk, file and folder, before a call returns; nothing under a
//! final key is ever replaced; and no reader can see half a file.

use std::{
    fs, io,
    ops::Range,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use bytes::Bytes;
use domain::AssetId;
use object_store::{
    GetOptions, GetRange, GetResult, MultipartUpload, ObjectMeta, ObjectStore, ObjectStoreExt, PutMode,
    PutPayload, RenameOptions, RenameTargetMode, local::LocalFileSystem,
};
use url::Url;

use crate::{
    config::ConfigError,
    error::StorageError,
    folder_sync::FolderSync,
    key::{OUTPUTS, STAGING, StorageKey},
    unnamed,
};

/// What became of an attempt to take a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Taken {
    /// The object lies there now.
    Now,
    /// Another one lay there before and still does.
    Before,
}

pub(crate) struct Storage {
    objects: Arc<dyn ObjectStore>,
    /// The folder, for what object stores have no words for.
    root: PathBuf,
    folders: FolderSync,
    /// The file system has files without a name, as far as is known.
    unnamed: AtomicBool,
}

impl Storage {
    pub(crate) fn open(url: &Url) -> Result<Self, ConfigError> {
        if url.scheme() != "file" {
            return Err(ConfigError::UnknownStorage { scheme: url.scheme().to_owned() });
        }
        let root = url.to_file_path().map_err(|()| ConfigError::NotAFolder)?;
        let unusable = |source| ConfigError::Folder { path: root.clone(), source };
        // Better now than at the end of the first generation.
        let probe = root.join(STAGING).join(AssetId::generate().to_string());
        fs::create_dir_all(root.join(STAGING)).map_err(unusable)?;
        let outputs = root.join(OUTPUTS);
        fs::create_dir_all(&outputs).map_err(unusable)?;
        // All of them now: a folder that came with its first output would have to be made to last like its name.
        for folder in 0..=u8::MAX {
            fs::create_dir_all(outputs.join(format!("{folder:02x}"))).map_err(unusable)?;
        }
        fs::File::open(&outputs).and_then(|folder| folder.sync_all()).map_err(unusable)?;
        fs::write(&probe, b"").and_then(|()| fs::remove_file(&probe)).map_err(unusable)?;
        let files = LocalFileSystem::new_with_prefix(&root).map_err(ConfigError::Storage)?.with_fsync(true);
        Ok(Self {
            objects: Arc::new(files),
            root,
            folders: FolderSync::default(),
            unnamed: AtomicBool::new(true),
        })
    }

    pub(crate) fn root(&self) -> &PathBuf {
        &self.root
    }

    /// Puts a whole object under a key that nobody has.
    pub(crate) async fn put_new(&self, key: &StorageKey, content: Bytes) -> Result<Taken, StorageError> {
        if let Some(taken) = self.put_unnamed(key, content.clone()).await? {
            return Ok(taken);
        }
        let put =
            self.objects.put_opts(&key.path(), PutPayload::from_bytes(content), PutMode::Create.into()).await;
        taken(put.map(drop), "wrote an object")
    }

    /// The same by a file without a name, where there are such: then one sync of a folder serves all objects that come to
    /// it at the same time.
    async fn put_unnamed(&self, key: &StorageKey, content: Bytes) -> Result<Option<Taken>, StorageError> {
        if !self.unnamed.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let failed = |error| StorageError::io("wrote an object", error);
        let path = self.root.join(key.as_str());
        let target = path.clone();
        let written = tokio::task::spawn_blocking(move || unnamed::write_new(&target, &content)).await;
        let taken = written.unwrap_or_else(|error| Err(io::Error::other(error))).map_err(failed)?;
        if taken.is_none() && self.unnamed.swap(false, Ordering::Relaxed) {
            tracing::info!(root = %self.root.display(), "outputs are written under temporary names here");
        }
        // Also where somebody else has just taken the key: what is told is that the object lies there.
        if let (Some(_), Some(folder)) = (taken, path.parent()) {
            self.folders.sync(folder).await.map_err(failed)?;
        }
        Ok(taken)
    }

    /// Moves an object to a key that nobody has.
    pub(crate) async fn move_new(&self, from: &StorageKey, to: &StorageKey) -> Result<Taken, StorageError> {
        let options = RenameOptions::new().with_target_mode(RenameTargetMode::Create);
        let moved = self.objects.rename_opts(&from.path(), &to.path(), options).await;
        taken(moved, "moved an object")
    }

    /// Begins an object that arrives in parts and appears when it is completed.
    pub(crate) async fn begin(&self, key: &StorageKey) -> Result<Box<dyn MultipartUpload>, StorageError> {
        self.objects.put_multipart(&key.path()).await.map_err(StorageError::during("began an object"))
    }

    /// What is known of an object, or `None` when there is none.
    pub(crate) async fn head(&self, key: &StorageKey) -> Result<Option<ObjectMeta>, StorageError> {
        match self.objects.head(&key.path()).await {
            Ok(meta) => Ok(Some(meta)),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(StorageError::during("looked for an object")(error)),
        }
    }

    /// Reads a short range at once, or `None` when there is no object.
    pub(crate) async fn read(
        &self,
        key: &StorageKey,
        range: Range<u64>,
    ) -> Result<Option<Bytes>, StorageError> {
        match self.objects.get_range(&key.path(), range).await {
            Ok(bytes) => Ok(Some(bytes)),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(StorageError::during("read an object")(error)),
        }
    }

    /// Opens an object, or `None` when there is none.
    pub(crate) async fn get(
        &self,
        key: &StorageKey,
        range: Range<u64>,
    ) -> Result<Option<GetResult>, StorageError> {
        let options = GetOptions { range: Some(GetRange::Bounded(range)), ..GetOptions::default() };
        match self.objects.get_opts(&key.path(), options).await {
            Ok(found) => Ok(Some(found)),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(StorageError::during("opened an object")(error)),
        }
    }

    /// Removes an object in the background; what this misses, the sweep finds.
    pub(crate) fn discard(&self, key: &StorageKey) {
        let (objects, path) = (Arc::clone(&self.objects), key.path());
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                let deleted = objects.delete(&path).await;
                if let Err(error) = deleted
                    && !matches!(error, object_store::Error::NotFound { .. })
                {
                    tracing::debug!(%error, %path, "a temporary file stays for the sweep");
                }
            });
        }
    }
}

fn taken(outcome: object_store::Result<()>, action: &'static str) -> Result<Taken, StorageError> {
    match outcome {
        Ok(()) => Ok(Taken::Now),
        Err(object_store::Error::AlreadyExists { .. }) => Ok(Taken::Before),
        Err(error) => Err(StorageError::during(action)(error)),
    }
}
