//! Imports go one way, and pure crates stay pure. What a crate must NOT know cannot be seen in its code, so it is
//! written down here.

use std::collections::{BTreeMap, BTreeSet};

use cargo_metadata::{DependencyKind, Metadata, MetadataCommand, Package};

/// Which crates of ours each crate may import.
const IMPORTS: &[(&str, &[&str])] = &[
    ("dormouse-json", &[]),
    ("dormouse-console", &[]),
    ("dormouse-ports", &["dormouse-json"]),
    ("dormouse-protocol", &["dormouse-json"]),
    ("dormouse-receipts", &[]),
    ("dormouse-engine", &["dormouse-json", "dormouse-ports"]),
    ("dormouse-harness", &["dormouse-engine", "dormouse-json", "dormouse-ports"]),
    ("dormouse-maintenance", &["dormouse-harness", "dormouse-engine", "dormouse-ports"]),
    (
        "dormouse-api",
        &[
            "dormouse-protocol",
            "dormouse-receipts",
            "dormouse-harness",
            "dormouse-engine",
            "dormouse-json",
            "dormouse-ports",
        ],
    ),
    (
        "dormouse-http",
        &[
            "dormouse-console",
            "dormouse-api",
            "dormouse-protocol",
            "dormouse-receipts",
            "dormouse-maintenance",
            "dormouse-harness",
            "dormouse-engine",
            "dormouse-json",
            "dormouse-ports",
        ],
    ),
    ("dormouse-agent", &["dormouse-engine", "dormouse-json", "dormouse-ports"]),
    (
        "dormouse-declared",
        &[
            "dormouse-agent",
            "dormouse-api",
            "dormouse-protocol",
            "dormouse-providers",
            "dormouse-harness",
            "dormouse-engine",
            "dormouse-ports",
        ],
    ),
    ("dormouse-app", &["dormouse"]),
    ("dormouse-system", &["dormouse-ports"]),
    ("dormouse-aws", &["dormouse-system", "dormouse-json", "dormouse-ports"]),
    ("dormouse-providers", &["dormouse-engine", "dormouse-json", "dormouse-ports"]),
    ("dormouse-fetch", &["dormouse-ports"]),
    ("dormouse-testkit", &["dormouse-system", "dormouse-ports"]),
    ("dormouse-tools", &["dormouse-json", "dormouse-ports"]),
    ("dormouse-otel", &["dormouse-harness", "dormouse-engine", "dormouse-ports"]),
    (
        "dormouse-lambda",
        &[
            "dormouse-agent",
            "dormouse-declared",
            "dormouse-fetch",
            "dormouse-tools",
            "dormouse-http",
            "dormouse-api",
            "dormouse-protocol",
            "dormouse-receipts",
            "dormouse-otel",
            "dormouse-harness",
            "dormouse-engine",
            "dormouse-ports",
            "dormouse-aws",
            "dormouse-system",
        ],
    ),
    (
        "dormouse-local",
        &[
            "dormouse-fetch",
            "dormouse-http",
            "dormouse-api",
            "dormouse-protocol",
            "dormouse-receipts",
            "dormouse-otel",
            "dormouse-maintenance",
            "dormouse-harness",
            "dormouse-engine",
            "dormouse-json",
            "dormouse-ports",
            "dormouse-aws",
            "dormouse-system",
        ],
    ),
    (
        "dormouse-cli",
        &[
            "dormouse-agent",
            "dormouse-declared",
            "dormouse-fetch",
            "dormouse-tools",
            "dormouse-lambda",
            "dormouse-local",
            "dormouse-http",
            "dormouse-api",
            "dormouse-protocol",
            "dormouse-receipts",
            "dormouse-otel",
            "dormouse-maintenance",
            "dormouse-harness",
            "dormouse-engine",
            "dormouse-json",
            "dormouse-ports",
            "dormouse-aws",
            "dormouse-system",
        ],
    ),
    (
        "dormouse",
        &[
            "dormouse-lambda",
            "dormouse-cli",
            "dormouse-http",
            "dormouse-api",
            "dormouse-protocol",
            "dormouse-harness",
            "dormouse-engine",
            "dormouse-ports",
            "dormouse-testkit",
            "dormouse-tools",
        ],
    ),
    ("dormouse-inbound", &["dormouse", "dormouse-app"]),
    ("dormouse-signal", &["dormouse", "dormouse-app"]),
    ("dormouse-socket", &["dormouse", "dormouse-app"]),
    // It knows no agents.
    ("dormouse-stream", &["dormouse"]),
    ("dormouse-wakeup", &["dormouse", "dormouse-app"]),
    // It may reach nothing, and neither may its code.
    ("dormouse-tools-function", &["dormouse-fetch", "dormouse-ports", "dormouse-tools"]),
    // It links the others and is in none of them.
    ("dormouse-link", &[]),
];

/// Crates that look at the whole from outside.
const ABOVE_ALL: &[&str] = &["dormouse-tests", "dormouse-conformance", "dormouse-hello"];

/// Packages as guests write them: they can be copied out of here.
const GUESTS: &[(&str, &str)] = &[("own-agent", "dormouse")];

/// Crates that know no vendor, no transport and no async runtime, and the names that would betray it.
const PURE: &[&str] = &[
    "dormouse-console",
    "dormouse-json",
    "dormouse-ports",
    "dormouse-protocol",
    "dormouse-engine",
    "dormouse-harness",
    "dormouse-maintenance",
    "dormouse-api",
    "dormouse-http",
    "dormouse-providers",
    "dormouse-receipts",
    "dormouse-agent",
    "dormouse-declared",
    "dormouse-app",
];

/// Crates with the name of a vendor that only turn bytes into values.
const CODECS: &[&str] = &["aws-smithy-eventstream", "aws-smithy-types"];
const IMPURE: &[&str] = &[
    "aws",
    "opentelemetry",
    "tokio",
    "async-std",
    "smol",
    "axum",
    "hyper",
    "http",
    "reqwest",
    "lambda",
    "uuid",
    "rand",
    "getrandom",
];

fn workspace() -> Metadata {
    MetadataCommand::new().no_deps().exec().expect("cargo metadata runs")
}

fn imports(package: &Package) -> BTreeSet<String> {
    let normal = package.dependencies.iter().filter(|dependency| dependency.kind == DependencyKind::Normal);
    normal.map(|dependency| dependency.name.clone()).collect()
}

/// True for what is named only to choose a feature of somebody else's import, where there is no host to import from.
fn is_for_wasm_alone(package: &Package, import: &str) -> bool {
    let mut named = package.dependencies.iter().filter(|dependency| dependency.name == import);
    named.all(|dependency| dependency.target.as_ref().is_some_and(|target| target.to_string().contains("wasm32")))
}

#[test]
fn imports_go_one_way() {
    let allowed: BTreeMap<_, _> = IMPORTS.iter().copied().collect();
    let mut wrong = Vec::new();
    for package in &workspace().packages {
        let name = package.name.as_str();
        if ABOVE_ALL.contains(&name) {
            continue;
        }
        if let Some((_, only)) = GUESTS.iter().find(|(guest, _)| *guest == name) {
            assert_eq!(imports(package), BTreeSet::from([(*only).to_owned()]), "{name} needs {only} and nothing else");
            continue;
        }
        let Some(may) = allowed.get(name) else {
            wrong.push(format!("{name} has no line in IMPORTS: say what it may import"));
            continue;
        };
        let ours = imports(package).into_iter().filter(|import| import.starts_with("dormouse"));
        wrong.extend(ours.filter(|i| !may.contains(&i.as_str())).map(|i| format!("{name} must not import {i}")));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_line_names_a_crate_that_exists() {
    let workspace = workspace();
    let names: BTreeSet<_> = workspace.packages.iter().map(|package| package.name.as_str()).collect();
    let listed = IMPORTS.iter().flat_map(|(name, may)| [*name].into_iter().chain(may.iter().copied()));
    let listed = listed.chain(ABOVE_ALL.iter().chain(PURE).copied());
    let guests = GUESTS.iter().flat_map(|(guest, only)| [*guest, *only]);
    let missing: Vec<_> = listed.chain(guests).filter(|name| !names.contains(name)).collect();
    assert!(missing.is_empty(), "there are no crates called {missing:?}");
}

#[test]
fn pure_crates_know_no_vendor_no_transport_and_no_runtime() {
    let mut wrong = Vec::new();
    for package in workspace().packages.iter().filter(|package| PURE.contains(&package.name.as_str())) {
        let of_hosts = |import: &String| !CODECS.contains(&import.as_str()) && !is_for_wasm_alone(package, import);
        for import in imports(package).into_iter().filter(of_hosts) {
            let first = import.split(['-', '_']).next().unwrap_or_default();
            if IMPURE.contains(&first) || IMPURE.contains(&import.as_str()) {
                wrong.push(format!("{} must not import {import}", package.name));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn pure_crates_ban_the_outside_by_lint() {
    for package in workspace().packages.iter().filter(|package| PURE.contains(&package.name.as_str())) {
        let config = package.manifest_path.with_file_name("clippy.toml");
        let text = std::fs::read_to_string(&config).unwrap_or_default();
        for ban in ["std::time::SystemTime::now", "std::env::var", "std::fs::File", "std::net::TcpStream"] {
            assert!(text.contains(ban), "{config} does not ban {ban}");
        }
    }
}

#[test]
fn versions_live_in_the_workspace_manifest_only() {
    let is_guest = |package: &Package| GUESTS.iter().any(|(guest, _)| package.name.as_str() == *guest);
    let ours = workspace().packages.into_iter().filter(|package| !is_guest(package));
    let manifests = ours.map(|package| package.manifest_path);
    let mut wrong = Vec::new();
    for manifest in manifests {
        let text = std::fs::read_to_string(&manifest).expect("a manifest can be read");
        let own = text.lines().filter(|line| line.contains("version = \"") || line.starts_with("version = \""));
        wrong.extend(own.map(|line| format!("{manifest}: {line}")));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
