//! Modules of a crate need each other in one direction, and their types and functions stay small enough to be read.
//!
//! What a module needs is read from its `use` lines and its paths, but for those inside of macros. An item that another
//! module only gives on (`pub use`) is needed of the module that has it. The methods of a type are counted in all files.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::{fs, mem};

use syn::visit::{self, Visit};
use syn::{FnArg, Item, ItemImpl, ItemMod, ItemUse, Pat, Signature, Type, UseTree, Visibility};

/// The most methods that `Harness` may have, less one.
const HARNESS_METHODS: usize = 40;
/// The most modules of a run that may need each other in a circle.
const CIRCLE_OF_A_RUN: usize = 4;
/// The most parameters of a function of a run, the receiver among them.
const PARAMETERS: usize = 4;

/// A path within a crate, from its root.
type Place = Vec<String>;

/// The modules of a crate, one for each file.
struct Modules {
    files: BTreeMap<Place, syn::File>,
    /// What each of them gives on under a name, as its `pub use` says.
    given_on: BTreeMap<Place, BTreeMap<String, Place>>,
}

impl Modules {
    /// Those of the crate in `folder`.
    fn of(folder: &str) -> Self {
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(folder).join("src");
        let mut files = BTreeMap::new();
        for path in rust_files(&sources) {
            let relative = path.strip_prefix(&sources).expect("a file of the folder").with_extension("");
            let place: Place = relative.iter().map(|name| name.to_string_lossy().into_owned()).collect();
            let place = if place == ["lib"] { Place::new() } else { place };
            let text = fs::read_to_string(&path).expect("a source file can be read");
            files.insert(place, syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display())));
        }
        assert!(files.len() > 1, "{folder} has modules");
        let mut modules = Self { files, given_on: BTreeMap::new() };
        modules.given_on = modules.files.iter().map(|(place, file)| (place.clone(), given_on(place, file))).collect();
        modules
    }

    /// The module that has what `path` names, if it is one of this crate.
    fn owner(&self, path: &[String]) -> Option<Place> {
        self.owner_in(path, 0)
    }

    /// Modules that give on each other's items would lead in a circle: no path is followed for long.
    fn owner_in(&self, path: &[String], followed: usize) -> Option<Place> {
        let longest = (0..=path.len()).rev().find(|length| self.files.contains_key(&path[..*length]))?;
        let (module, rest) = path.split_at(longest);
        let given_on = rest.first().and_then(|name| self.given_on[module].get(name));
        match given_on.filter(|_| followed < 8).and_then(|place| self.owner_in(place, followed + 1)) {
            Some(owner) => Some(owner),
            None if module.is_empty() => None,
            None => Some(module.to_vec()),
        }
    }

    /// The modules that each of those at `prefix` and beneath needs among them.
    fn needs(&self, prefix: &[&str]) -> BTreeMap<Place, BTreeSet<Place>> {
        let is_within = |place: &Place| !place.is_empty() && place.iter().zip(prefix).all(|(name, of)| name == of);
        let within = self.files.iter().filter(|(place, _)| place.len() > prefix.len() && is_within(place));
        let all: BTreeSet<&Place> = within.clone().map(|(place, _)| place).collect();
        let needs = |(place, file): (&Place, &syn::File)| {
            let mut paths = Paths { module: place.clone(), named: Vec::new() };
            paths.visit_file(file);
            let owners = paths.named.iter().filter_map(|path| self.owner(path));
            (place.clone(), owners.filter(|owner| owner != place && all.contains(owner)).collect())
        };
        within.map(needs).collect()
    }
}

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("a folder can be read").map(|entry| entry.expect("an entry").path());
    let (folders, files): (Vec<_>, Vec<_>) = entries.partition(|path| path.is_dir());
    let files = files.into_iter().filter(|path| path.extension().is_some_and(|extension| extension == "rs"));
    files.chain(folders.iter().flat_map(|folder| rust_files(folder))).collect()
}

fn given_on(module: &Place, file: &syn::File) -> BTreeMap<String, Place> {
    let mut given_on = BTreeMap::new();
    for item in &file.items {
        if let Item::Use(item) = item
            && !matches!(item.vis, Visibility::Inherited)
        {
            for (path, name) in paths_of(&item.tree) {
                given_on.extend(absolute(module, &path).map(|place| (name, place)));
            }
        }
    }
    given_on
}

/// The paths of a `use`, each with the name that it brings.
fn paths_of(tree: &UseTree) -> Vec<(Place, String)> {
    match tree {
        UseTree::Path(path) => {
            let first = path.ident.to_string();
            let rest = paths_of(&path.tree).into_iter();
            rest.map(|(rest, name)| ([vec![first.clone()], rest].concat(), name)).collect()
        }
        UseTree::Name(name) => vec![(vec![name.ident.to_string()], name.ident.to_string())],
        UseTree::Rename(name) => vec![(vec![name.ident.to_string()], name.rename.to_string())],
        UseTree::Glob(_) => vec![(vec!["*".to_owned()], "*".to_owned())],
        UseTree::Group(group) => group.items.iter().flat_map(paths_of).collect(),
    }
}

/// `path`, which stands in `module`, from the root of the crate. A path that begins with a name may be one of a module
/// beneath, or of another crate, which leads to no module of this one.
fn absolute(module: &Place, path: &[String]) -> Option<Place> {
    let mut base = module.clone();
    let mut rest = path;
    loop {
        match rest.first().map(String::as_str) {
            Some("crate") => base.clear(),
            Some("super") => mem::drop(base.pop()?),
            Some("self") => {}
            Some(_) | None => return Some([base, rest.to_vec()].concat()),
        }
        rest = &rest[1..];
    }
}

/// Collects what a module names of its crate, but for its tests.
struct Paths {
    module: Place,
    named: Vec<Place>,
}

impl<'ast> Visit<'ast> for Paths {
    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        if matches!(item.vis, Visibility::Inherited) {
            let paths = paths_of(&item.tree).into_iter();
            self.named.extend(paths.filter_map(|(path, _)| absolute(&self.module, &path)));
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let path_of: Place = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        if path_of.len() > 1 {
            self.named.extend(absolute(&self.module, &path_of));
        }
        visit::visit_path(self, path);
    }

    fn visit_item_mod(&mut self, item: &'ast ItemMod) {
        if item.ident != "tests" {
            visit::visit_item_mod(self, item);
        }
    }
}

/// The modules that can be reached from `from`.
fn reached(needs: &BTreeMap<Place, BTreeSet<Place>>, from: &Place) -> BTreeSet<Place> {
    let mut reached = BTreeSet::new();
    let mut open = vec![from];
    while let Some(module) = open.pop() {
        open.extend(needs[module].iter().filter(|next| reached.insert((*next).clone())));
    }
    reached
}

/// The circles of modules that need each other, each named by its modules.
fn circles(needs: &BTreeMap<Place, BTreeSet<Place>>) -> BTreeSet<Vec<String>> {
    let reached: BTreeMap<_, _> = needs.keys().map(|module| (module, reached(needs, module))).collect();
    let circle = |module: &Place| -> Vec<String> {
        let others = reached[module].iter().filter(|other| reached[*other].contains(module));
        others.map(|other| other.join("/")).collect()
    };
    needs.keys().map(circle).filter(|circle| !circle.is_empty()).collect()
}

#[test]
fn modules_of_the_harness_and_of_maintenance_need_each_other_in_one_direction() {
    for folder in ["shared/harness", "shared/maintenance"] {
        let needs = Modules::of(folder).needs(&[]);
        assert!(needs.values().any(|needed| !needed.is_empty()), "{folder}: what modules need is found");
        assert_eq!(circles(&needs), BTreeSet::new(), "{folder}");
    }
}

#[test]
fn few_modules_of_a_run_need_each_other() {
    let needs = Modules::of("shared/engine").needs(&["run"]);
    let circles = circles(&needs);
    assert!(!circles.is_empty(), "a graph runs within a graph: the circle of the walk is found");
    assert!(circles.iter().all(|circle| circle.len() <= CIRCLE_OF_A_RUN), "{circles:?}");
}

#[test]
fn the_harness_has_few_methods() {
    let modules = Modules::of("shared/harness");
    let is_harness = |item: &ItemImpl| {
        let Type::Path(of) = &*item.self_ty else { return false };
        item.trait_.is_none() && of.path.segments.last().is_some_and(|name| name.ident == "Harness")
    };
    let items = modules.files.values().flat_map(|file| &file.items);
    let methods = items.filter_map(|item| {
        let Item::Impl(item) = item else { return None };
        is_harness(item).then_some(item.items.len())
    });
    let methods: usize = methods.sum();
    assert!((1..HARNESS_METHODS).contains(&methods), "`Harness` has {methods} methods: split its concerns");
}

/// Collects the functions that take too much.
#[derive(Default)]
struct Greedy {
    seen: usize,
    found: Vec<String>,
}

impl<'ast> Visit<'ast> for Greedy {
    fn visit_signature(&mut self, signature: &'ast Signature) {
        self.seen += 1;
        let has_tuple = signature.inputs.iter().any(|input| match input {
            FnArg::Receiver(_) => false,
            FnArg::Typed(typed) => matches!(&*typed.pat, Pat::Tuple(_)) || is_tuple(&typed.ty),
        });
        if signature.inputs.len() > PARAMETERS || has_tuple {
            self.found.push(format!("{} takes {}", signature.ident, signature.inputs.len()));
        }
        visit::visit_signature(self, signature);
    }
}

fn is_tuple(taken: &Type) -> bool {
    matches!(taken, Type::Tuple(_)) || matches!(taken, Type::Reference(reference) if is_tuple(&reference.elem))
}

#[test]
fn functions_of_a_run_take_few_parameters_and_no_tuple() {
    let modules = Modules::of("shared/engine");
    let mut greedy = Greedy::default();
    for (_, file) in modules.files.iter().filter(|(place, _)| place.first().is_some_and(|first| first == "run")) {
        greedy.visit_file(file);
    }
    assert!(greedy.seen > 100, "functions are found");
    assert_eq!(greedy.found, Vec::<String>::new(), "more than {PARAMETERS} parameters, or a tuple");
}
