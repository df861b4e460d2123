//! Settings of the gateway's proxy and authorities: the files that may set them, and their combination.

use crate::credentials::source;
use crate::error::PolicyError;
use crate::gateway::{GatewaySettings, ProxySettings};
use crate::host::Host;
use crate::model::PolicyFile;
use crate::resolve::Policies;

impl Policies {
    /// Checks that one file at most sets the proxy: a user's file must not lead around the administrator's.
    pub(crate) fn check_gateway(&self) -> Result<(), PolicyError> {
        let mut earlier: Option<&str> = None;
        for (file, content) in self.general() {
            let Some(table) = content.gateway.as_ref() else {
                continue;
            };
            if table.get_ref().proxy.is_none() {
                continue;
            }
            if let Some(earlier) = earlier.replace(file.name()) {
                let (line, column) = file.place(table.span().start);
                return Err(PolicyError::Proxy {
                    file: file.name().to_owned(),
                    line,
                    column,
                    earlier: earlier.to_owned(),
                });
            }
        }
        Ok(())
    }

    /// Combined settings of all files, with paths of this machine.
    ///
    /// # Errors
    /// A path cannot be used here.
    pub fn gateway(&self, host: &Host) -> Result<GatewaySettings, PolicyError> {
        let mut settings = GatewaySettings {
            from_client: self.permits_gateways_of_clients(),
            ..GatewaySettings::default()
        };
        for (file, content) in self.general() {
            let Some(table) = content.gateway.as_ref().map(toml::Spanned::get_ref) else {
                continue;
            };
            let fault = |key, (path, why)| PolicyError::GatewayPath {
                file: file.name().to_owned(),
                key,
                path,
                why,
            };
            for path in table.ca.iter().flatten() {
                let expanded = path.expand(host);
                let expanded = expanded.map_err(|why| fault("ca", (path.text().to_owned(), why)));
                settings.authorities.push(expanded?);
            }
            let Some(choice) = table.proxy.clone() else {
                continue;
            };
            let login = table.proxy_from.as_ref();
            let login = login.map(|entry| source(Some(entry), host)).transpose();
            settings.proxy = Some(ProxySettings {
                choice,
                direct: table.no_proxy.clone().unwrap_or_default(),
                names: table.proxy_names == Some(true),
                login: login.map_err(|wrong| fault("proxy_from", wrong))?,
                file: file.name().to_owned(),
            });
        }
        Ok(settings)
    }

    /// A file says so, of those that lock if there are any, and none says no.
    fn permits_gateways_of_clients(&self) -> bool {
        let said = |content: &PolicyFile| content.gateway.as_ref()?.get_ref().from_client;
        let files = || self.general().map(|(_, content)| content);
        let is_locked = files().any(|content| content.lock);
        let mut permitting = files().filter(|content| content.lock || !is_locked);
        permitting.any(|content| said(content) == Some(true))
            && files().all(|content| said(content) != Some(false))
    }
}
