//! `[leases]` of the policy files: which paths of the machine may be granted to commands for a while at most.

use crate::error::PolicyError;
use crate::host::{Host, HostPath};
use policies_guard::Access;
use serde::{Deserialize, Serialize, Serializer};
use std::path::{Path, PathBuf};

/// The table `[leases]` of a file: absent, it bounds nothing.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LeasesTable {
    /// Paths of which one has to hold what is read.
    pub read: Option<Vec<HostPath>>,
    /// Paths of which one has to hold what is written.
    pub write: Option<Vec<HostPath>>,
}

/// Paths that may be granted. Of each list one entry has to hold the path.
#[derive(Clone, Debug, Default, Serialize)]
pub struct PathLeases {
    /// Whether calls may want some: somebody is there to be asked.
    pub asked: bool,
    /// Whether file tools may ask for the file that they would change.
    pub of_files: bool,
    /// Of each file that bounds what is read.
    #[serde(serialize_with = "lists")]
    pub read: Vec<Vec<PathBuf>>,
    /// Of each file that bounds what is written.
    #[serde(serialize_with = "lists")]
    pub write: Vec<Vec<PathBuf>>,
}

/// Paths as bytes: a user's home need not be UTF-8.
fn lists<S: Serializer>(lists: &[Vec<PathBuf>], out: S) -> Result<S::Ok, S::Error> {
    let bytes = |list: &Vec<PathBuf>| -> Vec<Vec<u8>> {
        list.iter()
            .map(|path| path.as_os_str().as_encoded_bytes().to_vec())
            .collect()
    };
    out.collect_seq(lists.iter().map(bytes))
}

impl PathLeases {
    /// Adds the bounds of one file.
    ///
    /// # Errors
    /// A path of it cannot be used on this machine.
    pub fn narrow(&mut self, table: &LeasesTable, host: &Host) -> Result<(), PolicyError> {
        let expand = |path: &HostPath| {
            let (profile, text) = ("[leases]".to_owned(), path.text().to_owned());
            path.expand(host).map_err(|why| PolicyError::Path {
                profile,
                path: text,
                why,
            })
        };
        for (written, lists) in [
            (&table.read, &mut self.read),
            (&table.write, &mut self.write),
        ] {
            if let Some(written) = written {
                lists.push(written.iter().map(expand).collect::<Result<_, _>>()?);
            }
        }
        Ok(())
    }

    /// Whether this access to `path` may be granted.
    pub(crate) fn allow(&self, access: Access, path: &Path) -> bool {
        let lists = match access {
            Access::Read => &self.read,
            Access::Write => &self.write,
        };
        lists
            .iter()
            .all(|list| list.iter().any(|bound| path.starts_with(bound)))
    }
}
