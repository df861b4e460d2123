//! Settings of package managers that cannot make them run or fetch anything that the user would not have.
//!
//! Agents start servers by `npx` and its like in the project, and these read its settings. A file of the settings listed here, one a line
//! and plainly written, does no harm wherever it lies. Comes from a cell's supervisor, with any bytes; understands less of each format
//! than the program that reads it, and never something else.

/// Maximum bytes of a file; a larger one is refused.
pub const PACKAGE_CONFIG_MAX: usize = 64 * 1024;

/// Values that a setting may have.
#[derive(Clone, Copy)]
enum SettingValues {
    /// Single words: none is a path, an address or a variable.
    Word,
    /// Words and patterns of packages' names.
    Packages,
    Only(&'static str),
    /// The public registry, with or without a slash at its end.
    Registry,
}
use SettingValues::{Only, Packages, Registry, Word};

/// How a line is divided.
#[derive(Clone, Copy)]
enum SettingForm {
    /// `name=value`
    Ini,
    /// `name value`
    Spaced,
    /// `name: value`
    Yaml,
}

/// A kind of file, by its name in lower case.
struct ConfigFileKind {
    name: &'static str,
    form: SettingForm,
    settings: &'static [(&'static str, SettingValues)],
}

/// Not here: what names a program, a file, a directory, another registry or a key, what runs scripts that the user's own settings forbid,
/// and what takes less care about a package than these say (`strict-ssl`, `minimum-release-age`, `checksumBehavior`).
const KINDS: [ConfigFileKind; 3] = [
    ConfigFileKind {
        name: ".npmrc",
        form: SettingForm::Ini,
        settings: &[
            ("audit-level", Word),
            ("auto-install-peers", Word),
            ("color", Word),
            ("dedupe-peer-dependents", Word),
            ("engine-strict", Word),
            ("fund", Word),
            ("hoist", Word),
            ("hoist-pattern[]", Packages),
            ("ignore-scripts", Only("true")),
            ("ignore-workspace-root-check", Word),
            ("install-strategy", Word),
            ("legacy-peer-deps", Word),
            ("link-workspace-packages", Word),
            ("loglevel", Word),
            ("lockfile", Word),
            ("node-linker", Word),
            ("package-import-method", Word),
            ("package-lock", Word),
            ("prefer-dedupe", Word),
            ("prefer-offline", Word),
            ("prefer-workspace-packages", Word),
            ("progress", Word),
            ("public-hoist-pattern[]", Packages),
            ("registry", Registry),
            ("resolution-mode", Word),
            ("save-exact", Word),
            ("save-prefix", Word),
            ("save-workspace-protocol", Word),
            ("shamefully-hoist", Word),
            ("shared-workspace-lockfile", Word),
            ("side-effects-cache", Word),
            ("strict-peer-dependencies", Word),
            ("strict-peer-deps", Word),
            ("update-notifier", Word),
        ],
    },
    ConfigFileKind {
        name: ".yarnrc",
        form: SettingForm::Spaced,
        settings: &[
            ("ignore-engines", Word),
            ("ignore-optional", Word),
            ("ignore-scripts", Only("true")),
            ("network-timeout", Word),
            ("registry", Registry),
            ("save-prefix", Word),
            ("workspaces-experimental", Word),
        ],
    },
    ConfigFileKind {
        name: ".yarnrc.yml",
        form: SettingForm::Yaml,
        settings: &[
            ("compressionLevel", Word),
            ("defaultSemverRangePrefix", Word),
            ("enableGlobalCache", Word),
            ("enableImmutableInstalls", Word),
            ("enableInlineBuilds", Word),
            ("enableMessageNames", Word),
            ("enableProgressBars", Word),
            ("enableScripts", Only("false")),
            ("enableTelemetry", Word),
            ("enableTransparentWorkspaces", Word),
            ("nmHoistingLimits", Word),
            ("nmMode", Word),
            ("nodeLinker", Word),
            ("npmRegistryServer", Registry),
            ("pnpFallbackMode", Word),
            ("pnpMode", Word),
            ("preferInteractive", Word),
            ("preferReuse", Word),
            ("tsEnableAutoTypes", Word),
        ],
    },
];

/// Whether a file with this name holds harmless settings only. Files with other names never do.
pub fn is_harmless_package_config(name: &[u8], bytes: &[u8]) -> bool {
    let kind = KINDS
        .iter()
        .find(|kind| kind.name.as_bytes().eq_ignore_ascii_case(name));
    let text = std::str::from_utf8(bytes)
        .ok()
        .filter(|text| text.len() <= PACKAGE_CONFIG_MAX);
    kind.zip(text)
        .is_some_and(|(kind, text)| text.split('\n').all(|line| kind.is_harmless(line)))
}

impl ConfigFileKind {
    fn is_harmless(&self, line: &str) -> bool {
        // A line feed of another kind, or what hides from the eye, ends a comment for somebody.
        if line
            .chars()
            .any(|c| c.is_control() || !c.is_ascii() && c.is_whitespace() || c == '\u{feff}')
        {
            return false;
        }
        let line = line.trim_end_matches(' ');
        if line.is_empty() || line.starts_with('#') {
            return true;
        }
        let divided = match self.form {
            SettingForm::Ini => line.split_once('='),
            SettingForm::Spaced => line.split_once(' '),
            SettingForm::Yaml => line.split_once(": "),
        };
        let Some((name, value)) = divided else {
            return false;
        };
        let name = name.trim_end_matches(' ');
        let known = self.settings.iter().find(|(known, _)| *known == name);
        known.is_some_and(|(_, values)| {
            plain(value.trim_matches(' ')).is_some_and(|value| values.have(value))
        })
    }
}

/// A value, which may be in quotes.
fn plain(value: &str) -> Option<&str> {
    let quoted = value
        .strip_prefix('"')
        .and_then(|value| value.strip_suffix('"'));
    Some(quoted.unwrap_or(value)).filter(|value| !value.contains(['"', '\'', '\\', '$', '#', ';']))
}

impl SettingValues {
    fn have(self, value: &str) -> bool {
        let word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '^' | '~');
        match self {
            Word => value.chars().all(word),
            Packages => value
                .chars()
                .all(|c| word(c) || matches!(c, '*' | '@' | '/' | '!')),
            Only(only) => value == only,
            Registry => ["https://registry.npmjs.org", "https://registry.yarnpkg.com"]
                .contains(&value.strip_suffix('/').unwrap_or(value)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_harmless(name: &str, text: &str) -> bool {
        is_harmless_package_config(name.as_bytes(), text.as_bytes())
    }

    #[test]
    fn package_settings_of_ordinary_projects_are_harmless() {
        for (name, text) in [
            (".npmrc", ""),
            (
                ".npmrc",
                "# comment\nlegacy-peer-deps=true\nsave-exact = true\n\nsave-prefix=~\n",
            ),
            (
                ".npmrc",
                "registry=https://registry.npmjs.org/\npublic-hoist-pattern[]=*@types/*\n",
            ),
            (".NPMRC", "ignore-scripts=true"),
            (
                ".yarnrc",
                "save-prefix \"^\"\nregistry \"https://registry.yarnpkg.com\"\n",
            ),
            (
                ".yarnrc.yml",
                "nodeLinker: node-modules\n\nenableGlobalCache: false\n",
            ),
            (
                ".yarnrc.yml",
                "npmRegistryServer: \"https://registry.npmjs.org\"\nenableScripts: false",
            ),
        ] {
            assert!(is_harmless(name, text), "{name}: {text}");
        }
    }

    #[test]
    fn no_other_setting_is_harmless() {
        for (name, text) in [
            ("npmrc", "save-exact=true"),
            (".pnpmfile.cjs", ""),
            (".npmrc", "node-options=--require=./p.cjs"),
            (".npmrc", "script-shell=./sh.sh"),
            (".npmrc", "save-exact=true\nnode-options=--require=./p.cjs"),
            (
                ".npmrc",
                "registry=https://registry.npmjs.org.evil.invalid/",
            ),
            (".npmrc", "registry=http://registry.npmjs.org/"),
            (".npmrc", "@scope:registry=https://registry.npmjs.org/"),
            (".npmrc", "//registry.npmjs.org/:_authToken=x"),
            (".npmrc", "//registry.npmjs.org/:tokenHelper=/x"),
            (".npmrc", "ignore-scripts=false"),
            (".npmrc", "strict-ssl=false"),
            (".npmrc", "minimum-release-age=0"),
            (".npmrc", "loglevel=${HOME}"),
            (".npmrc", "save-prefix=/x"),
            (".npmrc", "save-exact"),
            (".npmrc", "[x]\nsave-exact=true"),
            (".npmrc", " save-exact=true"),
            (".npmrc", "'node-options'=x"),
            (".npmrc", "# a\rnode-options=x"),
            (".npmrc", "# a\u{2028}node-options=x"),
            (".npmrc", "save-exact=true ; x"),
            (".npmrc", "\u{feff}save-exact=true"),
            (".npmrc", "save-exact=true\0"),
            (".npmrc", "SAVE-EXACT=true"),
            (".yarnrc", "yarn-path \"./y.cjs\""),
            (".yarnrc", "--install.registry \"x\""),
            (".yarnrc", "registry \"https://evil.invalid\""),
            (".yarnrc.yml", "yarnPath: .yarn/releases/yarn.cjs"),
            (".yarnrc.yml", "plugins:\n  - x"),
            (".yarnrc.yml", "\"yarnPath\": x"),
            (".yarnrc.yml", "nodeLinker: node-modules\n? yarnPath\n: x"),
            (".yarnrc.yml", "nodeLinker: &x node-modules"),
            (".yarnrc.yml", "nodeLinker: node-modules, yarnPath: x"),
            (".yarnrc.yml", "enableScripts: true"),
            (".yarnrc.yml", "---\nnodeLinker: pnp"),
            (".yarnrc.yml", "nodeLinker: >"),
        ] {
            assert!(!is_harmless(name, text), "{name}: {text}");
        }
        assert!(!is_harmless_package_config(b".npmrc", b"save-prefix=\xff"));
    }

    #[test]
    fn no_more_is_looked_at_than_the_bound() {
        let long = |length: usize| "\n".repeat(length);
        assert!(is_harmless(".npmrc", &long(PACKAGE_CONFIG_MAX)));
        assert!(!is_harmless(".npmrc", &long(PACKAGE_CONFIG_MAX + 1)));
    }
}
