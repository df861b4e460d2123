//! Names that no item may have, and comments that only repeat a name.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use syn::visit::{self, Visit};
use syn::{Attribute, Expr, ExprLit, Ident, Lit, Meta};

/// Names of types, traits, functions and modules that mean nothing to readers who do not know them already. On the right the term
/// that the field uses.
const BANNED: [(&str, &str); 44] = [
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
    ("common", "the noun that it is"),
    ("util", "the noun that it is"),
    ("utils", "the noun that it is"),
    ("helper", "the noun that it is"),
    ("manager", "the noun that it is"),
    ("misc", "the noun that it is"),
];

/// A doc comment with at most this many words only repeats a name.
const FILLER: usize = 4;

/// The findings in a file: items with banned names, and the number of filler doc comments.
#[derive(Debug, Default)]
struct Words {
    banned: Vec<(String, &'static str)>,
    filler: usize,
}

/// Items with banned names in some files, and the number of filler comments in them.
///
/// # Errors
/// If a file cannot be read, or there is none.
pub fn of(root: &Path, files: &BTreeSet<PathBuf>) -> Result<(Vec<String>, usize), String> {
    let (mut banned, mut filler) = (Vec::new(), 0);
    for file in files {
        let name = file.strip_prefix(root).unwrap_or(file).display();
        let text = fs::read_to_string(file).map_err(|error| format!("{name}: {error}"))?;
        let parsed = syn::parse_file(&text).map_err(|error| format!("{name}: {error}"))?;
        let mut words = Words::default();
        words.visit_file(&parsed);
        banned.extend(
            words
                .banned
                .iter()
                .map(|(item, instead)| format!("{name}: `{item}`: {instead}")),
        );
        filler += words.filler;
    }
    if files.is_empty() {
        Err("no Rust file in the workspace".into())
    } else {
        Ok((banned, filler))
    }
}

impl Words {
    fn check(&mut self, name: &Ident) {
        let name = name.to_string();
        if let Some((_, instead)) = BANNED.iter().find(|(banned, _)| *banned == name) {
            self.banned.push((name, instead));
        }
    }

    /// Counts the doc comment of one item, field or variant.
    fn count(&mut self, attributes: &[Attribute]) {
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
        let doc: String = attributes.iter().filter_map(line).collect();
        let words = doc.split_whitespace().count();
        self.filler += usize::from((1..=FILLER).contains(&words));
    }
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
