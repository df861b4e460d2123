//! Parameters of type `bool` in the products' code: `true` at a call says nothing.

use super::source::Read;
use super::type_names::{is_test, of_products};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use syn::visit::{self, Visit};
use syn::{FnArg, ImplItemFn, ItemFn, ItemImpl, ItemMod, Pat, Signature, TraitItemFn, Type};

/// The parameters of one file, as `function(parameter)`.
#[derive(Default)]
struct Parameters {
    found: Vec<String>,
    /// Whether what is visited implements a trait, whose definition counts.
    of_trait: bool,
}

/// The bare `bool` parameters in `files`, as `file: function(parameter)`. Not those of `set_…` and `…_if`, which say the meaning.
///
/// # Errors
/// If a file cannot be read, or there is none.
pub fn found(root: &Path, files: &BTreeSet<PathBuf>) -> Result<BTreeSet<String>, String> {
    static SEEN: Read<Vec<String>> = Read::new();
    let mut all = BTreeSet::new();
    of_products(root, files, &SEEN, of, |file, one| {
        all.insert(format!("{file}: {one}"));
    })?;
    Ok(all)
}

fn of(file: &syn::File) -> Vec<String> {
    let mut parameters = Parameters::default();
    parameters.visit_file(file);
    parameters.found
}

impl Parameters {
    fn take(&mut self, signature: &Signature) {
        let function = signature.ident.to_string();
        if function.starts_with("set_") || function.ends_with("_if") {
            return;
        }
        for argument in &signature.inputs {
            let FnArg::Typed(argument) = argument else {
                continue;
            };
            let is_bool = matches!(&*argument.ty, Type::Path(path) if path.path.is_ident("bool"));
            if let Pat::Ident(name) = &*argument.pat
                && is_bool
            {
                self.found.push(format!("{function}({})", name.ident));
            }
        }
    }
}

impl<'ast> Visit<'ast> for Parameters {
    fn visit_item_mod(&mut self, item: &'ast ItemMod) {
        if !is_test(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_impl(&mut self, item: &'ast ItemImpl) {
        let before = std::mem::replace(&mut self.of_trait, item.trait_.is_some());
        visit::visit_item_impl(self, item);
        self.of_trait = before;
    }

    fn visit_impl_item_fn(&mut self, item: &'ast ImplItemFn) {
        if !self.of_trait && !is_test(&item.attrs) {
            self.take(&item.sig);
        }
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast TraitItemFn) {
        self.take(&item.sig);
        visit::visit_trait_item_fn(self, item);
    }

    fn visit_item_fn(&mut self, item: &'ast ItemFn) {
        if !is_test(&item.attrs) {
            self.take(&item.sig);
            visit::visit_item_fn(self, item);
        }
    }
}
