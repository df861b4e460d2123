//! The signature with which a host ends its key exchange, in what it sends before it encrypts (RFC 4253, 5656, 4419). Only the bytes of
//! a connection that the gateway has made itself are read here, in the direction from the host.
//!
//! A signature that was made in a connection elsewhere never passes here, so whoever presents one to the agent as its own is refused.

use crate::wire::WireReader;

/// Most bytes of lines before the first packet. They are read again with each part that comes.
const LINES_MAX: usize = 16 * 1024;
/// Most bytes of packets that are read before the keys are in use.
const CLEAR_MAX: usize = 64 * 1024;
/// Longest packet that an implementation must accept, with its length (RFC 4253, section 6.1).
const PACKET_MAX: usize = 35_000;
const NEWKEYS: u8 = 21;
/// `SSH_MSG_KEXDH_REPLY` and `SSH_MSG_KEX_ECDH_REPLY`; for a group that is agreed upon, the group.
const REPLY: u8 = 31;
/// `SSH_MSG_KEX_DH_GEX_REPLY`, where a group was agreed upon.
const GROUP_REPLY: u8 = 33;

/// The end of a key exchange as a host has sent it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SeenExchange {
    pub host_key: Vec<u8>,
    pub signature: Vec<u8>,
}

/// Reads a host's bytes until its first exchange is over.
#[derive(Debug)]
pub(super) enum ExchangeReader {
    /// Lines, the last of which names the version.
    Lines(Vec<u8>),
    Packets {
        held: Vec<u8>,
        read: usize,
    },
    /// The exchange is over, or is none.
    Done,
}

impl ExchangeReader {
    pub(super) fn new() -> Self {
        Self::Lines(Vec::new())
    }

    /// Takes the next bytes; returns the exchange when it is complete.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Option<SeenExchange> {
        match self {
            Self::Lines(held) => {
                held.extend(bytes);
                if held.len() > LINES_MAX {
                    *self = Self::Done;
                    return None;
                }
                let rest = after_version(held)?.to_vec();
                *self = Self::Packets {
                    held: Vec::new(),
                    read: 0,
                };
                self.push(&rest)
            }
            Self::Packets { held, read } => {
                held.extend(bytes);
                *read += bytes.len();
                let is_long = *read > CLEAR_MAX;
                match packets(held) {
                    PacketsRead::Partial if is_long => *self = Self::Done,
                    PacketsRead::Partial => {}
                    PacketsRead::Over => *self = Self::Done,
                    PacketsRead::Exchange(exchange) => {
                        *self = Self::Done;
                        return Some(exchange);
                    }
                }
                None
            }
            Self::Done => None,
        }
    }
}

/// The bytes after the line with the version, if that is complete. A host may send other lines before.
fn after_version(held: &[u8]) -> Option<&[u8]> {
    let mut rest = held;
    loop {
        let end = rest.iter().position(|byte| *byte == b'\n')?;
        let (line, next) = rest.split_at(end + 1);
        if line.starts_with(b"SSH-") {
            return Some(next);
        }
        rest = next;
    }
}

enum PacketsRead {
    /// The last packet is not complete.
    Partial,
    /// No exchange can be seen in what follows.
    Over,
    Exchange(SeenExchange),
}

/// Takes the complete packets out of `held`.
fn packets(held: &mut Vec<u8>) -> PacketsRead {
    loop {
        let Some(length) = WireReader::new(held).number() else {
            return PacketsRead::Partial;
        };
        let Some(whole) = usize::try_from(length).ok().and_then(|n| n.checked_add(4)) else {
            return PacketsRead::Over;
        };
        if !(8..=PACKET_MAX).contains(&whole) {
            return PacketsRead::Over;
        }
        if held.len() < whole {
            return PacketsRead::Partial;
        }
        let packet: Vec<u8> = held.drain(..whole).collect();
        let padding = usize::from(packet[4]);
        let Some(payload) = packet.get(5..whole.saturating_sub(padding)) else {
            return PacketsRead::Over;
        };
        match payload.first() {
            Some(&NEWKEYS) | None => return PacketsRead::Over,
            Some(&(REPLY | GROUP_REPLY)) => {
                if let Some(exchange) = reply(&payload[1..]) {
                    return PacketsRead::Exchange(exchange);
                }
            }
            Some(_) => {}
        }
    }
}

/// A reply: the host's key, its half of the exchange, and the signature. A group has two parts.
fn reply(content: &[u8]) -> Option<SeenExchange> {
    let mut reader = WireReader::new(content);
    let (host_key, _, signature) = (reader.string()?, reader.string()?, reader.string()?);
    reader.is_at_end().then(|| SeenExchange {
        host_key: host_key.to_vec(),
        signature: signature.to_vec(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::put_string;

    fn packet(payload: &[u8]) -> Vec<u8> {
        let padding = 4 + (8 - (payload.len() + 1) % 8) % 8;
        let length = u32::try_from(1 + payload.len() + padding).unwrap();
        let mut packet = length.to_be_bytes().to_vec();
        packet.push(padding as u8);
        packet.extend(payload);
        packet.extend(vec![0; padding]);
        packet
    }

    fn message(number: u8, parts: &[&[u8]]) -> Vec<u8> {
        let mut payload = vec![number];
        parts.iter().for_each(|part| put_string(&mut payload, part));
        packet(&payload)
    }

    fn read(bytes: &[u8], at_once: usize) -> Option<SeenExchange> {
        let mut reader = ExchangeReader::new();
        let mut found = bytes.chunks(at_once).map(|part| reader.push(part));
        found.find_map(|found| found)
    }

    #[test]
    fn the_reply_of_each_kind_of_exchange_is_seen() {
        let seen = SeenExchange {
            host_key: b"key".to_vec(),
            signature: b"signature".to_vec(),
        };
        let start = [b"a banner\r\nSSH-2.0-x\r\n", &*message(20, &[b"methods"])].concat();
        let plain = message(31, &[b"key", b"half", b"signature"]);
        let group = [
            message(31, &[b"prime", b"two"]),
            message(33, &[b"key", b"half", b"signature"]),
        ];
        for end in [plain, group.concat()] {
            let bytes = [&*start, &end, &packet(&[21]), &[0xee; 100]].concat();
            for at_once in [1, 7, bytes.len()] {
                assert_eq!(read(&bytes, at_once), Some(seen.clone()));
            }
        }
    }

    #[test]
    fn nothing_counts_after_the_keys_are_in_use_or_of_another_form() {
        let reply = message(31, &[b"key", b"half", b"signature"]);
        let version = b"SSH-2.0-x\r\n".as_slice();
        for bytes in [
            [version, &packet(&[21]), &reply].concat(),
            [version, &[0xff; 8], &reply].concat(),
            [version, &[0, 0, 0, 0], &reply].concat(),
            // More padding than there are bytes.
            [version, &[0, 0, 0, 12, 0xff], &[31; 11], &reply].concat(),
            [
                version,
                &message(31, &[b"key", b"half", b"signature", b"more"]),
            ]
            .concat(),
            [version, &message(31, &[b"key", b"half"])].concat(),
            reply.clone(),
            [
                &vec![b'a'; CLEAR_MAX + 1],
                b"\n".as_slice(),
                version,
                &reply,
            ]
            .concat(),
        ] {
            assert_eq!(read(&bytes, 1024), None);
        }
    }

    #[test]
    fn only_so_many_bytes_are_read() {
        let mut bytes = b"SSH-2.0-x\r\n".to_vec();
        for _ in 0..3 {
            bytes.extend(message(2, &[&[0; 30_000]]));
        }
        bytes.extend(message(31, &[b"key", b"half", b"signature"]));
        assert_eq!(read(&bytes, 1000), None);
    }
}
