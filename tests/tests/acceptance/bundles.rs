//! Policy bundles: a machine takes those that its administrator has signed, whole, and never an older one.

use lazaret_tests::{Finished, LIMIT, Place, World, place_test, process, run};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// An administrator with a key, in a directory of the world that a session does not see.
struct Administrator<'w> {
    world: &'w World,
    directory: PathBuf,
}

impl<'w> Administrator<'w> {
    fn new(world: &'w World) -> Self {
        let directory = world.base().join("administrator");
        world.make_folder(&directory.join("policy.d"));
        let administrator = Self { world, directory };
        administrator.make_key("key");
        administrator
    }

    fn at(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    fn make_key(&self, name: &str) {
        let mut command = self.world.host("ssh-keygen");
        command.args(["-q", "-t", "ed25519", "-N", "", "-C", name, "-f"]);
        run(command.arg(self.at(name)), LIMIT).success();
    }

    /// Writes the policy files that the next bundle has.
    fn write(&self, files: &[(&str, &str)]) {
        let directory = self.at("policy.d");
        fs::remove_dir_all(&directory).unwrap();
        self.world.make_folder(&directory);
        for (name, text) in files {
            self.world.write(&directory.join(name), text);
        }
    }

    fn bundle(&self, number: &str, out: &str) -> Finished {
        let mut command = self.world.program("lazaret");
        command.args(["policy", "bundle", "--number", number, "--out"]);
        run(command.arg(self.at(out)).arg(self.at("policy.d")), LIMIT)
    }

    fn sign(&self, key: &str, namespace: &str, bundle: &str) {
        let signature = self.at(&format!("{bundle}.sig"));
        let _ = fs::remove_file(signature);
        let mut command = self.world.host("ssh-keygen");
        command.args(["-q", "-Y", "sign", "-n", namespace, "-f"]);
        run(command.arg(self.at(key)).arg(self.at(bundle)), LIMIT).success();
    }

    /// A bundle with this rule, signed as it should be.
    fn publish(&self, number: &str, out: &str, why: &str) {
        let rule = deny("grep", why);
        self.write(&[("10-site.toml", &rule), ("20-more.toml", "version = 1\n")]);
        self.bundle(number, out).success();
        self.sign("key", "lazaret-policy", out);
    }
}

fn deny(tool: &str, why: &str) -> String {
    format!("version = 1\n[[rule]]\ntool = \"{tool}\"\naction = \"deny\"\nwhy = \"{why}\"\n")
}

/// An `/etc` that a mount namespace has for itself, as the place of policies is fixed. It stays from one command to the next.
struct Machine<'w> {
    world: &'w World,
    etc: PathBuf,
}

impl<'w> Machine<'w> {
    fn new(world: &'w World, keys: &Path) -> Self {
        let machine = Self {
            world,
            etc: world.base().join("etc"),
        };
        let etc = machine.etc.display();
        let script = format!(
            "cp -a /etc {etc} && rm -rf {etc}/lazaret && mkdir -p {etc}/lazaret && install -m 644 {} {etc}/lazaret/bundle.pub",
            keys.display()
        );
        world.set_up(&script);
        machine
    }

    fn with_etc(&self, inner: &Command) -> Finished {
        let words = process::shell_words(inner);
        let script = format!("mount --bind {} /etc && {words}", self.etc.display());
        let mut command = self.world.host("unshare");
        run(command.args(["-m", "bash", "-c", &script]), LIMIT)
    }

    fn install(&self, bundle: &Path, options: &[&str]) -> Finished {
        let mut command = self.world.program("lazaret");
        command.args(["policy", "install-bundle"]).args(options);
        self.with_etc(command.arg(bundle))
    }

    /// What a session's call of `grep` says.
    fn grep(&self) -> String {
        let mut command = self.world.lazaret("call");
        let called = self.with_etc(command.args(["grep", r#"{"pattern":"x"}"#]));
        format!("{}{}", called.text(), called.errors())
    }

    fn check(&self) -> Finished {
        let mut command = self.world.program("lazaret");
        self.with_etc(command.args(["policy", "check"]))
    }

    fn parts(&self) -> PathBuf {
        self.etc.join("lazaret/policy.d")
    }
}

#[track_caller]
fn refused(finished: &Finished, why: &str) {
    finished.expect(126);
    assert!(finished.errors().contains(why), "{}", finished.errors());
}

place_test!(a_machine_goes_to_no_older_bundle, root_only);
fn a_machine_goes_to_no_older_bundle(place: Place) {
    let world = World::new(place);
    let administrator = Administrator::new(&world);
    let machine = Machine::new(&world, &administrator.at("key.pub"));
    let [first, second] = ["first", "second"].map(|name| administrator.at(name));
    administrator.publish("7", "first", "in the first");
    administrator.publish("8", "second", "in the second");
    assert!(!machine.grep().contains("in the"), "the control");
    machine.install(&first, &[]).success();
    assert!(machine.grep().contains("in the first"));
    machine.install(&first, &[]).success();
    machine.install(&second, &[]).success();
    assert!(machine.grep().contains("in the second"));
    // A signature is no leave to go back.
    refused(&machine.install(&first, &[]), "does not go back");
    refused(&machine.install(&first, &["--replace"]), "does not go back");
    administrator.publish("8", "again", "in another");
    refused(
        &machine.install(&administrator.at("again"), &[]),
        "used once",
    );
    assert!(machine.grep().contains("in the second"));
    let checked = machine.check().success();
    assert!(
        checked.contains("policy bundle 8, signed by SHA256:"),
        "{checked}"
    );
    // Only what the last bundle has is there, and nothing of the exchange.
    let names = |directory: &Path| {
        let entries = fs::read_dir(directory).unwrap();
        let mut names: Vec<_> = entries.map(|it| it.unwrap().file_name()).collect();
        names.sort();
        names
    };
    let parts = [".bundle", ".bundle.sig", "10-site.toml", "20-more.toml"];
    assert_eq!(names(&machine.parts()), parts);
    let beside = [".bundle.lock", "bundle.pub", "policy.d"];
    assert_eq!(names(&machine.etc.join("lazaret")), beside);
    let lock = fs::metadata(machine.etc.join("lazaret/.bundle.lock")).unwrap();
    assert_eq!(
        lock.permissions().mode() & 0o777,
        0o600,
        "nobody else can hold it"
    );
}

place_test!(a_bundle_that_nobody_signed_for_policy_is_refused, root_only);
fn a_bundle_that_nobody_signed_for_policy_is_refused(place: Place) {
    let world = World::new(place);
    let administrator = Administrator::new(&world);
    administrator.make_key("other");
    let machine = Machine::new(&world, &administrator.at("key.pub"));
    administrator.publish("7", "bundle", "in the bundle");
    let bundle = administrator.at("bundle");
    let signed = fs::read_to_string(&bundle).unwrap();
    let attacks: [(&str, &dyn Fn()); 4] = [
        ("not trusted", &|| {
            administrator.sign("other", "lazaret-policy", "bundle")
        }),
        ("another purpose", &|| {
            administrator.sign("key", "file", "bundle")
        }),
        ("one of the two was changed", &|| {
            fs::write(&bundle, signed.replace("number = 7", "number = 9")).unwrap();
        }),
        ("one of the two was changed", &|| {
            fs::write(&bundle, signed.replace("deny", "allow")).unwrap();
        }),
    ];
    for (why, attack) in attacks {
        attack();
        refused(&machine.install(&bundle, &[]), why);
        assert!(!machine.parts().exists(), "{why}");
        fs::write(&bundle, &signed).unwrap();
        administrator.sign("key", "lazaret-policy", "bundle");
    }
    let signature = administrator.at("bundle.sig");
    let text = fs::read_to_string(&signature).unwrap();
    fs::remove_file(&signature).unwrap();
    machine.install(&bundle, &[]).expect(2);
    fs::write(&signature, text).unwrap();
    // A key that others could have put there is nobody's.
    let keys = machine.etc.join("lazaret/bundle.pub");
    world.set_up(&format!("chmod 666 '{}'", keys.display()));
    refused(&machine.install(&bundle, &[]), "others may write it");
    world.set_up(&format!("chmod 644 '{}'", keys.display()));
    // The control.
    machine.install(&bundle, &[]).success();
    assert!(machine.grep().contains("in the bundle"));
}

place_test!(policy_that_no_bundle_brought_is_named, root_only);
fn policy_that_no_bundle_brought_is_named(place: Place) {
    let world = World::new(place);
    let administrator = Administrator::new(&world);
    let machine = Machine::new(&world, &administrator.at("key.pub"));
    let bundle = administrator.at("bundle");
    administrator.publish("1", "bundle", "in the bundle");
    world.make_folder(&machine.parts());
    let site = machine.parts().join("site.toml");
    fs::write(&site, deny("glob", "by the site")).unwrap();
    refused(&machine.install(&bundle, &[]), "site.toml is of no bundle");
    machine.install(&bundle, &["--replace"]).success();
    assert!(!site.exists());
    machine.check().success();
    // Somebody opens what the bundle closes.
    let own = machine.parts().join("10-site.toml");
    fs::write(&own, "version = 1\n").unwrap();
    assert!(!machine.grep().contains("in the bundle"), "the control");
    let checked = machine.check();
    checked.expect(1);
    assert!(
        checked
            .text()
            .contains("10-site.toml is not as the installed bundle"),
        "{}",
        checked.text()
    );
    fs::remove_file(&own).unwrap();
    machine.check().expect(1);
    machine.install(&bundle, &[]).success();
    assert!(machine.grep().contains("in the bundle"));
}

place_test!(
    a_bundle_that_no_session_could_open_with_is_refused,
    root_only
);
fn a_bundle_that_no_session_could_open_with_is_refused(place: Place) {
    let world = World::new(place);
    let administrator = Administrator::new(&world);
    let machine = Machine::new(&world, &administrator.at("key.pub"));
    administrator.write(&[("a.toml", "version = 1\ncolour = 1\n")]);
    let made = administrator.bundle("1", "bundle");
    made.expect(125);
    assert!(
        made.errors().contains("policy.d/a.toml"),
        "{}",
        made.errors()
    );
    // Made by another version, or by hand.
    let text = "format = 1\nnumber = 1\n[files]\n\"a.toml\" = \"version = 1\\ncolour = 1\\n\"\n";
    fs::write(administrator.at("bundle"), text).unwrap();
    administrator.sign("key", "lazaret-policy", "bundle");
    machine
        .install(&administrator.at("bundle"), &[])
        .expect(126);
    assert!(!machine.parts().exists());
}

place_test!(only_root_installs_and_anybody_makes_a_bundle);
fn only_root_installs_and_anybody_makes_a_bundle(place: Place) {
    let world = World::new(place);
    let administrator = Administrator::new(&world);
    administrator.publish("7", "bundle", "in the bundle");
    let made = fs::read_to_string(administrator.at("bundle")).unwrap();
    assert!(made.contains("in the bundle"), "{made}");
    // The next one has a greater number, and what is no bundle is not replaced by one.
    let same = administrator.bundle("7", "bundle");
    same.expect(2);
    assert!(same.errors().contains("is bundle 7"), "{}", same.errors());
    administrator.bundle("8", "bundle").success();
    administrator.bundle("9", "key").expect(2);
    administrator.bundle("0", "zero").expect(2);
    // As root it would be this machine's policy.
    if !world.place.account().uid.is_root() {
        let mut install = world.program("lazaret");
        install.args(["policy", "install-bundle"]);
        let refused = run(install.arg(administrator.at("bundle")), LIMIT);
        refused.expect(2);
        assert!(
            refused.errors().contains("only root"),
            "{}",
            refused.errors()
        );
    }
}
