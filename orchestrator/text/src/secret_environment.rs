//! The secrets of the environment, where this process was started without them: they are in a file of memory, which it has until it
//! confines itself. A value that it is asked for here is in its memory from then on; names are no secrets.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::FileExt;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Maximum bytes of the names, and of one value.
const NAMES_MAX: usize = 1 << 20;
const VALUE_MAX: usize = 4 << 20;

/// Variables that this process has not.
struct HiddenVariables {
    /// `None` from the confinement on, and where nothing is hidden.
    file: Option<File>,
    /// Where each value is in the file: its offset and length.
    places: BTreeMap<OsString, (u64, usize)>,
    /// Values that were asked for.
    used: BTreeMap<OsString, OsString>,
}

static HIDDEN: Mutex<HiddenVariables> = Mutex::new(HiddenVariables {
    file: None,
    places: BTreeMap::new(),
    used: BTreeMap::new(),
});

fn lock() -> MutexGuard<'static, HiddenVariables> {
    HIDDEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The content of a file for `variables`: four bytes of length, their names with lengths of values, then the values.
pub fn packed(variables: &[(OsString, OsString)]) -> Vec<u8> {
    let mut names = Vec::new();
    let mut values = Vec::new();
    for (name, value) in variables {
        names.extend_from_slice(name.as_bytes());
        names.push(b'=');
        names.extend(value.len().to_string().bytes());
        names.push(0);
        values.extend_from_slice(value.as_bytes());
    }
    let length = u32::try_from(names.len()).unwrap_or(u32::MAX);
    [&length.to_be_bytes()[..], &names, &values].concat()
}

/// These variables are in `file`, and not in the environment.
///
/// # Errors
/// If it is no such file.
pub fn install(file: File) -> io::Result<()> {
    let places = places(&file)?;
    let mut hidden = lock();
    hidden.file = Some(file);
    hidden.places = places;
    Ok(())
}

/// Finds the values, and reads none.
fn places(file: &File) -> io::Result<BTreeMap<OsString, (u64, usize)>> {
    let wrong = || io::Error::from(io::ErrorKind::InvalidData);
    let mut length = [0; 4];
    file.read_exact_at(&mut length, 0)?;
    let length = u32::from_be_bytes(length) as usize;
    if length > NAMES_MAX {
        return Err(wrong());
    }
    let mut names = vec![0; length];
    file.read_exact_at(&mut names, 4)?;
    let mut at = 4 + length as u64;
    let mut places = BTreeMap::new();
    for entry in names
        .split(|byte| *byte == 0)
        .filter(|entry| !entry.is_empty())
    {
        let equals = entry
            .iter()
            .rposition(|byte| *byte == b'=')
            .ok_or_else(wrong)?;
        let digits = std::str::from_utf8(&entry[equals + 1..]).map_err(|_| wrong())?;
        let length: usize = digits.parse().map_err(|_| wrong())?;
        if length > VALUE_MAX {
            return Err(wrong());
        }
        places.insert(OsStr::from_bytes(&entry[..equals]).to_owned(), (at, length));
        at += length as u64;
    }
    Ok(places)
}

/// All that are in the file: for a process that hears nobody.
///
/// # Errors
/// If the file cannot be read.
pub fn all() -> io::Result<Vec<(OsString, OsString)>> {
    let hidden = lock();
    let Some(file) = &hidden.file else {
        return Ok(Vec::new());
    };
    let read = |(name, place): (&OsString, &(u64, usize))| Ok((name.clone(), value(file, *place)?));
    hidden.places.iter().map(read).collect()
}

fn value(file: &File, (at, length): (u64, usize)) -> io::Result<OsString> {
    let mut value = vec![0; length];
    file.read_exact_at(&mut value, at)?;
    Ok(OsString::from_vec(value))
}

/// The value of a variable, wherever it is. After the confinement only of one that was asked for before.
pub fn variable(name: &str) -> Option<OsString> {
    if let Some(value) = std::env::var_os(name) {
        return Some(value);
    }
    let mut hidden = lock();
    if let Some(used) = hidden.used.get(OsStr::new(name)) {
        return Some(used.clone());
    }
    let place = *hidden.places.get(OsStr::new(name))?;
    let value = value(hidden.file.as_ref()?, place).ok()?;
    hidden.used.insert(name.into(), value.clone());
    Some(value)
}

/// From now on `text` is the value of this variable here, wherever it is: another process has the value.
pub fn stand_in(name: &str, text: &str) {
    lock().used.insert(name.into(), text.into());
}

/// Its value as [`variable`] returns it, if it is text.
pub fn text(name: &str) -> Option<String> {
    variable(name)?.into_string().ok()
}

/// Whether a variable is set and not empty. Reads no value that is hidden.
pub fn is_set(name: &str) -> bool {
    match std::env::var_os(name) {
        Some(value) => !value.is_empty(),
        None => {
            let hidden = lock();
            let place = hidden.places.get(OsStr::new(name));
            place.is_some_and(|(_, length)| *length > 0)
        }
    }
}

/// Whether its value can still be read here, and is nowhere else in this process.
pub fn is_hidden(name: &str) -> bool {
    let hidden = lock();
    let name = OsStr::new(name);
    hidden.file.is_some() && hidden.places.contains_key(name) && !hidden.used.contains_key(name)
}

/// The names of all variables.
pub fn names() -> BTreeSet<OsString> {
    let hidden = lock();
    let visible = std::env::vars_os().map(|(name, _)| name);
    visible.chain(hidden.places.keys().cloned()).collect()
}

/// Has `work` do something with the file, if something is hidden in it.
pub fn with_file<T>(work: impl FnOnce(BorrowedFd<'_>) -> T) -> Option<T> {
    lock().file.as_ref().map(|file| work(file.as_fd()))
}

/// Closes the file: from now on no value can be read.
pub fn close() {
    lock().file = None;
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn file(bytes: &[u8]) -> File {
        let memory = rustix::fs::memfd_create("test", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let mut file = File::from(memory);
        file.write_all(bytes).unwrap();
        file
    }

    #[test]
    fn hidden_variables_are_read_one_by_one_until_the_file_is_closed() {
        let pair = |name: &str, value: &str| (OsString::from(name), OsString::from(value));
        let all = [
            pair("LAZARET_TEST_A_KEY", "first"),
            pair("LAZARET_TEST=B_KEY", "second=\n"),
            pair("LAZARET_TEST_C_KEY", "third"),
            pair("LAZARET_TEST_EMPTY_KEY", ""),
        ];
        install(file(&packed(&all))).unwrap();
        assert!(is_set("LAZARET_TEST_A_KEY") && !is_set("LAZARET_TEST_D_KEY"));
        assert!(!is_set("LAZARET_TEST_EMPTY_KEY"));
        assert_eq!(super::all().unwrap().len(), 4);
        assert_eq!(text("LAZARET_TEST=B_KEY").as_deref(), Some("second=\n"));
        assert!(names().contains(OsStr::new("LAZARET_TEST_C_KEY")));
        close();
        assert_eq!(text("LAZARET_TEST=B_KEY").as_deref(), Some("second=\n"));
        assert_eq!(text("LAZARET_TEST_C_KEY"), None);
        stand_in("LAZARET_TEST_C_KEY", "elsewhere");
        assert_eq!(text("LAZARET_TEST_C_KEY").as_deref(), Some("elsewhere"));
        assert!(with_file(|_| ()).is_none());
    }

    #[test]
    fn other_files_are_refused() {
        for wrong in [&b""[..], b"\0\0\0\x02A\0", b"\0\0\0\x03A=\0", b"\x7f\0\0\0"] {
            assert!(places(&file(wrong)).is_err(), "{wrong:?}");
        }
        let long = format!("A={}\0", VALUE_MAX + 1);
        let length = u32::try_from(long.len()).unwrap().to_be_bytes();
        let long = [&length[..], long.as_bytes()].concat();
        assert!(places(&file(&long)).is_err());
    }
}
