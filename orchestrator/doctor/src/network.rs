//! The network of commands: the program that carries it, and what `[gateway]` of the policy sets. Nothing is connected to from here;
//! that the files and the login can be used is seen when the examined session opens.

use policies::gateway::{DirectPlace, ProxyAddress, ProxyChoice};
use policies::{CredentialSource, GatewaySettings, ProxySettings};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

const PROGRAM: &str = "lazaret-gateway";

/// The network of commands on this machine.
#[derive(Debug)]
pub struct CommandNetwork {
    /// The gateway's program, if it is not where the executor looks for it.
    missing: Option<PathBuf>,
    authorities: Vec<PathBuf>,
    proxy: Option<String>,
}

impl CommandNetwork {
    /// For an executor at this path. `variable` reads the environment, which is this program's: a broker elsewhere has its own.
    pub fn of(
        executor: &Path,
        settings: &GatewaySettings,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Self {
        let program = executor.with_file_name(PROGRAM);
        let proxy = settings.proxy.as_ref();
        Self {
            missing: (!program.is_file()).then_some(program),
            authorities: settings.authorities.clone(),
            proxy: proxy.map(|proxy| describe(proxy, variable)),
        }
    }

    /// Whether the policy sets anything that a session has to open with to be tried.
    pub fn is_set(&self) -> bool {
        self.proxy.is_some() || !self.authorities.is_empty()
    }

    /// Rows of a name and a text, and what is lost if one is missing.
    pub fn rows(&self) -> Vec<(&'static str, String, Option<&'static str>)> {
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
        let authorities = self.authorities.iter();
        let authorities = authorities.map(|path| ("authorities", path.display().to_string(), None));
        missing
            .into_iter()
            .chain(proxy)
            .chain(authorities)
            .collect()
    }

    pub fn json(&self) -> Value {
        json!({
            "program": { "missing": self.missing },
            "proxy": self.proxy,
            "authorities": self.authorities,
        })
    }
}

fn describe(proxy: &ProxySettings, variable: impl Fn(&str) -> Option<String>) -> String {
    let first = |names: [&str; 2]| {
        let mut values = names.into_iter().filter_map(&variable);
        values.find(|value| !value.trim().is_empty())
    };
    let mut direct: Vec<String> = texts(&proxy.direct);
    let place = match &proxy.choice {
        ProxyChoice::Address(address) => url(address),
        ProxyChoice::Environment => {
            let Some(value) = first(["https_proxy", "HTTPS_PROXY"]) else {
                return "none: HTTPS_PROXY is not set here".to_owned();
            };
            if let Some(value) = first(["no_proxy", "NO_PROXY"]) {
                direct.extend(texts(&DirectPlace::of_variable(&value).0));
            }
            match ProxyAddress::of_variable(value.trim(), proxy.login.is_some()) {
                Ok(address) => format!("{} (HTTPS_PROXY)", url(&address)),
                Err(fault) => return format!("HTTPS_PROXY cannot be used: {fault}"),
            }
        }
    };
    let told = match proxy.names {
        true => "is told names",
        false => "is told addresses",
    };
    let login = match &proxy.login {
        None => String::new(),
        Some(CredentialSource::File(path)) => format!("; login from {}", path.display()),
        Some(CredentialSource::Systemd(name)) => {
            format!("; login from the systemd credential {name}")
        }
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
        }
    }

    fn rows(choice: ProxyChoice, variables: &[(&str, &str)]) -> Vec<String> {
        let variable = |name: &str| {
            let found = variables.iter().find(|(own, _)| *own == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        let executor = Path::new("/is/not/there/lazaret-executor");
        let network = CommandNetwork::of(executor, &settings(choice), variable);
        let rows = network.rows().into_iter();
        rows.map(|(name, text, _)| format!("{name}: {text}"))
            .collect()
    }

    #[test]
    fn what_the_policy_sets_and_what_is_missing_is_named() {
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
