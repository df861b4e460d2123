//! `lazaret chat`: a model that uses tools in cells.

pub(crate) mod config;
pub(crate) mod choice;
mod command;
mod ended;
pub(crate) mod model_server;
mod replay;
pub(crate) mod run_lines;
mod talk;
mod turns;
pub(crate) mod models;

use crate::chat::choice::{ChosenModel, ModelOptions};
use crate::chat::config::AgentConfig;
use crate::chat::turns::{ChatStart, converse};
use crate::tool_options::{ToolOptions, ViolationOptions};
use broker_protocol::{Failed, Open, Trust, limit};
use clap::{ArgAction, Args};
use orchestrator_agent::conversation::Conversation;
use orchestrator_agent::hooks::SessionHooks;
use orchestrator_agent::limits::{RunLimits, TIMEOUT_MAX_S, TURN_TIMEOUT_MAX_S, TURNS_MAX};
use orchestrator_agent::settings::RunSettings;
use orchestrator_agent::transcript::{BYTES_MAX, Recorded, Transcript};
use orchestrator_confine::{ConfinementProof, Files, Needs};
use orchestrator_engine::HookGuard;
use orchestrator_engine::executor::Dial;
use orchestrator_launch::endpoint::Endpoint;
use orchestrator_launch::groups::{Options, WorkOptions};
use orchestrator_launch::launch::{ErrorForm, FrontEnd, Launch, Prepared};
use orchestrator_launch::row::{CommandAccess, CommandRow, NetworkUse, SessionCount, Writes};
use orchestrator_launch::runlog::RunLog;
use orchestrator_launch::stdio::print;
use orchestrator_launch::stdio::streams::InputStream;
use orchestrator_launch::{SessionOptions, exit};
use orchestrator_mcp_client::SessionServers;
use orchestrator_records::transcripts;
use orchestrator_telemetry::{ExportOptions, Telemetry};
use orchestrator_terminal::chat_prompt::{BeforeConfined, TEXT_MAX};
use orchestrator_text::known::redactor;
use orchestrator_tools::{ToolConfig, scope_file};
use serde_json::json;
use std::io::{self, IsTerminal, Read};
use std::path::Path;
use std::rc::Rc;

// A transcript is read whole.
const _: () = assert!(transcripts::READ_MAX >= BYTES_MAX);

const EXAMPLES: &str = "\
Examples:
  lazaret chat --provider mock \"Show me around\"     no key: a script is the model
  lazaret chat -p --stdin \"Why does the build fail?\" < build.log
  lazaret chat --pack engineering --trust guided \"Fix the failing test\"
  lazaret chat --resume last \"And now the other one\"
  lazaret chat --replay last --json

On a terminal without -p, this is a conversation. Lines are edited as in a shell,
with a history; Alt-Enter starts a new line; Ctrl-D ends the chat. /help lists
the keys and the chat's own commands: /model, /trust, /undo, /resume.
--trust sets which calls need approval (default: guided); if nobody can answer,
such a call is denied. The first Ctrl-C cancels the calls in progress, the second
the run. Hooks of agent.toml receive calls, and may stop or change them:
`lazaret chat-hooks --help`.";

/// Run an agent whose tools work in cells
///
/// The model's text goes to standard output; what its tools do is shown on standard error if that is a terminal.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Chat {
    /// The first prompt [default: standard input, if it is not a terminal]
    #[arg(value_name = "PROMPT")]
    prompt: Option<String>,
    /// Append standard input to the prompt
    #[arg(long)]
    stdin: bool,
    /// Answer once and exit, as in a pipe
    #[arg(short, long)]
    print: bool,
    /// `=false`: no web tools, and no network for commands, whatever the profile allows
    #[arg(long, value_name = "BOOL", default_value_t = true, default_missing_value = "true", num_args = 0..=1, require_equals = true, action = ArgAction::Set)]
    network_allowed: bool,
    /// Print every event as a line of JSON
    #[arg(long)]
    json: bool,
    /// The pack of the runs: engineering, research, plan, or one of agent.toml
    #[arg(long, value_name = "NAME")]
    pack: Option<String>,
    /// Continue a conversation, by its ID or `last`
    #[arg(long, value_name = "ID", conflicts_with = "no_transcript")]
    resume: Option<String>,
    /// Print the events of a recorded conversation again, by its ID or `last`, without a model and tools
    #[arg(long, value_name = "ID", conflicts_with_all = ["resume", "prompt"])]
    replay: Option<String>,
    /// Write no transcript of the conversation
    #[arg(long)]
    no_transcript: bool,
    /// Maximum number of turns; after them the model has to answer without tools [default: by the pack and agent.toml, then 200]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(TURNS_MAX)))]
    max_turns: Option<u32>,
    /// Time limit of one answer of the model in seconds [default: by the pack and agent.toml, then 120]
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u64).range(1..=TURN_TIMEOUT_MAX_S))]
    turn_timeout: Option<u64>,
    /// Time limit of a run in seconds; 0 for none [default: by the pack and agent.toml, then 1800]
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u64).range(0..=TIMEOUT_MAX_S))]
    timeout: Option<u64>,
    /// Maximum tokens of one answer [default: by the pack and agent.toml, then the provider's; 8192 for claude]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    max_tokens: Option<u32>,
    /// Tokens of the model's context that must be left; with fewer, it has to answer without tools [default: 8192, at most an eighth]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    context_reserve: Option<u32>,
    /// Token budget for the model's reasoning, if the model supports it
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=64_000))]
    thinking: u32,
    /// Also print events with pieces of a call's input while the model writes it
    #[arg(long, requires = "json")]
    input_events: bool,
    #[command(flatten)]
    violations: ViolationOptions,
    #[command(flatten)]
    model: ModelOptions,
    #[command(flatten)]
    tools: ToolOptions,
    #[command(flatten)]
    export: ExportOptions,
    #[command(flatten)]
    work: WorkOptions,
}

impl FrontEnd for Chat {
    const ROW: CommandRow = CommandRow {
        name: "chat",
        sessions: SessionCount::Lasting { spare: 1 },
        access: CommandAccess::Confined {
            network: NetworkUse::Always,
            writes: Writes::ServersAndChats,
        },
        log: true,
        usage: exit::USAGE,
        exit: "0 done; 1 the model or its provider failed, or did not end its task as the pack requires; 2 wrong arguments; 3 too \
               many violations; 4 the model cannot call tools; 5 it ran out of turns or context, and answered with what it had; 124 \
               time limit; 125 lazaret failed; 128+N if signal N ended it (130 cancelled)",
    };

    fn wrong_arguments() -> ErrorForm {
        ErrorForm::Chat
    }

    fn errors(&self) -> ErrorForm {
        ErrorForm::chat(self.json)
    }

    fn main(self, launch: Launch) -> Result<u8, Failed> {
        if let Some(id) = &self.replay {
            return replay::main(id, self.json);
        }
        let prepared = launch.prepare::<Self>(Options::of(&self.work))?;
        let prepared = prepared.with(|options| options.trusting(Trust::Guided));
        let prepared = match self.network_allowed {
            true => prepared,
            false => without_network(prepared)?,
        };
        let (options, files) = (prepared.options(), prepared.files());
        let trust = options.trust().unwrap_or(Trust::Guided);
        let beginning = self.read(files, options, trust)?;
        let telemetry = self.export.begin(print::problem)?;
        let (config, endpoint) = self.session(&prepared, &beginning)?;
        let mut servers = SessionServers::of(files, &config.open, print::problem);
        servers.reach(Rc::new(endpoint.clone()));
        let confined = prepared.confine(needs(&endpoint, &servers, &beginning));
        let config = ToolConfig {
            executor: Some(Box::new(endpoint) as Box<dyn Dial>),
            subscribers: vec![confined.log()],
            ..config
        };
        let (log, proof) = (confined.log(), confined.proof());
        let reason = |ended: &Result<u8, Failed>| match ended {
            Ok(_) => "the chat has ended",
            Err(_) => "the chat has failed",
        };
        let chat = hold(telemetry, config, beginning, servers, (&log, proof));
        confined.run(reason, chat)
    }
}

fn needs(endpoint: &Endpoint, servers: &SessionServers, beginning: &ChatStart) -> Needs {
    let mut write = servers.directories();
    // `/resume` reads and writes transcripts of other conversations.
    let resumes = beginning.prompt.is_some() && beginning.transcript.is_some();
    write.extend(resumes.then(transcripts::directory));
    Needs {
        web: true,
        socket: endpoint.socket().map(Path::to_owned),
        write,
        ..Needs::default()
    }
}

/// The chat from its first prompt to its end, with its servers, hooks and spans.
async fn hold(
    mut telemetry: Telemetry,
    mut config: ToolConfig,
    beginning: ChatStart,
    servers: SessionServers,
    (log, proof): (&Rc<RunLog>, ConfinementProof),
) -> Result<u8, Failed> {
    telemetry.start();
    let hooks = conversation_hooks(&config.guard);
    servers.attach(config.tools.registry()).await;
    let ended = converse(config, beginning, (hooks.clone(), &servers), log, proof).await;
    if let Some(hooks) = hooks {
        hooks.end().await;
    }
    servers.close().await;
    telemetry.end().await;
    ended
}

/// The hooks for a conversation's beginning and end, in the session with this guard.
pub(crate) fn conversation_hooks(guard: &HookGuard) -> Option<Rc<SessionHooks>> {
    let hooks = guard.hooks()?.clone();
    Some(Rc::new(SessionHooks::new(hooks, print::problem)))
}

/// The same start, with every built-in tool and without a network for any.
///
/// # Errors
/// Its options open the network, or name a scope.
fn without_network(prepared: Prepared) -> Result<Prepared, Failed> {
    if prepared.options().name_scope_or_hosts() {
        let message = "--network-allowed=false does not go with --scope, --allow-host, --allow-net, --connect or --publish";
        return Err(Failed::invalid(message.to_owned()));
    }
    let text = json!({ "tool_permissions": scope_file::without_network() }).to_string();
    let scope = scope_file::parse("--network-allowed", &text)
        .map_err(|error| Failed::internal(error.to_string()))?;
    Ok(prepared.with(|options| options.scoped(scope)))
}

impl Chat {
    /// Whether a person types the following prompts.
    fn is_interactive(&self) -> bool {
        !self.print && !self.json && io::stdin().is_terminal() && io::stdout().is_terminal()
    }

    /// What a prompt for a person needs before the confinement. A chat without a transcript keeps no line history either.
    fn prompt_of_person(
        &self,
        transcript: Option<&transcripts::OpenTranscript>,
    ) -> Option<BeforeConfined> {
        self.is_interactive().then(|| match transcript {
            Some(_) => BeforeConfined::with_history(),
            None => BeforeConfined::without_history(),
        })
    }

    /// What the session of this chat is started with, and its executor.
    fn session(
        &self,
        prepared: &Prepared,
        beginning: &ChatStart,
    ) -> Result<(ToolConfig, Endpoint), Failed> {
        let options = prepared.options();
        let mut opening = options.open()?;
        let policy = options.policy();
        opening.open.network = options.network(policy.as_ref().ok());
        opening.open.answer_s = Some(limit::ANSWER_OF_PERSON_S);
        opening.open.file_leases = true;
        let endpoint = prepared.lasting_endpoint()?;
        let guard = |open: &Open| beginning.hooks.guard(open, Rc::new(endpoint.clone()));
        let config = self.tools.config(opening, policy, guard)?;
        let tools = config.tools.with_models();
        let config = ToolConfig {
            tools: tools.with_web(|web| beginning.engines.of(web)),
            max_violations: self.violations.max(options.trust()),
            ..config
        };
        Ok((config, endpoint))
    }

    /// Reads everything that the chat needs.
    fn read(
        &self,
        files: &Files,
        options: &SessionOptions,
        trust: Trust,
    ) -> Result<ChatStart, Failed> {
        let config = AgentConfig::read(files)?;
        self.model.ensure_available(files, &config, options)?;
        let chosen = self.model.choose(files, &config)?;
        let engines = config.search.engines(files)?;
        let hooks = config.hooks(files)?;
        let settings = self.settings(files, config, &chosen)?;
        let first = self.first_prompt()?;
        let opened = self.open_transcript()?;
        let prompt = self.prompt_of_person(opened.as_ref());
        let (transcript, conversation, id) = match opened {
            Some(opened) => self.begin_transcript(opened, &chosen),
            None => (None, Conversation::default(), transcripts::new_id()),
        };
        let json = self.json;
        Ok(ChatStart {
            chosen,
            settings,
            transcript,
            conversation,
            id,
            first,
            engines,
            hooks,
            trust,
            json,
            prompt,
        })
    }

    fn settings(
        &self,
        files: &Files,
        config: AgentConfig,
        chosen: &ChosenModel,
    ) -> Result<RunSettings, Failed> {
        let pack = choice::pack(self.pack.as_deref(), &config)?;
        let asked = RunLimits {
            max_turns: self.max_turns,
            turn_timeout_s: self.turn_timeout,
            timeout_s: self.timeout,
            max_tokens: self.max_tokens,
            context_reserve: self.context_reserve,
        };
        let of_pack = pack.as_ref().map(|pack| pack.limits).unwrap_or_default();
        let settings = RunSettings {
            fallback: choice::fallback(files, &config)?,
            weak_model: chosen.config.weak_model.clone(),
            strong_model: chosen.config.strong_model.clone(),
            instructions: config.instructions,
            pack,
            packs: config.packs,
            brief_if_small: !self.tools.says_profile(),
            thinking_tokens: self.thinking,
            input_deltas: self.input_events,
            ..RunSettings::new("")
        };
        Ok([config.limits, of_pack, asked]
            .iter()
            .fold(settings, RunSettings::limited))
    }

    /// The file of the transcript; `None` if nothing is recorded.
    fn open_transcript(&self) -> Result<Option<transcripts::OpenTranscript>, Failed> {
        match &self.resume {
            Some(id) => transcripts::resume(id).map(Some),
            None if self.no_transcript => Ok(None),
            // A chat whose transcript cannot be opened goes on without one.
            None => Ok(transcripts::begin()
                .inspect_err(|error| print::problem(&format!("no transcript is written: {error}")))
                .ok()),
        }
    }

    fn begin_transcript(
        &self,
        opened: transcripts::OpenTranscript,
        chosen: &ChosenModel,
    ) -> (Option<Rc<Transcript>>, Conversation, String) {
        let file = Box::new(opened.file);
        let transcript = match opened.bytes {
            0 => {
                let start = json!({
                    "version": env!("CARGO_PKG_VERSION"),
                    "provider": chosen.provider.name(),
                    "key": chosen.key_source.map(|source| source.to_string()),
                    "pack": self.pack,
                });
                Transcript::begin(file, redactor(), start)
            }
            bytes => Transcript::resume(file, redactor(), bytes),
        };
        (
            Some(Rc::new(transcript)),
            Conversation::of(Recorded::read(&opened.text).messages),
            opened.id,
        )
    }

    /// The first prompt; `None` if a person is to type it.
    fn first_prompt(&self) -> Result<Option<String>, Failed> {
        let mut piped = String::new();
        // Beside a prompt, read standard input only on request: our parent may keep the other end open for ever.
        let wanted = self.prompt.is_none() || self.stdin;
        if wanted && !io::stdin().is_terminal() && !InputStream::is_null() {
            let read = io::stdin()
                .lock()
                .take(TEXT_MAX as u64 + 1)
                .read_to_string(&mut piped);
            read.map_err(|error| {
                Failed::invalid(format!("standard input cannot be read as text: {error}"))
            })?;
        }
        if piped.len() > TEXT_MAX {
            let message = format!(
                "standard input has more than {TEXT_MAX} bytes; put it into a file of the project"
            );
            return Err(Failed::invalid(message));
        }
        let parts = [self.prompt.as_deref().unwrap_or_default(), piped.as_str()];
        let parts = parts
            .into_iter()
            .map(str::trim)
            .filter(|part| !part.is_empty());
        let text = parts.collect::<Vec<_>>().join("\n\n");
        match text.is_empty() {
            false => Ok(Some(text)),
            true if self.is_interactive() => Ok(None),
            true => Err(Failed::invalid(
                "there is nothing to say: give a prompt".to_owned(),
            )),
        }
    }
}
