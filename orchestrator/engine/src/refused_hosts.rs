//! Hosts that cells were refused, for the results of the commands that were running.
//!
//! A report names the call, unless that has no client that waits for it, as in the background. Such a refusal is reported to every command
//! in progress; if there are several, the report says so.

use broker_protocol::{
    AttemptKind, Barrier, CallId, ConnectionReport, ConnectionVerdict, Denial, Denials, Remedy,
};
use policies::network;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

/// The refusals for each command in progress, by a number of its own.
#[derive(Default)]
pub(crate) struct RefusedHosts {
    commands: RefCell<HashMap<u64, DenialsByCall>>,
    last: Cell<u64>,
}

/// Refusals while a command ran, by the call that they are of: its own number it knows at its end.
type DenialsByCall = HashMap<Option<CallId>, Denials>;

/// A command in progress. Dropping it ends its reports.
pub(crate) struct RefusalListener {
    hosts: Rc<RefusedHosts>,
    number: u64,
}

impl RefusedHosts {
    /// Registers a command that begins.
    pub(crate) fn listen(self: &Rc<Self>) -> RefusalListener {
        let number = self.last.get() + 1;
        self.last.set(number);
        self.commands
            .borrow_mut()
            .insert(number, DenialsByCall::default());
        RefusalListener {
            hosts: self.clone(),
            number,
        }
    }

    /// Adds what the gateway refused, with the remedy that would open the host.
    pub(crate) fn hear(&self, report: &ConnectionReport, remedy: impl FnOnce() -> Remedy) {
        let mut commands = self.commands.borrow_mut();
        let Some(mut denial) = denial(report, remedy) else {
            return;
        };
        if report.call.is_none() && commands.len() > 1 {
            denial
                .why
                .push_str(" Several commands were running; one of them tried to reach it.");
        }
        commands
            .values_mut()
            .for_each(|denied| denied.entry(report.call).or_default().push(denial.clone()));
    }
}

impl RefusalListener {
    /// Refusals to this `call`, and those to nobody by name.
    pub(crate) fn refused(&self, call: CallId) -> Denials {
        let mut commands = self.hosts.commands.borrow_mut();
        let mut denied = Denials::default();
        if let Some(all) = commands.get_mut(&self.number) {
            let ours = [Some(call), None].map(|of| all.remove(&of));
            ours.into_iter()
                .flatten()
                .for_each(|found| denied.append(found));
        }
        denied
    }
}

impl Drop for RefusalListener {
    fn drop(&mut self) {
        self.hosts.commands.borrow_mut().remove(&self.number);
    }
}

/// The denial of a host that the policy closes. An unreachable host or a malformed request was not denied.
fn denial(report: &ConnectionReport, remedy: impl FnOnce() -> Remedy) -> Option<Denial> {
    let ConnectionReport {
        host,
        port,
        verdict,
        why,
        private,
        count,
        call: _,
    } = report;
    let mut barrier = Barrier::Hosts(None);
    let (why, remedy) = match verdict {
        ConnectionVerdict::NotListed => (
            "It is not among the hosts of this session.".to_owned(),
            remedy(),
        ),
        ConnectionVerdict::NotPublic => {
            let why = why.as_deref().unwrap_or("its address is not public");
            let remedy = private.as_deref().map_or(Remedy::Nothing, |private| {
                Remedy::Advice(network::advice_on_private(private))
            });
            (format!("{why}."), remedy)
        }
        ConnectionVerdict::RequestRefused
        | ConnectionVerdict::NoValue
        | ConnectionVerdict::NotTrusted
        | ConnectionVerdict::ProxyRefused
        | ConnectionVerdict::TlsRefused => {
            barrier = Barrier::Gateway;
            let why = why.as_deref().unwrap_or("the gateway refused it");
            let advice = gateway_advice(*verdict).map(str::to_owned);
            (
                format!("{why}."),
                advice.map_or(Remedy::Nothing, Remedy::Advice),
            )
        }
        ConnectionVerdict::Allowed
        | ConnectionVerdict::Unreachable
        | ConnectionVerdict::Malformed
        | ConnectionVerdict::Published
        | ConnectionVerdict::Stranger => {
            return None;
        }
    };
    // What the ssh agent refuses may be of no known host.
    let target = match host.is_empty() {
        true => "gateway".to_owned(),
        false => format!("{host}:{port}"),
    };
    let denial = Denial::new(AttemptKind::Connect, target, barrier, why, remedy);
    Some(Denial {
        count: *count,
        ..denial
    })
}

/// Advice on something that the gateway or a company's proxy has refused; `None` for what is none of that.
pub fn gateway_advice(verdict: ConnectionVerdict) -> Option<&'static str> {
    match verdict {
        ConnectionVerdict::RequestRefused => Some(
            "the policy decides: `lazaret policy show` prints what it says of requests and credentials",
        ),
        ConnectionVerdict::NoValue => Some("`lazaret credential test NAME` tries the source"),
        ConnectionVerdict::NotTrusted => Some(
            "the authority is in the files that SSL_CERT_FILE and NODE_EXTRA_CA_CERTS name: have the program read one of them, \
             as \"What a cell sees\" in the guide's page on credentials says",
        ),
        ConnectionVerdict::ProxyRefused => {
            Some("`[gateway]` of the policy sets the proxy; `lazaret doctor` asks it")
        }
        ConnectionVerdict::TlsRefused => Some(
            "a host that wants a certificate of its client's, or nobody between, works without a credential and without rules: \
             remove these, and write `tls = \"pass\"` for it in `[[profile.NAME.network.http]]` of the policy",
        ),
        ConnectionVerdict::Allowed
        | ConnectionVerdict::NotListed
        | ConnectionVerdict::NotPublic
        | ConnectionVerdict::Unreachable
        | ConnectionVerdict::Malformed
        | ConnectionVerdict::Published
        | ConnectionVerdict::Stranger => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(host: &str, verdict: ConnectionVerdict) -> ConnectionReport {
        ConnectionReport {
            host: host.into(),
            port: 443,
            verdict,
            why: Some("because".into()),
            private: Some(format!("{host}:443")),
            count: 1,
            call: None,
        }
    }

    #[test]
    fn a_refusal_goes_to_the_commands_that_run_then() {
        let remedy = || Remedy::Option("--allow-net npm".into());
        let hosts = Rc::new(RefusedHosts::default());
        hosts.hear(
            &report("before.example", ConnectionVerdict::NotListed),
            remedy,
        );
        let one = hosts.listen();
        for _ in 0..2 {
            hosts.hear(
                &report("registry.npmjs.org", ConnectionVerdict::NotListed),
                remedy,
            );
        }
        let two = hosts.listen();
        hosts.hear(&report("10.0.0.1", ConnectionVerdict::NotPublic), remedy);
        for verdict in [
            ConnectionVerdict::Allowed,
            ConnectionVerdict::Unreachable,
            ConnectionVerdict::Malformed,
        ] {
            hosts.hear(&report("other.example", verdict), remedy);
        }
        let texts = |denied: Denials| {
            denied
                .list()
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
        };
        let first = texts(one.refused(1));
        assert_eq!(
            first[0],
            "connect registry.npmjs.org:443 (2 times): It is not among the hosts of this session. [hosts; with --allow-net npm]"
        );
        assert!(
            first[1].contains("`private = [\"10.0.0.1:443\"]` in `[profile.NAME.network]`"),
            "{first:?}"
        );
        assert!(
            first[1].contains("Several commands were running") && first.len() == 2,
            "{first:?}"
        );
        assert_eq!(texts(two.refused(2)).len(), 1);
        assert!(one.refused(1).is_empty(), "told once");
        let of_two = ConnectionReport {
            call: Some(2),
            ..report("two.example", ConnectionVerdict::NotListed)
        };
        hosts.hear(&of_two, remedy);
        assert!(one.refused(1).is_empty());
        let alone = texts(two.refused(2));
        assert!(alone[0].contains("two.example") && !alone[0].contains("Several"));
        drop((one, two));
        assert!(hosts.commands.borrow().is_empty());
    }
}
