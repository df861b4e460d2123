//! Finds circular imports between the files of a crate.
//!
//! A file imports another one if it names something in it: in a `use`, in a path in its code, or in the tokens of a macro call. A
//! parent that only declares `mod child` does not import it. Test code does not count. Anything that cannot be read or found is an
//! error: a circle could hide there.
//!
//! A method call needs no import, so it is counted apart. `self.name()` leads to the file that defines it for the type. Any other
//! call leads to the only file of the crate that defines a method of its name: types are not inferred here, so it counts only if
//! the name has two words, and neither a trait nor the standard library has it.

use super::source::Read;
use proc_macro2::{Delimiter, TokenStream, TokenTree};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use syn::visit::{self, Visit};
use syn::{Attribute, ImplItem, Item, UseTree};

/// Module names from the crate's root to a module.
type ModulePath = Vec<String>;

/// Methods of two words that the standard library or other people's crates have too: a call of one may be of theirs.
const OF_OTHERS: &str = "as_array as_bytes as_deref as_mut as_path as_raw as_ref as_str as_string get_mut get_or_init get_ref into_inner
    into_iter is_closed is_dir is_empty is_err is_file is_finished is_none is_ok is_some max_by_key set_len set_name starts_with sync_all
    to_owned to_string to_vec try_clone try_recv try_send try_wait";

/// A module as it is written: the paths in its code, its methods, and its modules that are not for tests.
#[derive(Debug)]
pub struct Outline {
    paths: Vec<ModulePath>,
    methods: Methods,
    modules: Vec<Child>,
}

/// Names of methods.
#[derive(Debug, Default)]
struct Methods {
    called: BTreeSet<String>,
    /// By `self.name()` in an `impl` of a type.
    called_by_self: BTreeSet<OwnMethod>,
    /// By an `impl` without a trait.
    defined: BTreeSet<OwnMethod>,
    /// Of traits that are declared or implemented here.
    of_traits: BTreeSet<String>,
}

/// A type's name and its method's.
type OwnMethod = (String, String);

#[derive(Debug)]
struct Child {
    name: String,
    /// The file that an attribute names.
    file: Option<String>,
    /// Of an inline module.
    content: Option<Outline>,
}

impl Outline {
    /// Reads the items of a module.
    pub fn of(items: &[Item]) -> Self {
        let mut names = PathNames::default();
        items.iter().for_each(|item| names.visit_item(item));
        let child = |item: &Item| match item {
            Item::Mod(child) if !is_for_tests(&child.attrs) => Some(Child {
                name: child.ident.to_string(),
                file: path_attribute(&child.attrs),
                content: child.content.as_ref().map(|(_, items)| Self::of(items)),
            }),
            _ => None,
        };
        Self {
            paths: names.paths,
            methods: names.methods,
            modules: items.iter().filter_map(child).collect(),
        }
    }
}

/// The files of a crate, and their imports of each other.
#[derive(Debug, Default)]
pub struct Imports {
    files: Vec<PathBuf>,
    /// The file of each module; for an inline module, the file around it.
    modules: BTreeMap<ModulePath, usize>,
    edges: Edges,
    /// Files whose methods a file calls.
    calls: Edges,
    /// Of each file.
    methods: BTreeMap<usize, Methods>,
}

/// From each file to others.
type Edges = BTreeMap<usize, BTreeSet<usize>>;

/// The edges that a circle is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Along {
    Imports,
    ImportsAndCalls,
}

impl Imports {
    /// Reads a crate from its `lib.rs`, `main.rs` or the file of a test.
    ///
    /// # Errors
    /// If a file cannot be read or is not Rust, or a module has no file.
    pub fn read(root: &Path) -> Result<Self, String> {
        let mut imports = Imports::default();
        let mut paths = Vec::new();
        let folder = root.parent().unwrap_or(root).to_owned();
        imports.add_file(root, &folder, Vec::new(), &mut paths)?;
        for (module, path) in paths {
            let (Some(from), Some(to)) =
                (imports.modules.get(&module), imports.target(&module, &path))
            else {
                continue;
            };
            if *from != to {
                imports.edges.entry(*from).or_default().insert(to);
            }
        }
        imports.calls = imports.calls();
        Ok(imports)
    }

    /// Edges from each file to those whose methods it calls.
    fn calls(&self) -> Edges {
        let own = only_places(self.methods.iter().flat_map(|(file, methods)| {
            let defined = methods.defined.iter();
            defined.map(move |method| (method, *file))
        }));
        let named = only_places(own.iter().map(|((_, name), file)| (name.as_str(), *file)));
        let of_others: BTreeSet<&str> = OF_OTHERS.split_whitespace().collect();
        let of_traits = self.methods.values().flat_map(|one| &one.of_traits);
        let of_traits: BTreeSet<&str> = of_traits.map(String::as_str).collect();
        let is_clear = |name: &&String| {
            name.contains('_')
                && !of_others.contains(name.as_str())
                && !of_traits.contains(name.as_str())
        };
        let edges = |(file, methods): (&usize, &Methods)| {
            let by_self = methods.called_by_self.iter();
            let by_self = by_self.filter_map(|method| own.get(method));
            let by_name = methods.called.iter().filter(is_clear);
            let by_name = by_name.filter_map(|name| named.get(name.as_str()));
            let all = by_self.chain(by_name).filter(|to| *to != file);
            (*file, all.copied().collect())
        };
        self.methods.iter().map(edges).collect()
    }

    /// Reads the file of `module`, whose children are in `folder`. Adds the paths in its code to `paths`.
    fn add_file(
        &mut self,
        file: &Path,
        folder: &Path,
        module: ModulePath,
        paths: &mut Vec<(ModulePath, ModulePath)>,
    ) -> Result<(), String> {
        let text =
            fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
        static SEEN: Read<Outline> = Read::new();
        let outline = SEEN.read(&text, |file| Outline::of(&file.items));
        let outline = outline.as_ref().as_ref();
        let outline = outline.map_err(|error| format!("{}: {error}", file.display()))?;
        self.files.push(file.to_owned());
        self.add_module(outline, self.files.len() - 1, folder, module, paths)
    }

    fn add_module(
        &mut self,
        outline: &Outline,
        file: usize,
        folder: &Path,
        module: ModulePath,
        paths: &mut Vec<(ModulePath, ModulePath)>,
    ) -> Result<(), String> {
        self.modules.insert(module.clone(), file);
        let named = outline.paths.iter().cloned();
        paths.extend(named.map(|path| (module.clone(), path)));
        let methods = self.methods.entry(file).or_default();
        let new = &outline.methods;
        methods.called.extend(new.called.iter().cloned());
        methods
            .called_by_self
            .extend(new.called_by_self.iter().cloned());
        methods.defined.extend(new.defined.iter().cloned());
        methods.of_traits.extend(new.of_traits.iter().cloned());
        for child in &outline.modules {
            self.add_child(child, file, folder, &module, paths)?;
        }
        Ok(())
    }

    fn add_child(
        &mut self,
        child: &Child,
        file: usize,
        folder: &Path,
        parent: &ModulePath,
        paths: &mut Vec<(ModulePath, ModulePath)>,
    ) -> Result<(), String> {
        let name = &child.name;
        let module = [parent.as_slice(), std::slice::from_ref(name)].concat();
        let below = folder.join(name);
        if let Some(outline) = &child.content {
            return self.add_module(outline, file, &below, module, paths);
        }
        let beside = folder.join(format!("{name}.rs"));
        let elsewhere = child.file.as_ref();
        let elsewhere = elsewhere.map(|path| self.files[file].with_file_name(path));
        let candidates = elsewhere.map_or(vec![beside, below.join("mod.rs")], |path| vec![path]);
        match candidates.iter().find(|path| path.exists()) {
            Some(found) => self.add_file(found, &below, module, paths),
            None => Err(format!(
                "{}: no file of the module {name}",
                self.files[file].display()
            )),
        }
    }

    /// The file that `path`, as written in `module`, leads to; `None` if it leads out of this crate, or is in scope through a
    /// `use`, which counts itself.
    fn target(&self, module: &ModulePath, path: &[String]) -> Option<usize> {
        let mut at = module.clone();
        let mut rest = path.iter().peekable();
        match rest.peek()?.as_str() {
            "crate" => {
                at.clear();
                rest.next();
            }
            "self" => drop(rest.next()),
            "super" => {
                while rest.next_if(|name| *name == "super").is_some() {
                    at.pop()?;
                }
            }
            child => {
                let child = [module.as_slice(), &[child.to_owned()]].concat();
                self.modules.get(&child)?;
            }
        }
        for name in rest {
            let child = [at.as_slice(), std::slice::from_ref(name)].concat();
            if !self.modules.contains_key(&child) {
                break;
            }
            at = child;
        }
        self.modules.get(&at).copied()
    }

    /// The files of the crate, except those of its tests.
    pub fn files(&self) -> &[PathBuf] {
        &self.files
    }

    /// The circles, each as a list of its files.
    pub fn circles(&self, along: Along) -> Vec<Vec<&Path>> {
        let mut edges = self.edges.clone();
        if along == Along::ImportsAndCalls {
            for (from, to) in &self.calls {
                edges.entry(*from).or_default().extend(to);
            }
        }
        let mut search = Search {
            edges: &edges,
            state: BTreeMap::new(),
            stack: Vec::new(),
            found: Vec::new(),
        };
        for file in 0..self.files.len() {
            search.visit(file);
        }
        let named = |circle: Vec<usize>| {
            circle
                .into_iter()
                .map(|file| self.files[file].as_path())
                .collect()
        };
        search
            .found
            .into_iter()
            .filter(|circle| circle.len() > 1)
            .map(named)
            .collect()
    }
}

/// The place of each key that has only one.
fn only_places<K: Ord>(all: impl Iterator<Item = (K, usize)>) -> BTreeMap<K, usize> {
    let mut places = BTreeMap::<K, BTreeSet<usize>>::new();
    for (key, place) in all {
        places.entry(key).or_default().insert(place);
    }
    let only = places.into_iter().filter(|(_, places)| places.len() == 1);
    only.filter_map(|(key, places)| Some((key, places.into_iter().next()?)))
        .collect()
}

/// Tarjan's algorithm for strongly connected components.
struct Search<'a> {
    edges: &'a Edges,
    /// For each visited file: its index in the search, the lowest index it reaches, whether it is on the stack.
    state: BTreeMap<usize, (usize, usize, bool)>,
    stack: Vec<usize>,
    found: Vec<Vec<usize>>,
}

impl Search<'_> {
    fn visit(&mut self, file: usize) -> usize {
        if let Some((_, lowest, _)) = self.state.get(&file) {
            return *lowest;
        }
        let number = self.state.len();
        self.state.insert(file, (number, number, true));
        self.stack.push(file);
        let mut lowest = number;
        for next in self.edges.get(&file).into_iter().flatten() {
            match self.state.get(next) {
                None => lowest = lowest.min(self.visit(*next)),
                Some((number, _, true)) => lowest = lowest.min(*number),
                Some((_, _, false)) => {}
            }
        }
        self.state.insert(file, (number, lowest, true));
        if lowest == number {
            let start = self
                .stack
                .iter()
                .position(|other| *other == file)
                .unwrap_or(0);
            let component = self.stack.split_off(start);
            for other in &component {
                self.state.entry(*other).and_modify(|state| state.2 = false);
            }
            self.found.push(component);
        }
        lowest
    }
}

/// The paths and methods in some items, except those in nested modules and in test code.
#[derive(Default)]
struct PathNames {
    paths: Vec<ModulePath>,
    methods: Methods,
    /// The type of the `impl` that is read.
    own: Option<String>,
}

impl PathNames {
    fn add_tree(&mut self, tree: &UseTree, before: &[String]) {
        let with = |name: &syn::Ident| [before, &[name.to_string()]].concat();
        match tree {
            UseTree::Path(path) => self.add_tree(&path.tree, &with(&path.ident)),
            UseTree::Name(name) => self.paths.push(with(&name.ident)),
            UseTree::Rename(rename) => self.paths.push(with(&rename.ident)),
            UseTree::Glob(_) => self.paths.push(before.to_vec()),
            UseTree::Group(group) => group
                .items
                .iter()
                .for_each(|tree| self.add_tree(tree, before)),
        }
    }

    /// Adds the paths and method calls in a macro call's tokens, which are no syntax tree.
    fn add_tokens(&mut self, tokens: TokenStream) {
        self.add_calls(tokens.clone());
        let mut path = ModulePath::new();
        let mut colons = 0;
        for token in tokens {
            match token {
                TokenTree::Punct(punct) if punct.as_char() == ':' => colons += 1,
                TokenTree::Ident(name) => {
                    if colons != 2 {
                        self.paths.push(std::mem::take(&mut path));
                    }
                    path.push(name.to_string());
                    colons = 0;
                }
                other => {
                    self.paths.push(std::mem::take(&mut path));
                    colons = 0;
                    if let TokenTree::Group(group) = other {
                        self.add_tokens(group.stream());
                    }
                }
            }
        }
        self.paths.push(path);
        // A single name is a variable, or in scope through a `use`.
        self.paths.retain(|path| path.len() > 1);
    }

    fn add_calls(&mut self, tokens: TokenStream) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        for (at, three) in tokens.windows(3).enumerate() {
            if let [
                TokenTree::Punct(dot),
                TokenTree::Ident(name),
                TokenTree::Group(group),
            ] = three
                && dot.as_char() == '.'
                && group.delimiter() == Delimiter::Parenthesis
            {
                let before = at.checked_sub(1).map(|before| tokens[before].to_string());
                self.add_call(name.to_string(), before.as_deref() == Some("self"));
            }
        }
    }

    fn add_call(&mut self, name: String, by_self: bool) {
        if by_self && let Some(own) = &self.own {
            let method = (own.clone(), name.clone());
            self.methods.called_by_self.insert(method);
        }
        self.methods.called.insert(name);
    }
}

impl<'ast> Visit<'ast> for PathNames {
    fn visit_item(&mut self, item: &'ast Item) {
        if !matches!(item, Item::Mod(_)) && !is_for_tests(attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.add_tree(&item.tree, &[]);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names: ModulePath = path
            .segments
            .iter()
            .map(|segment| segment.ident.to_string())
            .collect();
        if path.leading_colon.is_none() && names.len() > 1 {
            self.paths.push(names);
        }
        visit::visit_path(self, path);
    }

    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        let by_self =
            matches!(&*call.receiver, syn::Expr::Path(path) if path.path.is_ident("self"));
        self.add_call(call.method.to_string(), by_self);
        visit::visit_expr_method_call(self, call);
    }

    fn visit_item_impl(&mut self, block: &'ast syn::ItemImpl) {
        let own = match &*block.self_ty {
            syn::Type::Path(path) => path.path.segments.last(),
            _ => None,
        };
        self.own = own.map(|segment| segment.ident.to_string());
        for item in &block.items {
            let ImplItem::Fn(method) = item else { continue };
            let name = method.sig.ident.to_string();
            if is_for_tests(&method.attrs) || method.sig.receiver().is_none() {
                continue;
            }
            match (&block.trait_, &self.own) {
                (None, Some(own)) => {
                    self.methods.defined.insert((own.clone(), name));
                }
                (Some(_), _) | (None, None) => {
                    self.methods.of_traits.insert(name);
                }
            }
        }
        visit::visit_item_impl(self, block);
        self.own = None;
    }

    fn visit_trait_item_fn(&mut self, method: &'ast syn::TraitItemFn) {
        self.methods.of_traits.insert(method.sig.ident.to_string());
        visit::visit_trait_item_fn(self, method);
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        self.visit_path(&call.path);
        self.add_tokens(call.tokens.clone());
    }

    /// A macro's definition is used where the macro is called.
    fn visit_item_macro(&mut self, item: &'ast syn::ItemMacro) {
        if item.ident.is_none() {
            visit::visit_item_macro(self, item);
        }
    }

    fn visit_visibility(&mut self, _: &'ast syn::Visibility) {}

    fn visit_attribute(&mut self, _: &'ast Attribute) {}
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// Conditions that hold in tests alone: of the crate itself, and of those that depend on it.
const FOR_TESTS: [&str; 2] = ["test", "any (test , feature = \"test-support\")"];

/// Whether an item is compiled only for tests.
pub(super) fn is_for_tests(attributes: &[Attribute]) -> bool {
    let is_test = |attribute: &Attribute| {
        let words = match &attribute.meta {
            syn::Meta::List(list) => list.tokens.to_string(),
            syn::Meta::Path(_) | syn::Meta::NameValue(_) => String::new(),
        };
        let is_cfg = attribute.path().is_ident("cfg");
        attribute.path().is_ident("test") || is_cfg && FOR_TESTS.contains(&&*words)
    };
    attributes.iter().any(is_test)
}

fn path_attribute(attributes: &[Attribute]) -> Option<String> {
    let value = |attribute: &Attribute| match &attribute.meta {
        syn::Meta::NameValue(pair) if pair.path.is_ident("path") => match &pair.value {
            syn::Expr::Lit(syn::ExprLit {
                lit: syn::Lit::Str(text),
                ..
            }) => Some(text.value()),
            _ => None,
        },
        _ => None,
    };
    attributes.iter().find_map(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    static COUNTER: AtomicU32 = AtomicU32::new(0);

    /// The circles of imports of a crate with these files, as file names.
    fn circles(files: &[(&str, &str)]) -> Result<Vec<Vec<String>>, String> {
        circles_along(Along::Imports, files)
    }

    fn circles_along(along: Along, files: &[(&str, &str)]) -> Result<Vec<Vec<String>>, String> {
        let folder = std::env::temp_dir().join(format!(
            "lazaret-imports-{}-{}",
            std::process::id(),
            COUNTER.fetch_add(1, Ordering::Relaxed)
        ));
        for (name, text) in files {
            let path = folder.join(name);
            fs::create_dir_all(path.parent().expect("it has a folder"))
                .expect("the folder can be made");
            fs::write(path, text).expect("the file can be written");
        }
        let imports = Imports::read(&folder.join(files[0].0))?;
        let name = |path: &&Path| {
            path.strip_prefix(&folder)
                .unwrap_or(path)
                .display()
                .to_string()
        };
        Ok(imports
            .circles(along)
            .iter()
            .map(|circle| circle.iter().map(name).collect())
            .collect())
    }

    #[test]
    fn a_circle_is_found_however_it_is_written() {
        for (a, b) in [
            ("use crate::b::B;", "use crate::a::A;"),
            ("use super::b::B;", "use super::a::A;"),
            ("use super::b;", "use super::a;"),
            ("use super::b::*;", "use crate::{a::{self, A}, c};"),
            ("fn f() { crate::b::g() }", "fn g() -> super::a::A {}"),
            (
                "fn f() { let x: super::b::B; }",
                "impl crate::a::T for B {}",
            ),
            (
                "fn f() { use super::b::g; }",
                "fn g() { println!(\"{}\", crate::a::f()) }",
            ),
            (
                "fn f() { match x { crate::b::X => {} } }",
                "fn g() { vec![super::a::A, x] }",
            ),
            ("mod inner { use crate::b; }", "pub use crate::a::inner::X;"),
        ] {
            let found = circles(&[
                ("lib.rs", "mod a; mod b; mod c;"),
                ("a.rs", a),
                ("b.rs", b),
                ("c.rs", ""),
            ]);
            assert_eq!(
                found,
                Ok(vec![vec!["a.rs".to_owned(), "b.rs".into()]]),
                "{a} {b}"
            );
        }
    }

    #[test]
    fn a_parent_and_a_child_that_use_each_other_are_a_circle() {
        for (parent, child) in [
            ("mod child; use child::C;", "use super::P;"),
            ("mod child; fn f() { child::g() }", "use crate::P;"),
            ("pub mod child; pub use child::C;", "fn g() { crate::f() }"),
            ("mod child; use crate::child::C;", "use super::*;"),
            (
                "#[path = \"child.rs\"] mod other; use self::other::C;",
                "use super::P;",
            ),
        ] {
            let found = circles(&[("lib.rs", parent), ("child.rs", child)]);
            assert_eq!(
                found,
                Ok(vec![vec!["lib.rs".to_owned(), "child.rs".into()]]),
                "{parent} {child}"
            );
        }
        let below = [
            ("main.rs", "mod a;"),
            ("a/mod.rs", "mod b; use b::B;"),
            ("a/b.rs", "use super::A;"),
        ];
        assert_eq!(circles(&below).map(|found| found.len()), Ok(1));
    }

    #[test]
    fn longer_circles_are_found_and_what_is_none_is_not() {
        let long = [
            ("lib.rs", "mod a; mod b; mod c; use a::A;"),
            ("a.rs", "use crate::b::B;"),
            ("b.rs", "use crate::c::C;"),
            ("c.rs", "use crate::a::A;"),
        ];
        assert_eq!(circles(&long).map(|found| found[0].len()), Ok(3));
        for (parent, child) in [
            ("mod child;", "use super::P;"),
            (
                "mod child; use child::C;",
                "pub(super) struct C; pub(in crate::x) fn f() {}",
            ),
            (
                "mod child; use child::C;",
                "#[cfg(test)] mod tests { use super::super::P; }",
            ),
            (
                "mod child; use child::C;",
                "#[cfg(test)] fn f() { crate::g() }",
            ),
            (
                "mod child; use child::C;",
                "use std::path::Path; fn f() { fs::read() }",
            ),
            (
                "mod child; #[cfg(test)] mod tests; use child::C;",
                "/// See [`crate::P`].\nstruct C;",
            ),
            (
                "mod child; use child::C;",
                "macro_rules! m { () => { crate::P } }",
            ),
        ] {
            assert_eq!(
                circles(&[("lib.rs", parent), ("child.rs", child)]),
                Ok(vec![]),
                "{parent} {child}"
            );
        }
    }

    #[test]
    fn methods_lead_to_their_only_definition() {
        let of_a = "pub struct A; impl A { fn run(&self) {} fn one_call(&self) { self.sum() } }";
        let circle_with = |b: &str| {
            let files = [
                ("lib.rs", "mod a; mod b;"),
                ("a.rs", &format!("use crate::b::B; {of_a}")),
                ("b.rs", b),
            ];
            assert_eq!(circles(&files), Ok(vec![]), "{b}");
            circles_along(Along::ImportsAndCalls, &files).map(|found| found.len() == 1)
        };
        for b in [
            "fn f(a: X) { a.one_call() }",
            "fn f(a: X) { assert!(a.one_call()) }",
            "impl A { fn f(&self) { self.run() } }",
            "impl A { fn f(&self) { vec![self.run()] } }",
            "mod inner { fn f(a: X) { a.one_call() } }",
        ] {
            assert_eq!(circle_with(b), Ok(true), "{b}");
        }
        for b in [
            "fn f(a: X) { a.run() }",
            "impl B { fn f(&self) { self.run() } }",
            "fn f(a: X) { a.one_call() } impl B { fn one_call(&self) {} }",
            "fn f(a: X) { a.one_call() } trait T { fn one_call(&self); }",
            "fn f(a: X) { a.one_call() } impl T for B { fn one_call(&self) {} }",
            "#[cfg(test)] mod tests { fn f(a: X) { a.one_call() } }",
            "fn f(a: X) { a.one_call }",
        ] {
            assert_eq!(circle_with(b), Ok(false), "{b}");
        }
    }

    #[test]
    fn unreadable_module_is_an_error() {
        for (parent, child) in [
            ("mod absent;", ""),
            ("mod child;", "fn ("),
            ("mod child;", "mod absent;"),
        ] {
            assert!(
                circles(&[("lib.rs", parent), ("child.rs", child)]).is_err(),
                "{parent} {child}"
            );
        }
        assert!(Imports::read(Path::new("/nowhere/lib.rs")).is_err());
    }
}
