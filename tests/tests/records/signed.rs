//! Exports of the audit with signed heads: whoever has the public key finds what was changed, removed, added or made anew, and no cell has the
//! other one.

use super::written::records;
use lazaret_tests::process::Running;
use lazaret_tests::{Finished, LIMIT, Place, World, once_test, place_test, process, run};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

fn audit(world: &World, words: &[&str]) -> Finished {
    run(world.program("lazaret").arg("audit").args(words), LIMIT)
}

fn key_file(world: &World) -> PathBuf {
    world.state.join("lazaret/audit-key")
}

/// A world whose cell has run, with the public key of its user's.
fn signed_world(place: Place) -> (World, PathBuf) {
    let world = World::new(place);
    world.in_cell("true").success();
    assert!(process::until(LIMIT, || records(&world).len() == 4));
    let key = world.outside.join("audit.pub");
    world.write(&key, audit(&world, &["key"]).success());
    (world, key)
}

/// What somebody elsewhere says of an export, who has the public key alone.
fn verified(elsewhere: &World, key: &Path, export: &str, more: &[&str]) -> (i32, Value) {
    let file = elsewhere.outside.join("export.jsonl");
    elsewhere.write(&file, export);
    let mut command = elsewhere.program("lazaret");
    command.args(["audit", "verify-export", "--json", "--key"]);
    let finished = run(command.arg(key).arg(&file).args(more), LIMIT);
    let report = serde_json::from_str(&finished.text()).unwrap_or_default();
    (finished.code(), report)
}

once_test!(an_export_is_verified_by_its_signed_heads);
fn an_export_is_verified_by_its_signed_heads() {
    let (world, key) = signed_world(Place::any());
    let elsewhere = World::new(Place::any());
    let export = |options: &[&str]| audit(&world, &[&["export", "--sign"], options].concat());
    let whole = export(&[]).success();
    let (code, report) = verified(&elsewhere, &key, &whole, &[]);
    assert_eq!(
        (code, &report["unsigned"]),
        (0, &Value::from(0)),
        "{report}"
    );
    assert_eq!(report["records"], whole.lines().count() as u64 - 1);
    let as_ocsf = export(&["--format", "ocsf"]).success();
    assert_eq!(verified(&elsewhere, &key, &as_ocsf, &[]).0, 0);
    // Resumed: the collector has the hash.
    let lines: Vec<&str> = whole.split_inclusive('\n').collect();
    let second: Value = serde_json::from_str(lines[1]).unwrap();
    let after = ["--after", second["hash"].as_str().unwrap()];
    let rest = export(&after).success();
    assert_eq!(verified(&elsewhere, &key, &rest, &after).0, 0);
    assert_eq!(verified(&elsewhere, &key, &rest, &[]).0, 1);
    // What an attack at the collector leaves.
    let unsigned = audit(&world, &["export"]).success();
    let count = lines.len();
    for (attack, export) in [
        ("a change", whole.replacen("\"allow\"", "\"other\"", 1)),
        ("no first record", lines[1..].concat()),
        (
            "no record in the middle",
            [lines[0], &lines[2..].concat()].concat(),
        ),
        ("no end", lines[..count - 1].concat()),
        (
            "no last record",
            [&lines[..count - 2].concat(), lines[count - 1]].concat(),
        ),
        ("no signature", unsigned),
        ("nothing", String::new()),
    ] {
        assert_ne!(export, whole, "{attack}");
        assert_eq!(verified(&elsewhere, &key, &export, &[]).0, 1, "{attack}");
    }
}

once_test!(an_audit_that_was_made_anew_has_another_key);
fn an_audit_that_was_made_anew_has_another_key() {
    let (world, key) = signed_world(Place::any());
    let forger = World::new(Place::any());
    forger.in_cell("true").success();
    assert!(process::until(LIMIT, || records(&forger).len() == 4));
    let forged = audit(&forger, &["export", "--sign"]).success();
    let forgers = forger.outside.join("audit.pub");
    forger.write(&forgers, audit(&forger, &["key"]).success());
    // The control: it is whole, and by somebody.
    assert_eq!(verified(&world, &forgers, &forged, &[]).0, 0);
    let (code, report) = verified(&world, &key, &forged, &[]);
    let why = report["bad"]["why"].as_str().unwrap_or_default();
    assert!(code == 1 && why.contains("not trusted"), "{report}");
}

once_test!(a_signed_head_is_verified_by_ssh_keygen_too);
fn a_signed_head_is_verified_by_ssh_keygen_too() {
    let (world, key) = signed_world(Place::any());
    let export = audit(&world, &["export", "--sign"]).success();
    let head: Value = serde_json::from_str(export.lines().last().unwrap()).unwrap();
    let at = |name: &str| world.outside.join(name);
    world.write(&at("signature"), head["signature"].as_str().unwrap());
    let public = fs::read_to_string(key).unwrap();
    world.write(&at("allowed"), format!("audit {public}"));
    let verify = |seq: u64| {
        let (hash, time) = (head["hash"].as_str().unwrap(), &head["ts"]);
        let script = format!(
            "printf '{seq} {hash} {time}\\n' | ssh-keygen -Y verify -f '{}' -I audit -n lazaret-audit -s '{}'",
            at("allowed").display(),
            at("signature").display()
        );
        world.on_host(&script).code()
    };
    let seq = head["seq"].as_u64().unwrap();
    assert_eq!(verify(seq), 0);
    assert_ne!(verify(seq + 1), 0);
}

once_test!(an_export_that_follows_signs_each_batch);
fn an_export_that_follows_signs_each_batch() {
    let (world, key) = signed_world(Place::any());
    let mut command = world.program("lazaret");
    let mut following = Running::start(command.args(["audit", "export", "--sign", "--follow"]));
    following.wait_for("\"kind\":\"head\",\"seq\":4,", LIMIT);
    world.in_cell("true").success();
    let export = following.wait_for("\"kind\":\"head\",\"seq\":8,", LIMIT);
    nix::sys::signal::kill(
        nix::unistd::Pid::from_raw(following.pid()),
        nix::sys::signal::Signal::SIGTERM,
    )
    .unwrap();
    following.finish(LIMIT);
    let export = String::from_utf8(export).unwrap();
    let (code, report) = verified(&world, &key, &export, &[]);
    assert_eq!((code, &report["records"]), (0, &Value::from(8)), "{report}");
    let heads = export.matches("\"kind\":\"head\"").count();
    assert!(heads >= 2, "{export}");
}

place_test!(no_cell_reads_the_key_of_the_audit);
fn no_cell_reads_the_key_of_the_audit(place: Place) {
    let (world, _) = signed_world(place);
    let key = key_file(&world);
    assert_eq!(
        fs::metadata(&key).unwrap().permissions().mode() & 0o777,
        0o600
    );
    let secret = fs::read_to_string(&key).unwrap();
    let secret = secret.trim_end().rsplit_once(' ').unwrap().1;
    let attack = format!("cat '{}'; cat ../state/lazaret/audit-key", key.display());
    assert!(
        world.on_host(&attack).text().contains(secret),
        "the control"
    );
    assert!(!world.in_cell(&attack).text().contains(secret));
    // Also where somebody opens it, or all that is around it.
    for path in [&key, &world.state.join("lazaret"), &world.state] {
        let mut command = world.lazaret("run");
        let script = ["--", "bash", "-c", &attack];
        let finished = run(command.arg("--read").arg(path).args(script), LIMIT);
        let said = format!("{}{}", finished.text(), finished.errors());
        assert!(!said.contains(secret), "{}: {said}", path.display());
    }
}
