//! Backups of etcd's data, and what a restore does: the cluster is set back, and programs that run are not told.

use std::path::{Path, PathBuf};
use std::{fs, io};

use super::{ControlPlane, ControlPlaneError, Part};

/// A copy of etcd's data.
#[derive(Debug)]
pub struct Backup(PathBuf);

impl ControlPlane {
    /// Copies etcd's data. etcd is stopped meanwhile, so that all that it has acknowledged is in the copy.
    pub async fn back_up(&self) -> Result<Backup, ControlPlaneError> {
        let backup = Backup(self.directory().join("backup"));
        self.stop(Part::Etcd).await?;
        replace(&self.etcd_data(), &backup.0)?;
        self.restart(Part::Etcd).await?;
        self.ready(Part::ApiServer).await?;
        Ok(backup)
    }

    /// Sets the cluster back to a backup, as its documentation says: all API servers are stopped, etcd's data are replaced,
    /// and all are started again. Versions of objects go back to what they were.
    pub async fn restore(&self, backup: &Backup) -> Result<(), ControlPlaneError> {
        self.stop(Part::ApiServer).await?;
        self.stop(Part::Etcd).await?;
        replace(&backup.0, &self.etcd_data())?;
        self.restart(Part::Etcd).await?;
        self.restart(Part::ApiServer).await
    }

    fn etcd_data(&self) -> PathBuf {
        self.directory().join("etcd")
    }
}

/// Makes one directory a copy of another.
fn replace(from: &Path, to: &Path) -> Result<(), ControlPlaneError> {
    let copied = match fs::remove_dir_all(to) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => copy(from, to),
    };
    copied.map_err(|source| ControlPlaneError::File {
        act: "copying etcd's data to",
        path: to.into(),
        source,
    })
}

fn copy(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir(to)?;
    fs::set_permissions(to, fs::metadata(from)?.permissions())?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}
