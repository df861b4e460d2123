//! The network of commands: the program that carries it, what `[gateway]` of the policy sets, and whether its proxy answers. That the
//! files and the login can be used is seen when the examined session opens.

use crate::proxy::{self, ProxyReport, ProxyTarget};
use orchestrator_launch::network::OwnNetworkError;
use policies::gateway::{DirectPlace, GatewayFault, ProxyAddress, ProxyChoice};
use policies::{CredentialSource, EffectivePolicy, GatewaySettings, ProxySettings};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

const PROGRAM: &str = "lazaret-gateway";

/// The network of commands on this machine.
#[derive(Debug)]
pub(crate) struct CommandNetwork {
    /// The gateway's program, if it is not where the executor looks for it.
    missing: Option<PathBuf>,
    authorities: Vec<PathBuf>,
    proxy: Option<String>,
    /// The proxy and what it is asked for.
    way: Option<(ProxyAddress, ProxyTarget)>,
    asked: Option<ProxyReport>,
    /// Why no request of `lazaret` itself goes out: what `[gateway]` names cannot be used.
    unusable: Option<String>,
}

impl CommandNetwork {
    /// For an executor at this path. `variable` reads the environment, which is this program's: a broker elsewhere has its own.
    pub(crate) fn of(
        executor: &Path,
        policy: &EffectivePolicy,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Self {
        let network = Self::of_settings(executor, &policy.gateway, &variable);
        let proxy = policy.gateway.proxy.as_ref();
        let way = proxy.and_then(|proxy| {
            let (address, direct) = address(proxy, &variable)?.ok()?;
            let all: Vec<DirectPlace> = proxy.direct.iter().cloned().chain(direct).collect();
            Some((address, ProxyTarget::of(policy, proxy, &all)))
        });
        Self { way, ..network }
    }

    fn of_settings(
        executor: &Path,
        settings: &GatewaySettings,
        variable: &impl Fn(&str) -> Option<String>,
    ) -> Self {
        let program = executor.with_file_name(PROGRAM);
        let proxy = settings.proxy.as_ref();
        Self {
            missing: (!program.is_file()).then_some(program),
            authorities: settings.authorities.clone(),
            proxy: proxy.map(|proxy| describe(proxy, variable)),
            way: None,
            asked: None,
            unusable: None,
        }
    }

    /// Asks the proxy, if there is one, whether it opens a tunnel to a host that the policy names. Before this process gives up its
    /// network.
    pub(crate) fn ask(self) -> Self {
        let way = self.way.as_ref();
        let asked = way.map(|(address, target)| proxy::ask(address, target));
        Self { asked, ..self }
    }

    /// Adds the result of trying to use it for requests of `lazaret` itself.
    pub(crate) fn tried(self, tried: Result<(), OwnNetworkError>) -> Self {
        Self {
            unusable: tried.err().map(|error| error.to_string()),
            ..self
        }
    }

    /// Whether the policy sets anything that a session has to open with to be tried.
    pub(crate) fn is_set(&self) -> bool {
        self.proxy.is_some() || !self.authorities.is_empty()
    }

    /// Rows of a name and a text, and what is lost if one is missing.
    pub(crate) fn rows(&self) -> Vec<(&'static str, String, Option<&'static str>)> {
        let missing = self.missing.as_ref().map(|path| {
            let lost = "lost: commands have no network; install it beside `lazaret-executor`";
            (
                PROGRAM,
                format!("{} does not exist", path.display()),
                Some(lost),
            )
        });
        let proxy = self
            .proxy
            .iter()
            .map(|proxy| ("proxy", proxy.clone(), None));
        let asked = self.asked.iter().map(|asked| {
            let lost = asked
                .fault()
                .map(|_| "lost: neither commands nor `lazaret` reach a host through it");
            ("proxy answers", asked.describe(), lost)
        });
        let authorities = self.authorities.iter();
        let authorities = authorities.map(|path| ("authorities", path.display().to_string(), None));
        let unusable = self.unusable.iter().map(|why| {
            let lost = "lost: providers, the web tools and MCP servers with an address";
            ("own requests", why.clone(), Some(lost))
        });
        missing
            .into_iter()
            .chain(proxy)
            .chain(asked)
            .chain(authorities)
            .chain(unusable)
            .collect()
    }

    pub(crate) fn json(&self) -> Value {
        json!({
            "program": { "missing": self.missing },
            "proxy": self.proxy,
            "proxyAnswers": self.asked.as_ref().map(ProxyReport::json),
            "authorities": self.authorities,
            "ownRequests": self.unusable.as_ref().map_or(
                json!({ "ok": true }),
                |why| json!({ "ok": false, "why": why }),
            ),
        })
    }
}

/// The proxy's address and the places that the environment excludes from it; `None` if the environment sets no proxy.
fn address(
    proxy: &ProxySettings,
    variable: &impl Fn(&str) -> Option<String>,
) -> Option<Result<(ProxyAddress, Vec<DirectPlace>), GatewayFault>> {
    let first = |names: [&str; 2]| {
        let mut values = names.into_iter().filter_map(variable);
        values.find(|value| !value.trim().is_empty())
    };
    match &proxy.choice {
        ProxyChoice::Address(address) => Some(Ok((address.clone(), Vec::new()))),
        ProxyChoice::Environment => {
            let value = first(["https_proxy", "HTTPS_PROXY"])?;
            let direct = first(["no_proxy", "NO_PROXY"]);
            let direct = direct.map_or_else(Vec::new, |value| DirectPlace::of_variable(&value).0);
            let address = ProxyAddress::of_variable(value.trim(), proxy.login.as_ref());
            Some(address.map(|address| (address, direct)))
        }
    }
}

fn describe(proxy: &ProxySettings, variable: &impl Fn(&str) -> Option<String>) -> String {
    let (address, direct) = match address(proxy, variable) {
        None => return "none: HTTPS_PROXY is not set here".to_owned(),
        Some(Err(fault)) => return format!("HTTPS_PROXY cannot be used: {fault}"),
        Some(Ok(known)) => known,
    };
    let direct: Vec<String> = texts(&proxy.direct)
        .into_iter()
        .chain(texts(&direct))
        .collect();
    let place = match &proxy.choice {
        ProxyChoice::Address(_) => url(&address),
        ProxyChoice::Environment => format!("{} (HTTPS_PROXY)", url(&address)),
    };
    let told = match proxy.names {
        true => "is told names",
        false => "is told addresses",
    };
    let login = match &proxy.login {
        None | Some(CredentialSource::Session) => String::new(),
        Some(CredentialSource::File(path)) => format!("; login from {}", path.display()),
        Some(CredentialSource::Systemd(name)) => {
            format!("; login from the systemd credential {name}")
        }
        Some(CredentialSource::Variable(name)) => format!("; login from the variable {name}"),
        Some(CredentialSource::Command(words)) => {
            let program = words.first().map_or("", String::as_str);
            format!("; login from the command {program}")
        }
    };
    let without = match direct.is_empty() {
        true => String::new(),
        false => format!("; without it: {}", direct.join(", ")),
    };
    format!("{place} {told}{login}{without}")
}

fn texts(direct: &[DirectPlace]) -> Vec<String> {
    direct.iter().map(|place| place.text().to_owned()).collect()
}

fn url(address: &ProxyAddress) -> String {
    format!("http://{}:{}", address.host, address.port)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(choice: ProxyChoice) -> GatewaySettings {
        GatewaySettings {
            authorities: vec!["/etc/company.pem".into()],
            proxy: Some(ProxySettings {
                choice,
                direct: vec![DirectPlace::try_from("*.corp".to_owned()).unwrap()],
                names: true,
                login: Some(CredentialSource::File("/home/u/login".into())),
                file: String::new(),
            }),
            from_client: false,
        }
    }

    fn rows(choice: ProxyChoice, variables: &[(&str, &str)]) -> Vec<String> {
        let variable = |name: &str| {
            let found = variables.iter().find(|(own, _)| *own == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        let executor = Path::new("/is/not/there/lazaret-executor");
        let network = CommandNetwork::of_settings(executor, &settings(choice), &variable);
        let rows = network.rows().into_iter();
        rows.map(|(name, text, _)| format!("{name}: {text}"))
            .collect()
    }

    #[test]
    fn policy_settings_and_missing_files_are_reported() {
        let address = ProxyAddress::parse("http://proxy.corp:3128").unwrap();
        assert_eq!(
            rows(ProxyChoice::Address(address), &[]),
            [
                "lazaret-gateway: /is/not/there/lazaret-gateway does not exist",
                "proxy: http://proxy.corp:3128 is told names; login from /home/u/login; without it: *.corp",
                "authorities: /etc/company.pem",
            ]
        );
    }

    #[test]
    fn the_environments_proxy_is_named_without_its_password() {
        let of = |variables: &[(&str, &str)]| rows(ProxyChoice::Environment, variables).remove(1);
        assert_eq!(of(&[]), "proxy: none: HTTPS_PROXY is not set here");
        let seen = of(&[
            ("HTTPS_PROXY", "http://u:secret@proxy.corp:3128"),
            ("NO_PROXY", "localhost"),
        ]);
        assert!(
            seen.starts_with("proxy: http://proxy.corp:3128 (HTTPS_PROXY) is told names"),
            "{seen}"
        );
        assert!(
            seen.contains("localhost") && !seen.contains("secret"),
            "{seen}"
        );
        let seen = of(&[("HTTPS_PROXY", "socks5://u:secret@proxy.corp")]);
        assert!(
            seen.contains("cannot be used") && !seen.contains("secret"),
            "{seen}"
        );
    }
}
