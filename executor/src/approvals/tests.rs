use super::*;
use broker_protocol::Risk;

fn approvals(channel: Channel) -> Approvals {
    let policy = policies::Approval {
        timeout_s: Some(1),
        channel,
        ..policies::Approval::default()
    };
    Approvals::new(&policy, None, None).unwrap()
}

/// Asks a question outside any session.
fn ask(approvals: &mut Approvals, call: CallId, rule: &str) -> Challenge {
    let challenge = Challenge {
        digest: Digest([call as u8; 32]),
        nonce: nonce().unwrap(),
        rule: rule.into(),
        why: String::new(),
        risk: Risk::Low,
        expires_s: 1,
        channel: approvals.channel,
        covers: Coverage::Rule,
        programs: Vec::new(),
        wants: Wants::default(),
    };
    let (deadline, tool) = (Instant::now() + approvals.timeout, "file_read".into());
    let open = OpenQuestion {
        challenge: challenge.clone(),
        tool,
        deadline,
        cost: 1,
        paths: vec![],
        outgoing: None,
    };
    approvals.questions.insert(call, open);
    challenge
}

fn yes(call: CallId, challenge: &Challenge) -> Grant {
    Grant {
        call,
        digest: challenge.digest,
        nonce: challenge.nonce,
        extent: Extent::Once,
    }
}

#[test]
fn an_answer_counts_by_its_channel_nonce_and_digest_and_once() {
    for channel in [Channel::Relay, Channel::Separate] {
        let other = if channel == Channel::Relay {
            Channel::Separate
        } else {
            Channel::Relay
        };
        let mut approvals = approvals(channel);
        let challenge = ask(&mut approvals, 1, "r");
        let honest = yes(1, &challenge);
        let fault = |approvals: &mut Approvals, grant: Grant, from| {
            approvals
                .take_grant(&grant, from)
                .map(drop)
                .map_err(|not| not.fault)
        };
        assert_eq!(
            fault(&mut approvals, honest, other),
            Err(GrantFault::OtherChannel)
        );
        let forged = Grant {
            nonce: Nonce([0; 16]),
            ..honest
        };
        assert_eq!(
            fault(&mut approvals, forged, channel),
            Err(GrantFault::OtherQuestion)
        );
        let swapped = Grant {
            digest: Digest([9; 32]),
            ..honest
        };
        assert_eq!(
            fault(&mut approvals, swapped, channel),
            Err(GrantFault::OtherCall)
        );
        assert_eq!(approvals.violations, 3);
        assert_eq!(fault(&mut approvals, honest, channel), Ok(()));
        assert_eq!(
            fault(&mut approvals, honest, channel),
            Err(GrantFault::NotWaiting)
        );
    }
}

#[test]
fn time_runs_out_before_the_poll_returns_too() {
    let mut approvals = approvals(Channel::Relay);
    let challenge = ask(&mut approvals, 1, "r");
    approvals.questions.get_mut(&1).unwrap().deadline = Instant::now();
    let late = approvals
        .take_grant(&yes(1, &challenge), Channel::Relay)
        .map(drop);
    assert_eq!(late.map_err(|not| not.fault), Err(GrantFault::NotWaiting));
    let expired = approvals.expire(Instant::now());
    assert!(matches!(expired[..], [ApprovalEvent::Ended(1, _)]));
    assert!(approvals.expire(Instant::now()).is_empty() && approvals.deadline().is_none());
}

#[test]
fn a_lasting_grant_answers_its_rule_for_its_tool() {
    let mut approvals = approvals(Channel::Relay);
    let challenge = ask(&mut approvals, 1, "r");
    let grant = Grant {
        extent: Extent::Session,
        ..yes(1, &challenge)
    };
    approvals
        .take_grant(&grant, Channel::Relay)
        .map(drop)
        .unwrap();
    assert!(approvals.has_session_grant("r", "file_read", &[], None));
    assert!(
        !approvals.has_session_grant("q", "file_read", &[], None)
            && !approvals.has_session_grant("r", "bash", &[], None)
    );
    assert!(!approvals.has_session_grant("r", "file_read", &[], Some(challenge.digest)));
    assert_eq!(approvals.session_grants[0].calls, 2);
    approvals.grants(Some(1));
    assert!(!approvals.has_session_grant("r", "file_read", &[], None));
}

#[test]
fn a_lasting_grant_in_doubt_answers_its_very_call() {
    let mut approvals = approvals(Channel::Relay);
    let challenge = ask(&mut approvals, 1, "r");
    approvals.questions.get_mut(&1).unwrap().challenge.covers = Coverage::Call;
    let grant = Grant {
        extent: Extent::Session,
        ..yes(1, &challenge)
    };
    approvals
        .take_grant(&grant, Channel::Relay)
        .map(drop)
        .unwrap();
    assert!(approvals.has_session_grant("r", "file_read", &[], Some(challenge.digest)));
    assert!(!approvals.has_session_grant("r", "file_read", &[], None));
    assert!(!approvals.has_session_grant("r", "file_read", &[], Some(Digest([9; 32]))));
}
