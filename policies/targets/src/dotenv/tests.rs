use super::*;
use std::collections::BTreeSet;

const SALT: Salt = [7; 32];

fn masked(text: &str) -> String {
    mask(text.as_bytes(), &SALT).unwrap()
}

fn value(text: &str) -> String {
    let masked = masked(&format!("{text}\n"));
    masked.trim_end().split_once('=').unwrap().1.to_owned()
}

#[test]
fn keys_order_quotes_and_emptiness_stay_and_comments_go() {
    let text =
        "# hush\r\nB=b-secret # hush\r\n\n  export A = 'a secret'\nC=\nD=\"\"\nE=`e`\r\nb=b-secret";
    let masked = masked(text);
    let hidden = value("B=b-secret");
    let (a, e) = (value("A=a secret"), value("E=e"));
    let want = format!("B={hidden}\nexport A='{a}'\nC=\nD=\"\"\nE=`{e}`\nb={hidden}\n");
    assert_eq!(masked, want, "equal values have equal placeholders");
    assert!(
        hidden.starts_with(PREFIX) && a.starts_with(PREFIX),
        "{hidden} {a}"
    );
}

#[test]
fn harmless_values_are_not_masked() {
    for line in [
        "DEBUG=true",
        "DEBUG=False",
        "X='ON'",
        "X=\"no\"",
        "FLAG=1",
        "FLAG=0",
        "PORT=3000",
        "VITE_DEV_PORT=\"65535\"",
        "api_port=80",
        "NODE_ENV=development",
        "LOG_LEVEL=debug",
        "APP_ENVIRONMENT=staging",
        "MODE=test",
    ] {
        assert_eq!(masked(line), format!("{line}\n"));
    }
}

#[test]
fn secrets_that_resemble_harmless_values_are_masked() {
    for (line, secret) in [
        ("PIN=4711", "4711"),
        ("SUPPORT=4711", "4711"),
        ("PASSPORT=47110", "47110"),
        ("PORT_PIN=4711", "4711"),
        ("EXPORT=4711", "4711"),
        ("DB_PORT=65536", "65536"),
        ("DB_PORT=0815", "0815"),
        ("DB_PASSWORD=production", "production"),
        ("DB_PASSWORD=debug", "debug"),
        ("NODE_ENV=hunter2", "hunter2"),
        ("MODE_PASSWORD=test", "test"),
        ("OTP=123456", "123456"),
        ("X=truest", "truest"),
    ] {
        let masked = masked(line);
        assert!(!masked.contains(secret), "{line}: {masked}");
    }
}

#[test]
fn placeholders_keep_the_shape() {
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let number = value("N=4711");
    assert!(
        number.len() == 4 && digits(&number) && number.starts_with('1'),
        "{number}"
    );
    assert!(
        value("N=9876543210").parse::<i32>().is_ok() && value("N=99999").parse::<u16>().is_ok()
    );
    assert!(value("N=-3.25").parse::<f64>().unwrap() < 0.0 && value("N=-3.25").len() == 5);
    assert!(value("N=7").parse::<u8>().unwrap() > 1);
    for (line, begin, end) in [
        (
            "U=postgres://bob:pw@db.example:5432/shop?x=1",
            "postgres://lazaret-masked:",
            "",
        ),
        (
            "U=https://key@sentry.example/42",
            "https://lazaret-masked:",
            "",
        ),
        ("U=http://localhost:3000", "http://lazaret-masked-", ""),
        ("U=redis://h/", "redis://lazaret-masked-", ".invalid/"),
        (
            "U=jdbc:postgresql://h/db",
            "jdbc:postgresql://lazaret-masked-",
            "",
        ),
        (
            "U=mongodb+srv://h",
            "mongodb+srv://lazaret-masked-",
            ".invalid",
        ),
        ("U=\"file:./dev.db\"", "\"file:./lazaret-masked-", "\""),
        ("U=sqlite:///db.sqlite3", "sqlite:///lazaret-masked-", ""),
        ("M=bob@mail.example", "lazaret-masked-", "@lazaret.invalid"),
    ] {
        let value = value(line);
        assert!(
            value.starts_with(begin) && value.ends_with(end),
            "{line}: {value}"
        );
        assert!(
            !["bob", "pw", "example", "shop", "42", "dev", "db.", "h/"]
                .iter()
                .any(|part| value.contains(part)),
            "{value}"
        );
    }
    let port = value("U=http://localhost:3000")
        .rsplit_once(':')
        .unwrap()
        .1
        .to_owned();
    assert!(port.parse::<u16>().is_ok(), "{port}");
    let unknown = value("U=skytoken://very/secret");
    assert!(
        unknown.starts_with(PREFIX) && !unknown.contains("sky"),
        "{unknown}"
    );
}

#[test]
fn placeholder_shows_only_the_class_of_the_length() {
    let length = |bytes: usize| value(&format!("K={}", "s".repeat(bytes))).len();
    assert_eq!([1, 2, 31, 32].map(length), [32; 4]);
    assert_eq!([33, 64, 65, 4000].map(length), [64, 64, 128, 4096]);
}

#[test]
fn values_of_several_lines_are_one_placeholder() {
    let pem = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgk=\nPASSWORD=inner\n-----END PRIVATE KEY-----\n";
    for quote in ["'", "\"", "`"] {
        let masked = masked(&format!("A=1\nKEY={quote}{pem}{quote} # x\nB=off\n"));
        let lines: Vec<&str> = masked.lines().collect();
        assert_eq!(
            (lines.len(), lines[0], lines[2]),
            (3, "A=1", "B=off"),
            "{masked}"
        );
        assert!(
            !masked.contains("MII") && !masked.contains("inner") && !masked.contains("PASSWORD")
        );
    }
    assert!(masked(r#"A="a \"b\" c""#).lines().count() == 1);
}

/// Each may be read in more than one way, or by nobody.
#[test]
fn text_not_cleanly_in_dotenv_form_is_refused() {
    for text in [
        "secret",
        "A: b",
        "A=\"open",
        "A='open\nB=c",
        "A='it\\'s'",
        "A=\"x\\\\\"",
        "A=\"x\"y",
        "A=\"x\"\"y\"",
        "A=it's",
        "A=x\\\nB=y",
        "=x",
        "1A=x",
        "A B=x",
        "{\"a\": 1}",
        "[table]",
        "A=\"x\\\\\\\"y\"",
        "export",
        "export A",
        "é=x",
        "A=$(cat <<'E\nB=y)",
        "aGVsbG8gd29ybGQ=",
        "aGVsbG8gd29ybA==",
        "JBSWY3DPEHPK3PXP====",
        "ssh-rsa AAAA=",
        "A=x\nc2VjcmV0LXRva2Vu=",
        "A=\n\"x\"",
    ] {
        assert!(
            matches!(
                mask(text.as_bytes(), &SALT),
                Err(DotenvFault::Line(_) | DotenvFault::NoValue)
            ),
            "{text}"
        );
    }
    assert_eq!(mask(b"A=1\nB=2\nC\n", &SALT), Err(DotenvFault::Line(3)));
    assert_eq!(mask(b"A='x\ny'\nB\n", &SALT), Err(DotenvFault::Line(3)));
    for text in [
        &b"A=\0"[..],
        b"A=\xff",
        b"A=x\rB=y",
        b"A=\x1b[0m",
        b"A=\x7f",
        b"\xff\xfeA\0=\0",
    ] {
        assert_eq!(mask(text, &SALT), Err(DotenvFault::NotText), "{text:?}");
    }
    assert_eq!(mask(b"A=\nB=''\n", &SALT), Err(DotenvFault::NoValue));
    assert_eq!(
        mask(&[b"A=", [b'x'; DOTENV_MAX].as_slice()].concat(), &SALT),
        Err(DotenvFault::TooLarge)
    );
    assert_eq!(
        mask("a=b\n".repeat(DOTENV_MAX / 4).as_bytes(), &SALT),
        Err(DotenvFault::MaskTooLarge)
    );
    assert_eq!(masked("# only a comment\n"), "");
    assert_eq!(masked("\u{feff}A=true"), "A=true\n");
}

#[test]
fn a_long_key_is_refused() {
    assert!(mask(format!("{}=x", "K".repeat(KEY_MAX)).as_bytes(), &SALT).is_ok());
    assert!(mask(format!("{}=x", "K".repeat(KEY_MAX + 1)).as_bytes(), &SALT).is_err());
}

#[test]
fn placeholders_depend_on_the_salt() {
    let other = mask(b"A=secret", &[8; 32]).unwrap();
    assert_ne!(other, masked("A=secret"));
    assert_eq!(masked("A=secret"), masked("A=secret"));
}

/// Every arrangement of a few signs around secrets: no part of a secret is in what is masked.
#[test]
fn no_arrangement_shows_a_byte_of_a_value() {
    let parts = [
        "A=", "Qz", "\n", "'", "\"", "`", "\\", " ", "#", "=", "\r\n", "://", "@", "export ", "$",
        "{",
    ];
    let (mut count, mut refused) = (0u32, 0u32);
    let mut seen = BTreeSet::new();
    for mut number in 0..parts.len().pow(5) {
        let mut text = "B=QzQz".to_owned();
        for _ in 0..5 {
            text.push_str(parts[number % parts.len()]);
            number /= parts.len();
        }
        count += 1;
        match mask(text.as_bytes(), &SALT) {
            Ok(masked) => {
                for line in masked.lines() {
                    let (key, value) = line.split_once('=').unwrap();
                    assert!(!value.contains("Qz"), "{text:?}: {masked:?}");
                    if key.contains("Qz") {
                        seen.insert(text.clone());
                    }
                }
            }
            Err(_) => refused += 1,
        }
    }
    // What stands before a sign on a line of its own is a key to every program.
    assert!(
        seen.iter().all(|text| text.lines().any(|line| line
            .trim_start()
            .trim_start_matches("export ")
            .trim_start()
            .starts_with("Qz"))),
        "{seen:?}"
    );
    assert!(
        refused > count / 10 && refused < count,
        "{refused} of {count}"
    );
}

#[test]
fn names_of_dotenv_files_are_known() {
    for name in [
        ".env",
        ".ENV",
        ".env.local",
        ".env-prod",
        ".env_test",
        ".dev.vars",
        ".dev.vars.x",
        "secrets.env",
        ".secrets",
    ] {
        assert!(is_dotenv_name(name.as_bytes()), "{name}");
    }
    for name in [
        ".envrc",
        ".envrc.private",
        "id_rsa",
        "credentials.json",
        "env",
        "x.pem",
        ".netrc",
        "secrets.toml",
    ] {
        assert!(!is_dotenv_name(name.as_bytes()), "{name}");
    }
}
