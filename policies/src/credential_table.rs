//! `[credential.NAME]` as a file writes it, and the shipped presets: each value is checked while it is read.

use crate::host::HostPath;
use crate::secret::looks_secret;
use crate::value::{PROFILE_NAME_MAX, VariableName, checked_text};
use broker_protocol::gateway::{Attach, CredentialUse, LoginEndpoint, LoginSpec};
use broker_protocol::limit;
use policies_targets::http::is_path_pattern;
use policies_targets::web::HostPattern;
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{self, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::LazyLock;
use thiserror::Error;
use toml::Spanned;

/// Maximum number of hosts of one credential.
pub const CREDENTIAL_HOSTS_MAX: usize = 16;
/// Maximum number of variables of one credential.
pub const CREDENTIAL_VARIABLES_MAX: usize = 16;
/// Longest path of a use, in bytes.
pub const USE_PATH_MAX: usize = 512;
/// Most attributes of an item in a keyring.
const KEYRING_MAX: usize = 8;
/// Longest name in a request (a user, a header, a file of systemd), in bytes.
pub const REQUEST_NAME_MAX: usize = 128;
/// Maximum number of words of a command that prints a credential.
pub const SOURCE_WORDS_MAX: usize = 64;
/// Maximum bytes of such a command.
pub const SOURCE_BYTES_MAX: usize = 8192;
/// Fewest random bits of a placeholder: nobody hits one by chance, and it stands for a value to those alone who have it.
const RANDOM_BITS_MIN: u32 = 60;

/// Why a part of a credential is not valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum CredentialFault {
    #[error("a credential's name is 1 to {PROFILE_NAME_MAX} letters, digits, `-`, `_` and `.`")]
    Name,
    #[error("there is no preset of this name; there are: {}", presets().map(|(name, _)| name).collect::<Vec<_>>().join(", "))]
    Preset,
    #[error(
        "a credential's host is one NAME or NAME:PORT (443 if absent), in lower case, without `*`"
    )]
    Host,
    #[error(
        "`attach` is \"bearer\", \"basic:USER\", \"any:USER\", \"aws\" or {{ header = \"NAME\" }}; a USER is 1 to {REQUEST_NAME_MAX} visible characters without `:`"
    )]
    Attach,
    #[error("a header that holds a credential is 1 to {REQUEST_NAME_MAX} letters, digits and `-_`")]
    Header,
    #[error("this header says how a request is sent, and cannot hold a credential")]
    FramingHeader,
    #[error("a method is 1 to {max} capital letters, and none of TRACE, CONNECT and OPTIONS", max = limit::METHOD)]
    Method,
    #[error(
        "a path begins with `/` and has at most {USE_PATH_MAX} visible characters without `?`, `#` and `%`; `*` stands for one whole part, a final `/**` for any rest"
    )]
    Path,
    #[error("a systemd credential is a file's name: letters, digits, `-`, `_` and `.`")]
    Systemd,
    #[error(
        "a command is an array of 1 to {SOURCE_WORDS_MAX} words of together at most {SOURCE_BYTES_MAX} bytes without NUL, and its program a full path or a name without `/`"
    )]
    Command,
    #[error(
        "`from` has one of `command`, `file`, `systemd`, `keyring` and `env`, as in {{ file = \"PATH\" }}"
    )]
    Source,
    #[error(
        "a keyring's item is named by 1 to {KEYRING_MAX} attributes, each of 1 to {REQUEST_NAME_MAX} visible characters"
    )]
    Keyring,
    #[error(
        "the name of a variable with a value looks like a secret's, so that it is given to nobody else: it ends in `_TOKEN`, `_KEY` or the like"
    )]
    OpenVariable,
    #[error("a credential has `hosts`, with at least one, unless its preset names them")]
    NoHosts,
    #[error("a credential without a preset has `attach`")]
    NoAttach,
    #[error("a credential has at most {CREDENTIAL_HOSTS_MAX} hosts")]
    Hosts,
    #[error("a credential has at most {CREDENTIAL_VARIABLES_MAX} variables")]
    Variables,
    #[error("a credential has 1 to {max} uses", max = limit::CREDENTIAL_USES)]
    Uses,
    #[error("a use names a host that is none of the credential's hosts")]
    ForeignHost,
    #[error("a use that is `refused` has a `why`, and is not `unasked`")]
    Refused,
    #[error("`otherwise` stands beside `refused = true`: it refuses what no other use allows")]
    Otherwise,
    #[error("`why` of a use has 1 to {max} bytes, on one line", max = limit::RULE_WHY)]
    Why,
    #[error("a service is 1 to {max} lower-case letters, digits and `-`", max = limit::SERVICE)]
    Service,
    #[error("an action is 1 to {max} letters, digits and `-_.`", max = limit::ACTION)]
    Action,
    #[error("a use has at most {max} `actions`", max = limit::ACTIONS)]
    Actions,
    #[error("`service` of a use needs `attach = \"aws\"`, and `actions` need a `service`")]
    Unsigned,
    #[error("no use is `unasked` with `attach = \"aws\"`: only a signature says for which service")]
    UnaskedSignature,
    #[error(
        "a placeholder has at most {max} bytes, all of them visible ASCII; between `prefix` and `suffix` stand enough characters of its `alphabet` for {RANDOM_BITS_MIN} random bits, 12 of 36 for example", max = limit::PLACEHOLDER
    )]
    Placeholder,
    #[error(
        "a credential has `from`: where its value comes from. Only one with `capture` needs none"
    )]
    NoSource,
    #[error(
        "a credential with `capture` has no `attach`, no `env` and no use that is `unasked`: its programs log in, and each has its own token"
    )]
    Captured,
    #[error("`capture` has 1 to {max} `endpoints`, each at one of the credential's hosts", max = limit::LOGIN_ENDPOINTS)]
    Endpoints,
    #[error("`claims` and `members` of `capture` are at most {names} names of 1 to {max} visible characters, and none of them is a token's", names = limit::LOGIN_NAMES, max = limit::LOGIN_NAME)]
    LoginName,
    #[error("a prefix of `capture` is at most {max} letters, digits and `-_`", max = limit::LOGIN_NAME)]
    LoginPrefix,
}

fn is_plain_name(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    !text.is_empty() && text.bytes().all(allowed) && text.bytes().any(|byte| byte != b'.')
}

checked_text!(
    /// The name of a credential.
    CredentialName,
    CredentialFault,
    |text| {
        let fits = text.len() <= PROFILE_NAME_MAX && is_plain_name(&text);
        fits.then_some(text).ok_or(CredentialFault::Name)
    }
);

checked_text!(
    /// The name of a shipped preset.
    PresetName,
    CredentialFault,
    |text| {
        let known = PRESETS.contains_key(&text);
        known.then_some(text).ok_or(CredentialFault::Preset)
    }
);

checked_text!(
    /// A host with its port: patterns and addresses are none.
    CredentialHost,
    CredentialFault,
    |text| {
        let pattern = HostPattern::try_from(text).map_err(|_| CredentialFault::Host)?;
        let (host, port) = pattern.one().ok_or(CredentialFault::Host)?;
        Ok(format!("{host}:{}", port.unwrap_or(443)))
    }
);

checked_text!(
    /// The method of a request, in upper case.
    MethodName,
    CredentialFault,
    |text| {
        let fits = (1..=limit::METHOD).contains(&text.len())
            && text.bytes().all(|byte| byte.is_ascii_uppercase())
            && !["TRACE", "CONNECT", "OPTIONS"].contains(&text.as_str());
        fits.then_some(text).ok_or(CredentialFault::Method)
    }
);

checked_text!(
    /// A pattern of request paths.
    UsePath,
    CredentialFault,
    |text| {
        let fits = is_path_pattern(&text, USE_PATH_MAX);
        fits.then_some(text).ok_or(CredentialFault::Path)
    }
);

checked_text!(
    /// A service of AWS, as signatures name it.
    ServiceName,
    CredentialFault,
    |text| {
        let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        let fits = (1..=limit::SERVICE).contains(&text.len()) && text.bytes().all(allowed);
        fits.then_some(text).ok_or(CredentialFault::Service)
    }
);

checked_text!(
    /// An operation of such a service.
    ActionName,
    CredentialFault,
    |text| {
        let fits = text.len() <= limit::ACTION && is_plain_name(&text);
        fits.then_some(text).ok_or(CredentialFault::Action)
    }
);

checked_text!(
    /// The name of a systemd credential.
    SystemdName,
    CredentialFault,
    |text| {
        let fits = text.len() <= REQUEST_NAME_MAX && is_plain_name(&text);
        fits.then_some(text).ok_or(CredentialFault::Systemd)
    }
);

/// The attributes of an item in the desktop's keyring.
#[derive(Clone, Debug)]
pub struct KeyringItem(BTreeMap<String, String>);

impl KeyringItem {
    /// The command that prints its secret: `secret-tool` of libsecret.
    pub(crate) fn command(&self) -> Vec<String> {
        let attributes = self.0.iter().flat_map(|(name, value)| [name, value]);
        let program = ["secret-tool", "lookup"].map(str::to_owned).into_iter();
        program.chain(attributes.cloned()).collect()
    }
}

impl<'de> Deserialize<'de> for KeyringItem {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        let attributes = BTreeMap::<String, String>::deserialize(input)?;
        // None is taken for an option of the program.
        let fits = |text: &String| {
            (1..=REQUEST_NAME_MAX).contains(&text.len())
                && text.bytes().all(|byte| byte.is_ascii_graphic())
                && !text.starts_with('-')
        };
        let all = attributes
            .iter()
            .all(|(name, value)| fits(name) && fits(value));
        match (1..=KEYRING_MAX).contains(&attributes.len()) && all {
            true => Ok(Self(attributes)),
            false => Err(de::Error::custom(CredentialFault::Keyring)),
        }
    }
}

/// The words of a command. Its program is never looked for in the working directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceCommand(Vec<String>);

impl SourceCommand {
    /// The words; there is at least one.
    pub fn words(&self) -> &[String] {
        &self.0
    }
}

impl<'de> Deserialize<'de> for SourceCommand {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        let words = input.deserialize_any(WordsVisitor)?;
        let bytes: usize = words.iter().map(|word| word.len() + 1).sum();
        let program = words.first().map_or("", String::as_str);
        let is_program = program.starts_with('/') || !program.is_empty() && !program.contains('/');
        let fits = words.len() <= SOURCE_WORDS_MAX
            && bytes <= SOURCE_BYTES_MAX
            && is_program
            && !words.iter().any(|word| word.contains('\0'));
        match fits {
            true => Ok(Self(words)),
            false => Err(de::Error::custom(CredentialFault::Command)),
        }
    }
}

/// Where a value comes from.
#[derive(Clone, Debug)]
pub enum SourceEntry {
    /// A program of the user's that prints it.
    Command(SourceCommand),
    /// A file that contains it.
    File(HostPath),
    /// A file of the directory that systemd gives to a service.
    Systemd(SystemdName),
    /// A variable of the user's environment.
    Env(VariableName),
    Keyring(KeyringItem),
}

/// A variable of a value. Of one whose name does not look like a secret's, `lazaret` itself and servers that a repository defines have the
/// value.
fn secret_variable<E: de::Error>(name: VariableName) -> Result<SourceEntry, E> {
    match looks_secret(name.as_str().as_ref()) {
        true => Ok(SourceEntry::Env(name)),
        false => Err(E::custom(CredentialFault::OpenVariable)),
    }
}

/// The keys of a [`SourceEntry`].
#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum SourceKey {
    Command,
    File,
    Systemd,
    Env,
    Keyring,
}

impl<'de> Deserialize<'de> for SourceEntry {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        input.deserialize_any(SourceVisitor)
    }
}

/// A text in place of a source may be the value itself, by mistake, so no error repeats it.
struct SourceVisitor;

impl<'de> Visitor<'de> for SourceVisitor {
    type Value = SourceEntry;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", CredentialFault::Source)
    }

    fn visit_str<E: de::Error>(self, _: &str) -> Result<SourceEntry, E> {
        Err(E::custom(CredentialFault::Source))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut table: A) -> Result<SourceEntry, A::Error> {
        let wrong = || de::Error::custom(CredentialFault::Source);
        let key = table.next_key::<SourceKey>()?.ok_or_else(wrong)?;
        let entry = match key {
            SourceKey::Command => table.next_value().map(SourceEntry::Command),
            SourceKey::File => table.next_value().map(SourceEntry::File),
            SourceKey::Systemd => table.next_value().map(SourceEntry::Systemd),
            SourceKey::Env => table.next_value().and_then(secret_variable),
            SourceKey::Keyring => table.next_value().map(SourceEntry::Keyring),
        }?;
        match table.next_key::<IgnoredAny>()? {
            None => Ok(entry),
            Some(_) => Err(wrong()),
        }
    }
}

/// Words in an array. A text in its place may be the value too.
struct WordsVisitor;

impl<'de> Visitor<'de> for WordsVisitor {
    type Value = Vec<String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", CredentialFault::Command)
    }

    fn visit_str<E: de::Error>(self, _: &str) -> Result<Vec<String>, E> {
        Err(E::custom(CredentialFault::Command))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, array: A) -> Result<Vec<String>, A::Error> {
        Vec::deserialize(SeqAccessDeserializer::new(array))
    }
}

/// Where in a request it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttachEntry(pub Attach);

/// Headers that are no place for a credential: by them a request is framed or addressed.
const FRAMING: [&str; 12] = [
    "host",
    "connection",
    "keep-alive",
    "proxy-connection",
    "proxy-authorization",
    "proxy-authenticate",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "content-length",
    "expect",
];

impl AttachEntry {
    fn of_text(text: &str) -> Result<Self, CredentialFault> {
        let user = |user: &str| {
            let fits = (1..=REQUEST_NAME_MAX).contains(&user.len())
                && user
                    .bytes()
                    .all(|byte| byte.is_ascii_graphic() && byte != b':');
            fits.then_some(user.to_owned())
                .ok_or(CredentialFault::Attach)
        };
        let attach = match text.split_once(':') {
            None if text == "bearer" => Attach::Bearer,
            None if text == "aws" => Attach::Aws,
            Some(("basic", name)) => Attach::Basic { user: user(name)? },
            Some(("any", name)) => Attach::Any { user: user(name)? },
            None | Some(_) => return Err(CredentialFault::Attach),
        };
        Ok(Self(attach))
    }

    fn of_header(name: &str) -> Result<Self, CredentialFault> {
        let name = name.to_ascii_lowercase();
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        if !(1..=REQUEST_NAME_MAX).contains(&name.len()) || !name.bytes().all(allowed) {
            return Err(CredentialFault::Header);
        }
        match FRAMING.contains(&name.as_str()) {
            true => Err(CredentialFault::FramingHeader),
            false => Ok(Self(Attach::Header { name })),
        }
    }
}

impl<'de> Deserialize<'de> for AttachEntry {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct AttachTable {
            header: String,
        }

        /// Not an untagged enum: its errors would lack the position and the message.
        struct AttachEntryVisitor;

        impl<'de> Visitor<'de> for AttachEntryVisitor {
            type Value = AttachEntry;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string, or a table with `header`")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<AttachEntry, E> {
                AttachEntry::of_text(text).map_err(E::custom)
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<AttachEntry, A::Error> {
                let table = AttachTable::deserialize(MapAccessDeserializer::new(map))?;
                AttachEntry::of_header(&table.header).map_err(de::Error::custom)
            }
        }

        input.deserialize_any(AttachEntryVisitor)
    }
}

/// Where programs log in, in place of `attach`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaptureEntry(pub Attach);

impl<'de> Deserialize<'de> for CaptureEntry {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct EndpointTable {
            host: CredentialHost,
            path: UsePath,
        }

        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct CaptureTable {
            endpoints: Vec<EndpointTable>,
            #[serde(default)]
            access_prefix: String,
            #[serde(default)]
            refresh_prefix: String,
            #[serde(default)]
            claims: Vec<String>,
            #[serde(default)]
            members: Vec<String>,
        }

        let table = CaptureTable::deserialize(input)?;
        let endpoints = table.endpoints.into_iter().map(|one| LoginEndpoint {
            host: one.host.as_str().to_owned(),
            path: one.path.as_str().to_owned(),
        });
        let login = LoginSpec {
            endpoints: endpoints.collect(),
            access_prefix: table.access_prefix,
            refresh_prefix: table.refresh_prefix,
            claims: table.claims,
            members: table.members,
        };
        check_login(&login).map_err(de::Error::custom)?;
        Ok(Self(Attach::Login(login)))
    }
}

fn check_login(login: &LoginSpec) -> Result<(), CredentialFault> {
    let is_name = |name: &String| {
        (1..=limit::LOGIN_NAME).contains(&name.len())
            && name.bytes().all(|byte| byte.is_ascii_graphic())
            && !name.ends_with("_token")
    };
    let fits = |names: &Vec<String>| names.len() <= limit::LOGIN_NAMES && names.iter().all(is_name);
    if !fits(&login.claims) || !fits(&login.members) {
        return Err(CredentialFault::LoginName);
    }
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    let mut prefixes = [&login.access_prefix, &login.refresh_prefix].into_iter();
    if !prefixes.all(|text| text.len() <= limit::LOGIN_NAME && text.bytes().all(allowed)) {
        return Err(CredentialFault::LoginPrefix);
    }
    match (1..=limit::LOGIN_ENDPOINTS).contains(&login.endpoints.len()) {
        true => Ok(()),
        false => Err(CredentialFault::Endpoints),
    }
}

/// Requests that may use it, or that are refused.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UseEntry {
    pub host: Option<CredentialHost>,
    #[serde(default)]
    pub methods: Vec<MethodName>,
    pub path: UsePath,
    #[serde(default)]
    pub unasked: bool,
    #[serde(default)]
    pub refused: bool,
    /// Refused is only what no other use allows.
    #[serde(default)]
    pub otherwise: bool,
    pub why: Option<String>,
    pub service: Option<ServiceName>,
    #[serde(default)]
    pub actions: Vec<ActionName>,
}

impl UseEntry {
    /// As the gateway gets it.
    pub fn request(&self) -> CredentialUse {
        CredentialUse {
            host: self.host.as_ref().map(|host| host.as_str().to_owned()),
            methods: self
                .methods
                .iter()
                .map(|method| method.as_str().to_owned())
                .collect(),
            path: self.path.as_str().to_owned(),
            unasked: self.unasked,
            refused: self.refused,
            otherwise: self.otherwise,
            why: self.why.clone(),
            service: self.service.as_ref().map(|name| name.as_str().to_owned()),
            actions: self
                .actions
                .iter()
                .map(|action| action.as_str().to_owned())
                .collect(),
        }
    }

    fn check(&self, attach: &Attach) -> Result<(), CredentialFault> {
        let is_aws = *attach == Attach::Aws;
        if self.otherwise && !self.refused {
            return Err(CredentialFault::Otherwise);
        }
        let is_line = |why: &String| {
            (1..=limit::RULE_WHY).contains(&why.len()) && !why.contains(char::is_control)
        };
        if !self.why.iter().all(is_line) {
            return Err(CredentialFault::Why);
        }
        if self.actions.len() > limit::ACTIONS {
            return Err(CredentialFault::Actions);
        }
        if !is_aws && self.service.is_some() || self.service.is_none() && !self.actions.is_empty() {
            return Err(CredentialFault::Unsigned);
        }
        match is_aws && self.unasked {
            true => Err(CredentialFault::UnaskedSignature),
            false => Ok(()),
        }
    }
}

/// A credential as a file defines it. What stands beside `preset` is in place of the preset's.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CredentialTable {
    /// Absent only beside `capture`: then the key of logins is made for each session.
    pub from: Option<SourceEntry>,
    pub preset: Option<PresetName>,
    pub hosts: Option<Vec<CredentialHost>>,
    pub attach: Option<AttachEntry>,
    pub capture: Option<CaptureEntry>,
    pub env: Option<Vec<VariableName>>,
    pub uses: Option<Vec<UseEntry>>,
    pub placeholder: Option<Shape>,
}

/// The form of the texts that stand for values in cells. A client may check a key's form before it sends it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shape {
    #[serde(default)]
    pub prefix: String,
    /// The characters between prefix and suffix.
    #[serde(default = "letters_and_digits")]
    pub alphabet: String,
    /// Last characters of each placeholder: a client may ask its user about a key and recognise it by its end.
    #[serde(default)]
    pub suffix: String,
    /// Bytes of prefix, middle and suffix.
    pub length: usize,
}

impl Default for Shape {
    fn default() -> Self {
        Self {
            prefix: "lazaret-placeholder-".to_owned(),
            alphabet: letters_and_digits(),
            suffix: String::new(),
            length: 60,
        }
    }
}

fn letters_and_digits() -> String {
    "abcdefghijklmnopqrstuvwxyz0123456789".to_owned()
}

impl Shape {
    fn check(&self) -> Result<(), CredentialFault> {
        let texts = [&self.prefix, &self.alphabet, &self.suffix];
        let mut bytes = texts.into_iter().flat_map(|text| text.bytes());
        let is_sent_as_it_is = bytes.all(|byte| byte.is_ascii_graphic());
        let letters: BTreeSet<u8> = self.alphabet.bytes().collect();
        let bits = letters.len().checked_ilog2().unwrap_or_default();
        let random = u32::try_from(self.random()).unwrap_or_default() * bits;
        let is_short = self.length <= limit::PLACEHOLDER;
        match is_sent_as_it_is && is_short && random >= RANDOM_BITS_MIN {
            true => Ok(()),
            false => Err(CredentialFault::Placeholder),
        }
    }

    /// A placeholder: `random` gives the characters between prefix and suffix.
    pub fn fill(&self, random: &[u8]) -> String {
        let alphabet: Vec<char> = self.alphabet.chars().collect();
        let letter = |byte: &u8| alphabet.get(usize::from(*byte) % alphabet.len().max(1));
        let middle: String = random
            .iter()
            .take(self.random())
            .filter_map(letter)
            .collect();
        format!("{}{middle}{}", self.prefix, self.suffix)
    }

    /// Whether `text` is a placeholder of this shape.
    fn is_of(&self, text: &[u8]) -> bool {
        let rest = text.strip_prefix(self.prefix.as_bytes());
        let middle = rest.and_then(|rest| rest.strip_suffix(self.suffix.as_bytes()));
        text.len() == self.length
            && middle.is_some_and(|middle| {
                let mut bytes = middle.iter();
                bytes.all(|byte| self.alphabet.as_bytes().contains(byte))
            })
    }

    /// How many characters are random.
    pub fn random(&self) -> usize {
        self.length
            .saturating_sub(self.prefix.len() + self.suffix.len())
    }
}

/// A shipped preset: all of a credential but its source, and its hosts where each user has others.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CredentialPreset {
    pub why: String,
    pub hosts: Vec<CredentialHost>,
    /// It has this, or `capture`.
    pub attach: Option<AttachEntry>,
    pub capture: Option<CaptureEntry>,
    #[serde(default)]
    pub env: Vec<VariableName>,
    #[serde(default)]
    pub placeholder: Shape,
    pub uses: Vec<UseEntry>,
    /// Variables with a fixed value, for clients that need more than the token. `{user}` is that of `attach`, and left out without one.
    #[serde(default)]
    pub set: BTreeMap<VariableName, String>,
    #[serde(default)]
    pub files: Vec<ClientFile>,
    #[serde(default)]
    pub state: Vec<InitialFile>,
}

impl CredentialPreset {
    fn attach(&self) -> Option<&Attach> {
        attach_of(self.attach.as_ref(), self.capture.as_ref())
    }

    /// Whether programs log in, so that there is no value before.
    pub fn captures(&self) -> bool {
        self.capture.is_some()
    }
}

fn attach_of<'t>(
    attach: Option<&'t AttachEntry>,
    capture: Option<&'t CaptureEntry>,
) -> Option<&'t Attach> {
    attach
        .map(|entry| &entry.0)
        .or(capture.map(|entry| &entry.0))
}

/// A line for each host in a file of the cells' home, for clients that read the placeholder from no variable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClientFile {
    /// Relative to the cells' home directory.
    pub path: String,
    /// With `{host}`, which has its port unless that is 443, and `{placeholder}`; more than one line where it is for one host.
    pub line: String,
    /// The only host that it has a line for, as `HOST:PORT`: its form has no place for others.
    #[serde(default)]
    pub host: Option<String>,
}

impl ClientFile {
    /// The file's content: one line for each of `hosts`, or for the one that it can be for.
    pub fn text(&self, hosts: &[String], placeholder: &str) -> String {
        let line = |host: &String| {
            let host = host.strip_suffix(":443").unwrap_or(host);
            let line = self.line.replace("{host}", host);
            line.replace(PLACEHOLDER, placeholder) + "\n"
        };
        let is_meant = |host: &&String| self.host.as_ref().is_none_or(|own| own == *host);
        hosts.iter().filter(is_meant).map(line).collect()
    }
}

/// A file in a directory of an agent's own state, written where there is none: from then on it is the agent's. A placeholder that the agent
/// has stored in it becomes the one of the next session, if the text has one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InitialFile {
    /// The variable of the directory.
    pub variable: String,
    /// A name, without a directory.
    pub name: String,
    /// With `{placeholder}` where the placeholder stands.
    pub text: String,
    /// Presets beside whose credentials it is left out: the agent then asks its user.
    #[serde(default)]
    pub unless: Vec<String>,
}

/// An initial file of a credential that the user has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentStateFile {
    pub file: InitialFile,
    /// The session's own: earlier ones become it.
    placeholder: String,
    shape: Shape,
}

impl AgentStateFile {
    /// The file for a session with this placeholder, made by `shape`.
    pub fn new(file: InitialFile, placeholder: &str, shape: &Shape) -> Self {
        Self {
            file,
            placeholder: placeholder.to_owned(),
            shape: shape.clone(),
        }
    }

    pub fn text(&self) -> String {
        self.file.text.replace(PLACEHOLDER, &self.placeholder)
    }

    /// `stored` with this session's placeholder in the place of those of earlier ones, which are as long; `None` if it has none.
    pub fn renewed(&self, stored: &[u8]) -> Option<Vec<u8>> {
        if !self.file.text.contains(PLACEHOLDER) {
            return None;
        }
        let ours = self.placeholder.as_bytes();
        let (mut renewed, mut at) = (stored.to_vec(), 0);
        while let Some(text) = renewed.get_mut(at..at + ours.len()) {
            if self.shape.is_of(text) {
                text.copy_from_slice(ours);
                at += ours.len();
            } else {
                at += 1;
            }
        }
        (renewed != stored).then_some(renewed)
    }
}

/// Stands for the placeholder in texts of presets.
const PLACEHOLDER: &str = "{placeholder}";

/// The files of `credentials`, by name.
const FILES: [(&str, &str); 10] = [
    ("anthropic", include_str!("../credentials/anthropic.toml")),
    (
        "anthropic-oauth",
        include_str!("../credentials/anthropic-oauth.toml"),
    ),
    ("aws", include_str!("../credentials/aws.toml")),
    (
        "claude-login",
        include_str!("../credentials/claude-login.toml"),
    ),
    (
        "codex-login",
        include_str!("../credentials/codex-login.toml"),
    ),
    ("crates", include_str!("../credentials/crates.toml")),
    ("github", include_str!("../credentials/github.toml")),
    ("npm", include_str!("../credentials/npm.toml")),
    ("openai", include_str!("../credentials/openai.toml")),
    ("pypi", include_str!("../credentials/pypi.toml")),
];

/// Read when the first is needed: most sessions need none. A test reads all.
static PRESETS: LazyLock<BTreeMap<String, CredentialPreset>> = LazyLock::new(|| {
    let read = |(name, text): (&str, &str)| Some((name.to_owned(), toml::from_str(text).ok()?));
    FILES.into_iter().filter_map(read).collect()
});

/// The shipped presets, by name.
pub fn presets() -> impl Iterator<Item = (&'static str, &'static CredentialPreset)> {
    PRESETS.iter().map(|(name, preset)| (name.as_str(), preset))
}

/// A credential without its source: what its table and its preset say together.
#[derive(Debug)]
pub struct Completed<'t> {
    pub hosts: &'t [CredentialHost],
    pub attach: &'t Attach,
    pub env: &'t [VariableName],
    /// Absent, any request to one of the hosts may use it.
    pub uses: Option<&'t [UseEntry]>,
    pub shape: Shape,
    preset: Option<&'static CredentialPreset>,
}

impl CredentialTable {
    /// The credential with its preset's parts.
    ///
    /// # Errors
    /// A part is missing, or they do not fit together.
    pub fn complete(&self) -> Result<Completed<'_>, CredentialFault> {
        let name = self.preset.as_ref().map(PresetName::as_str);
        let preset = name.and_then(|name| PRESETS.get(name));
        let hosts = self.hosts.as_deref();
        let hosts = hosts.or(preset.map(|preset| preset.hosts.as_slice()));
        let attach = attach_of(self.attach.as_ref(), self.capture.as_ref());
        let attach = attach.or(preset.and_then(CredentialPreset::attach));
        let env = self.env.as_deref();
        let uses = self.uses.as_deref();
        let shape = self.placeholder.as_ref();
        let completed = Completed {
            hosts: hosts
                .filter(|hosts| !hosts.is_empty())
                .ok_or(CredentialFault::NoHosts)?,
            attach: attach.ok_or(CredentialFault::NoAttach)?,
            env: env
                .or(preset.map(|preset| preset.env.as_slice()))
                .unwrap_or_default(),
            uses: uses.or(preset.map(|preset| preset.uses.as_slice())),
            shape: shape
                .or(preset.map(|preset| &preset.placeholder))
                .map_or_else(Shape::default, Shape::clone),
            preset,
        };
        let is_login = matches!(completed.attach, Attach::Login(_));
        if self.attach.is_some() && self.capture.is_some() {
            return Err(CredentialFault::Captured);
        }
        if self.from.is_none() && !is_login {
            return Err(CredentialFault::NoSource);
        }
        completed.check().map(|()| completed)
    }
}

impl Completed<'_> {
    fn check(&self) -> Result<(), CredentialFault> {
        if self.hosts.len() > CREDENTIAL_HOSTS_MAX {
            return Err(CredentialFault::Hosts);
        }
        if self.env.len() > CREDENTIAL_VARIABLES_MAX {
            return Err(CredentialFault::Variables);
        }
        self.shape.check()?;
        if let Attach::Login(login) = self.attach {
            let is_own =
                |one: &LoginEndpoint| self.hosts.iter().any(|host| host.as_str() == one.host);
            if !login.endpoints.iter().all(is_own) {
                return Err(CredentialFault::Endpoints);
            }
            let is_unasked = self
                .uses
                .is_some_and(|uses| uses.iter().any(|one| one.unasked));
            if !self.env.is_empty() || is_unasked {
                return Err(CredentialFault::Captured);
            }
        }
        let Some(uses) = self.uses else {
            return Ok(());
        };
        if !(1..=limit::CREDENTIAL_USES).contains(&uses.len()) {
            return Err(CredentialFault::Uses);
        }
        let is_foreign = |one: &UseEntry| {
            let host = one.host.as_ref();
            host.is_some_and(|host| !self.hosts.contains(host))
        };
        if uses.iter().any(is_foreign) {
            return Err(CredentialFault::ForeignHost);
        }
        let attach = self.attach;
        uses.iter().try_for_each(|one| one.check(attach))?;
        let is_wrong = |one: &UseEntry| one.refused && (one.unasked || one.why.is_none());
        match uses.iter().any(is_wrong) {
            true => Err(CredentialFault::Refused),
            false => Ok(()),
        }
    }

    /// Variables of cells with a fixed value.
    pub fn set(&self) -> BTreeMap<String, String> {
        let user = match self.attach {
            Attach::Basic { user } | Attach::Any { user } => Some(user),
            Attach::Bearer | Attach::Header { .. } | Attach::Aws | Attach::Login(_) => None,
        };
        let set = self.preset.iter().flat_map(|preset| &preset.set);
        let set = set.filter_map(|(name, value)| {
            let value = match value.as_str() {
                "{user}" => user?.clone(),
                fixed => fixed.to_owned(),
            };
            Some((name.as_str().to_owned(), value))
        });
        set.collect()
    }

    /// Files of the cells' home.
    pub fn files(&self) -> Vec<ClientFile> {
        self.preset
            .map_or_else(Vec::new, |preset| preset.files.clone())
    }

    /// Files of an agent's own state.
    pub fn state(&self) -> Vec<InitialFile> {
        self.preset
            .map_or_else(Vec::new, |preset| preset.state.clone())
    }

    /// The uses as the gateway gets them.
    pub fn requests(&self) -> Vec<CredentialUse> {
        let any = || CredentialUse {
            host: None,
            methods: Vec::new(),
            path: "/**".to_owned(),
            unasked: false,
            refused: false,
            otherwise: false,
            why: None,
            service: None,
            actions: Vec::new(),
        };
        match self.uses {
            Some(uses) => uses.iter().map(UseEntry::request).collect(),
            None => vec![any()],
        }
    }
}

/// The value of a file's key `credential`.
pub type CredentialTables = BTreeMap<Spanned<CredentialName>, CredentialTable>;

/// The first credential of a file whose parts do not fit together, with its place in the text.
pub(crate) fn fault(tables: &CredentialTables) -> Option<(usize, CredentialFault)> {
    tables.iter().find_map(|(name, table)| {
        let fault = table.complete().err()?;
        Some((name.span().start, fault))
    })
}
