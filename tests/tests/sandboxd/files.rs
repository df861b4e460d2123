//! Files by REST and by the legacy protocol.

use super::client::{Answer, Sandbox, ask};
use lazaret_tests::{LIMIT, Place, World, place_test, run};
use serde_json::json;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

/// Every byte, and what a protocol of text would change.
fn binary() -> Vec<u8> {
    let all = (0..=255).chain(*b"\r\n\0\xff\xfe--\r\n");
    all.collect()
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

#[track_caller]
fn refused(answer: &Answer, status: u16, code: &str) {
    assert_eq!(answer.status, status, "{answer:?}");
    let error = answer.json();
    assert_eq!(error["code"], code, "{error}");
    assert!(
        error["message"]
            .as_str()
            .is_some_and(|text| !text.is_empty())
    );
}

place_test!(files_are_written_read_and_removed);
/// The cases of the reference server's own tests.
fn files_are_written_read_and_removed(place: Place) {
    let world = World::new(place);
    let sandbox = Sandbox::start(&world);
    let put = |path: &str, body: &[u8]| sandbox.file("PUT", path, body);
    // Written, with parents, and read again; encoded slashes are slashes.
    for (path, on_disk) in [
        ("hello.bin", "hello.bin"),
        ("a/b/c/deep.bin", "a/b/c/deep.bin"),
        ("dir%2Fsub%2Ffile.bin", "dir/sub/file.bin"),
        ("a%20b/%C3%A9.bin", "a b/é.bin"),
        ("%252e%252e.bin", "%2e%2e.bin"),
    ] {
        let answer = put(path, &binary());
        assert_eq!(
            (answer.status, answer.body.len()),
            (204, 0),
            "{path}: {answer:?}"
        );
        assert_eq!(world.get(on_disk), binary());
        let got = sandbox.file("GET", path, b"");
        assert_eq!((got.status, &got.body), (200, &binary()));
        assert!(got.head.contains("content-type: application/octet-stream"));
    }
    // Replaced as a whole, and nothing is left of how.
    fs::create_dir(world.project.join("alone")).unwrap();
    world.own(&world.project.join("alone"));
    for content in [&b"old"[..], b"new", b""] {
        assert_eq!(put("alone/f.txt", content).status, 204);
        assert_eq!(world.get("alone/f.txt"), content);
    }
    assert_eq!(
        fs::read_dir(world.project.join("alone")).unwrap().count(),
        1
    );
    // Permission bits.
    assert_eq!(put("run.sh?mode=0755", b"#!/bin/sh").status, 204);
    assert_eq!(mode(&world.project.join("run.sh")), 0o755);
    assert_eq!(put("run.sh", b"#!/bin/sh\n").status, 204);
    assert_eq!(mode(&world.project.join("run.sh")), 0o755, "it keeps them");
    for wrong in ["0999", "777", "abcd", "01777", "04755", ""] {
        refused(
            &put(&format!("f.txt?mode={wrong}"), b"x"),
            400,
            "INVALID_ARGUMENT",
        );
    }
    // A form.
    let form = |field: &str| {
        let mut body = format!("--B\r\nContent-Disposition: form-data; name=\"{field}\"\r\n\r\n");
        body.push_str("payload\r\n--B--\r\n");
        let head = [("Content-Type", "multipart/form-data; boundary=B")];
        ask(
            sandbox.rest,
            "PUT /v1/files/form.txt",
            &head,
            body.as_bytes(),
        )
    };
    assert_eq!(form("file").status, 204);
    assert_eq!(world.get("form.txt"), b"payload");
    refused(&form("notfile"), 400, "INVALID_ARGUMENT");
    // Paths that are no files.
    refused(&put("alone", b"x"), 400, "INVALID_ARGUMENT");
    refused(&put("", b"x"), 400, "INVALID_ARGUMENT");
    refused(&sandbox.file("GET", "nope.txt", b""), 404, "NOT_FOUND");
    refused(&sandbox.rest("GET /v2/files/run.sh", b""), 404, "NOT_FOUND");
    assert_eq!(sandbox.file("PATCH", "run.sh", b"").status, 405);
    // Whether there is something.
    for (path, status) in [("run.sh", 200), ("alone", 200), ("absent.txt", 404)] {
        let answer = sandbox.file("HEAD", path, b"");
        assert_eq!((answer.status, answer.text()), (status, String::new()));
    }
    assert!(
        sandbox
            .file("HEAD", "run.sh", b"")
            .head
            .contains("content-length: 10\r\n")
    );
    // Removed.
    assert_eq!(sandbox.file("DELETE", "run.sh", b"").status, 204);
    refused(&sandbox.file("DELETE", "run.sh", b""), 404, "NOT_FOUND");
    refused(
        &sandbox.file("DELETE", "no/such/file", b""),
        404,
        "NOT_FOUND",
    );
    refused(&sandbox.file("DELETE", "a", b""), 409, "CONFLICT");
    refused(
        &sandbox.file("DELETE", "a?recursive=banana", b""),
        400,
        "INVALID_ARGUMENT",
    );
    assert!(world.project.join("a/b/c/deep.bin").exists());
    assert_eq!(sandbox.file("DELETE", "a?recursive=true", b"").status, 204);
    assert!(!world.project.join("a").exists());
    let odd = [".hidden", "..two", "-rf", "a\nb", "*", "$(touch x)", "x"];
    for name in odd {
        world.put(&format!("odd/{name}"), "x");
    }
    refused(&sandbox.file("DELETE", "odd", b""), 409, "CONFLICT");
    for name in ["a%0Ab", "*", "$(touch%20x)", "-rf"] {
        assert_eq!(
            sandbox.file("DELETE", &format!("odd/{name}"), b"").status,
            204
        );
    }
    for name in [".hidden", "..two"] {
        refused(
            &sandbox.file("DELETE", "odd?recursive=false", b""),
            409,
            "CONFLICT",
        );
        assert!(world.project.join("odd/x").exists());
        assert_eq!(
            sandbox.file("DELETE", &format!("odd/{name}"), b"").status,
            204
        );
    }
    assert_eq!(sandbox.file("DELETE", "odd/x", b"").status, 204);
    assert_eq!(
        sandbox.file("DELETE", "odd", b"").status,
        204,
        "it is empty"
    );
    // The root itself stays.
    refused(&sandbox.file("DELETE", "", b""), 409, "CONFLICT");
    assert_eq!(sandbox.file("DELETE", "?recursive=true", b"").status, 204);
    assert_eq!(fs::read_dir(&world.project).unwrap().count(), 0);
}

place_test!(directories_are_listed);
fn directories_are_listed(place: Place) {
    let world = World::new(place);
    let sandbox = Sandbox::start(&world);
    let empty = sandbox.file("GET", "", b"");
    assert!(empty.text().contains("\"entries\":[]"), "{empty:?}");
    let file = world.put("b.txt", "bb");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    world.put("adir/inside", "x");
    world.put(".hidden", "");
    for (to, link) in [
        ("adir", "link-dir"),
        ("b.txt", "link-file"),
        ("../outside/secret.txt", "link-out"),
        ("nowhere", "link-broken"),
    ] {
        symlink(to, world.project.join(link)).unwrap();
    }
    world.set_up("mkfifo fifo");
    let listing = sandbox.rest("GET /v1/files", b"").json();
    assert_eq!(listing["path"], "/");
    let got: Vec<_> = listing["entries"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| {
            (
                entry["name"].as_str().unwrap(),
                entry["type"].as_str().unwrap(),
                entry["size"].as_u64().unwrap(),
            )
        })
        .collect();
    let want = [
        (".hidden", "file", 0),
        ("adir", "directory", 0),
        ("b.txt", "file", 2),
        ("link-dir", "directory", 0),
        ("link-file", "file", 2),
    ];
    assert_eq!(got, want);
    let file = &listing["entries"][2];
    assert_eq!(file["mode"], "0600");
    let time = file["modified_at"].as_str().unwrap();
    assert!(
        time.starts_with("20") && time.ends_with('Z') && time.contains('T'),
        "{time}"
    );
    let legacy = ask(sandbox.legacy, "GET /list/.", &[], b"").json();
    let names: Vec<_> = legacy
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| &entry["name"])
        .collect();
    assert_eq!(names, [".hidden", "adir", "b.txt", "link-dir", "link-file"]);
    assert!(legacy[2]["mod_time"].as_f64().unwrap() > 1.0e9);
    assert_eq!(sandbox.file("GET", "adir", b"").json()["path"], "/adir");
    refused(&sandbox.file("GET", "fifo", b""), 400, "INVALID_ARGUMENT");
}

place_test!(no_spelling_of_a_path_leads_out);
/// Each of these would read, write or remove a file outside if somebody joined it to the project's path.
fn no_spelling_of_a_path_leads_out(place: Place) {
    let world = World::new(place);
    let secret = world.outside.join("kept");
    world.write(&secret, &world.canary);
    symlink(&world.outside, world.project.join("link")).unwrap();
    symlink(&secret, world.project.join("file-link")).unwrap();
    symlink("/", world.project.join("root-link")).unwrap();
    let out = secret.to_str().unwrap().replace('/', "%2F");
    let up = "../outside/kept";
    assert_eq!(
        fs::read(world.project.join(up)).unwrap(),
        fs::read(&secret).unwrap(),
        "the control"
    );
    let sandbox = Sandbox::start(&world);
    let spellings = [
        up.to_owned(),
        "%2e%2e/outside/kept".into(),
        "%2E%2E%2Foutside%2Fkept".into(),
        "..%2foutside%2fkept".into(),
        "x/../../outside/kept".into(),
        "./.%2e/outside/kept".into(),
        format!("{}%2F..%2Foutside%2Fkept", world.project.display()),
        "link/kept".into(),
        "link%2Fkept".into(),
        "x/../link/kept".into(),
        "file-link".into(),
        format!("root-link{out}"),
    ];
    for spelling in &spellings {
        let got = sandbox.file("GET", spelling, b"");
        assert!(matches!(got.status, 403 | 404), "{spelling}: {got:?}");
        assert!(!got.text().contains(&world.canary));
        for method in ["PUT", "DELETE", "HEAD"] {
            // A link itself may be removed, which the last rows do.
            if !(method == "DELETE" && spelling == "file-link") {
                let got = sandbox.file(method, spelling, b"x");
                assert!(
                    matches!(got.status, 403 | 404),
                    "{method} {spelling}: {got:?}"
                );
            }
        }
        for route in ["download", "list", "exists"] {
            let got = ask(
                sandbox.legacy,
                &format!("GET /{route}/{spelling}"),
                &[],
                b"",
            );
            let is_known = got.status == 200 && got.text().contains("true");
            assert!(
                !is_known && !got.text().contains(&world.canary),
                "{route} {spelling}: {got:?}"
            );
        }
        let mut form =
            b"--B\r\nContent-Disposition: form-data; name=\"file\"; filename=\"".to_vec();
        form.extend(
            spelling
                .replace("%2F", "/")
                .replace("%2f", "/")
                .replace("%2e", ".")
                .replace("%2E", ".")
                .bytes(),
        );
        form.extend(b"\"\r\n\r\nx\r\n--B--\r\n");
        let head = [("Content-Type", "multipart/form-data; boundary=B")];
        let got = ask(sandbox.legacy, "POST /upload", &head, &form);
        assert!(got.status != 200, "{spelling}: {got:?}");
        let content = fs::read_to_string(&secret).unwrap();
        assert_eq!(content, world.canary, "{spelling}");
    }
    // An absolute path is one below the project.
    assert_eq!(sandbox.file("PUT", &out, b"inside").status, 204);
    let inside = world.project.join(secret.strip_prefix("/").unwrap());
    assert_eq!(fs::read(inside).unwrap(), b"inside");
    // A link is removed, and not what it leads to.
    assert_eq!(sandbox.file("DELETE", "file-link", b"").status, 204);
    assert_eq!(
        sandbox.file("DELETE", "link?recursive=true", b"").status,
        204
    );
    assert!(secret.exists() && !world.project.join("link").exists());
    for text in ["%00", "a%00b", "%ff"] {
        refused(&sandbox.file("GET", text, b""), 400, "INVALID_ARGUMENT");
    }
}

place_test!(client_changes_nothing_that_commands_may_not);
fn client_changes_nothing_that_commands_may_not(place: Place) {
    let world = World::new(place);
    world.set_up("git init -q && git config core.x y");
    let config = world.get(".git/config");
    let sandbox = Sandbox::start(&world);
    for path in [
        ".git/config",
        ".git/hooks/post-checkout",
        ".vscode/tasks.json",
        ".envrc",
    ] {
        refused(
            &sandbox.file("PUT", path, b"evil"),
            403,
            "PERMISSION_DENIED",
        );
    }
    refused(
        &sandbox.file("DELETE", ".git?recursive=true", b""),
        403,
        "PERMISSION_DENIED",
    );
    assert_eq!(world.get(".git/config"), config);
    // Without us each works.
    let plain = World::new(place);
    plain.set_up("git init -q && echo evil > .git/config && echo evil > .git/hooks/post-checkout && rm -rf .git");
}

place_test!(a_replaced_file_comes_back_by_undo);
fn a_replaced_file_comes_back_by_undo(place: Place) {
    let world = World::new(place);
    world.put("f.bin", binary());
    let sandbox = Sandbox::start(&world);
    assert_eq!(sandbox.file("PUT", "f.bin", b"new").status, 204);
    drop(sandbox);
    run(world.lazaret("undo").arg("1"), LIMIT).success();
    assert_eq!(world.get("f.bin"), binary());
}

place_test!(files_of_the_legacy_protocol);
fn files_of_the_legacy_protocol(place: Place) {
    let world = World::new(place);
    let sandbox = Sandbox::start(&world);
    let upload = |disposition: &str, content: &[u8]| {
        let mut body =
            format!("--B\r\nContent-Disposition: form-data; {disposition}\r\n\r\n").into_bytes();
        body.extend_from_slice(content);
        body.extend_from_slice(b"\r\n--B--\r\n");
        let head = [("Content-Type", "multipart/form-data; boundary=B")];
        ask(sandbox.legacy, "POST /upload", &head, &body)
    };
    let answer = upload("name=\"file\"; filename=\"a b/é.bin\"", &binary());
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(world.get("a b/é.bin"), binary());
    let get = |target: &str| ask(sandbox.legacy, &format!("GET {target}"), &[], b"");
    assert_eq!(get("/download/a%20b%2F%C3%A9.bin").body, binary());
    for (path, exists) in [("a%20b", true), ("a%20b%2F%C3%A9.bin", true), ("no", false)] {
        let got = get(&format!("/exists/{path}")).json();
        assert_eq!(got["exists"], exists, "{path}");
    }
    assert_eq!(get("/exists/a%20b").json()["path"], "a b");
    for (target, status) in [
        ("/download/no", 404),
        ("/download/a%20b", 404),
        ("/list/no", 404),
        ("/list/a%20b%2F%C3%A9.bin", 404),
        ("/download/..%2Fx", 403),
        ("/list/..", 403),
        ("/exists/..%2Fx", 403),
        ("/nothing", 404),
    ] {
        let got = get(target);
        assert_eq!(got.status, status, "{target}: {got:?}");
        assert!(got.json()["message"].is_string());
    }
    assert_eq!(upload("name=\"file\"; filename=\"../x\"", b"x").status, 403);
    for wrong in ["name=\"file\"", "name=\"other\"; filename=\"x\""] {
        assert_eq!(upload(wrong, b"x").status, 422, "{wrong}");
    }
    let none = ask(sandbox.legacy, "POST /upload", &[], b"x");
    assert_eq!(none.status, 422);
    assert_eq!(get("/").json()["status"], json!("ok"));
}

place_test!(bodies_end_at_their_limits, ordinary_only);
fn bodies_end_at_their_limits(place: Place) {
    const MOST: usize = 10 << 20;
    let world = World::new(place);
    let sandbox = Sandbox::start(&world);
    let mut content: Vec<u8> = (0..MOST).map(|at| (at % 251) as u8).collect();
    assert_eq!(sandbox.file("PUT", "large.bin", &content).status, 204);
    let got = sandbox.file("GET", "large.bin", b"");
    assert!(got.body == content, "{} bytes came back", got.body.len());
    content.push(0);
    let over = sandbox.file("PUT", "larger.bin", &content);
    refused(&over, 413, "INVALID_ARGUMENT");
    assert!(over.text().contains(&MOST.to_string()), "{over:?}");
    assert!(over.text().contains("join them by a command"), "{over:?}");
    assert!(!world.project.join("larger.bin").exists());
    // What a command has made may be larger: it streams.
    let made = sandbox.execute(&json!({ "command": "head -c 30000000 /dev/zero > made.bin" }));
    assert_eq!(made.json()["exit_code"], 0, "{made:?}");
    assert_eq!(sandbox.file("GET", "made.bin", b"").body.len(), 30_000_000);
    // Without a length, in chunks.
    let head = [("Transfer-Encoding", "chunked")];
    let body = b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n";
    let chunked = ask(sandbox.rest, "PUT /v1/files/chunked.txt", &head, body);
    assert_eq!(chunked.status, 204, "{chunked:?}");
    assert_eq!(world.get("chunked.txt"), b"abcde");
}
