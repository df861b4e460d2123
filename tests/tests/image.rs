//! An unpacked image as the root of cells: they see what is in it and nothing of the machine's, change nothing of it, and get no
//! rights by it. Each attack works on the host first.

use lazaret_tests::place::User;
use lazaret_tests::process::{self, Finished};
use lazaret_tests::{LIMIT, Place, Session, World, place_test, run};
use nix::unistd::geteuid;
use serde_json::json;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Command;

const PROGRAMS: [&str; 12] = [
    "bash", "cat", "ls", "touch", "rm", "chmod", "id", "mkdir", "stat", "env", "true", "readlink",
];
/// The content of a file of the image, which no file of the machine has.
const MARK: &str = "MARK-OF-THE-IMAGE";

/// A system of some programs with their libraries, from this machine's.
struct Image(PathBuf);

impl Image {
    fn new(world: &World) -> Self {
        let image = Self(world.base().join("image"));
        let mut files = BTreeSet::new();
        for program in PROGRAMS {
            let path = PathBuf::from(format!("/usr/bin/{program}"));
            let listed = Command::new("ldd").arg(&path).output().unwrap();
            let text = String::from_utf8(listed.stdout).unwrap();
            files.extend(
                text.split_whitespace()
                    .filter(|word| word.starts_with('/'))
                    .map(PathBuf::from),
            );
            files.insert(path);
        }
        for file in &files {
            image.put(world, file.to_str().unwrap(), fs::read(file).unwrap());
            fs::set_permissions(
                image.at(file.to_str().unwrap()),
                fs::Permissions::from_mode(0o755),
            )
            .unwrap();
        }
        image.put(world, "/etc/os-release", format!("NAME={MARK}\n"));
        for name in [
            "var/cache",
            "home/other",
            "root",
            "proc",
            "dev",
            "tmp",
            "run",
            "sys",
        ] {
            world.make_folder(&image.0.join(name));
        }
        image
    }

    fn at(&self, path: &str) -> PathBuf {
        self.0.join(path.trim_start_matches('/'))
    }

    fn put(&self, world: &World, path: &str, content: impl AsRef<[u8]>) {
        world.write(&self.at(path), content);
    }
}

/// `lazaret run` with these options and a script.
fn cell_with(world: &World, options: &[&str], image: &Path, script: &str) -> Finished {
    let mut command = world.lazaret("run");
    command
        .args(options)
        .arg("--image")
        .arg(image)
        .args(["--", "bash", "-c", script]);
    run(&mut command, LIMIT)
}

fn cell(world: &World, image: &Image, script: &str) -> Finished {
    cell_with(world, &[], &image.0, script)
}

place_test!(
    cells_see_the_image_and_nothing_of_the_machine,
    namespaced_only
);
fn cells_see_the_image_and_nothing_of_the_machine(place: Place) {
    let world = World::new(place);
    let image = Image::new(&world);
    let look = "cat /etc/os-release; cat /etc/passwd; ls /usr/bin /usr /etc /; ls -A ~; ls /home; ls /var; command -v git python3";
    let control = world.in_cell(look).text();
    assert!(
        !control.contains(MARK) && control.contains("root:") && control.contains("git"),
        "{control}"
    );
    let done = cell(&world, &image, look);
    let text = done.text();
    assert!(
        text.contains(MARK) && text.contains("readlink") && text.contains("other"),
        "{text}{}",
        done.errors()
    );
    let words: BTreeSet<&str> = text.split_whitespace().collect();
    for of_the_machine in [
        "git", "python3", "passwd", "root:", "share", "include", "ssl", "log", ".ssh", ".aws",
    ] {
        assert!(!words.contains(of_the_machine), "{of_the_machine}: {text}");
    }
    assert!(!text.contains("root:x"), "{text}");
    // The zones lie over it, and storage is the session's own.
    let work = "echo made > made && cat made && cd /tmp && echo x > y && cat y && echo z > /var/tmp/z && cat < /dev/null && ls /proc/self/fd >/dev/null && pwd";
    assert_eq!(cell(&world, &image, work).success(), "made\nx\n/tmp\n");
    assert_eq!(world.get("made"), b"made\n");
    // Nothing of the host that a cell without an image does not see either.
    let secret = world.outside.join("secret.txt").display().to_string();
    let script =
        format!("cat {secret}; cat ~/.ssh/id_rsa; cat /proc/1/root/etc/passwd; ls /proc/1/cwd/");
    assert!(
        world.on_host(&script).text().contains(&world.canary),
        "the control"
    );
    let done = cell(&world, &image, &script);
    assert!(
        !done.text().contains(&world.canary) && !done.text().contains("root:"),
        "{}",
        done.text()
    );
    // File tools and denials know of it.
    let mut command = world.lazaret("session");
    let mut session = Session::start(command.arg("--image").arg(&image.0));
    let read = session.call("file_read", json!({"path": "/usr/bin/readlink"}));
    assert!(read.ok(), "{}", read.result);
    let denied = session.bash("cat /opt/nothing").result["metadata"]["denied"].to_string();
    assert!(
        denied.contains("It is not in the image") && !denied.contains("grants"),
        "{denied}"
    );
}

place_test!(links_of_an_image_lead_into_the_image, namespaced_only);
fn links_of_an_image_lead_into_the_image(place: Place) {
    let world = World::new(place);
    let image = Image::new(&world);
    let canary = world.outside.join("secret.txt");
    fs::remove_dir_all(image.at("var")).unwrap();
    fs::remove_dir_all(image.at("home")).unwrap();
    for (target, link) in [
        (canary.as_path(), "absolute"),
        (Path::new("../outside/secret.txt"), "up"),
        (world.outside.as_path(), "folder"),
        (Path::new("../../outside/secret.txt"), "usr/up"),
        (world.outside.as_path(), "var"),
        (world.outside.parent().unwrap(), "home"),
        (Path::new("/etc/os-release"), "inside"),
    ] {
        symlink(target, image.at(link)).unwrap();
    }
    let files = [
        "/absolute",
        "/up",
        "/folder/secret.txt",
        "/usr/up",
        "/var/secret.txt",
        "/home/outside/secret.txt",
    ];
    let reads = |root: &Path| -> String {
        files
            .iter()
            .map(|file| format!("cat {}{file};", root.display()))
            .collect()
    };
    let control = world.on_host(&reads(&image.0)).text();
    assert_eq!(
        control.matches(&world.canary).count(),
        files.len(),
        "the control: {control}"
    );
    let script = reads(Path::new("")) + "cat /inside; ls /folder /var/ /home/";
    let done = cell(&world, &image, &script).text();
    assert!(
        !done.contains(&world.canary) && !done.contains("secret.txt"),
        "{done}"
    );
    assert!(done.contains(MARK), "{done}");
    // The image by a link: what it leads to is checked and shown.
    let link = world.base().join("link");
    symlink(&image.0, &link).unwrap();
    assert!(
        cell_with(&world, &[], &link, "cat /etc/os-release")
            .success()
            .contains(MARK)
    );
}

place_test!(an_image_is_not_changed, namespaced_only);
fn an_image_is_not_changed(place: Place) {
    let world = World::new(place);
    let image = Image::new(&world);
    let attack = |root: &str| {
        format!(
            "echo x > {root}/etc/new; echo x >> {root}/etc/os-release; rm {root}/usr/bin/env; chmod 4777 {root}/usr/bin/true
             mkdir {root}/usr/made; touch {root}/var/cache/new {root}/home/other/new {root}/new; touch -d 2001-01-01 {root}/usr/bin/cat"
        )
    };
    let state = || {
        let listed = "find . -printf '%P %m %s %T@\\n' | sort";
        run(
            world
                .host("bash")
                .args(["-c", listed])
                .current_dir(&image.0),
            LIMIT,
        )
        .success()
        .to_owned()
    };
    let before = state();
    cell(&world, &image, &attack(""));
    assert_eq!(state(), before);
    let control = world.base().join("control");
    run(
        world.host("cp").arg("-a").arg(&image.0).arg(&control),
        LIMIT,
    )
    .success();
    world.on_host(&attack(control.to_str().unwrap()));
    for made in ["etc/new", "usr/made", "home/other/new", "new"] {
        assert!(control.join(made).exists(), "the control: {made}");
    }
}

place_test!(
    set_user_id_programs_and_devices_of_an_image_do_nothing,
    namespaced_only,
    needs_root
);
fn set_user_id_programs_and_devices_of_an_image_do_nothing(place: Place) {
    let world = World::new(place);
    let image = Image::new(&world);
    let (id, device) = (image.at("usr/bin/id"), image.at("usr/null"));
    chown(&id, Some(0), Some(0)).unwrap();
    fs::set_permissions(&id, fs::Permissions::from_mode(0o4755)).unwrap();
    run(
        Command::new("mknod").arg(&device).args(["c", "1", "3"]),
        LIMIT,
    )
    .success();
    fs::set_permissions(&device, fs::Permissions::from_mode(0o666)).unwrap();
    let script = |root: &Path| {
        format!(
            "{0}/usr/bin/id -u; exec 3< {0}/usr/null && echo opened",
            root.display()
        )
    };
    assert_eq!(
        world.on_host(&script(&image.0)).text(),
        "0\nopened\n",
        "the control"
    );
    let done = cell(&world, &image, &script(Path::new("")));
    let uid = place.account().uid.as_raw();
    assert_eq!(done.text(), format!("{uid}\n"), "{}", done.errors());
    assert!(place.user == User::Root || uid != 0);
}

place_test!(sockets_in_an_image_are_not_reached, namespaced_only);
fn sockets_in_an_image_are_not_reached(place: Place) {
    let world = World::new(place);
    let image = Image::new(&world);
    world.put_helper("attacker");
    // What else it takes of libraries.
    let needed = Command::new("ldd")
        .arg(world.project.join("attacker"))
        .output()
        .unwrap()
        .stdout;
    for file in String::from_utf8(needed)
        .unwrap()
        .split_whitespace()
        .filter(|word| word.starts_with('/'))
    {
        image.put(&world, file, fs::read(file).unwrap());
        fs::set_permissions(image.at(file), fs::Permissions::from_mode(0o755)).unwrap();
    }
    world.make_folder(&image.at("usr/run"));
    let socket = image.at("usr/run/s");
    let listener = UnixListener::bind(&socket).unwrap();
    fs::set_permissions(&socket, fs::Permissions::from_mode(0o777)).unwrap();
    listener.set_nonblocking(true).unwrap();
    let connect = |path: &Path| format!("./attacker connect unix {}", path.display());
    run(
        world
            .host("bash")
            .args(["-c", &connect(&socket)])
            .current_dir(&world.project),
        LIMIT,
    );
    assert!(listener.accept().is_ok(), "the control");
    let done = cell(&world, &image, &connect(Path::new("/usr/run/s")));
    assert!(listener.accept().is_err(), "{}", done.errors());
}

place_test!(
    mount_inside_an_image_is_invisible,
    namespaced_only,
    root_only
);
/// As root only: others mount nothing.
fn mount_inside_an_image_is_invisible(place: Place) {
    let world = World::new(place);
    let image = Image::new(&world);
    for name in ["mnt", "usr/mnt"] {
        world.make_folder(&image.at(name));
        let (at, outside) = (image.at(name), world.outside.display());
        let mut inner = world.lazaret("run");
        inner.arg("--image").arg(&image.0);
        let script = format!("cat /{name}/secret.txt; true");
        inner.args(["--", "bash", "-c", &script]);
        let at = at.display();
        let mounted = format!(
            "mount --bind {outside} {at} && cat {at}/secret.txt && {}",
            process::shell_words(&inner)
        );
        let done = run(
            world.host("unshare").args(["-m", "bash", "-c", &mounted]),
            LIMIT,
        );
        assert_eq!(
            done.text().matches(&world.canary).count(),
            1,
            "the control, and no more: {}",
            done.text()
        );
    }
}

place_test!(unsuitable_image_is_refused, namespaced_only);
fn unsuitable_image_is_refused(place: Place) {
    let world = World::new(place);
    let image = Image::new(&world);
    assert!(cell(&world, &image, "true").code() == 0, "the control");
    let refused = |image: &Path, why: &str| {
        let done = cell_with(&world, &[], image, "true");
        assert!(
            done.code() != 0 && done.errors().contains(why),
            "{}: {}",
            image.display(),
            done.errors()
        );
    };
    // In reach of commands, or around what they may change.
    let inside = world.project.join("image");
    run(world.host("cp").arg("-a").arg(&image.0).arg(&inside), LIMIT).success();
    refused(&inside, "where commands may write");
    let link = world.base().join("link");
    symlink(&inside, &link).unwrap();
    refused(&link, "where commands may write");
    let around = image.at("srv/project");
    world.make_folder(&around);
    let mut own = world.program("lazaret");
    own.arg("run")
        .arg("--project")
        .arg(&around)
        .arg("--central")
        .arg(&world.central);
    let done = run(own.arg("--image").arg(&image.0).args(["--", "true"]), LIMIT);
    assert!(
        done.errors().contains("where commands may write"),
        "{}",
        done.errors()
    );
    // What no root may be, or what is none.
    refused(Path::new("/"), "where commands may write");
    refused(Path::new("/usr"), "it would open /usr");
    for folder in ["etc", "bin"] {
        world.make_folder(&world.home.join(folder));
    }
    refused(&world.home, "your whole home directory");
    refused(&world.outside, "not the root of a system");
    refused(&world.outside.join("secret.txt"), "not a directory");
    refused(&world.outside.join("missing"), "No such file");
    let keys = world.home.join(".ssh/system");
    for folder in ["etc", "bin"] {
        world.make_folder(&keys.join(folder));
    }
    refused(&keys, "is protected in every root");
    // Others may change it.
    fs::set_permissions(&image.0, fs::Permissions::from_mode(0o777)).unwrap();
    refused(&image.0, "users other than you and root");
    fs::set_permissions(&image.0, fs::Permissions::from_mode(0o755)).unwrap();
    if geteuid().is_root() {
        chown(&image.0, Some(54_321), None).unwrap();
        refused(&image.0, "users other than you and root");
        chown(&image.0, Some(0), Some(0)).unwrap();
        assert_eq!(
            cell(&world, &image, "true").code(),
            0,
            "root's own may be used"
        );
    } else {
        eprintln!("only root gives files to others: an image of another user's is not tried");
    }
    for number in 0..300 {
        symlink("x", image.at(&format!("l{number}"))).unwrap();
    }
    refused(&image.0, "too many entries");
}

place_test!(a_profile_has_an_image_of_its_own, namespaced_only);
fn a_profile_has_an_image_of_its_own(place: Place) {
    let world = World::new(place);
    let image = Image::new(&world);
    let policy = format!(
        "version = 1\n[profile.boxed]\nimage = '{}'\n",
        image.0.display()
    );
    world.set_policy(policy);
    let boxed = |options: &[&str]| {
        let mut command = world.configured("run");
        command.args(["--profile", "boxed"]);
        run(
            command.args(options).args(["--", "cat", "/etc/os-release"]),
            LIMIT,
        )
    };
    assert!(boxed(&[]).success().contains(MARK));
    assert!(
        boxed(&["--image", image.0.to_str().unwrap()])
            .success()
            .contains(MARK)
    );
    let other = world.base().join("other");
    run(world.host("cp").arg("-a").arg(&image.0).arg(&other), LIMIT).success();
    let done = boxed(&["--image", other.to_str().unwrap()]);
    assert!(
        done.errors().contains("the profile `boxed` has"),
        "{}",
        done.errors()
    );
    assert!(
        cell_with(&world, &[], &other, "cat /etc/os-release")
            .success()
            .contains(MARK),
        "the control"
    );
}

place_test!(the_flat_tier_refuses_with_its_reason, flat_only);
fn the_flat_tier_refuses_with_its_reason(place: Place) {
    let world = World::new(place);
    let image = Image::new(&world);
    let done = cell(&world, &image, "cat /etc/os-release");
    assert!(
        done.code() != 0 && done.text().is_empty(),
        "{}",
        done.text()
    );
    assert!(
        done.errors().contains("takes mounts of the session's own"),
        "{}",
        done.errors()
    );
}

place_test!(an_image_has_the_hosts_of_the_session, namespaced_only);
fn an_image_has_the_hosts_of_the_session(place: Place) {
    let world = World::new(place);
    let policy = "version = 1\n[profile.net.network]\nallow = ['db.example:5432']\n";
    world.write(&world.home.join("settings/lazaret/policy.toml"), policy);
    let image = Image::new(&world);
    let look = |image: &Image| {
        let mut command = world.lazaret("run");
        command
            .env("XDG_CONFIG_HOME", world.home.join("settings"))
            .args(["--profile", "net", "--image"])
            .arg(&image.0)
            .args(["--", "cat", "/etc/hosts", "/etc/os-release"]);
        run(&mut command, LIMIT)
    };
    // Without the file there is no place for one.
    let done = look(&image);
    assert_eq!(done.text(), format!("NAME={MARK}\n"), "{}", done.errors());
    image.put(&world, "/etc/hosts", "10.9.9.9 db.example\n");
    let file = look(&image).success();
    fs::remove_file(image.at("/etc/hosts")).unwrap();
    let outside = world.outside.join("hosts");
    world.write(&outside, "10.9.9.9 of.the.machine\n");
    symlink(&outside, image.at("/etc/hosts")).unwrap();
    let link = look(&image).success();
    for text in [file, link] {
        assert!(
            text.contains(" db.example\n") && text.contains("127.0.0.1 lazaret\n"),
            "{text}"
        );
        assert!(!text.contains("10.9.9.9") && text.contains(MARK), "{text}");
    }
}
