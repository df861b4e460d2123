//! Valid inputs to start from for each target, with its meaningful tokens.

use std::sync::OnceLock;

/// The valid inputs and tokens of a target.
pub struct Seeds {
    pub inputs: Vec<Vec<u8>>,
    pub tokens: Vec<Vec<u8>>,
}

/// One example of every frame and answer, from the golden file.
const GOLDEN: &str = include_str!("../../golden/frames.txt");

/// Policy files: all shipped ones, one that uses every feature, and small ones with an error.
const POLICIES: [&str; 12] = [
    include_str!("../../../policies/profiles/rules.toml"),
    "version = 1\n[approval]\ntrust = \"ask\"\ntimeout_s = 5\nchannel = \"separate\"\n",
    "version = 1\n[[rule]]\ntool = \"*\"\naction = \"allow\"\nwhy = \"w\"\nwhen = [{ param = \"path\", matches = [\"a/**\", \"central:*\"] }]\n",
    include_str!("../../../policies/profiles/protected.toml"),
    include_str!("../../../policies/profiles/default.toml"),
    include_str!("../../../policies/profiles/dev.toml"),
    include_str!("../../../policies/profiles/read-only.toml"),
    include_str!("../../../policies/tests/files/full.toml"),
    "version = 1\nlock = true\n[ceiling]\nmemory = \"1 GiB\"\ntimeout_max_s = 30\n",
    "version = 1\n[profile.a]\nextends = \"b\"\n[profile.b]\nextends = [\"a\", \"default\"]\n",
    "version = 1\n[profile.x]\ngrants = [{ path = \"${GOROOT:-~/go}/bin\", optional = true }]\n",
    "version = 1\n[[protect]]\nnames = [\"*.{a,b}\", \"x/**/y\"]\nexcept = [\"[!a-z]?\"]\nprotection = \"all\"\nwhy = \"w\"\n",
];

const POLICY_TOKENS: [&str; 41] = [
    "[[rule]]\n",
    "tool = \"bash\"\n",
    "action = \"deny\"\n",
    "program = \"git\"\nargs = [\"push\"]\n",
    "why = \"w\"\n",
    "when = [{ param = \"command\", contains = \"x\" }]\n",
    "[approval]\n",
    "trust = \"yolo\"\n",
    "channel = \"relay\"\n",
    "version = 1\n",
    "[profile.a]\n",
    "[[protect]]\n",
    "[profile.a.limits]\n",
    "[profile.a.environment]\n",
    "extends = ",
    "[ceiling]\n",
    "lock = true\n",
    "required = [\"seccomp\"]\n",
    "\"none\"",
    "\"64 MiB\"",
    "18446744073709551615",
    "-1",
    "0x10",
    "1e400",
    "nan",
    "'''",
    "\"\"\"",
    "[[",
    "]]",
    "{ ",
    " }",
    "[",
    "a.",
    "\\u0000",
    "\u{feff}",
    "~/",
    "${A:-/x}",
    "/../",
    "**/",
    "\r\n",
    "\"",
];

const PATHS: [&str; 18] = [
    "src/a.rs",
    "./src//a.rs",
    "src/x/../a.rs",
    "project:src/a.rs",
    "central:notes",
    "central:central:x",
    ".",
    "",
    "..",
    "/home/u/p/src/a.rs",
    "/home/u/p/.lazaret/x",
    "/home/u/p-private/x",
    "/home/u/p/../x",
    "a/../../x",
    "project:",
    "/",
    "with space\nand newline",
    "\u{e9}t\u{e9}/\u{1f600}",
];

const PATH_TOKENS: [&str; 14] = [
    "/",
    "//",
    "..",
    "../",
    "/..",
    "./",
    "\0",
    "central:",
    "project:",
    "/home/u/p",
    "/home/u/p/.lazaret",
    "~",
    "\\",
    "\u{202e}",
];

/// Lists of patterns in the format of `names`.
const LISTS: [&str; 7] = [
    ".env\n.env.*\n!*.example\n!.env.dist",
    ".git/hooks\n.git/config\n.git/modules/**/hooks\n.git/modules/**/config",
    "*.{pem,key,p12}\n!*.pub\n*credential*.json\nid_{rsa,dsa,ecdsa,ed25519}",
    ".ssh\n.aws/credentials\n.kube/config\n*pass*",
    "a*b?c[d-f][!g]\n{a,b}{c,d}{e,f}",
    "*a*a*a*a*a*a*a*b\na/**/b/c",
    "Schl\u{fc}ssel\n.\u{212a}ube\n*",
];

const NAMES: [&str; 16] = [
    ".env",
    "a/.ENV/x",
    ".git/hooks/pre-commit",
    ".GIT/modules/libs/x/hooks",
    "x.pem",
    "id_rsa.pub",
    "a/b/c",
    "src/main.rs",
    "aaaaaaaaaaaaaaaaaaaaaaaa",
    "a/a/a/a/a/a/b/c",
    ".\u{17f}\u{17f}h",
    ".s\u{17f}h",
    "SCHL\u{dc}SSEL",
    ".e\u{200c}nv",
    "acegb",
    "a//b/",
];

const NAME_TOKENS: [&str; 22] = [
    "\0", "\n", "!", "*", "**", "/**/", "?", "[a-z]", "[!", "]", "{a,b}", "{", "}", ",", "\\", "/",
    "//", "\u{200b}", "\u{1e9e}", "\u{130}", "\u{3a3}", "ss",
];

/// The seeds of a target.
pub fn of(target: &str) -> &'static Seeds {
    static ALL: OnceLock<[(&str, Seeds); 5]> = OnceLock::new();
    let all = ALL.get_or_init(|| {
        [
            ("decoder", streams()),
            (
                "answer",
                Seeds {
                    inputs: golden("answer"),
                    tokens: numbers(),
                },
            ),
            (
                "path",
                Seeds {
                    inputs: bytes(&PATHS),
                    tokens: bytes(&PATH_TOKENS),
                },
            ),
            (
                "policy",
                Seeds {
                    inputs: bytes(&POLICIES),
                    tokens: bytes(&POLICY_TOKENS),
                },
            ),
            ("names", lists()),
        ]
    });
    let found = all.iter().find(|(name, _)| *name == target);
    &found
        .unwrap_or_else(|| panic!("there is no target {target}"))
        .1
}

/// The frames to the broker from the golden file, without their length.
pub fn frames_to_broker() -> Vec<Vec<u8>> {
    golden("to broker")
        .into_iter()
        .map(|frame| frame[4..].to_vec())
        .collect()
}

/// Streams of one frame each, uncut; the tokens are frames that may follow.
fn streams() -> Seeds {
    let frames = ["to broker", "from broker"].map(golden).concat();
    let inputs = frames
        .iter()
        .map(|frame| [&[0xff], frame.as_slice()].concat())
        .collect();
    Seeds {
        inputs,
        tokens: [frames, numbers()].concat(),
    }
}

/// Every list combined with every name.
fn lists() -> Seeds {
    let with = |list: &str, name: &str| format!("{list}\0{name}").into_bytes();
    let inputs = LISTS
        .iter()
        .flat_map(|list| NAMES.map(|name| with(list, name)))
        .collect();
    Seeds {
        inputs,
        tokens: [
            bytes(&NAME_TOKENS),
            bytes(&NAMES),
            vec![vec![0xff], vec![0xe2, 0x80]],
        ]
        .concat(),
    }
}

fn bytes(texts: &[&str]) -> Vec<Vec<u8>> {
    texts.iter().map(|text| text.as_bytes().to_vec()).collect()
}

/// Lengths and counts that have caused trouble elsewhere.
fn numbers() -> Vec<Vec<u8>> {
    let short = [
        0,
        1,
        4,
        0x7f,
        0xff,
        0xffff,
        1 << 20,
        (1 << 20) + 1,
        i32::MAX as u32,
        u32::MAX,
    ];
    let long = [0, 1, 1 << 20, 1 << 32, 1 << 60, i64::MAX as u64, u64::MAX];
    short
        .iter()
        .map(|n| n.to_le_bytes().to_vec())
        .chain(long.iter().map(|n| n.to_le_bytes().to_vec()))
        .collect()
}

/// The lines of the golden file that begin with `kind`.
fn golden(kind: &str) -> Vec<Vec<u8>> {
    let lines = GOLDEN.lines().filter_map(|line| line.rsplit_once(" = "));
    lines
        .filter(|(name, _)| name.split(',').next() == Some(kind))
        .map(|(_, digits)| unhex(digits))
        .collect()
}

fn unhex(digits: &str) -> Vec<u8> {
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap_or("?"), 16);
    let bytes = digits
        .as_bytes()
        .chunks(2)
        .map(byte)
        .collect::<Result<_, _>>();
    bytes.unwrap_or_else(|error| panic!("the golden file: {error} in {digits}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuzz::TARGETS;

    #[test]
    fn every_target_has_seeds_and_holds_on_them() {
        for (name, target) in TARGETS {
            assert!(of(name).inputs.len() > 5, "{name}");
            of(name).inputs.iter().for_each(|input| target(input));
        }
        assert!(frames_to_broker().len() > 15);
    }
}
