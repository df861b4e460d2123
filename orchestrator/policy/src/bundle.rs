//! Policy bundles: the files of an administrator with a number, in one file that is signed. `lazaret policy bundle` makes one.
//!
//! The signature is a file beside it, made by `ssh-keygen -Y sign`: a private key of an administrator's is none of this program's
//! business, and may be in an agent or a token.

use crate::sources::check_sources;
use broker_protocol::Failed;
use orchestrator_confine::Files;
use orchestrator_launch::launch::Prepared;
use orchestrator_launch::session_options::read_text_up_to;
use orchestrator_launch::stdio::print;
use orchestrator_launch::{exit, policy_files};
use orchestrator_signature::{SignatureError, TrustedKey, verify};
use policies::source::{self, FileError, PARTS_MAX, SYSTEM_DIRECTORY};
use policies::{PolicySource, SourceKind};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Maximum bytes of a bundle.
pub(crate) const BUNDLE_MAX: usize = 1 << 20;
/// The greatest number of a bundle, which is TOML's greatest.
pub(crate) const NUMBER_MAX: u64 = i64::MAX as u64;
/// Maximum bytes of the name of a policy file in a bundle.
const NAME_MAX: usize = 100;
const FORMAT: u32 = 1;

/// A bundle that is well-formed, whoever has made it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PolicyBundle {
    format: u32,
    /// Greater than that of every earlier bundle.
    pub number: u64,
    /// The texts by their names.
    pub files: BTreeMap<String, String>,
}

/// Why a text is no bundle.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum BundleError {
    #[error("not a policy bundle: {0}")]
    Toml(String),
    #[error("a bundle of format {0}, which this version does not know")]
    Format(u32),
    #[error("its number must be from 1 to {NUMBER_MAX}")]
    Number,
    #[error("it has no policy file; one with `version = 1` alone changes nothing")]
    Empty,
    #[error("it has more than {PARTS_MAX} policy files")]
    TooMany,
    #[error(
        "the name of a policy file in it: {0:?} is not of the form NAME.toml, of letters, digits, `-`, `_` and `.`, with a letter or \
         digit first"
    )]
    Name(String),
    #[error("it has more than {BUNDLE_MAX} bytes")]
    TooLarge,
}

#[derive(Debug, Error)]
pub(crate) enum MakeError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error("{}: {why}", .path.display())]
    Bundle { path: PathBuf, why: BundleError },
    #[error("{} is bundle {found}: machines that have it take no bundle with the number {number}", .path.display())]
    Number {
        path: PathBuf,
        found: u64,
        number: u64,
    },
    #[error("{} cannot be written: {why}", .path.display())]
    Write { path: PathBuf, why: io::Error },
}

/// A bundle that an administrator has signed: made by a verification only.
#[derive(Debug)]
pub(crate) struct SignedBundle {
    pub(crate) bundle: PolicyBundle,
    pub by: TrustedKey,
}

/// Why a bundle with its signature is not believed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum UnsignedError {
    #[error("the signature: {0}")]
    Signature(#[from] SignatureError),
    #[error(transparent)]
    Bundle(#[from] BundleError),
}

impl SignedBundle {
    /// The bundle of a text, if one of `trusted` has signed that. Nothing of the text is read before.
    ///
    /// # Errors
    /// [`UnsignedError`].
    pub(crate) fn verified(
        text: &str,
        signature: &str,
        trusted: &[TrustedKey],
    ) -> Result<Self, UnsignedError> {
        let purpose = orchestrator_signature::POLICY;
        let by = verify(signature, purpose, text.as_bytes(), trusted)?;
        let bundle = PolicyBundle::parse(text)?;
        Ok(Self { bundle, by })
    }
}

impl PolicyBundle {
    fn new(number: u64, files: BTreeMap<String, String>) -> Result<Self, BundleError> {
        let format = FORMAT;
        Self {
            format,
            number,
            files,
        }
        .checked()
    }

    /// # Errors
    /// [`BundleError`].
    pub(crate) fn parse(text: &str) -> Result<Self, BundleError> {
        if text.len() > BUNDLE_MAX {
            return Err(BundleError::TooLarge);
        }
        let bundle: Self =
            toml::from_str(text).map_err(|error| BundleError::Toml(error.to_string()))?;
        bundle.checked()
    }

    fn checked(self) -> Result<Self, BundleError> {
        if self.format != FORMAT {
            return Err(BundleError::Format(self.format));
        }
        if !(1..=NUMBER_MAX).contains(&self.number) {
            return Err(BundleError::Number);
        }
        if self.files.is_empty() {
            return Err(BundleError::Empty);
        }
        if self.files.len() > PARTS_MAX {
            return Err(BundleError::TooMany);
        }
        match self.files.keys().find(|name| !is_name(name)) {
            Some(wrong) => Err(BundleError::Name(wrong.clone())),
            None => Ok(self),
        }
    }

    fn text(&self) -> Result<String, BundleError> {
        let text = toml::to_string_pretty(self).map_err(|it| BundleError::Toml(it.to_string()))?;
        if text.len() > BUNDLE_MAX {
            return Err(BundleError::TooLarge);
        }
        Ok(text)
    }

    /// Its files, as they are read once they are installed.
    pub(crate) fn sources(&self) -> Vec<PolicySource> {
        let source = |(name, text): (&String, &String)| PolicySource {
            name: format!("{SYSTEM_DIRECTORY}/{name}"),
            kind: SourceKind::System,
            text: text.clone(),
        };
        self.files.iter().map(source).collect()
    }
}

/// Whether it is the name of one file, which the loader reads (`policies::source`).
fn is_name(name: &str) -> bool {
    let is_of_word = |byte: u8| byte.is_ascii_alphanumeric();
    let is_part = |byte: u8| is_of_word(byte) || b"._-".contains(&byte);
    name.len() <= NAME_MAX
        && name.strip_suffix(".toml").is_some_and(|stem| {
            stem.bytes().next().is_some_and(is_of_word) && stem.bytes().all(is_part)
        })
}

/// Makes a bundle of the policy files in a directory, after a check of them; prints how it is signed.
pub(crate) fn make(
    prepared: &Prepared,
    (directory, out): (&Path, &Path),
    number: u64,
    json: bool,
) -> Result<u8, Failed> {
    let files = prepared.files();
    let bundle = of_directory(files, directory, number)?;
    let path = out.to_owned();
    let failed = |why| Failed::from(MakeError::Bundle { path, why });
    let text = bundle.text().map_err(failed)?;
    check_sources(bundle.sources(), &policy_files::host())?
        .iter()
        .for_each(|note| print::note(note));
    check_successor(files, out, number)?;
    #[expect(
        clippy::disallowed_methods,
        reason = "the administrator names this file, in no session"
    )]
    let written = fs::write(out, &text);
    let path = out.to_owned();
    written.map_err(|why| Failed::from(MakeError::Write { path, why }))?;
    let names: Vec<&String> = bundle.files.keys().collect();
    if json {
        print::json(&json!({ "number": number, "files": names, "bundle": out }))?;
    } else {
        let purpose = orchestrator_signature::POLICY;
        let count = names.len();
        let page = format!(
            "{}: policy bundle {number}, files: {count}\nSign it: ssh-keygen -Y sign -f YOUR_KEY -n {purpose} {0}\n",
            out.display()
        );
        print::result(print::shown(&page).as_bytes())?;
    }
    Ok(exit::OK)
}

fn of_directory(files: &Files, directory: &Path, number: u64) -> Result<PolicyBundle, Failed> {
    let parts = source::parts(directory).map_err(MakeError::from)?;
    let mut texts = BTreeMap::new();
    for path in parts {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        texts.insert(
            name.into_owned(),
            read_text_up_to(files, &path, BUNDLE_MAX)?,
        );
    }
    let path = directory.to_owned();
    let made = PolicyBundle::new(number, texts);
    Ok(made.map_err(|why| MakeError::Bundle { path, why })?)
}

/// Refuses a number that is not greater than that of the bundle which it replaces.
fn check_successor(files: &Files, out: &Path, number: u64) -> Result<(), Failed> {
    if out.symlink_metadata().is_err() {
        return Ok(());
    }
    let path = out.to_owned();
    let found = PolicyBundle::parse(&read_text_up_to(files, out, BUNDLE_MAX)?);
    let found = found.map_err(|why| MakeError::Bundle {
        path: path.clone(),
        why,
    })?;
    if found.number >= number {
        let found = found.number;
        return Err(MakeError::Number {
            path,
            found,
            number,
        }
        .into());
    }
    Ok(())
}

impl From<MakeError> for Failed {
    fn from(error: MakeError) -> Self {
        Failed::invalid(error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(files: &[(&str, &str)]) -> Result<PolicyBundle, BundleError> {
        let owned = |(name, text): &(&str, &str)| ((*name).to_owned(), (*text).to_owned());
        PolicyBundle::new(3, files.iter().map(owned).collect())
    }

    #[test]
    fn a_bundle_is_read_as_it_was_written() {
        let text = "version = 1\n# \"\"\" ''' \\ \u{e4}\n\n";
        let bundle = of(&[("10-a.toml", text), ("b_2.x.toml", "")]).unwrap();
        let written = bundle.text().unwrap();
        assert_eq!(
            PolicyBundle::parse(&written),
            Ok(bundle.clone()),
            "{written}"
        );
        let names: Vec<String> = bundle.sources().into_iter().map(|it| it.name).collect();
        let [first, second] =
            ["10-a.toml", "b_2.x.toml"].map(|name| format!("{SYSTEM_DIRECTORY}/{name}"));
        assert_eq!(names, [first, second]);
    }

    #[test]
    fn a_name_leads_nowhere_and_is_one_that_is_read() {
        let long = |length: usize| format!("{}.toml", "x".repeat(length - ".toml".len()));
        for name in ["a.toml", "0.toml", "a..toml", &long(NAME_MAX)] {
            assert!(of(&[(name, "")]).is_ok(), "{name}");
        }
        for name in [
            "",
            ".toml",
            ".a.toml",
            "a",
            "a.toml~",
            "../a.toml",
            "a/b.toml",
            "/a.toml",
            "a b.toml",
            "\u{e4}.toml",
            &long(NAME_MAX + 1),
        ] {
            let wrong = BundleError::Name(name.to_owned());
            assert_eq!(of(&[(name, "")]), Err(wrong));
        }
    }

    #[test]
    fn malformed_bundle_is_refused() {
        let parse = PolicyBundle::parse;
        let file = "[files]\n\"a.toml\" = \"\"\n";
        let with = |head: &str| parse(&format!("{head}\n{file}"));
        assert!(with("format = 1\nnumber = 1").is_ok());
        assert_eq!(with("format = 2\nnumber = 1"), Err(BundleError::Format(2)));
        assert_eq!(with("format = 1\nnumber = 0"), Err(BundleError::Number));
        for wrong in [
            "format = 1",
            "format = 1\nnumber = -1",
            "format = 1\nnumber = 1\nmore = 1",
        ] {
            assert!(matches!(with(wrong), Err(BundleError::Toml(_))), "{wrong}");
        }
        assert_eq!(
            parse("format = 1\nnumber = 1\n[files]\n"),
            Err(BundleError::Empty)
        );
        let many = |count: usize| {
            let files = (0..count).map(|at| (format!("{at}.toml"), String::new()));
            PolicyBundle::new(1, files.collect())
        };
        assert!(many(PARTS_MAX).is_ok());
        assert_eq!(many(PARTS_MAX + 1), Err(BundleError::TooMany));
        let long = |length: usize| {
            let text = format!("format = 1\nnumber = 1\n{file}#");
            parse(&format!("{text}{}", "x".repeat(length - text.len())))
        };
        assert!(long(BUNDLE_MAX).is_ok());
        assert_eq!(long(BUNDLE_MAX + 1), Err(BundleError::TooLarge));
    }
}
