//! Limits on messages: anything larger is refused as a whole.

use thiserror::Error;

/// Bytes of all arguments together, each with [`ARGUMENT_COST`] added, and of a shell command: what fits into a frame.
pub const COMMAND: usize = 1_000_000;
/// Cost of an argument besides its bytes: its length in a frame, its final NUL for the kernel.
pub(crate) const ARGUMENT_COST: usize = 9;
/// Bytes of one argument: the kernel's own limit (`MAX_ARG_STRLEN` in `linux/binfmts.h`), without the final NUL.
pub const ARGUMENT: usize = 128 * 1024 - 1;
/// Arguments of one command.
pub(crate) const ARGUMENTS: usize = 65_536;
/// Bytes of a request's texts in one frame: those of a `file_edit`, and the content of a `file_write` without [pieces](crate::content).
pub const CONTENT: usize = 1_000_000;
/// Bytes that one `file_write` may write.
pub const WRITE: usize = 10 << 20;
/// Bytes of such content in one frame before its request.
pub const PIECE: usize = 512 * 1024;
/// Bytes of an encoded request with all of its content: that, and a frame.
pub const REQUEST: usize = WRITE + (1 << 20);
/// Bytes of a file that one `file_read` returns; a note says how much is left.
pub const READ: usize = 1 << 20;
/// Bytes of the encoded answer of a file tool, all parts together.
pub const ANSWER: usize = 4 << 20;
/// Bytes of all hunks that show what a write or an edit has changed, old and new together.
pub const HUNKS: usize = 64 * 1024;
/// Replacements in one `file_edit`.
pub const EDITS: usize = 256;
/// Bytes of a pattern of `glob` or `grep`.
pub const PATTERN: usize = 4096;
/// Entries that `file_list` and `glob` return, and lines that `grep` returns.
pub const ENTRIES: u32 = 10_000;
/// Files that `grep` names because it searched them only partly.
pub const IN_PART: usize = 20;
/// Seconds that a question waits for its answer, unless policy or session set another time.
pub const ANSWER_S: u32 = 30;
/// Seconds that a session may have its questions wait: an hour, the same as for a policy.
pub const ANSWER_MAX_S: u32 = 3600;
/// Seconds that a question of `chat` or of the page of `serve` waits: for a person, who may be away from the screen.
pub const ANSWER_OF_PERSON_S: u32 = 600;
/// Other paths of its project root that a session names.
pub const PROJECT_NAMES: usize = 4;
/// Calls in progress at once on one connection.
pub const CALLS: usize = 64;
/// Bytes of live output a call may send before the client gives more credit.
pub const OUTPUT_WINDOW: u32 = 256 * 1024;
/// Bytes of standard input a client may send before the broker gives more credit.
pub const INPUT_WINDOW: u32 = 256 * 1024;
/// Bytes of output or input in one frame.
pub const CHUNK: usize = 64 * 1024;
/// Background processes alive at once in one session.
pub const BACKGROUND: usize = 16;
/// Background processes that a session lists; beyond it, the one that ended longest ago is dropped.
pub const BACKGROUND_LISTED: usize = 64;
/// Bytes of a background process's output that one answer holds.
pub const LOG: u32 = 64 * 1024;
/// Bytes on each side of a piece of a log, by which secrets are found that its edges split.
pub const LOG_MARGIN: u16 = 4096;
/// Processes left running by a command that are counted; one that leaves more has left that many or more.
pub const LEFT_RUNNING: u8 = 64;
/// Bytes of a service's name.
pub(crate) const SERVICE_NAME: usize = 64;
/// Variables that a service receives besides those of the session.
pub const VARIABLES: usize = 64;
/// Bytes of such a variable's name.
pub const VARIABLE_NAME: usize = 128;
/// Bytes of its value.
pub const VARIABLE: usize = 8 * 1024;
/// Changes that one `history` returns.
pub const CHANGES: u32 = 1000;
/// Longest time limit, in seconds; a policy may set a shorter one.
pub const TIMEOUT_S: u32 = 86_400;
/// Permissions of a scope.
pub const PERMISSIONS: usize = 256;
/// Globs of one permission.
pub(crate) const SCOPE_PATHS: usize = 64;
/// Bytes of one such glob.
pub const SCOPE_PATH: usize = 1024;
/// Bytes of a tool's name.
pub const TOOL_NAME: usize = 128;
/// Bytes of the state of one small tool.
pub const STATE: usize = 256 * 1024;
/// Effects for which the client may still save texts; beyond it, the oldest loses the permission.
pub const KEEPS: usize = 64;
/// Bytes of such texts that a session saves in all, each file counted as at least [`KEPT_BLOCK`].
/// Each text is saved up to the policy's `spill`, like a command's output.
pub const KEPT: u64 = 64 << 20;
/// Minimum disk space of a file.
pub const KEPT_BLOCK: u64 = 4096;
/// Denials that the outcome of a call names; of further ones only the number.
pub(crate) const DENIALS: usize = 16;
/// Objects that a finding names; of further ones only the number.
pub const FOUND_OBJECTS: usize = 12;
/// Bytes of one text of a denial or a finding.
pub const DENIAL_TEXT: usize = 512;
/// Failed calls of a traced command that are explained at once.
pub const TRACED: usize = 64;

/// Hosts, and presets, that a session may request.
pub const HOSTS: usize = 256;
/// Ports of this machine's loopback that a session may reach.
pub const PORTS: usize = 64;
/// Port of cells at which they find their proxy: it is not published.
pub const RELAY_PORT: u16 = 61080;
/// Ports of this machine that a session may publish.
pub const PUBLISHED: usize = 8;
/// Hosts that one call may request beyond those of its session.
pub const WANTS: usize = 16;
/// Paths that one call may request beyond those of its session, and that are leased at once in one session.
pub const WANTED_PATHS: usize = 16;
/// Bytes of such a path: with its NUL the kernel's maximum (`PATH_MAX`).
pub(crate) const WANTED_PATH: usize = 4095;
/// Hosts and paths that are leased at once in one session.
pub const LEASES: usize = 64;
/// Maximum minutes of a lease.
pub const LEASE_MINUTES: u16 = 1440;
/// Bytes of a host with its port: the longest name has 253.
pub const HOST: usize = 260;
/// Credentials that one session may have.
pub const CREDENTIALS: usize = 32;
/// Uses that one credential may list.
pub const CREDENTIAL_USES: usize = 256;
/// Requests by which a credential's logins get tokens.
pub const LOGIN_ENDPOINTS: usize = 8;
/// Names of claims, or of members of an answer, that programs may see of a login, and the bytes of each.
pub const LOGIN_NAMES: usize = 32;
pub const LOGIN_NAME: usize = 128;
/// Bytes of the name of a service that a use of a credential names.
pub const SERVICE: usize = 64;
/// Operations of a service that one use may name, and the bytes of each.
pub const ACTIONS: usize = 64;
pub const ACTION: usize = 128;
/// Bytes of a credential's value.
pub const CREDENTIAL: usize = 64 * 1024;
/// Bytes of the text that stands for it in cells.
pub const PLACEHOLDER: usize = 1024;
/// Bytes of the certificate of a session's authority, and of its key.
pub const CERTIFICATE: usize = 16 * 1024;
/// Keys of an ssh agent in one entry of a policy, and entries of a session.
pub const SSH_KEYS: usize = 16;
/// Bytes of the lines of `known_hosts` that a session's gateway gets.
pub const KNOWN_HOSTS: usize = 128 << 10;
/// Bytes of the certificates by which a session's hosts are verified besides the machine's.
pub const AUTHORITIES: usize = 256 * 1024;
/// Hosts and networks that are connected to without the session's proxy.
pub const DIRECT_PLACES: usize = 512;
/// Letters of a request's method.
pub const METHOD: usize = 32;
/// Rules for requests that one session may have, all lists together.
pub const REQUEST_RULES: usize = 256;
/// Paths of one rule, and the bytes of each.
pub const RULE_PATHS: usize = 32;
pub const RULE_PATH: usize = 512;
/// Methods that one rule may name.
pub const RULE_METHODS: usize = 16;
/// Seconds that a yes to a request waits for it, if its program had gone when it came.
pub const KEPT_GRANT_S: u32 = 300;
/// Such grants of one session; the oldest makes room for another.
pub const KEPT_GRANTS: usize = 16;
/// Things that a request would change, as a question about it lists them.
pub const EFFECTS: usize = 32;
/// Bytes of a rule's reason.
pub const RULE_WHY: usize = 160;

/// A request exceeds one of the limits of this module.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{field}: {rule}")]
pub struct TooLarge {
    pub field: &'static str,
    /// The limit on this field.
    pub rule: String,
}

/// Cuts a text of a denial or a finding at its limit, on a character boundary.
pub(crate) fn cut(text: &mut String) {
    const MARK: &str = "…";
    if text.len() > DENIAL_TEXT {
        let end = (0..=DENIAL_TEXT - MARK.len())
            .rev()
            .find(|at| text.is_char_boundary(*at));
        text.truncate(end.unwrap_or(0));
        text.push_str(MARK);
    }
}

pub(crate) fn at_most(
    field: &'static str,
    got: usize,
    most: usize,
    unit: &str,
) -> Result<(), TooLarge> {
    if got <= most {
        return Ok(());
    }
    Err(TooLarge {
        field,
        rule: format!("at most {most} {unit}, this has {got}"),
    })
}

/// Checks ports that a session names.
pub(crate) fn ports(field: &'static str, ports: &[u16]) -> Result<(), TooLarge> {
    at_most(field, ports.len(), PORTS, "ports")?;
    if !ports.contains(&0) {
        return Ok(());
    }
    Err(TooLarge {
        field,
        rule: "ports from 1 to 65535".into(),
    })
}

pub(crate) fn in_range(
    field: &'static str,
    got: u64,
    least: u64,
    most: u64,
) -> Result<(), TooLarge> {
    if (least..=most).contains(&got) {
        return Ok(());
    }
    Err(TooLarge {
        field,
        rule: format!("a whole number between {least} and {most}, this is {got}"),
    })
}

pub(crate) fn at_least_one(field: &'static str, got: Option<u64>) -> Result<(), TooLarge> {
    in_range(field, got.unwrap_or(1), 1, u64::MAX)
}

pub(crate) fn no_nul(field: &'static str, bytes: &[u8]) -> Result<(), TooLarge> {
    if bytes.contains(&0) {
        return Err(TooLarge {
            field,
            rule: "a command cannot contain a NUL byte".into(),
        });
    }
    Ok(())
}
