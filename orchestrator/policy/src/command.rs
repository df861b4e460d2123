//! The command line of `lazaret policy`.

use crate::{allow, bundle, check, explain, install_bundle, matrix, show, test};
use broker_protocol::Failed;
use clap::{Args, Subcommand};
use orchestrator_launch::groups::{
    CentralOption, DirectoryOptions, Options, ProfileOption, ScopeOption, TrustOption,
    VerboseOption,
};
use orchestrator_launch::launch::{ErrorForm, FrontEnd, Launch};
use orchestrator_launch::row::CommandRow;
use std::path::PathBuf;

/// Check, explain and show the policy, without running anything
///
/// The files are those of the broker: the shipped ones, /etc/lazaret/policy.toml, /etc/lazaret/policy.d/*.toml and
/// lazaret/policy.toml below $XDG_CONFIG_HOME or ~/.config.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  lazaret policy check\n  lazaret policy check my-policy.toml agent.yaml\n  \
                        lazaret policy explain bash '{\"command\":\"rm -rf x\"}'\n  lazaret policy matrix --scope agent.yaml\n  lazaret policy test expected.toml\n  \
                        lazaret policy show --profile rust --json\n  \
                        lazaret policy allow registry.npmjs.org:443 --profile node\n  \
                        lazaret policy bundle policy.d --number 7 --out fleet.toml\n  \
                        sudo lazaret policy install-bundle fleet.toml"
)]
pub struct Policy {
    #[command(subcommand)]
    command: PolicyCommand,
    #[command(flatten)]
    directory: DirectoryOptions,
    #[command(flatten)]
    central: CentralOption,
    #[command(flatten)]
    profile: ProfileOption,
    #[command(flatten)]
    scope: ScopeOption,
    #[command(flatten)]
    trust: TrustOption,
    #[command(flatten)]
    verbose: VerboseOption,
}

#[derive(Subcommand)]
enum PolicyCommand {
    /// Check whether files are policies or scopes, and if not, where they are wrong
    Check {
        /// Files to check, each as if it were the user's policy or a session's scope [default: those in use]
        #[arg(value_name = "FILE")]
        files: Vec<PathBuf>,
        /// Print a JSON array
        #[arg(long)]
        json: bool,
    },
    /// Print the verdict on a call, its rule, the reason, and where that rule stands
    Explain {
        /// Name of the tool
        tool: String,
        /// Its input, a JSON object
        #[arg(value_name = "JSON")]
        input: String,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Print what each trust asks about, allows and denies, for every tool
    Matrix {
        /// Print a JSON array
        #[arg(long)]
        json: bool,
    },
    /// Compare verdicts that a file expects with the policy, for the tests of a team's own policy
    ///
    /// A TOML file with `version = 1` and one `[[expect]]` for each call (`tool`, `input`) or host of commands (`host = "NAME:443"`), with its
    /// `verdict` (allow, ask, deny) and, if they matter, `rule`, `profile` and `trust`.
    Test {
        /// The file of expectations
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// Print a JSON array
        #[arg(long)]
        json: bool,
    },
    /// Permanently allow a host, reading a path, or a name of a project's files, in your policy file (keeps a backup)
    ///
    /// Nothing is written unless the policy is then what it was, with exactly this, and nothing if the profile has it already. A profile
    /// that is not yours, such as `default`, stays as it is: one of yours that extends it takes its place.
    Allow {
        /// The host, as NAME:PORT; or the path, with a slash or a dot at its beginning. Of a project's file of secrets in dotenv form its
        /// name is shown to commands, and of one whose name closes it for writing (.github/workflows/ci.yml) the name is opened
        #[arg(value_name = "HOST|PATH", required_unless_present = "listen")]
        host: Option<String>,
        /// Take them from standard input, one a line, and answer each with a line
        #[arg(long, hide = true, conflicts_with = "host")]
        listen: bool,
    },
    /// Make one file of a directory's policy files (*.toml) for the machines of a fleet, to be signed
    ///
    /// The files are checked. Sign the bundle by `ssh-keygen -Y sign -f KEY -n lazaret-policy BUNDLE`, with an Ed25519 key; the signature, BUNDLE.sig, goes
    /// with it.
    Bundle {
        /// The directory with the policy files
        #[arg(value_name = "DIRECTORY")]
        from: PathBuf,
        /// The bundle's number, greater than that of every earlier one: no machine goes back to a smaller one
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=bundle::NUMBER_MAX))]
        number: u64,
        /// The file to write, or to replace by a bundle with a greater number
        #[arg(long, value_name = "BUNDLE")]
        out: PathBuf,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// As root, verify a bundle by the keys in /etc/lazaret/bundle.pub, and make its files those of /etc/lazaret/policy.d
    ///
    /// All of them take effect at once. BUNDLE.sig has to be beside it. A bundle with a smaller number than the last one is refused.
    InstallBundle {
        /// The bundle
        #[arg(value_name = "BUNDLE")]
        file: PathBuf,
        /// Remove policy files in /etc/lazaret/policy.d that no bundle has brought
        #[arg(long)]
        replace: bool,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Print the policy of a session
    Show {
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
}

impl Policy {
    fn options(&self) -> Options {
        Options::of(&self.directory)
            .and(&self.central)
            .and(&self.profile)
            .and(&self.scope)
            .and(&self.trust)
            .and(&self.verbose)
    }
}

impl FrontEnd for Policy {
    const ROW: CommandRow = CommandRow::of_files(
        "policy",
        "0, whatever the verdict, and if `allow` had nothing to write; 1 a file that was checked is wrong, or a verdict is not as `test` expects; 2 wrong input; 125 the \
         policy itself cannot be used; 126 a bundle is refused",
    );

    /// All subcommands have these options.
    fn augment(command: clap::Command) -> clap::Command {
        Self::augment_args(command).mut_args(|arg| arg.global(true))
    }

    fn errors(&self) -> ErrorForm {
        match &self.command {
            PolicyCommand::Check { json, .. }
            | PolicyCommand::Explain { json, .. }
            | PolicyCommand::Matrix { json }
            | PolicyCommand::Test { json, .. }
            | PolicyCommand::Bundle { json, .. }
            | PolicyCommand::InstallBundle { json, .. }
            | PolicyCommand::Show { json } => ErrorForm::object(*json),
            PolicyCommand::Allow { .. } => ErrorForm::Text,
        }
    }

    fn main(self, launch: Launch) -> Result<u8, Failed> {
        let prepared = launch.prepare::<Self>(self.options())?;
        let options = prepared.options();
        match self.command {
            PolicyCommand::Check { files, json } => check::check(&prepared, &files, json),
            PolicyCommand::Explain { tool, input, json } => {
                explain::explain(options, &tool, &input, json)
            }
            PolicyCommand::Test { file, json } => test::test(&prepared, &file, json),
            PolicyCommand::Matrix { json } => matrix::matrix(options, json),
            PolicyCommand::Bundle {
                from,
                number,
                out,
                json,
            } => bundle::make(&prepared, (&from, &out), number, json),
            PolicyCommand::InstallBundle {
                file,
                replace,
                json,
            } => install_bundle::install(&prepared, &file, replace, json),
            PolicyCommand::Allow { host, .. } => allow::main(&prepared, host.as_deref()),
            PolicyCommand::Show { json } => show::show(options, json),
        }
    }
}
