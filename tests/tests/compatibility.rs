//! Features that ordinary programs expect of a machine are there in a cell, and open nothing: shared memory, setgid directories, errors of an older
//! kernel, the host's own name, a project behind a link, a tracer of its own process.

use broker_protocol::{Bash, Open, Request, Tier};
use lazaret_tests::not_run;
use lazaret_tests::process::{self, until};
use lazaret_tests::programs::need;
use lazaret_tests::sys::{IpcPair, SharedSegment};
use lazaret_tests::wire::{Broker, opening, shell};
use lazaret_tests::{LIMIT, Place, Session, User, World, place_test, run};
use serde_json::{Value, json};
use std::net::UdpSocket;
use std::os::unix::fs::symlink;
use std::path::Path;

place_test!(shared_memory_is_the_sessions_own);
fn shared_memory_is_the_sessions_own(place: Place) {
    let world = World::new(place);
    let outside = format!(
        "/dev/shm/lazaret-outside-{}",
        lazaret_tests::world::unique()
    );
    std::fs::write(&outside, "host").unwrap();
    let script = format!(
        "echo own > /dev/shm/a && stat -c %s /dev/shm/a && ls -l /dev/shm | grep -c ' a$' && test -f /dev/shm/a
         cd /dev/shm && cat a && test ! -e {outside}; echo $?
         python3 -c 'from multiprocessing import shared_memory as s; m = s.SharedMemory(create=True, size=9); m.close(); m.unlink(); print(m.size)'"
    );
    let finished = world.in_cell(&script);
    std::fs::remove_file(&outside).unwrap();
    let said = finished.success();
    assert!(said.starts_with("4\n1\nown\n0\n"), "{said}");
    assert!(!Path::new("/dev/shm/a").exists());
}

place_test!(directories_get_the_setgid_bit_and_files_do_not);
fn directories_get_the_setgid_bit_and_files_do_not(place: Place) {
    let world = World::new(place);
    let script = "mkdir d && chmod g+s d && mkdir d/e && install -d -m 2775 f && stat -c %A d d/e f
        touch file; chmod g+s file || echo refused
        python3 -c 'import os; os.fchmod(os.open(\"file\", os.O_RDWR), 0o2755)' 2> /dev/null || echo refused
        python3 -c 'import os; os.fchmod(os.open(\"d\", os.O_RDONLY), 0o2700)' && stat -c %a d
        chmod u+s d 2> /dev/null || echo refused
        chmod g+s /usr 2> /dev/null || echo refused
        git init -q --shared=group r && stat -c %A r/.git/objects
        stat -c %a file; git -C r config core.sharedRepository; cd r; git -c user.name=a -c user.email=a@b commit -q --allow-empty -m a && echo committed";
    let said = world.in_cell(script).success();
    let lines: Vec<&str> = said.lines().collect();
    assert!(
        lines[..3]
            .iter()
            .all(|mode| mode.to_lowercase().as_bytes()[6] == b's'),
        "{said}"
    );
    assert_eq!(
        lines[3..8],
        ["refused", "refused", "2700", "refused", "refused"],
        "{said}"
    );
    assert!(lines[8].to_lowercase().as_bytes()[6] == b's', "{said}");
    assert_eq!(lines[9..], ["644", "1", "committed"], "{said}");
}

place_test!(unknown_system_calls_are_absent);
fn unknown_system_calls_are_absent(place: Place) {
    let world = World::new(place);
    let script = "python3 -c '
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
for number in (463, 470, 999, 321):
    libc.syscall(number, 0, 0, 0, 0, 0, 0); print(ctypes.get_errno())'";
    let want = if cfg!(target_arch = "x86_64") {
        "38\n38\n38\n1\n"
    } else {
        "38\n38\n38\n38\n"
    };
    assert_eq!(world.in_cell(script).success(), want);
}

/// An ELF file for i386 whose one segment exits with 7.
fn program_of_32_bits() -> Vec<u8> {
    const BASE: u32 = 0x0804_8000;
    const HEADERS: u32 = 52 + 32;
    let code = [0xb8, 1, 0, 0, 0, 0xbb, 7, 0, 0, 0, 0xcd, 0x80];
    let mut file = b"\x7fELF\x01\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    let (half, word) = (u16::to_le_bytes, u32::to_le_bytes);
    file.extend([half(2), half(3)].concat());
    file.extend([1, BASE + HEADERS, 52, 0, 0].map(word).concat());
    file.extend([52, 32, 1, 40, 0, 0].map(half).concat());
    let size = HEADERS + code.len() as u32;
    file.extend([1, 0, BASE, BASE, size, size, 5, 0x1000].map(word).concat());
    file.extend(code);
    file
}

place_test!(a_32_bit_program_is_named);
fn a_32_bit_program_is_named(place: Place) {
    let world = World::new(place);
    let program = world.put_program("old", program_of_32_bits());
    // The control: this machine runs it.
    let control = run(&mut world.host(&program), LIMIT);
    if control.code() != 7 {
        not_run("this machine runs no program of 32 bits");
    }
    let mut session = Session::open(&world);
    for line in ["./old", "true; ./old"] {
        let answer = session.bash(line);
        assert!(!answer.ok());
        let target = &answer.result["metadata"]["denied"][0]["what"]["target"];
        assert_eq!(*target, "calls of a 32-bit program", "{}", answer.result);
    }
    assert!(session.bash("exit 3").result["metadata"]["denied"].is_null());
}

place_test!(the_hosts_name_resolves);
fn the_hosts_name_resolves(place: Place) {
    let world = World::new(place);
    let script = "python3 -c 'import socket; print(socket.gethostbyname(socket.gethostname()))'; getent hosts localhost | wc -l";
    let control = world.on_host(script).text();
    let said = world.in_cell(script).text();
    match place.tier {
        Tier::Namespaced => assert_eq!(said, "127.0.0.1\n1\n"),
        Tier::Flat => assert_eq!(said.starts_with("127."), control.starts_with("127.")),
    }
}

/// Programs whose parts lie in `/etc` or `/var/lib`, and what shows that they have found them.
const WITH_PARTS: [(&str, &str); 8] = [
    ("R", "R --no-echo --no-save -e '.libPaths()'"),
    ("aspell", "aspell dump dicts"),
    ("dpkg", "dpkg -s dpkg"),
    ("emacs", "emacs --batch --eval '(princ load-path)'"),
    ("ghc-pkg", "ghc-pkg list --global --simple-output"),
    ("kpsewhich", "kpsewhich article.cls pdftex.map"),
    ("man", "man -w ls"),
    ("php", "php -m; php --ini"),
];

place_test!(system_programs_find_their_parts);
/// Of those that this machine has.
fn system_programs_find_their_parts(place: Place) {
    let world = World::new(place);
    let has = |program: &str| world.on_host(&format!("command -v {program}")).code() == 0;
    let mut found = WITH_PARTS
        .iter()
        .filter(|(program, _)| has(program))
        .peekable();
    assert!(found.peek().is_some(), "this machine has none of them");
    for (program, script) in found {
        let outside = world.on_host(script).success();
        assert_eq!(world.in_cell(script).success(), outside, "{program}");
    }
}

fn at(world: &World, project: &Path, words: &[&str]) -> std::process::Command {
    let mut command = world.program("lazaret");
    command.args(&words[..1]).arg("--project").arg(project);
    command
        .arg("--central")
        .arg(&world.central)
        .args(&words[1..]);
    command
}

place_test!(a_project_works_under_both_names);
fn a_project_works_under_both_names(place: Place) {
    let world = World::new(place);
    world.put("f", "content");
    let way = world.home.join("way");
    symlink(&world.project, &way).unwrap();
    let (link, real) = (way.display(), world.project.display());
    let script =
        format!("cat {link}/f {real}/f && echo more > {link}/g && cat {real}/g && cd {link} && ls");
    let said = run(
        &mut at(&world, &way, &["run", "--", "bash", "-c", &script]),
        LIMIT,
    )
    .success();
    assert!(said.starts_with("contentcontentmore\n"), "{said}");
    let call = |tool: &str, input: Value| {
        let finished = run(
            &mut at(&world, &way, &["call", "--json", tool, &input.to_string()]),
            LIMIT,
        );
        serde_json::from_str::<Value>(&finished.text()).unwrap()
    };
    for path in [format!("{link}/f"), format!("{real}/f"), "f".to_owned()] {
        let result = call("file_read", json!({"path": path}));
        assert_eq!(
            (&result["result"], &result["status"]),
            (&json!("content"), &json!("success")),
            "{path}"
        );
    }
    let written = call(
        "file_write",
        json!({"path": format!("{link}/new"), "content": "x"}),
    );
    assert_eq!(written["status"], "success", "{written}");
    let said = call("bash", json!({"command": "cat new", "cwd": way}));
    assert_eq!(said["result"], "x", "{said}");
}

place_test!(a_name_that_leads_elsewhere_is_no_name);
/// A client that names something else as the project's path makes nothing of it.
fn a_name_that_leads_elsewhere_is_no_name(place: Place) {
    let world = World::new(place);
    let other = world.home.join("other");
    symlink(&world.outside, &other).unwrap();
    let text = |path: &Path| path.display().to_string();
    let around = format!("{}/../x", text(&world.project));
    for names in [
        ["/usr/lib", "/", "relative"],
        [&text(&other), &around, "/etc/hosts"],
    ] {
        let opening = Open {
            names: names.map(str::to_owned).into(),
            ..opening(&world)
        };
        let (mut broker, _) = Broker::open_by(&world, world.program("lazaret-executor"), opening);
        let line = format!(
            "readlink {} /usr/lib /etc/hosts; ls /usr > /dev/null && echo done",
            other.display()
        );
        let bash = Bash {
            live: true,
            ..shell(&line)
        };
        let done = broker.call(1, Request::Bash(bash));
        let said = String::from_utf8_lossy(&done.output).into_owned();
        let outside = text(&world.outside);
        // The flat tier sees the machine's own link, which opens nothing.
        assert!(
            said.replace(&format!("{outside}\n"), "") == "done\n",
            "{said}"
        );
    }
    let many = Open {
        names: vec!["/x".to_owned(); 5],
        ..opening(&world)
    };
    assert!(many.check().is_err());
}

place_test!(leaks_are_found_by_tracing_the_own_process);
fn leaks_are_found_by_tracing_the_own_process(place: Place) {
    let world = World::new(place);
    world.put("leak.c", "#include <stdlib.h>\nint main(void) { volatile char *p = malloc(100); p[0] = 1; p = 0; return 0; }\n");
    let script = "gcc -fsanitize=leak -o leak leak.c && ./leak";
    let control = world.on_host(script);
    if !control.errors().contains("detected memory leaks") {
        not_run(format!("no leak is found outside: {}", control.errors()));
    }
    let finished = world.in_cell(script);
    assert!(
        finished.errors().contains("detected memory leaks"),
        "{}",
        finished.errors()
    );
}

/// Makes, finds and attaches segments of System V, as its first word says.
const SEGMENTS: &str = r#"
import ctypes, os, sys, time
libc = ctypes.CDLL(None, use_errno=True); libc.shmat.restype = ctypes.c_void_p; libc.shmdt.argtypes = [ctypes.c_void_p]
def ok(result):
    if result in (-1, 2 ** 64 - 1): raise OSError(ctypes.get_errno(), 'refused')
    return result
def get(key, size, flags): return ok(libc.shmget(key, ctypes.c_size_t(size), flags))
def attach(id): return ok(libc.shmat(id, None, 0))
def tried(call):
    try: return f'GOT {call()}'
    except OSError as e: return e.errno
what, number = sys.argv[1], int(sys.argv[2])
if what == 'use':
    id = get(0, 5000, 0o1600); here = attach(id)
    if os.fork() == 0: ctypes.memmove(here, b'child', 5); os._exit(0)
    os.wait(); assert ctypes.string_at(here, 5) == b'child'
    key = get(number, 100, 0o3600); assert get(number, 100, 0o1600) == key and tried(lambda: get(number, 100, 0o3600)) == 17
    state = ctypes.create_string_buffer(200); ok(libc.shmctl(key, 2, state)); assert state.raw[:4] == number.to_bytes(4, 'little')
    ok(libc.shmctl(key, 0, None)); assert tried(lambda: get(number, 100, 0)) == 2
    ok(libc.shmdt(here)); assert ctypes.string_at(attach(id), 5) == b'child'; print('ok')
elif what == 'reach': print(tried(lambda: attach(number)), tried(lambda: ok(libc.shmctl(number, 2, ctypes.create_string_buffer(200)))))
elif what == 'find': print(tried(lambda: get(number, 1, 0)))
elif what == 'many':
    counts, ends = [], []
    for size in (1, 48 << 20):
        made = []
        try:
            while True: made.append(get(0, size, 0o1600))
        except OSError as e: ends.append(e.errno)
        counts.append(len(made)); [libc.shmctl(id, 0, None) for id in made]
    print(counts, *ends)
elif what == 'hold':
    id = get(0, number, 0o1600); here = attach(id)
    open('id.new', 'w').write(str(id)); os.rename('id.new', 'id'); time.sleep(300)
"#;

place_test!(a_call_has_system_v_memory_of_its_own);
fn a_call_has_system_v_memory_of_its_own(place: Place) {
    let world = World::new(place);
    world.put("segments.py", SEGMENTS);
    let theirs = SharedSegment::make().unwrap();
    let find = format!("python3 segments.py find {}", theirs.key);
    let reach = |id: i32| format!("python3 segments.py reach {id}");
    // The control: outside, another process finds it, attaches, and reads its state.
    let id = world.on_host(&find).text();
    let id: i32 = id.trim().strip_prefix("GOT ").unwrap().parse().unwrap();
    let outside = world.on_host(&reach(id)).text();
    assert_eq!(outside.matches("GOT").count(), 2, "{outside}");
    let inside = world.in_cell(&format!("{find}; {}", reach(id)));
    assert_eq!(inside.success(), "2\n22 22\n", "{}", inside.errors());
    let used = world.in_cell(&format!("python3 segments.py use {}", theirs.key));
    assert_eq!(used.success(), "ok\n", "{}", used.errors());
}

/// Whether the machine has a segment of this size.
fn has_segment(size: u32) -> bool {
    let all = std::fs::read_to_string("/proc/sysvipc/shm").unwrap();
    all.lines()
        .any(|line| line.split_whitespace().nth(3) == Some(&size.to_string()))
}

place_test!(system_v_memory_ends_with_its_call, flat_only);
fn system_v_memory_ends_with_its_call(place: Place) {
    let world = World::new(place);
    world.put("segments.py", SEGMENTS);
    let size = 1_000_000 + std::process::id() % 100_000 * 10 + u32::from(place.user == User::Root);
    let hold = format!("python3 segments.py hold {size}");
    let mut session = Session::open(&world);
    let start = || {
        let _ = std::fs::remove_file(world.project.join("id"));
        let mut session = Session::open(&world);
        let call = json!({"command": hold, "background": true});
        session.call("bash", call).success();
        assert!(until(LIMIT, || world.project.join("id").exists()));
        assert!(has_segment(size));
        session
    };
    // Another session, and another call of its own.
    let mut holder = start();
    let reach = format!(
        "python3 segments.py reach {}",
        String::from_utf8(world.get("id")).unwrap()
    );
    for session in [&mut session, &mut holder] {
        assert_eq!(session.bash(&reach).success(), "22 22\n");
    }
    holder.call("background_kill", json!({"id": 1})).success();
    assert!(!has_segment(size));
    // However it ends: its first process is killed.
    let holder = start();
    let processes = process::tree(holder.pid()).into_iter();
    processes
        .filter(|process| process.name == "lazaret-cell")
        .for_each(|cell| cell.kill());
    assert!(until(LIMIT, || !has_segment(size)));
    // What a call may have is bounded: nobody has all of it mapped.
    let many = "python3 segments.py many 0";
    assert_eq!(session.bash(many).success(), "[64, 1] 28 28\n");
}

/// Uses semaphores and message queues of System V, as its first word says.
const OBJECTS: &str = r#"
import ctypes, errno, json, os, signal, struct, sys, time
libc = ctypes.CDLL(None, use_errno=True); libc.msgrcv.restype = ctypes.c_ssize_t
def ok(result):
    if result == -1: raise OSError(ctypes.get_errno(), 'refused')
    return result
def tried(call):
    try: return f'GOT {call()}'
    except OSError as e: return e.errno
def operations(*all): return b''.join(struct.pack('HhH', *one) for one in all), len(all)
def operate(id, *all): return ok(libc.semop(id, *operations(*all)))
def timed(id, seconds, *all): return ok(libc.semtimedop(id, *operations(*all), struct.pack('qq', 0, int(seconds * 1e9))))
def semaphores(id, command, argument=0, which=0): return ok(libc.semctl(id, which, command, ctypes.c_void_p(argument)))
def queue(id, command, buffer=None): return ok(libc.msgctl(id, command, buffer))
def send(id, kind, text): return ok(libc.msgsnd(id, struct.pack('q', kind) + text, ctypes.c_size_t(len(text)), 0o4000))
def receive(id, kind, flags=0):
    buffer = ctypes.create_string_buffer(8 + 100)
    length = ok(libc.msgrcv(id, buffer, ctypes.c_size_t(100), ctypes.c_long(kind), flags)); return buffer.raw[8:8 + length]
def room(): return ctypes.create_string_buffer(200)
def at(buffer): return ctypes.addressof(buffer)
def child(work):
    pid = os.fork()
    if pid == 0:
        try: work(); os._exit(0)
        except BaseException: os._exit(9)
    return pid
def ended(pid): return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
def waiting(id):
    while semaphores(id, 14) == 0: time.sleep(0.01)
NEW = 0o3600
what = sys.argv[1]
if what == 'look':
    state = room(); queue(int(sys.argv[3]), 2, state)
    print(semaphores(int(sys.argv[2]), 12), struct.unpack_from('Q', state, 80)[0])
elif what == 'reach':
    key, set, list = map(int, sys.argv[2:]); state, values = room(), room(); place = lambda id: id % 32768
    print(json.dumps([tried(one) for one in (
        lambda: ok(libc.semget(key, 0, 0)), lambda: ok(libc.semget(key, 1, 0)), lambda: ok(libc.msgget(key, 0)),
        lambda: semaphores(set, 2, at(state)), lambda: semaphores(set, 1, at(state)), lambda: semaphores(set, 11), lambda: semaphores(set, 12), lambda: semaphores(set, 13, at(values)),
        lambda: semaphores(set, 14), lambda: semaphores(set, 15), lambda: semaphores(set, 16, 7), lambda: semaphores(set, 17, at(values)),
        lambda: semaphores(place(set), 18, at(state)), lambda: semaphores(place(set), 20, at(state)), lambda: semaphores(0, 19, at(state)), lambda: semaphores(0, 3, at(state)),
        lambda: operate(set, (0, 3, 0)), lambda: timed(set, 0.1, (0, 3, 0)),
        lambda: queue(list, 2, state), lambda: queue(list, 1, state), lambda: queue(place(list), 11, state), lambda: queue(place(list), 13, state), lambda: queue(0, 12, state), lambda: queue(0, 3, state),
        lambda: send(list, 1, b'changed'), lambda: receive(list, 0, 0o4000), lambda: semaphores(set, 0), lambda: queue(list, 0))]))
elif what == 'use':
    key = int(sys.argv[2])
    set = ok(libc.semget(key, 2, NEW)); assert ok(libc.semget(key, 1, 0)) == set and tried(lambda: ok(libc.semget(key, 1, NEW))) == errno.EEXIST
    list = ok(libc.msgget(key, NEW)); assert ok(libc.msgget(key, 0)) == list
    state = room(); semaphores(set, 2, at(state)); assert state.raw[:4] == struct.pack('i', key)
    queue(list, 2, state); assert state.raw[:4] == struct.pack('i', key)
    values = ctypes.create_string_buffer(struct.pack('HH', 0, 5)); semaphores(set, 17, at(values)); assert semaphores(set, 12, 0, 1) == 5
    # Waits for another process, and both at once.
    pid = child(lambda: operate(set, (0, -1, 0), (1, -5, 0))); waiting(set); operate(set, (0, 1, 0)); assert ended(pid) == 0
    assert semaphores(set, 12, 0, 0) == 0 and semaphores(set, 12, 0, 1) == 0 and semaphores(set, 11) == pid
    assert tried(lambda: timed(set, 0.05, (0, -1, 0))) == errno.EAGAIN
    # What a killed process has done is undone.
    def die(): operate(set, (0, 1, 0o10000)); os.kill(os.getpid(), 9)
    assert ended(child(die)) == -9 and semaphores(set, 12) == 0
    pid = child(lambda: (send(list, 2, receive(list, 1) + b' back')))
    send(list, 1, b'there'); assert receive(list, 2) == b'there back' and ended(pid) == 0
    # A signal ends the wait.
    def rings(): signal.signal(signal.SIGALRM, lambda *_: os._exit(7)); signal.setitimer(signal.ITIMER_REAL, 0.1); receive(list, 1)
    assert ended(child(rings)) == 7
    def removed(): assert tried(lambda: operate(set, (0, -1, 0))) == errno.EIDRM
    pid = child(removed); waiting(set); semaphores(set, 0); assert ended(pid) == 0
    queue(list, 0); assert tried(lambda: ok(libc.msgget(key, 0))) == tried(lambda: ok(libc.semget(key, 0, 0))) == errno.ENOENT
    assert tried(lambda: operate(set, (0, 1, 0))) == tried(lambda: send(list, 1, b'')) == errno.EINVAL; print('ok')
elif what == 'many':
    def until_full(make):
        made = []
        try:
            while True: made.append(make())
        except OSError as e: return made, e.errno
    sets, first = until_full(lambda: ok(libc.semget(0, 1, NEW))); lists, second = until_full(lambda: ok(libc.msgget(0, NEW)))
    [semaphores(id, 0) for id in sets]; large, third = until_full(lambda: ok(libc.semget(0, 3000, NEW)))
    print(len(sets), first, len(lists), second, len(large), third)
elif what == 'hold':
    made = ok(libc.semget(0, int(sys.argv[2]), NEW)), ok(libc.msgget(0, NEW)); send(made[1], 1, b'')
    open('id.new', 'w').write('%d %d' % made); os.rename('id.new', 'id'); time.sleep(300)
"#;

place_test!(a_call_has_semaphores_and_queues_of_its_own);
fn a_call_has_semaphores_and_queues_of_its_own(place: Place) {
    let world = World::new(place);
    world.put("objects.py", OBJECTS);
    let reach = |pair: &IpcPair| {
        let IpcPair {
            key,
            semaphores,
            queue,
        } = pair;
        format!("python3 objects.py reach {key} {semaphores} {queue}")
    };
    let list = |text: String| -> Vec<Value> {
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
    };
    let got = |answers: &[Value]| answers.iter().filter(|answer| answer.is_string()).count();
    // The control: outside, another process finds, reads, lists, changes and removes them.
    let control = IpcPair::make().unwrap();
    let outside = list(world.on_host(&reach(&control)).success());
    // Only whoever has made them changes their owner.
    let may_set = outside.len() - if place.user == User::Root { 0 } else { 4 };
    assert!(got(&outside) >= may_set, "{outside:?}");
    let theirs = IpcPair::make().unwrap();
    let inside = list(world.in_cell(&reach(&theirs)).success());
    // In a namespace of its own, the kernel tells limits and counts of that.
    let counts = [14, 15, 22, 23];
    for (at, answer) in inside.iter().enumerate() {
        let is_count = place.tier == Tier::Namespaced && counts.contains(&at);
        let errno = if at < 3 { libc::ENOENT } else { libc::EINVAL };
        assert!(is_count || *answer == errno, "{at}: {inside:?}");
    }
    let look = format!(
        "python3 objects.py look {} {}",
        theirs.semaphores, theirs.queue
    );
    assert_eq!(world.on_host(&look).success(), "1 1\n");
    let used = format!("python3 objects.py use {}", theirs.key);
    let used = world.in_cell(&used);
    assert_eq!(used.success(), "ok\n", "{}", used.errors());
    let free = format!("python3 objects.py use {}", theirs.key);
    drop(theirs);
    assert_eq!(world.on_host(&free).success(), "ok\n", "the control");
}

/// Whether the machine has a set of this many semaphores, and a queue with this number.
fn has_objects(count: u32, queue: &str) -> [bool; 2] {
    [("sem", 3, count.to_string()), ("msg", 1, queue.to_owned())].map(|(kind, at, value)| {
        let all = std::fs::read_to_string(format!("/proc/sysvipc/{kind}")).unwrap();
        all.lines()
            .any(|line| line.split_whitespace().nth(at) == Some(&value))
    })
}

place_test!(semaphores_and_queues_end_with_their_call, flat_only);
fn semaphores_and_queues_end_with_their_call(place: Place) {
    let world = World::new(place);
    world.put("objects.py", OBJECTS);
    let count = 1000 + std::process::id() % 1000 * 2 + u32::from(place.user == User::Root);
    let hold = format!("python3 objects.py hold {count}");
    let mut other = Session::open(&world);
    let start = || {
        let _ = std::fs::remove_file(world.project.join("id"));
        let mut session = Session::open(&world);
        let call = json!({"command": hold, "background": true});
        session.call("bash", call).success();
        assert!(until(LIMIT, || world.project.join("id").exists()));
        let ids = String::from_utf8(world.get("id")).unwrap();
        let (set, queue) = ids.split_once(' ').unwrap();
        assert_eq!(has_objects(count, queue), [true, true]);
        let reach = format!("python3 objects.py reach 5 {set} {queue}");
        (session, queue.to_owned(), reach)
    };
    // Another session, and another call of its own.
    let (mut holder, queue, reach) = start();
    for session in [&mut other, &mut holder] {
        let said = session.bash(&reach).success().to_owned();
        assert!(!said.contains("GOT"), "{said}");
    }
    assert_eq!(has_objects(count, &queue), [true, true]);
    holder.call("background_kill", json!({"id": 1})).success();
    assert_eq!(has_objects(count, &queue), [false, false]);
    // However it ends: its first process is killed, its client, its broker, its warden, or both. Names have 15 bytes.
    for killed in [
        &["lazaret-cell"][..],
        &["lazaret"],
        &["lazaret-executo"],
        &["lazaret-warden"],
        &["lazaret-executo", "lazaret-warden"],
    ] {
        let (holder, queue, _) = start();
        let processes = process::tree(holder.pid()).into_iter();
        processes
            .filter(|process| killed.contains(&process.name.as_str()))
            .for_each(|process| process.kill());
        let gone = until(LIMIT, || has_objects(count, &queue) == [false, false]);
        assert!(gone, "{killed:?}");
    }
    let many = "python3 objects.py many";
    assert_eq!(other.bash(many).success(), "64 28 16 28 1 28\n");
}

/// Asks for interfaces by requests on a socket of UDP, and what else it can do.
const INTERFACES: &str = r#"
import array, fcntl, socket, struct
def ask(request, name, kind=socket.AF_INET, flags=0):
    with socket.socket(kind, socket.SOCK_DGRAM) as s: return fcntl.ioctl(s, request, struct.pack('16sH22x', name, flags))[16:]
def listed(room):
    buffer = array.array('B', bytes(room))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        length = struct.unpack('iP', fcntl.ioctl(s, 0x8912, struct.pack('iP', room, buffer.buffer_info()[0] if room else 0)))[0]
    return length, [buffer[at:at + 16].tobytes().rstrip(b'\0') + b' ' + socket.inet_ntoa(buffer[at + 20:at + 24].tobytes()).encode() for at in range(0, min(length, room), 40)]
def failed(call):
    try: return call()
    except OSError as e: return e.errno
print(listed(400), listed(0), listed(39))
print(socket.if_nametoindex('lo'), socket.if_indextoname(1), failed(lambda: socket.if_nametoindex('eth0')), failed(lambda: socket.if_indextoname(9)))
flags, = struct.unpack('H', ask(0x8913, b'lo')[:2])
print(hex(flags), socket.inet_ntoa(ask(0x891b, b'lo')[4:8]), struct.unpack('i', ask(0x8921, b'lo', socket.AF_INET6)[:4]), struct.unpack('H', ask(0x8927, b'lo')[:2]))
print(socket.if_nameindex())
# Sets the flags that it has: harmless where it would work.
print(failed(lambda: ask(0x8914, b'lo', flags=0x49)), failed(lambda: ask(0x8921, b'eth0')), failed(lambda: fcntl.ioctl(open('/dev/null'), 0x8921, bytes(40))))
"#;

place_test!(interfaces_are_those_of_a_network_of_its_own);
fn interfaces_are_those_of_a_network_of_its_own(place: Place) {
    let world = World::new(place);
    world.put("interfaces.py", INTERFACES);
    let inside = world.in_cell("python3 interfaces.py");
    let lo = "(40, [b'lo 127.0.0.1'])";
    let expected = format!(
        "{lo} (40, []) (0, [])\n1 lo None 6\n0x49 255.0.0.0 (65536,) (772,)\n[(1, 'lo')]\n1 19 25\n"
    );
    assert_eq!(inside.success(), expected, "{}", inside.errors());
    let node = "node -p 'Object.entries(os.networkInterfaces()).map(([n, all]) => [n, all.map(a => [a.cidr, a.mac, a.internal])]).join()'";
    let loopback = "lo,127.0.0.1/8,00:00:00:00:00:00,true,::1/128,00:00:00:00:00:00,true\n";
    assert_eq!(world.in_cell(node).success(), loopback);
}

place_test!(java_sees_the_interfaces_of_a_network_of_its_own);
fn java_sees_the_interfaces_of_a_network_of_its_own(place: Place) {
    need("javac", "default-jdk-headless");
    let world = World::new(place);
    let java = "import java.net.*; public class N { public static void main(String[] a) throws Exception {
        for (NetworkInterface n : java.util.Collections.list(NetworkInterface.getNetworkInterfaces()))
            System.out.println(n.getName() + n.getIndex() + n.isUp() + n.isLoopback() + n.getMTU()); } }";
    world.put("N.java", java);
    world.set_up("javac N.java");
    assert_eq!(
        world.in_cell("java -cp . N").success(),
        "lo1truetrue65536\n"
    );
}

/// Every way to send a datagram, or to receive one, by a socket of UDP.
const DATAGRAMS: &str = r#"
import array, ctypes, os, socket, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
four, six = int(sys.argv[1]), int(sys.argv[2])
targets = [(socket.AF_INET, ('127.0.0.1', four)), (socket.AF_INET6, ('::1', six)), (socket.AF_INET6, ('::ffff:127.0.0.1', four))]
def many(s, to):
    class iovec(ctypes.Structure): _fields_ = [('base', ctypes.c_char_p), ('length', ctypes.c_size_t)]
    class msghdr(ctypes.Structure): _fields_ = [('name', ctypes.c_char_p), ('namelen', ctypes.c_uint), ('iov', ctypes.POINTER(iovec)), ('iovlen', ctypes.c_size_t),
        ('control', ctypes.c_void_p), ('controllen', ctypes.c_size_t), ('flags', ctypes.c_int)]
    class mmsghdr(ctypes.Structure): _fields_ = [('header', msghdr), ('length', ctypes.c_uint)]
    name = struct.pack('H', s.family) + struct.pack('!H', to[1]) + (socket.inet_pton(s.family, to[0]) + bytes(8) if s.family == socket.AF_INET else bytes(4) + socket.inet_pton(s.family, to[0]) + bytes(4))
    vector = iovec(b'x', 1); header = mmsghdr(msghdr(name, len(name), ctypes.pointer(vector), 1, None, 0, 0), 0)
    if libc.sendmmsg(s.fileno(), ctypes.byref(header), 1, 0) != 1: raise OSError
def corked(s, to): s.setsockopt(17, 1, 1); s.sendto(b'x', to); s.setsockopt(17, 1, 0)
def more(s, to): s.sendto(b'x', socket.MSG_MORE, to); s.sendto(b'x', to)
def connected(s, to): s.connect(to); s.send(b'x')
def written(s, to): s.connect(to); os.write(s.fileno(), b'x')
def options(s, to): s.setsockopt(socket.IPPROTO_IP, 4, b''); s.sendto(b'x', to)
def bound(s, to): s.bind(('127.0.0.1' if s.family == socket.AF_INET else '::', 0)); s.sendto(b'x', to)
def again(s, to):
    for address in [('127.0.0.1', 1), to]:
        try: s.connect(address)
        except OSError: pass
    s.sendto(b'x', to)
def child(s, to):
    pid = os.fork()
    if pid == 0:
        try: s.sendto(b'x', to); os._exit(0)
        except OSError: os._exit(1)
    if os.waitpid(pid, 0)[1]: raise OSError
def spliced(s, to):
    s.connect(to); r, w = os.pipe(); os.write(w, b'x'); os.splice(r, s.fileno(), 1)
ways = [lambda s, to: s.sendto(b'x', to), lambda s, to: s.sendmsg([b'x'], [], 0, to), many, corked, more, connected, written, options, bound, again, child, spliced]
for family, to in targets:
    for kind in [socket.SOCK_DGRAM, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK]:
        for protocol in [0, 17]:
            for way in ways:
                try:
                    with socket.socket(family, kind, protocol) as s: way(s, to)
                    print('SENT')
                except OSError: pass
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(1)
try:
    s.bind(('127.0.0.1', 0)); t = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); t.sendto(b'x', s.getsockname()); s.recv(1); print('RECEIVED')
except OSError: pass
"#;

place_test!(a_datagram_socket_of_a_flat_cell_sends_nothing, flat_only);
fn a_datagram_socket_of_a_flat_cell_sends_nothing(place: Place) {
    let world = World::new(place);
    world.put("datagrams.py", DATAGRAMS);
    let four = UdpSocket::bind("127.0.0.1:0").unwrap();
    let six = UdpSocket::bind("[::1]:0").unwrap();
    let ports = [&four, &six].map(|socket| socket.local_addr().unwrap().port());
    let arrived = || {
        let count = |socket: &UdpSocket| {
            socket.set_nonblocking(true).unwrap();
            std::iter::from_fn(|| socket.recv(&mut [0; 8]).ok()).count()
        };
        [count(&four), count(&six)]
    };
    let script = format!("python3 datagrams.py {} {}", ports[0], ports[1]);
    // The control: most ways send, by both families.
    let outside = world.on_host(&script).success();
    assert!(
        outside.matches("SENT").count() > 100 && outside.contains("RECEIVED"),
        "{outside}"
    );
    assert!(arrived().iter().all(|count| *count > 40));
    let inside = world.in_cell(&script);
    assert_eq!(inside.success(), "", "{}", inside.errors());
    assert_eq!(arrived(), [0, 0]);
}

/// Other operations on a socket of netlink.
const NETLINK: &str = r#"
import os, socket, struct
def request(kind=18, flags=0x301, more=b''): return struct.pack('IHHII', 20 + len(more), kind, flags, 7, 0) + bytes(4) + more
def failed(call):
    try: return call()
    except OSError as e: return e.errno
def netlink(kind=socket.SOCK_RAW): return socket.socket(socket.AF_NETLINK, kind, 0)
s = netlink(); s.bind((0, 0)); s.settimeout(5)
print(s.getsockname() == (os.getpid(), 0), s.sendto(request(), (0, 0)), struct.unpack('IH', s.recv(4096)[:6])[1], struct.unpack('IH', s.recv(4096)[:6])[1])
s.sendto(request(26), (0, 0)); answer = s.recv(4096); print(struct.unpack('IH', answer[:6])[1], struct.unpack('i', answer[16:20])[0])
s.sendto(request(16, 5), (0, 0)); print(struct.unpack('IH', s.recv(4096)[:6])[1])
print(failed(lambda: s.send(request())), failed(lambda: s.sendmsg([request()], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack('i', 0))])), failed(lambda: s.sendto(request(more=bytes(300)), (0, 0))), failed(lambda: s.sendto(b'x', (0, 0))))
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
a, b = socket.socketpair()
print(libc.sendto(a.fileno(), b'x', 1, 0, bytes(12), 12), libc.sendto(socket.socket(socket.AF_INET).fileno(), b'x', 1, 0x20000000, struct.pack('HH8s', 2, 0, b''), 12))
full = 0
while full < 1000 and failed(lambda: s.sendto(request(), (0, 0))) == 20: full += 1
print(full < 1000, failed(lambda: s.sendto(request(), (0, 0))))
many = []
print(failed(lambda: [many.append(netlink()) for _ in range(40)]), len(many)); many.clear()
print([netlink(socket.SOCK_DGRAM).close() for _ in range(40)].count(None))
"#;

place_test!(
    a_netlink_socket_of_a_flat_cell_asks_for_interfaces_and_nothing_else,
    flat_only
);
fn a_netlink_socket_of_a_flat_cell_asks_for_interfaces_and_nothing_else(place: Place) {
    let world = World::new(place);
    world.put("netlink.py", NETLINK);
    let inside = world.in_cell("python3 netlink.py");
    let expected = "True 20 16 3\n2 -95\n2\n32 32 90 22\n-1 -1\nTrue 105\n24 15\n40\n";
    assert_eq!(inside.success(), expected, "{}", inside.errors());
    // The control: outside, the machine's routes are listed.
    let outside = world
        .on_host("python3 netlink.py 2>&1 | sed -n 2p")
        .success();
    assert!(!outside.starts_with("2 -95"), "{outside}");
}
