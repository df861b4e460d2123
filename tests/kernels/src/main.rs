#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![allow(unreachable_pub)]

mod debian;
mod emulator;
mod guest;
mod output;
mod rows;

use clap::Parser;
use debian::Archive;
use emulator::Emulator;
use guest::Guest;
use lazaret_tests::programs;
use rows::{DebianKernel, KERNELS, KernelRow, Processor, TIERS};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Tries the programs on Debian's kernels in emulation: 3 kernels, 2 processors, 2 tiers.
#[derive(Parser)]
#[command(
    after_help = "Examples:\n  kernels --kernel 6.1 --processor x86_64\n  kernels --from-aarch64 target/dist/programs/aarch64 --write"
)]
struct Options {
    /// Only this kernel; may be repeated
    #[arg(long, value_name = "NAME", value_parser = KERNELS.map(|kernel| kernel.name))]
    kernel: Vec<String>,
    /// Only this processor; may be repeated
    #[arg(long, value_enum)]
    processor: Vec<Processor>,
    /// The programs for x86_64, instead of building them
    #[arg(long, value_name = "DIR")]
    from: Option<PathBuf>,
    /// The programs for aarch64, instead of building them
    #[arg(long, value_name = "DIR")]
    from_aarch64: Option<PathBuf>,
    /// Kernels that must be seen not to hold: one without Landlock, and one with an executor that omits a layer
    #[arg(long, conflicts_with = "write")]
    control: bool,
    /// Minutes after which a machine is ended
    #[arg(long, value_name = "MINUTES", default_value_t = 40)]
    limit: u64,
    /// Print the rows as JSON
    #[arg(long)]
    json: bool,
    /// Put the rows of each machine into the table of SECURITY.md, if nothing is wrong in it; other rows stay
    #[arg(long)]
    write: bool,
    /// Where packages, roots and what machines print are kept
    #[arg(long, value_name = "DIR", default_value_os_t = programs::built().with_file_name("kernels"), hide_default_value = true)]
    out: PathBuf,
}

fn main() -> ExitCode {
    let options = Options::parse();
    match run(&options) {
        Ok(complaints) if complaints.is_empty() => ExitCode::SUCCESS,
        Ok(complaints) => {
            eprintln!(
                "\n{} complaints:\n  {}",
                complaints.len(),
                complaints.join("\n  ")
            );
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("kernels: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<Vec<String>, String> {
    let processors = match options.processor.as_slice() {
        [] => &Processor::ALL,
        some => some,
    };
    emulator::need_tools(processors)?;
    if options.control {
        return control(options);
    }
    let mut rows = Vec::new();
    for processor in processors {
        let kernels = KERNELS.iter().filter(|kernel| {
            options.kernel.is_empty() || options.kernel.iter().any(|name| name == kernel.name)
        });
        let machine = Machines::new(options, *processor, None)?;
        for kernel in kernels {
            let of_kernel = machine.rows(kernel, "")?;
            // At once: a later machine may take an hour, or not start.
            if options.write && of_kernel.iter().all(|row| row.complaints().is_empty()) {
                rows::write(&of_kernel)?;
            }
            rows.extend(of_kernel);
        }
    }
    rows.sort_by_key(|row| KERNELS.iter().position(|kernel| kernel.name == row.kernel));
    let complaints: Vec<String> = rows.iter().flat_map(KernelRow::complaints).collect();
    options.print(&rows)?;
    Ok(complaints)
}

/// Kernels and programs that must be seen not to hold.
fn control(options: &Options) -> Result<Vec<String>, String> {
    let mut missed = Vec::new();
    for (append, omitted) in [("lsm=capability", None), ("", Some("seccomp"))] {
        let machines = Machines::new(options, Processor::X86_64, omitted)?;
        for row in machines.rows(&KERNELS[1], append)? {
            let complaints = row.complaints();
            println!("seen: {}", complaints.join("; "));
            // A machine that did not start shows nothing.
            if complaints.is_empty() || row.release.is_empty() {
                let of = format!("{append} {}", omitted.unwrap_or_default());
                missed.push(format!("{} {}: nothing was seen", of.trim(), row.tier));
            }
        }
    }
    Ok(missed)
}

/// The machines of a processor: they have one root.
struct Machines<'o> {
    options: &'o Options,
    processor: Processor,
    archive: Archive,
    initrd: PathBuf,
}

impl<'o> Machines<'o> {
    /// With `omitted`, of an executor that omits this layer.
    fn new(
        options: &'o Options,
        processor: Processor,
        omitted: Option<&'static str>,
    ) -> Result<Self, String> {
        let archive = Archive::new(&options.out)?;
        let guest = Guest {
            out: &options.out,
            processor,
            programs: options.programs(processor, omitted.is_some())?,
            omitted,
        };
        let initrd = guest.make(&archive)?;
        Ok(Self {
            options,
            processor,
            archive,
            initrd,
        })
    }

    /// Boots a kernel with more words; a row for each tier.
    fn rows(&self, kernel: &DebianKernel, append: &'static str) -> Result<Vec<KernelRow>, String> {
        let emulator = Emulator {
            processor: self.processor,
            image: &self.archive.kernel(kernel, self.processor)?,
            initrd: &self.initrd,
            append,
            limit: Duration::from_secs(60 * self.options.limit),
        };
        let name = format!("{}-{}", kernel.name, self.processor.name());
        eprintln!("{name} {append}");
        let printed = emulator.boot(&self.options.out.join(format!("{name}.log")))?;
        let rows = TIERS
            .iter()
            .map(|tier| output::row(kernel, self.processor, tier, &printed));
        Ok(rows.collect())
    }
}

impl Options {
    /// The folder with the programs for a processor.
    fn programs(&self, processor: Processor, may_omit: bool) -> Result<PathBuf, String> {
        if may_omit {
            let executor = programs::ablation_executor();
            return Ok(executor.parent().unwrap_or(executor).to_owned());
        }
        match (processor, &self.from, &self.from_aarch64) {
            (Processor::X86_64, Some(folder), _) | (Processor::Aarch64, _, Some(folder)) => {
                Ok(folder.clone())
            }
            (Processor::X86_64, None, _) => Ok(programs::folder().to_owned()),
            (Processor::Aarch64, _, None) => guest::build_aarch64(),
        }
    }

    fn print(&self, rows: &[KernelRow]) -> Result<(), String> {
        if self.json {
            let text = serde_json::to_string_pretty(rows).map_err(|error| error.to_string())?;
            println!("{text}");
        } else {
            print!("{}", rows::table(rows));
        }
        Ok(())
    }
}
