//! Decides whether a target may be reached, and at exactly which addresses. Later, only these addresses are connected to: if the
//! name resolves to others by then, that has no effect.

use crate::error::{ReachError, Unresolved};
use crate::target::Target;
use policies::WebPolicy;
use policies::web::not_public;
use std::io;
use std::net::{IpAddr, SocketAddr};

/// Maximum number of a name's addresses to try; all of them are checked.
const TRIED: usize = 8;

/// Resolves a host's name to its addresses.
pub trait Resolve {
    /// Every address of `host`, each with `port`.
    #[allow(async_fn_in_trait, reason = "whoever calls it is on the same thread")]
    async fn resolve(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>>;
}

/// The addresses of `target`. A checked target goes through [`admit`]; search engines are the user's own choice.
pub async fn locate(
    resolver: &impl Resolve,
    target: &Target,
) -> Result<Vec<SocketAddr>, Unresolved> {
    if let Some(address) = target.address() {
        return Ok(vec![SocketAddr::new(address, target.port())]);
    }
    let found = resolver.resolve(target.host(), target.port()).await;
    let found = found.map_err(|error| Unresolved(error.to_string()))?;
    if found.is_empty() {
        Err(Unresolved("it has no address".into()))
    } else {
        Ok(found)
    }
}

/// Checks `target` against the policy; returns the addresses to connect to.
pub async fn admit(
    policy: &WebPolicy,
    resolver: &impl Resolve,
    target: &Target,
) -> Result<Vec<SocketAddr>, ReachError> {
    foresee(policy, target)?;
    let mut found = locate(resolver, target).await?;
    judge(policy, target, found.iter().map(SocketAddr::ip))?;
    found.truncate(TRIED);
    Ok(found)
}

/// The policy's decision on `target`, whatever its addresses are. A name that is refused anyway is not resolved: the query alone
/// discloses it.
pub fn foresee(policy: &WebPolicy, target: &Target) -> Result<(), ReachError> {
    let (host, port) = (target.host(), target.port());
    if let Some(address) = target.address() {
        return judge(policy, target, [address]);
    }
    if !policy.allows(host, port) && !policy.names_private(host, port) {
        return Err(ReachError::Host {
            host: host.to_owned(),
            port,
        });
    }
    Ok(())
}

/// The same, and also that no address of `target` would allow a connection without TLS. For an actual call this is reported only
/// after its addresses are checked: a non-public address is the worse error.
pub fn foresee_all(policy: &WebPolicy, target: &Target) -> Result<(), ReachError> {
    foresee(policy, target)?;
    let (host, port) = (target.host(), target.port());
    let opens = || target.address().is_some() || policy.may_open(host, port);
    if target.is_plain() && !policy.allows_plain(host, port) && !opens() {
        return Err(ReachError::Plain {
            host: host.to_owned(),
        });
    }
    Ok(())
}

/// Checks all `addresses` of `target`. One refused address refuses them all: otherwise a name with an honest and a malicious
/// address would only have to be tried twice.
pub fn judge(
    policy: &WebPolicy,
    target: &Target,
    addresses: impl IntoIterator<Item = IpAddr>,
) -> Result<(), ReachError> {
    let (host, port) = (target.host(), target.port());
    let mut opened = true;
    for address in addresses {
        match not_public(address) {
            Some(_) if policy.opens(host, port, address) => {}
            Some(class) => {
                return Err(ReachError::Address {
                    host: host.to_owned(),
                    address,
                    class,
                });
            }
            None if policy.allows(host, port) => opened = false,
            None => {
                return Err(ReachError::Host {
                    host: host.to_owned(),
                    port,
                });
            }
        }
    }
    if target.is_plain() && !opened && !policy.allows_plain(host, port) {
        return Err(ReachError::Plain {
            host: host.to_owned(),
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use policies::web::WebTable;
    use std::cell::{Cell, RefCell};

    pub(super) fn policy(own: &str) -> WebPolicy {
        let own: WebTable = toml::from_str(own).unwrap();
        WebPolicy {
            own,
            bounds: vec![],
        }
    }

    /// Answers each query from the next list.
    struct Script {
        answers: RefCell<Vec<Vec<&'static str>>>,
        asked: Cell<usize>,
    }

    impl Script {
        fn new(answers: &[&[&'static str]]) -> Self {
            let answers = answers.iter().rev().map(|answer| answer.to_vec()).collect();
            Self {
                answers: RefCell::new(answers),
                asked: Cell::new(0),
            }
        }
    }

    impl Resolve for Script {
        async fn resolve(&self, _: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
            self.asked.set(self.asked.get() + 1);
            let answer = self
                .answers
                .borrow_mut()
                .pop()
                .ok_or_else(|| io::Error::other("no such name"))?;
            Ok(answer
                .iter()
                .map(|address| SocketAddr::new(address.parse().unwrap(), port))
                .collect())
        }
    }

    fn ask(
        policy: &WebPolicy,
        url: &str,
        answers: &[&[&'static str]],
    ) -> Result<Vec<SocketAddr>, ReachError> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        runtime.block_on(admit(
            policy,
            &Script::new(answers),
            &Target::parse(url).unwrap(),
        ))
    }

    #[test]
    fn each_spelling_and_each_kind_of_address_is_refused_and_a_line_opens_it() {
        let default = policy("allow = ['*']");
        let mut judged = 0;
        for (url, net) in [
            ("https://127.0.0.1/", "127.0.0.1/32"),
            ("https://0x7f.1/", "127.0.0.1/32"),
            ("https://2130706433/", "127.0.0.1/32"),
            ("https://017700000001/", "127.0.0.1/32"),
            ("https://127.0.0.1./", "127.0.0.1/32"),
            ("https://１２７.0.0.1/", "127.0.0.1/32"),
            ("https://0/", "0.0.0.0/8"),
            ("https://10.1.2.3/", "10.0.0.0/8"),
            ("https://172.31.0.1/", "172.16.0.0/12"),
            ("https://192.168.0.1/", "192.168.0.0/16"),
            ("https://100.64.0.1/", "100.64.0.0/10"),
            (
                "https://169.254.169.254/latest/meta-data/",
                "169.254.169.254/32",
            ),
            ("https://0xa9fea9fe/", "169.254.0.0/16"),
            ("https://168.63.129.16/", "168.63.129.16/32"),
            ("https://198.18.0.1/", "198.18.0.0/15"),
            ("https://203.0.113.1/", "203.0.113.0/24"),
            ("https://224.0.0.1/", "224.0.0.0/4"),
            ("https://255.255.255.255/", "255.255.255.255/32"),
            ("https://[::1]/", "::1/128"),
            ("https://[::]/", "::/128"),
            ("https://[::ffff:127.0.0.1]/", "127.0.0.0/8"),
            ("https://[::ffff:7f00:1]/", "127.0.0.0/8"),
            ("https://[::127.0.0.1]/", "::/96"),
            ("https://[64:ff9b::127.0.0.1]/", "64:ff9b::/96"),
            ("https://[64:ff9b::a9fe:a9fe]/", "64:ff9b::/96"),
            ("https://[64:ff9b:1::1]/", "64:ff9b:1::/48"),
            ("https://[2002:7f00:1::]/", "2002::/16"),
            ("https://[2001:0:7f00:1::]/", "2001::/32"),
            ("https://[2001:db8::1]/", "2001:db8::/32"),
            ("https://[fd00::1]/", "fd00::/8"),
            ("https://[fd00:ec2::254]/", "fd00:ec2::254/128"),
            ("https://[fe80::1]/", "fe80::/10"),
            ("https://[ff02::1]/", "ff00::/8"),
        ] {
            let refused = ask(&default, url, &[]);
            assert!(
                matches!(refused, Err(ReachError::Address { .. })),
                "{url}: {refused:?}"
            );
            let opened = policy(&format!("allow = ['*']\nprivate = ['{net}']"));
            assert!(ask(&opened, url, &[]).is_ok(), "{url} with {net}");
            judged += 1;
        }
        for url in [
            "https://1.1.1.1/",
            "https://[2606:4700::1111]/",
            "https://[64:ff9b::808:808]/",
        ] {
            assert!(ask(&default, url, &[]).is_ok(), "{url}");
        }
        println!("{judged} spellings and kinds of addresses refused, and opened by a line each");
    }

    #[test]
    fn every_address_of_an_answer_counts() {
        let default = policy("allow = ['*']");
        let pinned = ask(
            &default,
            "https://a.example:8443/",
            &[&["8.8.8.8", "2606:4700::1111"]],
        )
        .unwrap();
        assert_eq!(
            pinned,
            [
                "8.8.8.8:8443".parse().unwrap(),
                "[2606:4700::1111]:8443".parse().unwrap()
            ]
        );
        for answer in [
            ["8.8.8.8", "127.0.0.1"],
            ["127.0.0.1", "8.8.8.8"],
            ["8.8.8.8", "::ffff:10.0.0.1"],
        ] {
            let refused = ask(&default, "https://a.example/", &[&answer]);
            assert!(
                matches!(refused, Err(ReachError::Address { .. })),
                "{answer:?}"
            );
        }
        // The address after the last one that would be tried counts too.
        let mut many = vec!["8.8.8.8"; TRIED];
        assert_eq!(
            ask(&default, "https://a.example/", &[&many]).unwrap().len(),
            TRIED
        );
        many.push("8.8.4.4");
        assert_eq!(
            ask(&default, "https://a.example/", &[&many]).unwrap().len(),
            TRIED
        );
        many.push("127.0.0.1");
        assert!(matches!(
            ask(&default, "https://a.example/", &[&many]),
            Err(ReachError::Address { .. })
        ));
        assert!(matches!(
            ask(&default, "https://a.example/", &[&[]]),
            Err(ReachError::Unresolved(_))
        ));
    }

    #[test]
    fn name_is_resolved_once_and_that_answer_is_used() {
        let default = policy("allow = ['*']");
        let script = Script::new(&[&["8.8.8.8"], &["127.0.0.1"]]);
        let target = Target::parse("https://a.example/").unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        let pinned = runtime.block_on(admit(&default, &script, &target)).unwrap();
        assert_eq!(
            (pinned, script.asked.get()),
            (vec!["8.8.8.8:443".parse().unwrap()], 1)
        );
        // The second answer is checked like the first.
        assert!(runtime.block_on(admit(&default, &script, &target)).is_err());
    }

    #[test]
    fn a_host_that_is_not_on_the_list_is_not_even_looked_up() {
        let listed = policy("allow = ['*.a.example', 'b.example:8443']");
        for (url, want) in [
            ("https://x.a.example/", true),
            ("https://a.example/", false),
            ("https://b.example/", false),
            ("https://b.example:8443/", true),
            ("https://8.8.8.8/", false),
        ] {
            let script = Script::new(&[&["8.8.8.8"]]);
            let runtime = tokio::runtime::Builder::new_current_thread()
                .build()
                .unwrap();
            let answer = runtime.block_on(admit(&listed, &script, &Target::parse(url).unwrap()));
            assert_eq!(answer.is_ok(), want, "{url}");
            assert_eq!(script.asked.get(), usize::from(want), "{url}");
        }
        assert!(matches!(
            ask(&policy(""), "https://a.example/", &[&["8.8.8.8"]]),
            Err(ReachError::Host { .. })
        ));
    }

    #[test]
    fn a_private_name_means_its_port_and_no_public_place() {
        let lines = policy("private = ['box:8080']");
        assert!(ask(&lines, "http://box:8080/", &[&["192.168.1.2"]]).is_ok());
        assert!(matches!(
            ask(&lines, "http://box:8081/", &[&["192.168.1.2"]]),
            Err(ReachError::Host { .. })
        ));
        assert!(matches!(
            ask(&lines, "http://box:8080/", &[&["8.8.8.8"]]),
            Err(ReachError::Host { .. })
        ));
        assert!(matches!(
            ask(&lines, "http://box:8080/", &[&["169.254.169.254"]]),
            Err(ReachError::Address { .. })
        ));
    }

    #[test]
    fn plain_http_is_for_hosts_that_are_named_for_it() {
        let default = policy("allow = ['*']");
        assert!(matches!(
            ask(&default, "http://a.example/", &[&["8.8.8.8"]]),
            Err(ReachError::Plain { .. })
        ));
        let named = policy("allow = ['*']\nhttp = ['a.example']");
        assert!(ask(&named, "http://a.example/", &[&["8.8.8.8"]]).is_ok());
        assert!(ask(&named, "http://b.example/", &[&["8.8.8.8"]]).is_err());
        // Opening a private network does not allow the public internet without TLS.
        let net = policy("allow = ['*']\nprivate = ['127.0.0.0/8']");
        assert!(ask(&net, "http://a.example/", &[&["127.0.0.1"]]).is_ok());
        assert!(matches!(
            ask(&net, "http://a.example/", &[&["127.0.0.1", "8.8.8.8"]]),
            Err(ReachError::Plain { .. })
        ));
    }
}
