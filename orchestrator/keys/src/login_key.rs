//! The key by which the client's gateway encrypts tokens of logins at servers: a file of the user's, which is made when it is first needed.

use orchestrator_text::random;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

/// Random bytes of a key. The file has each as two digits.
const KEY_BYTES: usize = 32;

/// Makes the file, unless there is one.
///
/// # Errors
/// The file cannot be made.
#[expect(
    clippy::disallowed_methods,
    reason = "a file of our own state, in neither root"
)]
pub(crate) fn make(file: &Path) -> io::Result<()> {
    if file.symlink_metadata().is_ok() {
        return Ok(());
    }
    if let Some(folder) = file.parent() {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)?;
    }
    let own = file.with_file_name(format!("login-key.{}", random::hex::<8>()?));
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    let mut begun = options.open(&own)?;
    begun.write_all(random::hex::<KEY_BYTES>()?.as_bytes())?;
    begun.sync_all()?;
    // Whoever is second takes the key of the first, which is whole.
    let linked = fs::hard_link(&own, file);
    fs::remove_file(&own)?;
    match linked {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        linked => linked,
    }
}
