//! Ports of this machine's loopback: what a supervisor has announced for one that the policy or a lease opens is connected to it, byte for
//! byte.

use crate::relay::Relay;
use crate::relay::connect;
use crate::relay::tunnel::{self, TunnelStart};
use broker_protocol::{CallId, ConnectionVerdict};
use orchestrator_reach::guard::Resolve;
use orchestrator_reach::place::Place;
use std::future::pending;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::num::NonZeroU16;
use tokio::net::TcpStream;

impl<R: Resolve + 'static> Relay<R> {
    /// Carries a connection to a port of this machine until it ends. A program whose connection fails sees it reset: for it the
    /// connection was made already.
    pub(super) async fn carry_to_machine(
        &self,
        (program, call): (TcpStream, CallId),
        port: NonZeroU16,
    ) {
        let port = port.get();
        // A failure only makes small messages slower.
        let _ = program.set_nodelay(true);
        self.pace.turn().await;
        let place = Place::new("127.0.0.1", port).ok();
        let is_own = self.ports.contains(&port);
        if !is_own {
            self.reports.all_heard().await;
        }
        if !is_own && !self.hosts.has_port(port, call) {
            let _ = program.set_zero_linger();
            let why = "neither the policy nor a lease of the call opens this port of this machine"
                .to_owned();
            self.tell(
                (place.as_ref(), call),
                ConnectionVerdict::NotListed,
                (Some(why), None),
            )
            .await;
            return;
        }
        let addresses: [SocketAddr; 2] = [
            (Ipv4Addr::LOCALHOST, port).into(),
            (Ipv6Addr::LOCALHOST, port).into(),
        ];
        match connect::first_of(&addresses).await {
            Ok(host) => {
                let open = self
                    .connected((place.as_ref(), call), ConnectionVerdict::Allowed)
                    .await;
                let beginning = TunnelStart {
                    first: Vec::new(),
                    host: None,
                    watched: None,
                    traffic: open.traffic.clone(),
                };
                let withdrawn = async {
                    match is_own {
                        true => pending().await,
                        false => self.hosts.port_withdrawn(port, call).await,
                    }
                };
                tokio::select! {
                    _ = tunnel::pass(&program, &host, beginning, self.idle()) => {}
                    () = withdrawn => {}
                }
            }
            Err(error) => {
                let _ = program.set_zero_linger();
                let why = (Some(error.to_string()), None);
                self.tell((place.as_ref(), call), ConnectionVerdict::Unreachable, why)
                    .await;
            }
        }
    }
}
