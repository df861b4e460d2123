//! The border between a broker and the gateway of its session: hosts and credentials go down, what became of connections comes up.
//!
//! Frames as on the client's socket. The gateway has the network and the values of credentials; the broker has neither. A value goes to
//! the gateway through a descriptor that the broker opens and does not read.

use crate::lease::Lease;
use crate::limit::{self, TooLarge, at_most};
use crate::network::{ConnectionReport, ConnectionVerdict, HostList};
use crate::request::CallId;
use serde::{Deserialize, Serialize};

/// A frame to the gateway.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(
    clippy::large_enum_variant,
    reason = "one of each process, at its start, and none is kept"
)]
pub enum ToGateway {
    /// First frame. It carries the sockets of the session's relay (the listener, and the one on which supervisors announce
    /// connections), the one for [`published_request`], the one on which supervisors pass connections to the ssh agent (each with its
    /// call in eight bytes), and the listeners of published ports.
    Serve(GatewaySpec),
    /// All leases in force from now on.
    Leases(Vec<Lease>),
    /// Answers [`FromGateway::Wanted`]. It carries one descriptor, from which the value is read to its end: at most
    /// [`limit::CREDENTIAL`] bytes, less a final line feed.
    Value {
        /// The credential, by its place in [`GatewaySpec::credentials`].
        credential: u16,
    },
    /// Answers [`FromGateway::Wanted`] if its source cannot be opened: why, for people.
    NoValue {
        /// The credential, by its place in [`GatewaySpec::credentials`].
        credential: u16,
        /// As a sentence: at most [`limit::DENIAL_TEXT`] bytes.
        why: String,
    },
    Answered {
        /// The number that the question had.
        question: u32,
        answer: RequestAnswer,
    },
    /// Answers [`FromGateway::AgentWanted`]. It carries one descriptor: a connection to the user's ssh agent.
    Agent,
    /// Answers [`FromGateway::AgentWanted`] if there is no agent: why, for people, as a sentence of at most [`limit::DENIAL_TEXT`] bytes.
    NoAgent(String),
    /// The first [`FromGateway::Used`] without this answer is in the audit.
    Recorded,
}

/// A session's part of the network, as its gateway needs it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GatewaySpec {
    /// The lists of hosts: see [`Network::lists`](crate::Network::lists).
    pub lists: Vec<HostList>,
    /// At most [`limit::CREDENTIALS`], those of its profile, and the proxy's login.
    pub credentials: Vec<CredentialSpec>,
    /// The authority of an earlier gateway of this session: what [`FromGateway::Serving`] said. Absent, the gateway makes one if there
    /// are credentials or rules.
    pub authority: Option<Authority>,
    /// Authorities that hosts are verified by besides the machine's: certificates in PEM form, one after the other, of at most
    /// [`limit::AUTHORITIES`] bytes.
    pub authorities: String,
    /// The proxy by which hosts are connected to.
    pub proxy: Option<ProxySpec>,
    /// Rules for requests: a list that names a host must allow each request to it. At most [`limit::REQUEST_RULES`] together.
    pub rules: Vec<Vec<RequestRule>>,
    /// Ports of this machine's loopback that cells reach: at most [`limit::PORTS`], none of them 0.
    pub connect: Vec<u16>,
    /// For each listener of a published port, the port in the session to which it leads: at most two for each of
    /// [`limit::PUBLISHED`].
    pub publish: Vec<u16>,
    /// Whether connections are served only if a supervisor has announced them: always, but where a test build has none.
    pub announced: bool,
    /// Keys of the user's ssh agent that programs may have signatures of: at most [`limit::SSH_KEYS`] entries.
    pub ssh: Vec<SshSpec>,
    /// Lines of the user's `known_hosts` for the hosts of `ssh`: at most [`limit::KNOWN_HOSTS`] bytes.
    pub known_hosts: String,
}

/// Keys of the user's ssh agent, and what they may sign.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SshSpec {
    /// Its name in the policy.
    pub name: String,
    /// Hosts at which the keys log in, as `HOST:PORT` with an exact name.
    pub hosts: Vec<String>,
    pub user: String,
    /// The keys, as `SHA256:` and a digest in base64.
    pub keys: Vec<String>,
    /// Whether they may sign for git at all: then each signature is asked about.
    pub signs: bool,
}

/// A signature of the user's ssh agent that waits for an answer. The gateway has checked what is signed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldSignature {
    /// The gateway's number for it, with [`SIGNATURE_QUESTION`], so that no request has the same.
    pub question: u32,
    /// The call whose program has asked for it; 0 if no client waits for one.
    pub call: CallId,
    /// The keys, by their place in [`GatewaySpec::ssh`].
    pub ssh: u16,
    pub purpose: SignaturePurpose,
}

/// Bit of the numbers that questions about signatures have.
pub const SIGNATURE_QUESTION: u32 = 1 << 31;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SignaturePurpose {
    /// A login at a host, in a connection that the gateway carries.
    Login {
        /// In its canonical form, as in [`ConnectionReport`].
        host: String,
        port: u16,
    },
    /// A commit, tag or push of git. The signature is of a digest: nobody can say what it is of.
    Git,
}

/// A proxy that is asked for tunnels by `CONNECT`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProxySpec {
    /// A name, or an address (IPv6 in brackets). It may be private: the policy names it.
    pub host: String,
    pub port: u16,
    /// Whether it is told names in place of addresses.
    pub names: bool,
    /// Hosts and networks that are connected to without it: at most [`limit::DIRECT_PLACES`].
    pub direct: Vec<String>,
    /// The credential that is its USER:PASSWORD, by its place in [`GatewaySpec::credentials`]. It has no hosts.
    pub login: Option<u16>,
}

/// A credential that programs may use and not see.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CredentialSpec {
    /// Its name in the policy.
    pub name: String,
    /// The text that stands for its value in cells: at most [`limit::PLACEHOLDER`] bytes of visible ASCII.
    pub placeholder: String,
    /// Where it is used, as `HOST:PORT` with an exact name. Only connections to these are decrypted.
    pub hosts: Vec<String>,
    /// The part of a request that holds it.
    pub attach: Attach,
    /// The requests that may use it; of others its placeholder is sent as it is.
    pub uses: Vec<CredentialUse>,
}

/// Where in a request a credential stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Attach {
    /// `Authorization: Bearer VALUE`, and `Authorization: token VALUE`.
    Bearer,
    /// `Authorization: Basic`, with this user and the value as its password.
    Basic {
        /// The user's name, which stands in the request unless it has one already.
        user: String,
    },
    /// `Authorization` in any of these forms, as the program sends it; unasked as `Basic` with this user.
    Any {
        /// The user's name of `Basic`.
        user: String,
    },
    /// The whole value of the header of this name.
    Header {
        /// In lower case, as HTTP/2 has it.
        name: String,
    },
    /// A signature of AWS (version 4) in `Authorization`. The placeholder is the name of the key that programs sign with, and the value a
    /// key with its name, as `aws configure export-credentials` prints it.
    Aws,
    /// `Authorization: Bearer`, with a token that a program has got by a login. The credential's value is the key that such tokens are
    /// encrypted with, and its placeholder the beginning of the texts that stand for them.
    Login(LoginSpec),
}

/// Logins of programs, whose tokens the gateway takes out of the answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoginSpec {
    /// The only requests that may return tokens: at most [`limit::LOGIN_ENDPOINTS`].
    pub endpoints: Vec<LoginEndpoint>,
    /// Beginning of the texts for access tokens, by which clients know them: at most [`limit::LOGIN_NAME`] bytes.
    pub access_prefix: String,
    /// Beginning of the texts for refresh tokens, within the same limit.
    pub refresh_prefix: String,
    /// Claims of a JWT that programs may see: at most [`limit::LOGIN_NAMES`] of [`limit::LOGIN_NAME`] bytes.
    pub claims: Vec<String>,
    /// Members of an answer that programs may see besides the usual ones, within the same limits.
    pub members: Vec<String>,
}

/// A request by `POST` that exchanges a code or a token for tokens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoginEndpoint {
    /// One of the credential's hosts.
    pub host: String,
    /// Its path, written as [`CredentialUse::path`].
    pub path: String,
}

impl LoginEndpoint {
    /// The requests to it by `method`, or a refusal of all of them.
    pub fn as_use(&self, method: Option<&str>) -> CredentialUse {
        CredentialUse {
            host: Some(self.host.clone()),
            methods: method.into_iter().map(str::to_owned).collect(),
            path: self.path.clone(),
            unasked: false,
            refused: method.is_none(),
            otherwise: false,
            why: None,
            service: None,
            actions: Vec::new(),
        }
    }
}

/// Requests that may use a credential.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CredentialUse {
    /// Only at this one of the credential's hosts; at all of them if absent.
    pub host: Option<String>,
    /// In upper case; empty for all but `TRACE`, `CONNECT` and `OPTIONS`.
    pub methods: Vec<String>,
    /// The path, without its query. `*` stands for one part between slashes, a final `/**` for any rest.
    pub path: String,
    /// Whether such a request gets the credential even if it has no placeholder.
    pub unasked: bool,
    /// Whether such a request is refused: it would make new credentials. A use that refuses wins over others.
    pub refused: bool,
    /// Whether it refuses only what no other use allows.
    pub otherwise: bool,
    /// Why it refuses, for people and for the program: at most [`limit::RULE_WHY`] bytes.
    pub why: Option<String>,
    /// Only requests that are signed for this service of AWS: at most [`limit::SERVICE`] bytes.
    pub service: Option<String>,
    /// Only these of its operations, at most [`limit::ACTIONS`] of [`limit::ACTION`] bytes; all of them if empty. For S3 the keys of the
    /// query, and `acl` where a header gives somebody rights.
    pub actions: Vec<String>,
}

/// A rule for requests. The first of a list that fits decides.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestRule {
    /// An exact name in lower case. Connections to it are decrypted, at whatever port.
    pub host: String,
    /// Only at this port; at all of them if absent.
    pub port: Option<u16>,
    /// In upper case, at most [`limit::RULE_METHODS`]. Empty, a rule that denies is for all, one that allows for all but `TRACE`, `CONNECT`
    /// and `OPTIONS`.
    pub methods: Vec<String>,
    /// As [`CredentialUse::path`], at most [`limit::RULE_PATHS`] of [`limit::RULE_PATH`] bytes; empty for all.
    pub paths: Vec<String>,
    pub action: RuleAction,
    /// For people and for the program: at most [`limit::RULE_WHY`] bytes.
    pub why: Option<String>,
    /// The line that says so, for people: at most [`limit::DENIAL_TEXT`] bytes.
    pub name: String,
}

/// The end of a request that a rule fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RuleAction {
    Allow,
    /// The request waits until somebody has allowed it ([`FromGateway::Asked`]).
    Ask,
    Deny,
}

/// A request that waits for an answer, as people are asked about it. All texts are the program's words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldRequest {
    /// The gateway's number for it.
    pub question: u32,
    /// The call whose program has sent it; 0 if no client waits for one.
    pub call: CallId,
    /// The rule that asks, by its place in all lists of [`GatewaySpec::rules`] together.
    pub rule: u16,
    /// The host in its canonical form, as in [`ConnectionReport`].
    pub host: String,
    pub port: u16,
    /// At most [`limit::METHOD`] letters.
    pub method: String,
    /// With its query: at most [`limit::RULE_PATH`] visible characters of ASCII.
    pub path: String,
    /// The credential that it uses, by its place in [`GatewaySpec::credentials`].
    pub credential: Option<u16>,
    /// Its changes, as far as its body says them: at most [`limit::EFFECTS`] lines of [`limit::DENIAL_TEXT`] bytes.
    pub effects: Vec<RequestEffect>,
}

/// One thing that a request would change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestEffect {
    /// The changed object, such as a reference of git: a yes for the session is for the same objects.
    pub object: String,
    /// A yes for the session is for the same kinds, too.
    pub kind: EffectKind,
    /// How, such as from one commit to another.
    pub change: String,
}

/// The kind of change to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum EffectKind {
    Create,
    Update,
    Delete,
    /// Named only, such as a value in the body.
    Named,
}

impl EffectKind {
    /// The name by which digests have it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Update => "update",
            Self::Delete => "delete",
            Self::Named => "named",
        }
    }
}

/// Whether a request that waits goes to its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum RequestAnswer {
    Granted,
    /// One such request is granted until a [`FromGateway::Claimed`] uses it, for at most [`limit::KEPT_GRANT_S`] seconds.
    Kept,
    Refused,
    /// No answer came in time.
    Expired,
    /// No client waits for its call, or the call has ended.
    NoCall,
    /// The call was refused such a request before, or has asked about too many.
    TooMany,
}

/// A session's certificate authority. The broker stores it for a gateway's successor, and reads the certificate only.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Authority {
    /// In PEM, for the cells: at most [`limit::CERTIFICATE`] bytes.
    pub certificate: String,
    /// The gateway's own form of its key: at most [`limit::CERTIFICATE`] bytes.
    #[serde(with = "serde_bytes")]
    pub key: Vec<u8>,
}

/// A frame from the gateway. The broker takes nothing of it as true but for its record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromGateway {
    /// Answers [`ToGateway::Serve`]: it is confined and serves. The authority is there if a connection may be decrypted.
    Serving(Option<Authority>),
    /// The end of a connection that a cell requested.
    Connected(ConnectionReport),
    /// A value is needed: a request goes to one of the credential's hosts for the first time, or the host has refused the value before. At
    /// most one such question a credential at a time.
    Wanted {
        /// The credential, by its place in [`GatewaySpec::credentials`].
        credential: u16,
    },
    /// Uses of a credential, counted. Answered by [`ToGateway::Recorded`]: the first use of a call waits for that.
    Used(CredentialReport),
    /// A request waits for an answer: at most one of a call at a time. After a while its program is told to come back, and the question
    /// stays open.
    Asked(HeldRequest),
    /// A request uses the grant that is kept for it ([`RequestAnswer::Kept`]). It has a number of its own.
    Claimed(HeldRequest),
    /// A connection to the user's ssh agent is needed.
    AgentWanted,
    /// A signature waits for an answer.
    SignatureWanted(HeldSignature),
    /// Connections that were reported as [`FromGateway::Connected`] have ended.
    Disconnected(ConnectionEnds),
}

/// Connections of one call to one place that have ended within a second, for the audit. Whoever has connected is a program of a cell, or at
/// a published port one of this machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnectionEnds {
    /// The host in its canonical form, as in [`ConnectionReport`].
    pub host: String,
    pub port: u16,
    /// The call of the cell, as in [`ConnectionReport`].
    pub call: Option<CallId>,
    /// The verdict that was reported of them at their beginning.
    pub verdict: ConnectionVerdict,
    /// How many: at least one.
    pub count: u32,
    /// Bytes that whoever has connected has sent on all of them, and received: with TLS, as encrypted.
    pub sent: u64,
    pub received: u64,
}

/// Uses of one credential with one result, for the audit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CredentialReport {
    /// The credential, by its place in [`GatewaySpec::credentials`].
    pub credential: u16,
    /// The host in its canonical form, as in [`ConnectionReport`].
    pub host: String,
    pub port: u16,
    /// The request's method: at most [`limit::METHOD`] letters.
    pub method: String,
    pub verdict: CredentialVerdict,
    /// How many: at least one.
    pub count: u32,
    /// The call of the cell, as in [`ConnectionReport`].
    pub call: Option<CallId>,
}

/// The result of a request in which a credential is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum CredentialVerdict {
    /// The value was put in place of the placeholder.
    Used,
    /// The value was put where there was none.
    Attached,
    /// The placeholder passed as text: the request is none of its uses.
    Passed,
    /// Refused: it would make new credentials, or puts the placeholder into a credential's header of another host.
    Refused,
    /// Its source gave no value: a request that was to have it is refused, and answers pass unsearched.
    NoValue,
    /// The connection was cut: the answer contained the value.
    Echoed,
    /// An answer gave a program tokens, and they stayed with the gateway.
    Captured,
}

impl CredentialVerdict {
    pub const ALL: [Self; 7] = [
        Self::Used,
        Self::Attached,
        Self::Passed,
        Self::Refused,
        Self::NoValue,
        Self::Echoed,
        Self::Captured,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Used => "used",
            Self::Attached => "attached",
            Self::Passed => "passed",
            Self::Refused => "refused",
            Self::NoValue => "no_value",
            Self::Echoed => "echoed",
            Self::Captured => "captured",
        }
    }
}

/// A request for a connection to a published port of the session's loopback, of IPv4 or IPv6. It carries two descriptors: where the
/// answer goes, and a TCP socket, which is connected unless the answer carries another. The answer is an error number of four bytes.
pub fn published_request(port: u16, v6: bool) -> [u8; 4] {
    let [low, high] = port.to_le_bytes();
    [b'c', if v6 { 6 } else { 4 }, low, high]
}

impl GatewaySpec {
    /// The place of the proxy's login in its credentials.
    fn login(&self) -> Option<u16> {
        self.proxy.as_ref()?.login
    }

    /// Checks every limit that the type itself does not enforce.
    ///
    /// # Errors
    /// The field at fault.
    pub fn check(&self) -> Result<(), TooLarge> {
        at_most(
            "credentials",
            self.credentials.len(),
            limit::CREDENTIALS + usize::from(self.login().is_some()),
            "entries",
        )?;
        at_most(
            "authorities",
            self.authorities.len(),
            limit::AUTHORITIES,
            "bytes",
        )?;
        let rules = || self.rules.iter().flatten();
        at_most("rules", rules().count(), limit::REQUEST_RULES, "entries")?;
        rules().try_for_each(RequestRule::check)?;
        limit::ports("connect", &self.connect)?;
        limit::ports("publish", &self.publish)?;
        at_most("publish", self.publish.len(), 2 * limit::PUBLISHED, "ports")?;
        if let Some(proxy) = &self.proxy {
            proxy.check(self.credentials.len())?;
        }
        at_most("ssh", self.ssh.len(), limit::SSH_KEYS, "entries")?;
        let known_hosts = self.known_hosts.len();
        at_most("known_hosts", known_hosts, limit::KNOWN_HOSTS, "bytes")?;
        self.ssh.iter().try_for_each(SshSpec::check)?;
        self.credentials.iter().try_for_each(CredentialSpec::check)
    }
}

/// A host as `known_hosts` names it: the broker takes its lines by this name, and the gateway compares them by it.
pub fn known_host_name(host: &str, port: u16) -> String {
    match port {
        22 => host.to_owned(),
        _ => format!("[{host}]:{port}"),
    }
}

impl SshSpec {
    fn check(&self) -> Result<(), TooLarge> {
        at_most("hosts", self.hosts.len(), limit::HOSTS, "entries")?;
        at_most("keys", self.keys.len(), limit::SSH_KEYS, "entries")
    }
}

impl HeldSignature {
    /// Checks every limit that the type itself does not enforce.
    ///
    /// # Errors
    /// The field at fault.
    pub fn check(&self) -> Result<(), TooLarge> {
        if self.question & SIGNATURE_QUESTION == 0 {
            return Err(TooLarge {
                field: "question",
                rule: "a number of a signature".into(),
            });
        }
        match &self.purpose {
            SignaturePurpose::Login { host, port: _ } => {
                at_most("host", host.len(), limit::HOST, "bytes")
            }
            SignaturePurpose::Git => Ok(()),
        }
    }
}

impl ProxySpec {
    /// `credentials` is their number.
    fn check(&self, credentials: usize) -> Result<(), TooLarge> {
        at_most("host", self.host.len(), limit::HOST, "bytes")?;
        at_most("direct", self.direct.len(), limit::DIRECT_PLACES, "entries")?;
        match self.login {
            Some(login) if usize::from(login) >= credentials => Err(TooLarge {
                field: "login",
                rule: "a credential of the session".into(),
            }),
            Some(_) | None => Ok(()),
        }
    }
}

impl LoginSpec {
    fn check(&self) -> Result<(), TooLarge> {
        let endpoints = self.endpoints.len();
        at_most("endpoints", endpoints, limit::LOGIN_ENDPOINTS, "entries")?;
        for (field, names) in [("claims", &self.claims), ("members", &self.members)] {
            at_most(field, names.len(), limit::LOGIN_NAMES, "entries")?;
        }
        let names = self.claims.iter().chain(&self.members);
        let mut names = names.chain([&self.access_prefix, &self.refresh_prefix]);
        names.try_for_each(|name| at_most("login", name.len(), limit::LOGIN_NAME, "bytes"))
    }
}

impl CredentialSpec {
    fn check(&self) -> Result<(), TooLarge> {
        if let Attach::Login(login) = &self.attach {
            login.check()?;
        }
        at_most("hosts", self.hosts.len(), limit::HOSTS, "entries")?;
        at_most("uses", self.uses.len(), limit::CREDENTIAL_USES, "entries")?;
        self.uses.iter().try_for_each(CredentialUse::check)?;
        at_most(
            "placeholder",
            self.placeholder.len(),
            limit::PLACEHOLDER,
            "bytes",
        )?;
        if !self.placeholder.is_empty() && self.placeholder.bytes().all(|b| b.is_ascii_graphic()) {
            return Ok(());
        }
        Err(TooLarge {
            field: "placeholder",
            rule: "visible ASCII, and not empty".into(),
        })
    }
}

impl CredentialUse {
    fn check(&self) -> Result<(), TooLarge> {
        let service = self.service.as_ref().map_or(0, String::len);
        at_most("service", service, limit::SERVICE, "bytes")?;
        let why = self.why.as_ref().map_or(0, String::len);
        at_most("why", why, limit::RULE_WHY, "bytes")?;
        at_most("actions", self.actions.len(), limit::ACTIONS, "entries")?;
        let mut actions = self.actions.iter();
        actions.try_for_each(|action| at_most("actions", action.len(), limit::ACTION, "bytes"))
    }
}

impl RequestRule {
    /// Returns it with its name cut at its limit.
    pub fn cut(mut self) -> Self {
        limit::cut(&mut self.name);
        self
    }

    fn check(&self) -> Result<(), TooLarge> {
        at_most("host", self.host.len(), limit::HOST, "bytes")?;
        at_most(
            "methods",
            self.methods.len(),
            limit::RULE_METHODS,
            "entries",
        )?;
        at_most("paths", self.paths.len(), limit::RULE_PATHS, "entries")?;
        for (field, text, most) in [
            ("why", self.why.as_ref(), limit::RULE_WHY),
            ("name", Some(&self.name), limit::DENIAL_TEXT),
        ] {
            at_most(field, text.map_or(0, String::len), most, "bytes")?;
        }
        let methods = self
            .methods
            .iter()
            .map(|text| ("methods", text, limit::METHOD));
        let paths = self
            .paths
            .iter()
            .map(|text| ("paths", text, limit::RULE_PATH));
        let mut texts = methods.chain(paths);
        texts.try_for_each(|(field, text, most)| at_most(field, text.len(), most, "bytes"))
    }
}

impl HeldRequest {
    /// Checks every limit that the type itself does not enforce.
    ///
    /// # Errors
    /// The field at fault.
    pub fn check(&self) -> Result<(), TooLarge> {
        check_method(&self.method)?;
        at_most("path", self.path.len(), limit::RULE_PATH, "bytes")?;
        if !self.path.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(TooLarge {
                field: "path",
                rule: "visible ASCII".into(),
            });
        }
        at_most("effects", self.effects.len(), limit::EFFECTS, "entries")?;
        for RequestEffect { object, change, .. } in &self.effects {
            for text in [object, change] {
                at_most("effects", text.len(), limit::DENIAL_TEXT, "bytes")?;
            }
        }
        check_place(&self.host, self.port, 1)
    }
}

impl Authority {
    /// Checks every limit that the type itself does not enforce.
    ///
    /// # Errors
    /// The field at fault.
    pub fn check(&self) -> Result<(), TooLarge> {
        for (field, length) in [
            ("certificate", self.certificate.len()),
            ("key", self.key.len()),
        ] {
            at_most(field, length, limit::CERTIFICATE, "bytes")?;
        }
        Ok(())
    }
}

impl ConnectionEnds {
    /// Checks every limit that the type itself does not enforce.
    ///
    /// # Errors
    /// The field at fault.
    pub fn check(&self) -> Result<(), TooLarge> {
        check_place(&self.host, self.port, self.count)
    }
}

impl CredentialReport {
    /// Checks every limit that the type itself does not enforce.
    ///
    /// # Errors
    /// The field at fault.
    pub fn check(&self) -> Result<(), TooLarge> {
        check_method(&self.method)?;
        check_place(&self.host, self.port, self.count)
    }
}

fn check_method(method: &str) -> Result<(), TooLarge> {
    at_most("method", method.len(), limit::METHOD, "bytes")?;
    if method.bytes().all(|byte| byte.is_ascii_uppercase()) {
        return Ok(());
    }
    Err(TooLarge {
        field: "method",
        rule: "letters in upper case".into(),
    })
}

/// A place has the limits of a report on a connection.
fn check_place(host: &str, port: u16, count: u32) -> Result<(), TooLarge> {
    let connection = ConnectionReport {
        host: host.to_owned(),
        port,
        verdict: ConnectionVerdict::Allowed,
        count,
        call: None,
        why: None,
        private: None,
    };
    connection.check()
}
