//! The frames between a broker and the gateway of its session, pinned in `golden/gateway.txt`. Both are programs of one release, so these bytes
//! have no version: a change is looked at, and written with `LAZARET_GOLDEN=write`.

use super::{framed, hex, reread};
use broker_protocol::gateway::*;
use broker_protocol::ticket::WebTicket;
use broker_protocol::{ConnectionReport, ConnectionVerdict, HostList, Lease, Leased};
use std::fmt::Write;

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/golden/gateway.txt");

#[test]
fn gateway_messages_equal_their_golden_bytes() {
    let now = render();
    if std::env::var_os("LAZARET_GOLDEN").is_some() {
        std::fs::write(FILE, &now).unwrap();
    }
    let then = std::fs::read_to_string(FILE).unwrap_or_default();
    assert_eq!(
        then, now,
        "the border has changed: write golden/gateway.txt again with LAZARET_GOLDEN=write, and look at its diff"
    );
}

#[test]
fn every_example_of_the_gateways_border_reads_back() {
    for (name, frame) in to_gateway() {
        assert_eq!(reread(&frame), frame, "{name}");
    }
    for (name, frame) in from_gateway() {
        assert_eq!(reread(&frame), frame, "{name}");
    }
    for (name, ticket) in tickets() {
        let message = ticket.encode().unwrap();
        assert_eq!(WebTicket::decode(&message).unwrap(), ticket, "{name}");
    }
}

/// The matches do not compile when a variant is added.
#[test]
fn every_variant_of_the_gateways_border_has_an_example() {
    let to = |frame: &ToGateway| match frame {
        ToGateway::Serve(_) => 0,
        ToGateway::Leases(_) => 1,
        ToGateway::Value { .. } => 2,
        ToGateway::NoValue { .. } => 3,
        ToGateway::Answered { .. } => 4,
        ToGateway::Agent => 5,
        ToGateway::NoAgent(_) => 6,
        ToGateway::Recorded => 7,
    };
    let from = |frame: &FromGateway| match frame {
        FromGateway::Serving(_) => 0,
        FromGateway::Connected(_) => 1,
        FromGateway::Wanted { .. } => 2,
        FromGateway::Used(_) => 3,
        FromGateway::Asked(_) => 4,
        FromGateway::AgentWanted => 5,
        FromGateway::SignatureWanted(_) => 6,
        FromGateway::Claimed(_) => 7,
        FromGateway::Disconnected(_) => 8,
    };
    let attach = |attach: &Attach| match attach {
        Attach::Bearer => 0,
        Attach::Basic { .. } => 1,
        Attach::Any { .. } => 2,
        Attach::Header { .. } => 3,
        Attach::Aws => 4,
        Attach::Login(_) => 5,
    };
    let has_all = |mut seen: Vec<usize>, count: usize| {
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen, (0..count).collect::<Vec<_>>());
    };
    has_all(to_gateway().iter().map(|(_, frame)| to(frame)).collect(), 8);
    has_all(
        from_gateway()
            .iter()
            .map(|(_, frame)| from(frame))
            .collect(),
        9,
    );
    has_all(
        credentials()
            .iter()
            .map(|one| attach(&one.attach))
            .collect(),
        6,
    );
    let verdicts = from_gateway()
        .into_iter()
        .filter_map(|(_, frame)| match frame {
            FromGateway::Used(report) => Some(report.verdict),
            FromGateway::Serving(_)
            | FromGateway::Connected(_)
            | FromGateway::Disconnected(_)
            | FromGateway::Wanted { .. }
            | FromGateway::Asked(_)
            | FromGateway::AgentWanted
            | FromGateway::Claimed(_)
            | FromGateway::SignatureWanted(_) => None,
        });
    assert_eq!(verdicts.collect::<Vec<_>>(), CredentialVerdict::ALL);
    assert_eq!(spec().check(), Ok(()));
}

fn render() -> String {
    let mut text = String::new();
    for (name, frame) in to_gateway() {
        writeln!(text, "to gateway, {name} = {}", hex(&framed(&frame))).unwrap();
    }
    for (name, frame) in from_gateway() {
        writeln!(text, "from gateway, {name} = {}", hex(&framed(&frame))).unwrap();
    }
    for (name, ticket) in tickets() {
        writeln!(text, "ticket, {name} = {}", hex(&ticket.encode().unwrap())).unwrap();
    }
    text
}

/// Those of a broker for the gateway of its client.
fn tickets() -> [(&'static str, WebTicket); 2] {
    [
        ("fetch", WebTicket::fetch("https://a.example/")),
        ("search", WebTicket::search("words")),
    ]
}

fn credentials() -> Vec<CredentialSpec> {
    let user = || "u".to_owned();
    let attached = [
        Attach::Bearer,
        Attach::Basic { user: user() },
        Attach::Any { user: user() },
        Attach::Header {
            name: "x-key".into(),
        },
        Attach::Aws,
        Attach::Login(LoginSpec {
            endpoints: vec![LoginEndpoint {
                host: "a.example:443".into(),
                path: "/oauth/token".into(),
            }],
            access_prefix: "a-".into(),
            refresh_prefix: "r-".into(),
            claims: vec!["exp".into()],
            members: vec!["account".into()],
        }),
    ];
    let spec = |attach| CredentialSpec {
        name: "one".into(),
        placeholder: "lazaret-placeholder".into(),
        hosts: vec!["a.example:443".into()],
        attach,
        uses: vec![CredentialUse {
            host: Some("a.example:443".into()),
            methods: vec!["GET".into()],
            path: "/api/**".into(),
            unasked: true,
            refused: false,
            otherwise: true,
            why: Some("why".into()),
            service: Some("s3".into()),
            actions: vec!["policy".into()],
        }],
    };
    attached.map(spec).into()
}

fn authority() -> Authority {
    Authority {
        certificate: "pem".into(),
        key: vec![1, 2],
    }
}

fn rule(action: RuleAction) -> RequestRule {
    RequestRule {
        host: "a.example".into(),
        port: Some(443),
        methods: vec!["GET".into()],
        paths: vec!["/a/**".into()],
        action,
        why: Some("w".into()),
        name: "p:1".into(),
    }
}

fn spec() -> GatewaySpec {
    GatewaySpec {
        lists: vec![HostList {
            allow: Some(vec!["a.example:443".into()]),
            private: Some(vec!["10.0.0.0/8".into()]),
        }],
        credentials: credentials(),
        authority: Some(authority()),
        authorities: "pem".into(),
        proxy: Some(ProxySpec {
            host: "proxy.corp".into(),
            port: 3128,
            names: true,
            direct: vec!["*.corp".into()],
            login: Some(3),
        }),
        rules: vec![vec![
            rule(RuleAction::Allow),
            rule(RuleAction::Ask),
            rule(RuleAction::Deny),
        ]],
        connect: vec![5432],
        publish: vec![3000, 3000],
        announced: true,
        ssh: vec![SshSpec {
            name: "one".into(),
            hosts: vec!["a.example:22".into()],
            user: "git".into(),
            keys: vec!["SHA256:x".into()],
            signs: true,
        }],
        known_hosts: "a.example ssh-ed25519 AAAA".into(),
    }
}

fn to_gateway() -> Vec<(&'static str, ToGateway)> {
    let lease = Lease {
        lease: 1,
        opens: Leased::Host("b.example:443".into()),
        call: 7,
        alone: false,
    };
    let why = "its file is gone".to_owned();
    let answered = |answer| ToGateway::Answered {
        question: 3,
        answer,
    };
    vec![
        ("granted", answered(RequestAnswer::Granted)),
        ("kept", answered(RequestAnswer::Kept)),
        ("refused", answered(RequestAnswer::Refused)),
        ("expired", answered(RequestAnswer::Expired)),
        ("no call", answered(RequestAnswer::NoCall)),
        ("too many", answered(RequestAnswer::TooMany)),
        ("serve", ToGateway::Serve(GatewaySpec::default())),
        ("serve, with all", ToGateway::Serve(spec())),
        ("leases", ToGateway::Leases(vec![lease])),
        ("value", ToGateway::Value { credential: 1 }),
        ("no value", ToGateway::NoValue { credential: 1, why }),
        ("agent", ToGateway::Agent),
        ("no agent", ToGateway::NoAgent("there is none".into())),
        ("recorded", ToGateway::Recorded),
    ]
}

fn from_gateway() -> Vec<(&'static str, FromGateway)> {
    let connected = ConnectionReport {
        host: "a.example".into(),
        port: 443,
        verdict: ConnectionVerdict::Allowed,
        count: 1,
        why: None,
        private: None,
        call: Some(7),
    };
    let refused = ConnectionReport {
        verdict: ConnectionVerdict::NotPublic,
        why: Some("why".into()),
        private: Some("10.0.0.1:443".into()),
        ..connected.clone()
    };
    let used = CredentialVerdict::ALL.map(|verdict| {
        let report = CredentialReport {
            credential: 1,
            host: "a.example".into(),
            port: 443,
            method: "GET".into(),
            verdict,
            count: 2,
            call: Some(7),
        };
        (verdict.name(), FromGateway::Used(report))
    });
    let asked = HeldRequest {
        question: 3,
        call: 7,
        rule: 1,
        host: "a.example".into(),
        port: 443,
        method: "POST".into(),
        path: "/o/r/git-receive-pack".into(),
        credential: Some(1),
        effects: [
            EffectKind::Create,
            EffectKind::Update,
            EffectKind::Delete,
            EffectKind::Named,
        ]
        .map(|kind| RequestEffect {
            object: "refs/heads/main".into(),
            kind,
            change: "new".into(),
        })
        .into(),
    };
    let signature = |purpose| {
        FromGateway::SignatureWanted(HeldSignature {
            question: SIGNATURE_QUESTION | 3,
            call: 7,
            ssh: 1,
            purpose,
        })
    };
    let login = SignaturePurpose::Login {
        host: "a.example".into(),
        port: 22,
    };
    let others = [
        ("serving", FromGateway::Serving(None)),
        (
            "serving, with an authority",
            FromGateway::Serving(Some(authority())),
        ),
        ("connected", FromGateway::Connected(connected)),
        ("connected, refused", FromGateway::Connected(refused)),
        (
            "disconnected",
            FromGateway::Disconnected(ConnectionEnds {
                host: "a.example".into(),
                port: 443,
                call: Some(7),
                verdict: ConnectionVerdict::Allowed,
                count: 2,
                sent: 3,
                received: 1 << 40,
            }),
        ),
        ("wanted", FromGateway::Wanted { credential: 1 }),
        ("asked", FromGateway::Asked(asked.clone())),
        ("claimed", FromGateway::Claimed(asked)),
        ("agent wanted", FromGateway::AgentWanted),
        ("login", signature(login)),
        ("signature for git", signature(SignaturePurpose::Git)),
    ];
    others.into_iter().chain(used).collect()
}
