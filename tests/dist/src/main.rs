#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![allow(unreachable_pub)]

mod release;
mod programs;
mod tree;
mod tarball;
mod deb;
mod rpm;
mod wheel;
mod npm;
mod image;
mod sbom;
mod check;
mod sizes;
mod files;
mod tool;

use clap::{Parser, Subcommand};
use release::{Arch, Release};
use std::path::PathBuf;
use std::process::ExitCode;
use tool::DistError;

/// Makes the packages of a release, and tries each in a clean root.
#[derive(Parser)]
#[command(version)]
struct Cli {
    /// The processors to make packages for; all if absent
    #[arg(long, global = true, value_enum)]
    arch: Vec<Arch>,
    /// Take the programs of this machine's processor from this directory instead of building them: for trying the packages
    #[arg(long, global = true, value_name = "DIR")]
    from: Option<PathBuf>,
    /// Take the programs of aarch64 from this directory, where --from has those of another processor
    #[arg(long, global = true, value_name = "DIR", requires = "from")]
    from_aarch64: Option<PathBuf>,
    /// The directory to make them in
    #[arg(long, global = true, value_name = "DIR", default_value = "target/dist")]
    out: PathBuf,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Build the programs, for glibc 2.28 and newer
    Programs,
    /// A tarball that works where it is unpacked
    Tarball,
    /// A package for Debian and Ubuntu
    Deb,
    /// A package for Fedora, RHEL and openSUSE
    Rpm,
    /// A wheel: the programs and the Python client
    Wheel,
    /// Packages for npm: the programs, one a processor, and the client
    Npm,
    /// An OCI image, for podman and docker
    Image,
    /// Lists of what the programs are built from (CycloneDX)
    Sbom,
    /// All of these, and their digests
    All,
    /// The sizes of this machine's processor's programs and packages, beside their goals
    Sizes(sizes::Sizes),
    /// Install, use, upgrade and remove the packages of this machine's processor in clean roots (as root)
    Check(check::Check),
}

fn main() -> ExitCode {
    match Cli::parse().execute() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("lazaret-dist: {error}");
            ExitCode::FAILURE
        }
    }
}

type Make = fn(&Release, Arch) -> Result<(), DistError>;

impl Cli {
    fn execute(mut self) -> Result<(), DistError> {
        let own = self.from.take().map(|folder| (Arch::of_host(), folder));
        let other = self.from_aarch64.take();
        let other = other.map(|folder| (Ok(Arch::Aarch64), folder));
        let given = own.into_iter().chain(other);
        let given: Vec<(Arch, PathBuf)> = given
            .map(|(arch, folder)| Ok((arch?, folder)))
            .collect::<Result<_, DistError>>()?;
        if self.arch.is_empty() {
            self.arch = match given.as_slice() {
                [] => vec![Arch::X86_64, Arch::Aarch64],
                some => some.iter().map(|(arch, _)| *arch).collect(),
            };
        }
        let release = Release::of_checkout(&self.out, given)?;
        match &self.command {
            Command::Programs => self.make(&release, &[]),
            Command::Tarball => self.make(&release, &[tarball::make]),
            Command::Deb => self.make(&release, &[deb::make]),
            Command::Rpm => self.make(&release, &[rpm::make]),
            Command::Wheel => self.make(&release, &[wheel::make]),
            Command::Npm => {
                self.make(&release, &[npm::make_programs])?;
                npm::make_client(&release)
            }
            Command::Image => self.make(&release, &[image::make]),
            Command::Sbom => self.each(|arch| sbom::make(&release, arch)),
            Command::All => self.make_all(&release),
            Command::Sizes(sizes) => sizes.execute(&release),
            Command::Check(check) => check.execute(&release),
        }
    }

    fn make_all(&self, release: &Release) -> Result<(), DistError> {
        let packages: &[Make] = &[
            tarball::make,
            deb::make,
            rpm::make,
            wheel::make,
            npm::make_programs,
            image::make,
            sbom::make,
        ];
        self.make(release, packages)?;
        npm::make_client(release)?;
        release.write_digests()
    }

    /// Builds the programs of each processor, and makes these packages of them.
    fn make(&self, release: &Release, packages: &[Make]) -> Result<(), DistError> {
        // Manual pages and completions come from programs that run here.
        let host = Arch::of_host()?;
        programs::make(release, host)?;
        self.each(|arch| {
            if arch != host {
                programs::make(release, arch)?;
            }
            tree::make(release, arch)?;
            packages.iter().try_for_each(|make| make(release, arch))
        })
    }

    fn each(&self, make: impl FnMut(Arch) -> Result<(), DistError>) -> Result<(), DistError> {
        self.arch.iter().copied().try_for_each(make)
    }
}
