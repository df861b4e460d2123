//! Classes of network addresses. A name that a stranger controls may stand for any address; only public ones are
//! reached without a line in a policy.
//!
//! The numbers are those of the IANA registries of special-purpose addresses (RFC 6890 and its successors), and the addresses at
//! which clouds give keys to whoever can reach them.

use serde::{Deserialize, Serialize};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// The kind of network an address is of, by the IANA registries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Class {
    Public,
    Loopback,
    /// A network of somebody's own: RFC 1918, unique and site local.
    Private,
    /// A provider's network behind its address translation (RFC 6598).
    Shared,
    LinkLocal,
    /// A cloud's metadata service, which hands out keys.
    Metadata,
    Multicast,
    /// None: `0.0.0.0/8`, `::`. Systems take it for themselves.
    Unspecified,
    Broadcast,
    /// Also networks for measurements.
    Documentation,
    /// IPv6 that carries IPv4 by a way that a gateway of the network chooses: 6to4, Teredo, IPv4-compatible, local NAT64.
    Tunnel,
    /// Assigned to nobody, or to a protocol.
    Reserved,
}

impl Class {
    /// The name in messages to people and models.
    pub fn name(self) -> &'static str {
        match self {
            Class::Public => "public",
            Class::Loopback => "loopback",
            Class::Private => "private",
            Class::Shared => "provider-internal",
            Class::LinkLocal => "link-local",
            Class::Metadata => "cloud metadata",
            Class::Multicast => "multicast",
            Class::Unspecified => "unspecified",
            Class::Broadcast => "broadcast",
            Class::Documentation => "documentation",
            Class::Tunnel => "tunnel",
            Class::Reserved => "reserved",
        }
    }

    /// Whether a host's name in a policy is enough to reach it. For the others the address itself has to be there: no
    /// name means a metadata service or a whole network on purpose.
    pub fn opens_by_name(self) -> bool {
        matches!(
            self,
            Class::Public | Class::Loopback | Class::Private | Class::Shared
        )
    }
}

/// The class of `address`. One that carries an IPv4 address in it is judged by that as well.
pub fn class(address: IpAddr) -> Class {
    match address {
        IpAddr::V4(address) => class_v4(address),
        IpAddr::V6(address) => class_v6(address),
    }
}

const V4: [(&str, Class); 20] = [
    ("169.254.169.254/32", Class::Metadata), // AWS, Google, Azure, OpenStack and most others
    ("169.254.170.2/32", Class::Metadata),   // AWS, containers
    ("100.100.100.200/32", Class::Metadata), // Alibaba
    ("192.0.0.192/32", Class::Metadata),     // Oracle
    ("168.63.129.16/32", Class::Metadata),   // Azure, though it looks public
    ("255.255.255.255/32", Class::Broadcast),
    ("0.0.0.0/8", Class::Unspecified),
    ("10.0.0.0/8", Class::Private),
    ("100.64.0.0/10", Class::Shared),
    ("127.0.0.0/8", Class::Loopback),
    ("169.254.0.0/16", Class::LinkLocal),
    ("172.16.0.0/12", Class::Private),
    ("192.0.0.0/24", Class::Reserved),
    ("192.0.2.0/24", Class::Documentation),
    ("192.88.99.0/24", Class::Reserved),
    ("192.168.0.0/16", Class::Private),
    ("198.18.0.0/15", Class::Documentation),
    ("198.51.100.0/24", Class::Documentation),
    ("203.0.113.0/24", Class::Documentation),
    ("224.0.0.0/4", Class::Multicast),
];

fn class_v4(address: Ipv4Addr) -> Class {
    match listed(&V4, address.into()) {
        Some(class) => class,
        None if address.octets()[0] >= 240 => Class::Reserved,
        None => Class::Public,
    }
}

fn listed(list: &[(&str, Class)], address: IpAddr) -> Option<Class> {
    let found = list
        .iter()
        .find(|(net, _)| net.parse().is_ok_and(|net: Net| net.holds(address)));
    found.map(|(_, class)| *class)
}

const V6: [(&str, Class); 14] = [
    ("::/128", Class::Unspecified),
    ("::1/128", Class::Loopback),
    ("fd00:ec2::254/128", Class::Metadata), // AWS
    ("fd20:ce::254/128", Class::Metadata),  // Google
    ("::/96", Class::Tunnel),               // IPv4-compatible, long given up
    ("::ffff:0:0:0/96", Class::Tunnel),     // SIIT
    ("64:ff9b:1::/48", Class::Tunnel),      // NAT64 of a network's own
    ("2001::/23", Class::Tunnel),           // Teredo, ORCHID, and what the IETF keeps
    ("2001:db8::/32", Class::Documentation),
    ("2002::/16", Class::Tunnel), // 6to4
    ("3fff::/20", Class::Documentation),
    ("fc00::/7", Class::Private),
    ("fe80::/10", Class::LinkLocal),
    ("fec0::/10", Class::Private),
];

fn class_v6(address: Ipv6Addr) -> Class {
    if let Some(inner) = address.to_ipv4_mapped() {
        return class_v4(inner);
    }
    // NAT64's well-known prefix is how a network without IPv4 reaches all of it, so the inner address decides.
    let nat64 = Net::new(Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0).into(), 96);
    if nat64.holds(address.into()) {
        let [.., a, b, c, d] = address.octets();
        return class_v4(Ipv4Addr::new(a, b, c, d));
    }
    if address.is_multicast() {
        return Class::Multicast;
    }
    match listed(&V6, address.into()) {
        Some(class) => class,
        // Nothing else is given out: `2000::/3`.
        None if address.segments()[0] & 0xe000 == 0x2000 => Class::Public,
        None => Class::Reserved,
    }
}

/// A network: an address and how many of its bits count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Net {
    is_v4: bool,
    bits: u128,
    mask: u128,
}

impl Net {
    fn new(address: IpAddr, prefix: u32) -> Self {
        let mask = u128::MAX.checked_shl(128 - prefix).unwrap_or(0);
        Self {
            is_v4: address.is_ipv4(),
            bits: bits(address),
            mask,
        }
    }

    /// Whether `address` lies in it. An IPv4-mapped address is the IPv4 address.
    pub fn holds(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        address.is_ipv4() == self.is_v4 && (bits(address) ^ self.bits) & self.mask == 0
    }
}

/// The bits of an address, from the first.
fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(address.to_bits()) << 96,
        IpAddr::V6(address) => address.to_bits(),
    }
}

fn width(address: IpAddr) -> u32 {
    if address.is_ipv4() { 32 } else { 128 }
}

impl From<IpAddr> for Net {
    fn from(address: IpAddr) -> Self {
        let address = address.to_canonical();
        Self::new(address, width(address))
    }
}

impl FromStr for Net {
    type Err = ();

    /// `10.0.0.0/8`, `fd00::/8`; an address alone is a network of one. Bits behind the prefix must be 0: whoever writes
    /// `10.1.2.3/8` has not said which of the two is meant.
    fn from_str(text: &str) -> Result<Self, ()> {
        let (address, prefix) = text
            .split_once('/')
            .map_or((text, None), |(a, prefix)| (a, Some(prefix)));
        let address: IpAddr = address.parse().map_err(|_| ())?;
        let prefix = match prefix {
            Some(text) if text.bytes().all(|byte| byte.is_ascii_digit()) => {
                text.parse().map_err(|_| ())?
            }
            Some(_) => return Err(()),
            None => width(address),
        };
        if prefix > width(address) {
            return Err(());
        }
        let net = Self::new(address, prefix);
        if net.bits & !net.mask == 0 {
            Ok(net)
        } else {
            Err(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Class {
        class(text.parse().unwrap())
    }

    #[test]
    fn every_network_ends_at_its_last_address() {
        use Class::*;
        for (text, want) in [
            ("0.0.0.0", Unspecified),
            ("0.255.255.255", Unspecified),
            ("1.0.0.0", Public),
            ("9.255.255.255", Public),
            ("10.0.0.0", Private),
            ("10.255.255.255", Private),
            ("11.0.0.0", Public),
            ("100.63.255.255", Public),
            ("100.64.0.0", Shared),
            ("100.100.100.200", Metadata),
            ("100.127.255.255", Shared),
            ("100.128.0.0", Public),
            ("126.255.255.255", Public),
            ("127.0.0.0", Loopback),
            ("127.255.255.255", Loopback),
            ("128.0.0.0", Public),
            ("168.63.129.15", Public),
            ("168.63.129.16", Metadata),
            ("169.253.255.255", Public),
            ("169.254.0.0", LinkLocal),
            ("169.254.169.254", Metadata),
            ("169.254.255.255", LinkLocal),
            ("169.255.0.0", Public),
            ("172.15.255.255", Public),
            ("172.16.0.0", Private),
            ("172.31.255.255", Private),
            ("172.32.0.0", Public),
            ("192.0.0.192", Metadata),
            ("192.0.0.255", Reserved),
            ("192.0.1.0", Public),
            ("192.0.2.1", Documentation),
            ("192.88.99.1", Reserved),
            ("192.167.255.255", Public),
            ("192.168.0.0", Private),
            ("192.168.255.255", Private),
            ("192.169.0.0", Public),
            ("198.17.255.255", Public),
            ("198.18.0.0", Documentation),
            ("198.19.255.255", Documentation),
            ("198.20.0.0", Public),
            ("203.0.113.255", Documentation),
            ("223.255.255.255", Public),
            ("224.0.0.1", Multicast),
            ("239.255.255.255", Multicast),
            ("240.0.0.0", Reserved),
            ("255.255.255.254", Reserved),
            ("255.255.255.255", Broadcast),
            ("::", Unspecified),
            ("::1", Loopback),
            ("::2", Tunnel),
            ("::7f00:1", Tunnel),
            ("::ffff:127.0.0.1", Loopback),
            ("::ffff:169.254.169.254", Metadata),
            ("::ffff:8.8.8.8", Public),
            ("::ffff:0:127.0.0.1", Tunnel),
            ("64:ff9b::8.8.8.8", Public),
            ("64:ff9b::127.0.0.1", Loopback),
            ("64:ff9b::a9fe:a9fe", Metadata),
            ("64:ff9b:1::8.8.8.8", Tunnel),
            ("100::1", Reserved),
            ("1fff:ffff::", Reserved),
            ("2000::", Public),
            ("2001::1", Tunnel),
            ("2001:0:53aa:64c::80ff:fffe", Tunnel),
            ("2001:1ff:ffff::", Tunnel),
            ("2001:200::", Public),
            ("2001:db8::1", Documentation),
            ("2001:db9::1", Public),
            ("2002:7f00:1::", Tunnel),
            ("2002:808:808::", Tunnel),
            ("2003::", Public),
            ("2606:4700::1111", Public),
            ("3fff:fff::1", Documentation),
            ("3fff:1000::1", Public),
            ("4000::", Reserved),
            ("5f00::1", Reserved),
            ("fbff::", Reserved),
            ("fc00::", Private),
            ("fd00:ec2::253", Private),
            ("fd00:ec2::254", Metadata),
            ("fdff::1", Private),
            ("fe00::1", Reserved),
            ("fe80::1", LinkLocal),
            ("febf::1", LinkLocal),
            ("fec0::1", Private),
            ("ff02::1", Multicast),
            ("ffff::", Multicast),
        ] {
            assert_eq!(of(text), want, "{text}");
        }
    }

    #[test]
    fn a_network_is_written_exactly() {
        let net = |text: &str| text.parse::<Net>();
        for text in [
            "10.0.0.0/8",
            "0.0.0.0/0",
            "::/0",
            "fd00::/8",
            "127.0.0.1",
            "::1",
            "1.2.3.4/32",
        ] {
            assert!(net(text).is_ok(), "{text}");
        }
        for text in [
            "10.0.0.1/8",
            "10.0.0.0/33",
            "::/129",
            "10.0.0.0/",
            "10.0.0.0/+8",
            "10/8",
            "a",
            "",
            "fe80::1%eth0",
        ] {
            assert!(net(text).is_err(), "{text}");
        }
        let ten = net("10.0.0.0/8").unwrap();
        for (address, want) in [
            ("10.255.255.255", true),
            ("11.0.0.0", false),
            ("::ffff:10.1.1.1", true),
            ("::10.1.1.1", false),
            ("0a00::", false),
        ] {
            assert_eq!(ten.holds(address.parse().unwrap()), want, "{address}");
        }
        assert!(net("::/0").unwrap().holds("::5".parse().unwrap()));
        assert!(!net("::/0").unwrap().holds("1.1.1.1".parse().unwrap()));
    }
}
