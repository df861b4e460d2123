//! Starts an emulated machine and waits for its end.

use crate::rows::Processor;
use lazaret_tests::process;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

/// Lines of a machine when it has booted and is asked for no more, and when it has done all.
const BOOTED: &str = "@@booted";
const DONE: &str = "@@done";
/// A machine with the processor's own virtualisation boots in a second or two.
const KVM_LIMIT: Duration = Duration::from_secs(20);

/// Programs that every run needs, with their packages.
const TOOLS: [(&str, &str); 9] = [
    ("apt-get", "apt"),
    ("bash", "bash"),
    ("cpio", "cpio"),
    ("dpkg-deb", "dpkg"),
    ("find", "findutils"),
    ("gcc", "gcc libc6-dev"),
    ("python3", "python3"),
    ("strip", "binutils"),
    ("tar", "tar"),
];

/// The compiler for C of a processor.
pub fn compiler(processor: Processor) -> &'static str {
    match processor {
        own if own.name() == std::env::consts::ARCH => "gcc",
        Processor::X86_64 => "x86_64-linux-gnu-gcc",
        Processor::Aarch64 => "aarch64-linux-gnu-gcc",
    }
}

fn program(processor: Processor) -> (&'static str, &'static str) {
    match processor {
        Processor::X86_64 => ("qemu-system-x86_64", "qemu-system-x86"),
        Processor::Aarch64 => ("qemu-system-aarch64", "qemu-system-arm"),
    }
}

/// Names every program that is missing, with its package.
pub fn need_tools(processors: &[Processor]) -> Result<(), String> {
    let mut needed = TOOLS.to_vec();
    for processor in processors {
        needed.push(program(*processor));
        if processor.name() != std::env::consts::ARCH {
            needed.push((
                compiler(*processor),
                match processor {
                    Processor::X86_64 => "gcc-x86-64-linux-gnu libc6-dev-amd64-cross",
                    Processor::Aarch64 => "gcc-aarch64-linux-gnu libc6-dev-arm64-cross",
                },
            ));
        }
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_there =
        |name: &str| std::env::split_paths(&path).any(|folder| folder.join(name).is_file());
    let missing: Vec<String> = needed
        .iter()
        .filter(|(name, _)| !is_there(name))
        .map(|(name, packages)| format!("{name} (apt-get install {packages})"))
        .collect();
    if missing.is_empty() {
        Ok(())
    } else {
        Err(format!("missing: {}", missing.join(", ")))
    }
}

pub struct Emulator<'a> {
    pub processor: Processor,
    pub image: &'a Path,
    pub initrd: &'a Path,
    pub append: &'static str,
    pub limit: Duration,
}

impl Emulator<'_> {
    /// Runs the machine to its end; what it printed.
    pub fn boot(&self, log: &Path) -> Result<String, String> {
        let printed = self.run(log, self.has_kvm(), "", self.limit)?;
        if printed.contains(DONE) {
            return Ok(printed);
        }
        eprintln!("it did not come to its end: {}", log.display());
        Ok(printed)
    }

    /// Whether KVM works, tried once: a device alone does not show it.
    fn has_kvm(&self) -> bool {
        static WORKS: OnceLock<bool> = OnceLock::new();
        if self.processor.name() != std::env::consts::ARCH {
            return false;
        }
        *WORKS.get_or_init(|| {
            let opened = fs::OpenOptions::new()
                .read(true)
                .write(true)
                .open("/dev/kvm");
            let log = self.initrd.with_extension("kvm.log");
            let printed = opened
                .is_ok()
                .then(|| self.run(&log, true, "guest.boot", KVM_LIMIT));
            let works = matches!(printed, Some(Ok(text)) if text.contains(BOOTED));
            eprintln!(
                "KVM: {}",
                if works {
                    "works"
                } else {
                    "does not work, so emulation"
                }
            );
            works
        })
    }

    fn run(&self, log: &Path, kvm: bool, more: &str, limit: Duration) -> Result<String, String> {
        let _ = fs::remove_file(log);
        let emulator = program(self.processor).0;
        let mut command = Command::new(emulator);
        let console = match self.processor {
            Processor::X86_64 => "ttyS0",
            Processor::Aarch64 => {
                command.args(["-machine", "virt"]);
                "ttyAMA0"
            }
        };
        if kvm {
            command.args(["-accel", "kvm", "-cpu", "host"]);
        } else {
            // Not `-icount`, whose clock would wait for a busy host: a machine with it needs more than twice as long.
            command.args(["-accel", "tcg,thread=multi", "-cpu"]);
            command.arg(match self.processor {
                Processor::X86_64 => "max",
                // Emulated, the architecture's own authentication of pointers takes most of the time.
                Processor::Aarch64 => "max,pauth-impdef=on",
            });
        }
        command.args([
            "-m", "3072", "-smp", "2", "-display", "none", "-monitor", "none",
        ]);
        command.args(["-no-reboot", "-nodefaults", "-serial"]);
        command.arg(format!("file:{}", log.display()));
        command.arg("-kernel").arg(self.image);
        command.arg("-initrd").arg(self.initrd).arg("-append");
        let append = self.append;
        command.arg(format!(
            "console={console} quiet panic=-1 rdinit=/init {append} {more}"
        ));
        let mut machine = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .map_err(|error| format!("{emulator}: {error}"))?;
        if process::wait(&mut machine, limit).is_none() {
            let _ = machine.kill();
            let _ = machine.wait();
        }
        let printed = fs::read(log).map_err(|error| format!("{}: {error}", log.display()))?;
        Ok(String::from_utf8_lossy(&printed).replace('\r', ""))
    }
}
