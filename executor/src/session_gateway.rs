//! What a session does with its gateway: connections of cells are recorded and reported, repeated refusals as a number.

use crate::session::Session;
use broker_protocol::{ConnectionReport, Failed, FromBroker};
use executor_audit::record::Record;
use executor_gateway::GatewayEvent;
use std::os::fd::OwnedFd;
use std::time::Instant;

impl Session {
    /// Takes what the gateway has reported so far.
    pub fn hear_gateway(&mut self) -> Result<(), Failed> {
        let Some(gateway) = &mut self.gateway else {
            return Ok(());
        };
        let events = gateway.receive();
        self.found.extend(gateway.take_found());
        let now = Instant::now();
        for event in events {
            match event {
                GatewayEvent::Connected(report) => {
                    if self.repeats.is_new(&report, now) {
                        self.connected(report)?;
                    }
                }
                // A session without credentials has neither.
                GatewayEvent::Used(_) | GatewayEvent::Authority(_) => {}
                GatewayEvent::Wanted { credential } => {
                    let none = "this session has no credentials".to_owned();
                    self.deliver(credential, Err(none));
                }
            }
        }
        Ok(())
    }

    fn deliver(&mut self, credential: u16, value: Result<OwnedFd, String>) {
        if let Some(gateway) = &mut self.gateway {
            gateway.deliver(credential, value);
        }
    }

    /// Takes what the gateway has reported, and the refusals that were only counted: what belongs to a call that ends comes before its
    /// end, and none of it to a call that begins.
    pub fn settle_connections(&mut self) -> Result<(), Failed> {
        self.hear_gateway()?;
        let counted = self.repeats.take();
        counted
            .into_iter()
            .try_for_each(|report| self.connected(report))
    }

    /// Tells the gateway of the leases in force, and returns the frame that tells the client.
    pub fn leases_changed(&mut self) -> FromBroker {
        if let Some(gateway) = &mut self.gateway {
            gateway.set_leases(self.approvals.leases.in_force());
        }
        self.approvals.leases.message()
    }

    /// Handles the timeouts that are due.
    pub fn tick_gateway(&mut self, now: Instant) -> Result<(), Failed> {
        if let Some(gateway) = &mut self.gateway {
            gateway.tick(now);
            self.found.extend(gateway.take_found());
        }
        let counted = self.repeats.tick(now);
        counted
            .into_iter()
            .try_for_each(|report| self.connected(report))
    }

    /// Records what became of a connection, and tells the client.
    fn connected(&mut self, report: ConnectionReport) -> Result<(), Failed> {
        // A program chooses this name, and may put a secret into it.
        let host = self.audit.redacted(&report.host);
        self.audit.append(&Record::connection(&host, &report))?;
        self.outbox.push(FromBroker::Connected(report));
        Ok(())
    }
}
