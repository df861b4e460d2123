//! The frames of approval, on the client's connection and on an approver's.

use broker_protocol::*;

pub fn challenge(channel: Channel) -> Challenge {
    Challenge {
        digest: Digest([0xd1; 32]),
        nonce: Nonce([0x0e; 16]),
        rule: "trust:guided".into(),
        why: "w".into(),
        risk: Risk::High,
        expires_s: 30,
        channel,
        covers: Coverage::Rule,
        programs: Vec::new(),
        wants: broker_protocol::Wants::default(),
    }
}

pub fn grant(extent: Extent) -> Grant {
    Grant {
        call: 7,
        digest: Digest([0xd1; 32]),
        nonce: Nonce([0x0e; 16]),
        extent,
    }
}

fn standing() -> Vec<SessionGrant> {
    let one = SessionGrant {
        grant: 1,
        rule: "trust:guided".into(),
        tool: "bash".into(),
        calls: 3,
        programs: vec!["git".into()],
        only: None,
        opens: None,
        ends_s: None,
    };
    let other = SessionGrant {
        grant: 2,
        rule: "rule:user:2".into(),
        only: Some(Digest([0xd1; 32])),
        ..one.clone()
    };
    let lease = SessionGrant {
        grant: 3,
        rule: "lease".into(),
        opens: Some(Leased::Host("a.example:443".into())),
        ends_s: Some(600),
        ..one.clone()
    };
    vec![one, other, lease]
}

fn leases() -> Vec<Lease> {
    let all = Lease {
        lease: 3,
        opens: Leased::Host("a.example:443".into()),
        call: 7,
        alone: false,
    };
    let read = Lease {
        lease: 5,
        opens: Leased::Read("/r".into()),
        ..all.clone()
    };
    let write = Lease {
        lease: 6,
        opens: Leased::Write("/w".into()),
        ..all.clone()
    };
    let port = Lease {
        lease: 7,
        opens: Leased::Port(5432),
        ..all.clone()
    };
    vec![
        all.clone(),
        Lease {
            lease: 4,
            alone: true,
            ..all
        },
        port,
        read,
        write,
    ]
}

pub fn to_broker() -> Vec<(&'static str, ToBroker)> {
    vec![
        ("grant once", ToBroker::Grant(grant(Extent::Once))),
        (
            "grant for the session",
            ToBroker::Grant(grant(Extent::Session)),
        ),
        (
            "grant for minutes",
            ToBroker::Grant(grant(Extent::Minutes(10))),
        ),
        ("refuse", ToBroker::Refuse { call: 7 }),
        ("grants", ToBroker::Grants),
        ("revoke", ToBroker::Revoke { grant: 1 }),
    ]
}

pub fn from_broker() -> Vec<(&'static str, FromBroker)> {
    let asked = |covers| FromBroker::Asked {
        call: 7,
        challenge: Challenge {
            covers,
            ..challenge(Channel::Relay)
        },
    };
    let ungranted = |fault| {
        FromBroker::Ungranted(Ungranted {
            call: 7,
            fault,
            violations: 2,
        })
    };
    vec![
        (
            "asked",
            FromBroker::Asked {
                call: 7,
                challenge: challenge(Channel::Relay),
            },
        ),
        ("asked, a grant for the call", asked(Coverage::Call)),
        ("asked, a grant for once", asked(Coverage::Once)),
        ("asked, a grant for like requests", asked(Coverage::Request)),
        (
            "asked, a grant for one request",
            asked(Coverage::RequestOnce),
        ),
        (
            "asked, with what it wants",
            FromBroker::Asked {
                call: 7,
                challenge: Challenge {
                    covers: Coverage::Wants,
                    wants: Wants {
                        hosts: vec!["a.example:443".into()],
                        read: vec!["/r".into()],
                        write: vec!["/w".into()],
                        connect: vec![5432],
                    },
                    ..challenge(Channel::Relay)
                },
            },
        ),
        ("leases", FromBroker::Leases(leases())),
        ("no leases", FromBroker::Leases(vec![])),
        ("ungranted, not waiting", ungranted(GrantFault::NotWaiting)),
        ("ungranted, other call", ungranted(GrantFault::OtherCall)),
        (
            "ungranted, other question",
            ungranted(GrantFault::OtherQuestion),
        ),
        (
            "ungranted, other channel",
            ungranted(GrantFault::OtherChannel),
        ),
        ("ungranted, too many", ungranted(GrantFault::TooMany)),
        ("grants", FromBroker::Grants(standing())),
    ]
}

pub fn from_approver() -> Vec<(&'static str, FromApprover)> {
    let examples = vec![
        (
            "hello",
            FromApprover::Hello(Hello {
                version: 0x0102,
                ..Hello::ours(None)
            }),
        ),
        ("look", FromApprover::Look { call: 7 }),
        ("grant", FromApprover::Grant(grant(Extent::Once))),
        (
            "refuse",
            FromApprover::Refuse {
                call: 7,
                nonce: Nonce([0x0e; 16]),
            },
        ),
        ("grants", FromApprover::Grants),
        ("revoke", FromApprover::Revoke { grant: 1 }),
    ];
    // A new variant does not compile here until it has an example above.
    examples.iter().for_each(|(_, message)| match message {
        FromApprover::Hello(_)
        | FromApprover::Look { .. }
        | FromApprover::Grant(_)
        | FromApprover::Refuse { .. }
        | FromApprover::Grants
        | FromApprover::Revoke { .. } => {}
    });
    examples
}

pub fn to_approver(opened: Opened) -> Vec<(&'static str, ToApprover)> {
    let ended = |decision| ToApprover::Ended { call: 7, decision };
    let request = Request::FileRead(FileRead {
        path: ZonePath::new(Zone::Project, "a").unwrap(),
        offset: None,
        limit: None,
    });
    let ungranted = Ungranted {
        call: 7,
        fault: GrantFault::NotWaiting,
        violations: 0,
    };
    let asked = ToApprover::Asked {
        call: 7,
        challenge: challenge(Channel::Separate),
        tool: "bash".into(),
    };
    let examples = vec![
        (
            "hello",
            ToApprover::Hello(Hello {
                version: 0x0102,
                ..Hello::ours(None)
            }),
        ),
        ("session", ToApprover::Session { opened, client: 42 }),
        ("asked", asked),
        (
            "content",
            ToApprover::Content {
                call: 7,
                bytes: b"abc".into(),
            },
        ),
        ("request", ToApprover::Request { call: 7, request }),
        (
            "before",
            ToApprover::Before {
                call: 7,
                bytes: b"old".into(),
            },
        ),
        ("seen", ToApprover::Seen { call: 7 }),
        (
            "ended, granted once",
            ended(Decision::Granted(Extent::Once)),
        ),
        (
            "ended, granted for the session",
            ended(Decision::Granted(Extent::Session)),
        ),
        ("ended, refused", ended(Decision::Refused)),
        ("ended, expired", ended(Decision::Expired)),
        ("ended, cancelled", ended(Decision::Cancelled)),
        ("ungranted", ToApprover::Ungranted(ungranted)),
        ("grants", ToApprover::Grants(standing())),
        (
            "fault",
            ToApprover::Fault(Failed {
                kind: ErrorKind::Protocol,
                message: "m".into(),
            }),
        ),
    ];
    // As above.
    examples.iter().for_each(|(_, message)| match message {
        ToApprover::Hello(_)
        | ToApprover::Session { .. }
        | ToApprover::Asked { .. }
        | ToApprover::Content { .. }
        | ToApprover::Request { .. }
        | ToApprover::Before { .. }
        | ToApprover::Seen { .. }
        | ToApprover::Ended { .. }
        | ToApprover::Ungranted(_)
        | ToApprover::Grants(_)
        | ToApprover::Fault(_) => {}
    });
    examples
}
