//! Names that no item may have, comments that only repeat a name, and comments that begin like a riddle.

use super::source::Read;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use syn::visit::{self, Visit};
use syn::{Attribute, Expr, ExprLit, Ident, Lit, Meta};

/// Names of types, traits, functions and modules that mean nothing to readers who do not know them already. On the right the term
/// that the field uses.
const BANNED: [(&str, &str); 57] = [
    ("Told", "Rendered"),
    ("Asked", "Question, Approval"),
    ("Own", "ClientTool"),
    ("Named", "CallId"),
    ("Whole", "Utf8Joiner"),
    ("Fed", "StdinChunk"),
    ("Alike", "AskOnce"),
    ("Quiet", "BatchMember"),
    ("Desk", "LineLoop"),
    ("Door", "Spawner"),
    ("Rest", "IdleTrim"),
    ("bite", "self_check"),
    ("litter", "stale_temporaries"),
    ("Patient", "DeadlineMatcher"),
    ("Errand", "WorkerJob"),
    ("Siege", "AttackRun"),
    ("Scene", "Fixture"),
    ("Standing", "ProcessState"),
    ("Keeper", "WardenLoop"),
    ("Made", "CreatedFiles"),
    ("Turn", "RenameLock"),
    ("Walls", "SandboxSpec"),
    ("Stage", "SpawnStack"),
    ("Before", "ChildSetup"),
    ("Unstarted", "SpawnError"),
    ("News", "WaitStatus"),
    ("news", "wait_any"),
    ("let_go", "ptrace_detach"),
    ("leave", "exit_now"),
    ("again", "reusable"),
    ("filed", "audit_entry"),
    ("settle", "the verb that it is"),
    ("look", "the verb that it is"),
    ("most", "max"),
    ("told", "render, describe"),
    ("said", "render, describe"),
    ("shown", "render, describe"),
    ("keep", "save_output, retain"),
    ("take_back", "withdraw_name, return_cell"),
    ("tidy", "the step that it is"),
    ("met", "reached_limits"),
    ("around", "outer_repository"),
    ("ways", "paths"),
    ("Beside", "SessionSetup"),
    ("Records", "the records that they are"),
    ("left_files", "leftovers"),
    ("may_set_out", "may_begin_transit"),
    ("may_divert", "may_touch_in_transit"),
    ("may_carry", "may_move_contents"),
    ("may_shape", "may_make_repository"),
    ("may_mark", "may_change_metadata"),
    ("common", "the noun that it is"),
    ("util", "the noun that it is"),
    ("utils", "the noun that it is"),
    ("helper", "the noun that it is"),
    ("manager", "the noun that it is"),
    ("misc", "the noun that it is"),
];

/// A function or test whose name begins so asks, where it should claim or name.
const QUESTIONS: [&str; 4] = ["what_", "where_", "which_", "who_"];

/// A doc comment with at most this many words only repeats a name.
const FILLER: usize = 4;

/// A doc comment that begins so names its subject by a question, or by another comment that readers have to find first.
const OPENINGS: [&str; 6] = [
    "What ",
    "Which ",
    "Whose ",
    "Whether some",
    "Those of which ",
    "The same",
];

/// The findings in a file: items with banned names, and the numbers of doc comments that are filler or begin like a riddle.
#[derive(Debug, Default)]
struct Words {
    banned: Vec<(String, &'static str)>,
    filler: usize,
    openings: usize,
}

/// The findings in all files.
#[derive(Debug, Default)]
pub struct Findings {
    /// Items with banned names, each with its file and the term to use.
    pub banned: Vec<String>,
    /// Number of doc comments that only repeat a name.
    pub filler: usize,
    /// Number of doc comments that begin with one of `OPENINGS`.
    pub openings: usize,
}

/// Reads these files.
///
/// # Errors
/// If a file cannot be read, or there is none.
pub fn of(root: &Path, files: &BTreeSet<PathBuf>) -> Result<Findings, String> {
    static SEEN: Read<Words> = Read::new();
    let mut found = Findings::default();
    for file in files {
        let name = file.strip_prefix(root).unwrap_or(file).display();
        let text = fs::read_to_string(file).map_err(|error| format!("{name}: {error}"))?;
        let words = SEEN.read(&text, Words::of);
        let words = words.as_ref().as_ref();
        let words = words.map_err(|error| format!("{name}: {error}"))?;
        found.banned.extend(
            words
                .banned
                .iter()
                .map(|(item, instead)| format!("{name}: `{item}`: {instead}")),
        );
        found.filler += words.filler;
        found.openings += words.openings;
    }
    if files.is_empty() {
        Err("no Rust file in the workspace".into())
    } else {
        Ok(found)
    }
}

impl Words {
    fn of(file: &syn::File) -> Self {
        let mut words = Self::default();
        words.visit_file(file);
        words.openings += usize::from(is_riddle(&doc_of(&file.attrs)));
        words
    }

    fn check(&mut self, name: &Ident) {
        let name = name.to_string();
        if let Some((_, instead)) = BANNED.iter().find(|(banned, _)| *banned == name) {
            self.banned.push((name, instead));
        } else if QUESTIONS.iter().any(|word| name.starts_with(word)) {
            self.banned.push((name, "the claim or the noun"));
        }
    }

    /// Counts the doc comment of one item, field or variant.
    fn count(&mut self, attributes: &[Attribute]) {
        let doc = doc_of(attributes);
        let words = doc.split_whitespace().count();
        self.filler += usize::from((1..=FILLER).contains(&words));
        self.openings += usize::from(is_riddle(&doc));
    }
}

fn is_riddle(doc: &str) -> bool {
    let doc = doc.trim_start();
    OPENINGS.iter().any(|opening| doc.starts_with(opening))
}

/// The text of a doc comment; empty without one.
fn doc_of(attributes: &[Attribute]) -> String {
    let line = |attribute: &Attribute| match &attribute.meta {
        Meta::NameValue(pair) if pair.path.is_ident("doc") => match &pair.value {
            Expr::Lit(ExprLit {
                lit: Lit::Str(text),
                ..
            }) => Some(text.value()),
            _ => None,
        },
        _ => None,
    };
    attributes.iter().filter_map(line).collect()
}

/// A visitor of everything that has a name of ours or a doc comment.
macro_rules! visit_named {
    ($($visit:ident: $type:ident $(, $($name:ident).+)?;)*) => {
        impl<'ast> Visit<'ast> for Words {
            $(fn $visit(&mut self, item: &'ast syn::$type) {
                self.count(&item.attrs);
                $(self.check(&item.$($name).+);)?
                visit::$visit(self, item);
            })*
        }
    };
}

visit_named! {
    visit_item_struct: ItemStruct, ident;
    visit_item_enum: ItemEnum, ident;
    visit_item_trait: ItemTrait, ident;
    visit_item_type: ItemType, ident;
    visit_item_fn: ItemFn, sig.ident;
    visit_item_mod: ItemMod, ident;
    visit_impl_item_fn: ImplItemFn, sig.ident;
    visit_trait_item_fn: TraitItemFn, sig.ident;
    visit_item_const: ItemConst;
    visit_item_static: ItemStatic;
    visit_impl_item_const: ImplItemConst;
    visit_field: Field;
    visit_variant: Variant;
}
