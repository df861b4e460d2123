//! What a lease opens to one call: the content of one file, through the broker's descriptor.

use super::{Ground, context, zoned};
use broker_protocol::{Failed, FileWrite, Request};
use executor_spec::worker::WorkerContext;
use std::fs::{self, File, OpenOptions, Permissions};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

/// A name that is closed for writing, and is read.
const CLOSED: &str = "d/locked";

fn opened(path: &Path) -> OwnedFd {
    let file = OpenOptions::new().read(true).write(true).open(path);
    file.unwrap().into()
}

/// Writes `path`, with a lease of the file at `leased` and this descriptor.
fn write(
    ground: &Ground,
    path: &str,
    content: &str,
    (leased, file): (&str, Option<OwnedFd>),
) -> Result<(), Failed> {
    let context = WorkerContext {
        leased: Some(zoned(leased)),
        ..context(Vec::new())
    };
    let request = Request::FileWrite(FileWrite {
        path: zoned(path),
        content: content.into(),
        overwrite: true,
        expected_sha256: None,
    });
    ground
        .worker
        .answer(context, &request, file)
        .unwrap()
        .map(drop)
}

#[test]
fn a_leased_file_is_changed_in_place() {
    let ground = Ground::new();
    let path = ground.put_known(CLOSED, "old\n");
    ground.write(CLOSED, "new").unwrap_err();
    let before = path.metadata().unwrap();
    for content in ["longer than it was\n", "", "x"] {
        write(&ground, CLOSED, content, (CLOSED, Some(opened(&path)))).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), content);
    }
    let after = path.metadata().unwrap();
    assert_eq!(
        (before.ino(), before.mode()),
        (after.ino(), after.mode()),
        "the same file"
    );
    assert_eq!(
        fs::read_dir(path.parent().unwrap()).unwrap().count(),
        1,
        "nothing beside it"
    );
    ground.write(CLOSED, "new").unwrap_err();
}

#[test]
fn a_lease_is_of_one_file_at_one_path() {
    let ground = Ground::new();
    let path = ground.put_known(CLOSED, "old\n");
    let other = ground.put_known("e/locked", "old\n");
    write(&ground, "e/locked", "new", (CLOSED, Some(opened(&path)))).unwrap_err();
    write(&ground, CLOSED, "new", (CLOSED, Some(opened(&other)))).unwrap_err();
    write(&ground, CLOSED, "new", (CLOSED, None)).unwrap_err();
    let read_only: OwnedFd = File::open(&path).unwrap().into();
    write(&ground, CLOSED, "new", (CLOSED, Some(read_only))).unwrap_err();
    let unwritable = opened(&path);
    fs::set_permissions(&path, Permissions::from_mode(0o444)).unwrap();
    write(&ground, CLOSED, "new", (CLOSED, Some(unwritable))).unwrap_err();
    for path in [&path, &other] {
        assert_eq!(fs::read_to_string(path).unwrap(), "old\n");
    }
    fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
    let file = opened(&path);
    fs::write(&path, "since").unwrap();
    write(&ground, CLOSED, "new", (CLOSED, Some(file))).unwrap_err();
    let file = opened(&path);
    fs::remove_file(&path).unwrap();
    write(&ground, CLOSED, "new", (CLOSED, Some(file))).unwrap_err();
    assert!(!path.exists(), "no lease creates a file");
}
