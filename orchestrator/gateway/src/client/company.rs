//! `[gateway]` of the policy for the requests of one `lazaret`: told by a process of the executor, which has read and checked it, over a socket
//! that `lazaret` does not have. The proxy's login comes over it too, when it is first needed.

use crate::control::{ControlError, ControlSocket};
use crate::decrypted::{CertificateRoots, TlsTerminator};
use crate::relay::UpstreamProxy;
use crate::reports::ReportSender;
use crate::serve::{GatewayError, hear};
use broker_protocol::gateway::{GatewaySpec, ToGateway};
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use tokio::sync::watch;

/// A company's part of the network, as it was told.
pub(super) struct CompanyNetwork {
    pub authorities: CertificateRoots,
    pub proxy: Option<UpstreamProxy>,
    spec: GatewaySpec,
    control: Option<ControlSocket>,
}

pub(super) struct CompanyWork {
    control: ControlSocket,
    reports: ReportSender,
    ended: Rc<TlsTerminator>,
}

impl CompanyNetwork {
    /// Reads what comes over `socket`.
    ///
    /// # Errors
    /// Nothing comes, or what cannot be used.
    pub(super) fn read(socket: UnixStream) -> Result<Self, GatewayError> {
        let mut control = ControlSocket::new(socket);
        let frame = loop {
            match control.frame()? {
                Some(received) => break received.frame,
                None if control.receive()? => {}
                None => return Err(GatewayError::NoCompany),
            }
        };
        let ToGateway::Serve(spec) = frame else {
            return Err(ControlError::OutOfTurn("another first frame than Serve").into());
        };
        Ok(Self {
            control: Some(control),
            ..Self::of(spec)?
        })
    }

    fn of(spec: GatewaySpec) -> Result<Self, GatewayError> {
        let too_large = |_| ControlError::OutOfTurn("more than a policy may have");
        spec.check().map_err(too_large)?;
        let authorities = CertificateRoots::default().with_company(&spec.authorities);
        Ok(Self {
            authorities: authorities.map_err(|_| GatewayError::Roots)?,
            proxy: spec
                .proxy
                .as_ref()
                .map(UpstreamProxy::try_from)
                .transpose()?,
            spec,
            control: None,
        })
    }

    /// Begins to hold the proxy's login, and to ask for it. Needs a runtime.
    ///
    /// # Errors
    /// The kernel's.
    pub(super) fn begin(&mut self) -> Result<Option<CompanyWork>, GatewayError> {
        let Some(control) = self.control.take() else {
            return Ok(None);
        };
        let reports = ReportSender::new(control.socket().try_clone().map_err(ControlError::Io)?)?;
        let tell = reports.clone();
        // It ends no TLS: there is no credential but the login, which has no host.
        let ended = TlsTerminator::new(&self.spec, CertificateRoots::default(), move |frame| {
            tell.send(&frame)
        });
        Ok(Some(CompanyWork {
            control,
            reports,
            ended: Rc::new(ended?),
        }))
    }
}

impl CompanyWork {
    pub(super) fn login(&self) -> Rc<TlsTerminator> {
        self.ended.clone()
    }

    /// Asks for the login and takes it, until who gives it is gone.
    ///
    /// # Errors
    /// A frame cannot be read.
    pub(super) async fn run(self) -> Result<(), GatewayError> {
        let (leases, _in_force) = watch::channel(Vec::new());
        tokio::select! {
            () = self.reports.write() => Ok(()),
            heard = hear(self.control, &leases, (Some(&self.ended), None)) => heard,
        }
    }
}
