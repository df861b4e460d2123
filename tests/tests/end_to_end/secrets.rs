//! Criterion 5 of the main job: the secrets of the machine and the network stay out of a cell, in both tiers.

use lazaret_tests::{Place, Serving, Session, World, place_test};
use std::io::Write;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Output of a script, from a cell of its own and from a warm one.
fn printed(world: &World, script: &str) -> String {
    let finished = world.in_cell(script);
    let mut session = Session::open(world);
    let answer = session.bash(script);
    let streamed: String = answer
        .events
        .iter()
        .filter_map(|event| event["chunk"].as_str())
        .collect();
    format!(
        "{}{}{streamed}{}",
        finished.text(),
        finished.errors(),
        answer.result
    )
}

place_test!(keys_and_password_files_are_not_read);
fn keys_and_password_files_are_not_read(place: Place) {
    let world = World::new(place);
    let home = world.home.display();
    for script in [
        "cat ~/.ssh/id_rsa".to_owned(),
        format!(
            "cat {home}/.ssh/id_rsa {home}/.aws/credentials {}/secret.txt",
            world.outside.display()
        ),
        format!("cd {home} && cat .ssh/*; ls -la {home}/.ssh"),
        format!("python3 -c \"print(open('{home}/.ssh/id_rsa').read())\""),
        format!("ln -s {home}/.ssh/id_rsa here; cat here; cp here there; cat there"),
        format!("tar c {home} 2>/dev/null | strings"),
    ] {
        let text = printed(&world, &script);
        assert!(!text.contains(&world.canary), "{script}: {text}");
    }
    let text = printed(
        &world,
        "cat /etc/shadow /etc/gshadow /etc/sudoers; head -c 100 /dev/mem",
    );
    assert!(
        !text.contains("root:*") && !text.contains("root:!") && !text.contains("root:$"),
        "{text}"
    );
}

place_test!(the_environment_has_no_secret);
fn the_environment_has_no_secret(place: Place) {
    let world = World::new(place);
    for script in [
        "env",
        "env | grep -i key",
        "cat /proc/*/environ | tr '\\0' '\\n'",
        "set; export -p",
        "ps axe || true",
    ] {
        let text = printed(&world, script);
        assert!(!text.contains(&world.canary), "{script}: {text}");
    }
    assert!(
        world
            .in_cell("echo $PATH; test -n \"$HOME\"")
            .success()
            .contains("/usr/bin")
    );
}

place_test!(nothing_outside_is_written);
fn nothing_outside_is_written(place: Place) {
    let world = World::new(place);
    let name = format!("lazaret-{}", lazaret_tests::world::unique());
    let outside = world.outside.join(&name);
    let places = [
        format!("/etc/{name}"),
        format!("/usr/{name}"),
        format!("/{name}"),
        outside.display().to_string(),
    ];
    for path in places {
        printed(
            &world,
            &format!("echo x > {path}; mkdir {path}; ln -s / {path}"),
        );
        assert!(
            !std::path::Path::new(&path).is_symlink() && !std::path::Path::new(&path).exists(),
            "{path}"
        );
    }
}

place_test!(no_address_answers);
fn no_address_answers(place: Place) {
    let world = World::new(place);
    let visits = Arc::new(AtomicU32::new(0));
    let (address, _serving) = listen(&world.canary, visits.clone());
    let (host, port) = address.rsplit_once(':').unwrap();
    let connect = format!(
        "import socket; s=socket.create_connection(('{host}',{port}),2); print(s.recv(99))"
    );
    for script in [
        format!("curl -s -m 2 http://{address}/ || wget -q -T 2 -t 1 -O - http://{address}/"),
        format!("python3 -c \"{connect}\""),
        format!("exec 3<>/dev/tcp/{host}/{port}; cat <&3"),
        "getent hosts example.com && echo resolved-a-name".to_owned(),
    ] {
        let text = printed(&world, &script);
        assert!(!text.contains(&world.canary), "{script}: {text}");
        assert!(!text.contains("resolved-a-name\\n"), "{script}: {text}");
    }
    assert_eq!(visits.load(Ordering::SeqCst), 0, "a cell has connected");
}

/// Says the secret to whoever connects, and counts them.
fn listen(secret: &str, visits: Arc<AtomicU32>) -> (String, Serving) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let secret = secret.to_owned();
    let serving = Serving::start(listener, move |mut stream| {
        visits.fetch_add(1, Ordering::SeqCst);
        let _ = write!(stream, "HTTP/1.0 200 OK\r\n\r\n{secret}\n");
    });
    (address, serving)
}
