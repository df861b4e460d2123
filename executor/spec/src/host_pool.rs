//! Addresses that stand for the allowed hosts of a session, for programs that read no proxy variable: they look a name up in `/etc/hosts`,
//! connect to what they find there, and their supervisor makes that a connection to the host by way of the relay (`relay.rs`).
//!
//! An address is drawn for each name, so that what another session had says nothing. All lie in 198.18.0.0/15, which no network routes
//! (RFC 2544). 127.0.0.0/8 would not do: programs treat it as their own machine.

use executor_sys::random;
use std::collections::{BTreeMap, HashSet};
use std::io;
use std::net::Ipv4Addr;

/// An address of the range that the loopback of a session with a pool has, and no host. Without it, programs that ask only for
/// addresses of families that they have (`AI_ADDRCONFIG`) get none of IPv4.
pub const OWN: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);
/// Maximum number of hosts that get an address.
const HOSTS_MAX: usize = 2048;
/// Maximum bytes of the machine's `/etc/hosts` that a session takes over.
pub const MACHINE_MAX: usize = 1 << 20;
/// Replaces the host's file if it is longer, or unreadable.
const NOTHING_ELSE: &[u8] = b"127.0.0.1 localhost\n::1 localhost\n";

/// The addresses of a session's hosts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostPool(BTreeMap<Ipv4Addr, String>);

impl HostPool {
    /// Draws an address for each name, but for those of the cell itself: `own` and `localhost`. Those over the maximum have none.
    ///
    /// # Errors
    /// The kernel's (`getrandom`).
    pub(crate) fn draw<'a>(
        names: impl IntoIterator<Item = &'a str>,
        own: &str,
    ) -> io::Result<Self> {
        let is_own = |name: &str| {
            name.eq_ignore_ascii_case(own) || name == "localhost" || name.ends_with(".localhost")
        };
        let names = names.into_iter().filter(|name| !is_own(name));
        let mut pool = BTreeMap::new();
        for name in names.take(HOSTS_MAX) {
            let mut address = drawn()?;
            while pool.contains_key(&address) {
                address = drawn()?;
            }
            pool.insert(address, name.to_owned());
        }
        Ok(Self(pool))
    }

    /// Whether no host has an address.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether this is an address of the pool, be it a host's or not. Where there are no hosts, there is no pool.
    pub fn has(&self, address: Ipv4Addr) -> bool {
        !self.is_empty() && is_in_range(address)
    }

    /// The host for which this address stands.
    pub fn host(&self, address: Ipv4Addr) -> Option<&str> {
        self.0.get(&address).map(String::as_str)
    }

    /// The session's `/etc/hosts`: that of the machine, without what it says of these hosts, and their addresses.
    pub fn file(&self, machine: Option<&[u8]>) -> Vec<u8> {
        let machine = machine.filter(|text| text.len() <= MACHINE_MAX);
        let hosts: HashSet<&[u8]> = self.0.values().map(|host| host.as_bytes()).collect();
        let mut file = Vec::new();
        for line in machine.unwrap_or(NOTHING_ELSE).split(|byte| *byte == b'\n') {
            add_others(line, &hosts, &mut file);
        }
        for (address, name) in &self.0 {
            file.extend(format!("{address} {name}\n").bytes());
        }
        file
    }
}

/// Adds a line of the machine's without the names of `hosts`: programs try every address that they find.
fn add_others(line: &[u8], hosts: &HashSet<&[u8]>, file: &mut Vec<u8>) {
    let said = line.split(|byte| *byte == b'#').next().unwrap_or_default();
    let mut words = said
        .split(u8::is_ascii_whitespace)
        .filter(|word| !word.is_empty());
    let Some(address) = words.next() else {
        return;
    };
    let is_other = |name: &&[u8]| !hosts.contains(&*name.to_ascii_lowercase());
    let others: Vec<&[u8]> = words.filter(is_other).collect();
    if !others.is_empty() {
        file.extend([&[address][..], &others].concat().join(&b' '));
        file.push(b'\n');
    }
}

/// Whether an address lies where pools do, whichever session's.
pub(crate) fn is_in_range(address: Ipv4Addr) -> bool {
    let [a, b, ..] = address.octets();
    a == 198 && matches!(b, 18 | 19)
}

/// An address of the range, outside the first 256, and none that may be taken for a network's own or its broadcast.
fn drawn() -> io::Result<Ipv4Addr> {
    loop {
        let [b, c, d] = random::bytes()?;
        let address = Ipv4Addr::new(198, 18 + (b & 1), c, d);
        let is_first = b & 1 == 0 && c == 0;
        if !is_first && !matches!(d, 0 | 255) {
            return Ok(address);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(names: &[&str]) -> HostPool {
        HostPool::draw(names.iter().copied(), "me").unwrap()
    }

    fn text(file: Vec<u8>) -> String {
        String::from_utf8(file).unwrap()
    }

    #[test]
    fn each_host_has_an_address_that_differs_from_session_to_session() {
        let names: Vec<String> = (0..HOSTS_MAX + 1)
            .map(|n| format!("h{n}.example"))
            .collect();
        let draw = || HostPool::draw(names.iter().map(String::as_str), "me").unwrap();
        let (one, other) = (draw(), draw());
        assert_eq!(one.0.len(), HOSTS_MAX);
        for (address, name) in &one.0 {
            assert!(one.has(*address) && is_in_range(*address) && *address != OWN);
            assert_eq!(one.host(*address), Some(&**name));
        }
        let same = one
            .0
            .iter()
            .filter(|(address, name)| other.host(**address) == Some(&**name));
        assert!(same.count() < 10);
        let outside = [[198, 17, 255, 255], [198, 20, 0, 0], [127, 0, 0, 1]];
        assert!(outside.into_iter().all(|ip| !one.has(ip.into())));
    }

    #[test]
    fn pool_needs_a_host_other_than_the_cell_itself() {
        let none = pool(&["localhost", "a.localhost", "ME"]);
        assert!(none.is_empty() && !none.has(OWN));
    }

    #[test]
    fn the_machines_entries_stay_but_for_those_of_hosts() {
        let pool = pool(&["db.example", "b.example"]);
        let machine = b"127.0.0.1\tlocalhost vm\n# 10.0.0.9 x\n\n10.0.0.1 DB.example other # b\n10.0.0.2 b.example";
        let file = text(pool.file(Some(machine)));
        let (kept, ours) = file.split_at(file.find("198.").unwrap());
        assert_eq!(kept, "127.0.0.1 localhost vm\n10.0.0.1 other\n");
        for (address, name) in &pool.0 {
            assert!(ours.contains(&format!("{address} {name}\n")), "{ours}");
        }
        assert_eq!(ours.lines().count(), 2);
    }

    #[test]
    fn a_machines_file_that_is_too_large_or_missing_is_replaced() {
        let pool = pool(&["a.example"]);
        let line = b"10.0.0.1 b.example\n";
        let mut machine = line.repeat(MACHINE_MAX / line.len());
        machine.resize(MACHINE_MAX, b'#');
        assert!(text(pool.file(Some(&machine))).starts_with("10.0.0.1 b.example\n"));
        machine.push(b'#');
        for machine in [Some(&machine[..]), None] {
            assert!(
                text(pool.file(machine)).starts_with("127.0.0.1 localhost\n::1 localhost\n198.")
            );
        }
    }
}
