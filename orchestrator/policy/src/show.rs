//! `lazaret policy show`: prints the policy of a session.

use crate::sessions::policy;
use broker_protocol::Failed;
use broker_protocol::gateway::{Attach, CredentialUse, RuleAction};
use orchestrator_launch::exit;
use orchestrator_launch::session_options::SessionOptions;
use orchestrator_launch::stdio::print;
use policies::gateway::ProxyChoice;
use policies::http::HttpRule;
use policies::limits::Limits;
use policies::network;
use policies::rules::Condition;
use policies::{Access, Credential, CredentialSource, EffectivePolicy, GatewaySettings, Rule};
use policies_guard::names::ProtectedName;
use policies_guard::{Protection, WhenNew};
use serde_json::{Value, json};

pub(crate) fn show(options: &SessionOptions, json: bool) -> Result<u8, Failed> {
    let policy = policy(options)?;
    let value = to_json(&policy);
    match json {
        true => print::json(&value)?,
        false => {
            let page = toml::to_string_pretty(&without_nulls(value))
                .map_err(|error| Failed::internal(error.to_string()))?;
            print::result(print::shown(&page).as_bytes())?;
        }
    }
    Ok(exit::OK)
}

fn to_json(policy: &EffectivePolicy) -> Value {
    let access = |access: Access| match access {
        Access::Read => "read",
        Access::Write => "write",
    };
    json!({
        "profile": policy.profile,
        "digest": policy.digest.to_string(),
        "project": access(policy.project),
        "central": access(policy.central),
        "hide": policy.hides,
        "trust": policy.trust.name(),
        "approval": {
            "trust": policy.approval.ceiling.name(),
            "timeout_s": policy.approval.timeout_s,
            "channel": policy.approval.channel.name(),
            "terminal": policy.approval.terminal,
        },
        "required": policy.required.iter().map(|layer| layer.name()).collect::<Vec<_>>(),
        "expected": policy.expected.iter().map(|layer| layer.name()).collect::<Vec<_>>(),
        "listed": policy.listed,
        "sockets": policy.sockets,
        "git_directories": policy.git_directories,
        "limits": limits_json(&policy.limits),
        "environment": {
            "pass": policy.environment.pass,
            "set": policy.environment.set,
            "offline": policy.environment.offline,
            "path": policy.environment.path,
        },
        "credential": policy.credentials.iter().map(credential_json).collect::<Vec<_>>(),
        "gateway": gateway_json(&policy.gateway),
        "requests": policy.http.0.iter().map(|list| list.iter().map(request_json).collect::<Vec<_>>()).collect::<Vec<_>>(),
        "network": network::lists(&policy.network).lists.iter().map(|list| json!({
            "allow": list.allow,
            "private": list.private,
        })).collect::<Vec<_>>(),
        "scope": policy.scope.as_ref().map(|scope| scope.permissions.iter().map(permission_json).collect::<Vec<_>>()),
        "image": policy.image,
        "grants": policy.grants.iter().map(|grant| json!({
            "path": grant.path,
            "optional": grant.optional,
            "except": grant.except,
        })).collect::<Vec<_>>(),
        "read": policy.read,
        "rule": policy.rules.iter().map(rule_json).collect::<Vec<_>>(),
        "protect": policy.protected.iter().map(protected_json).collect::<Vec<_>>(),
    })
}

fn limits_json(limits: &Limits) -> Value {
    json!({
        "timeout_s": limits.timeout_s,
        "timeout_max_s": limits.timeout_max_s,
        "attended_timeout_s": limits.attended_timeout_s,
        "capture": limits.capture,
        "spill": limits.spill,
        "output": limits.output,
        "processes": limits.processes,
        "memory": limits.memory,
        "cpu_s": limits.cpu_s,
        "file_size": limits.file_size,
        "written": limits.written,
        "open_files": limits.open_files,
        "scratch": limits.scratch,
    })
}

fn protected_json(name: &ProtectedName) -> Value {
    json!({
        "name": name.pattern,
        "except": name.except,
        "protection": match name.protection { Protection::Write => "write", Protection::All => "all" },
        "new": match name.new {
            WhenNew::Open => "open",
            WhenNew::Harmless => "harmless",
            WhenNew::Closed => "closed",
        },
        "why": name.why,
        "where": name.origin.to_string(),
    })
}

fn permission_json(permission: &broker_protocol::Permission) -> Value {
    json!({
        "tool": permission.tool,
        "allowed": permission.allowed,
        "paths": permission.paths,
        "timeout_s": permission.timeout_s,
        "network": permission.network,
    })
}

/// A rule for requests. The first list is the profile's, if it has one; each list must allow.
fn request_json(rule: &HttpRule) -> Value {
    let request = &rule.request;
    json!({
        "host": request.host,
        "port": request.port,
        "methods": request.methods,
        "paths": request.paths,
        "action": match request.action {
            RuleAction::Allow => "allow",
            RuleAction::Ask => "ask",
            RuleAction::Deny => "deny",
        },
        "why": request.why,
        "preset": rule.preset,
        "where": rule.origin.to_string(),
    })
}

fn credential_json(credential: &Credential) -> Value {
    let attach = match &credential.attach {
        Attach::Bearer => "bearer".to_owned(),
        Attach::Basic { user } => format!("basic:{user}"),
        Attach::Any { user } => format!("any:{user}"),
        Attach::Header { name } => format!("header {name}"),
        Attach::Aws => "aws".to_owned(),
        Attach::Login(_) => "login".to_owned(),
    };
    let of_use = |one: &CredentialUse| {
        json!({
            "host": one.host,
            "methods": one.methods,
            "path": one.path,
            "unasked": one.unasked,
            "refused": one.refused,
            "otherwise": one.otherwise,
            "why": one.why,
            "service": one.service,
            "actions": one.actions,
        })
    };
    json!({
        "name": credential.name,
        "preset": credential.preset,
        "from": source_json(&credential.from),
        "hosts": credential.hosts,
        "attach": attach,
        "capture": login_json(&credential.attach),
        "env": credential.variables,
        "uses": credential.uses.iter().map(of_use).collect::<Vec<_>>(),
        "where": credential.origin.to_string(),
    })
}

/// The token endpoints of logins, if programs log in.
fn login_json(attach: &Attach) -> Value {
    let Attach::Login(login) = attach else {
        return Value::Null;
    };
    let endpoints = login.endpoints.iter();
    let endpoints: Vec<Value> = endpoints
        .map(|one| json!({ "host": one.host, "path": one.path }))
        .collect();
    json!({ "endpoints": endpoints, "claims": login.claims, "members": login.members })
}

/// A credential's source, as a policy file writes it.
pub fn source_json(source: &CredentialSource) -> Value {
    match source {
        CredentialSource::Command(words) => json!({ "command": words }),
        CredentialSource::File(path) => json!({ "file": path }),
        CredentialSource::Systemd(name) => json!({ "systemd": name }),
        CredentialSource::Variable(name) => json!({ "env": name }),
        CredentialSource::Session => Value::Null,
    }
}

fn gateway_json(gateway: &GatewaySettings) -> Value {
    let proxy = gateway.proxy.as_ref();
    let text = |choice: &ProxyChoice| match choice {
        ProxyChoice::Environment => "environment".to_owned(),
        ProxyChoice::Address(address) => format!("http://{}:{}", address.host, address.port),
    };
    json!({
        "ca": gateway.authorities,
        "proxy": proxy.map(|proxy| text(&proxy.choice)),
        "no_proxy": proxy.map(|proxy| proxy.direct.clone()),
        "proxy_names": proxy.map(|proxy| proxy.names),
        "proxy_from": proxy.and_then(|proxy| proxy.login.as_ref()).map(source_json),
        "from_client": gateway.from_client,
    })
}

fn rule_json(rule: &Rule) -> Value {
    let condition = |condition: &Condition| json!({ "param": condition.param, condition.test.name(): condition.values });
    json!({
        "tool": rule.tool,
        "action": rule.action.name(),
        "program": rule.command.as_ref().map(|command| &command.program),
        "args": rule.command.as_ref().map(|command| &command.args),
        "when": rule.when.iter().map(condition).collect::<Vec<_>>(),
        "why": rule.why,
        "where": rule.origin.to_string(),
    })
}

/// Removes absent values: TOML has no null.
fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(values) => {
            let some = values.into_iter().filter(|(_, value)| !value.is_null());
            some.map(|(key, value)| (key, without_nulls(value)))
                .collect()
        }
        Value::Array(values) => values.into_iter().map(without_nulls).collect(),
        value => value,
    }
}
