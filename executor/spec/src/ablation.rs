//! Layer ablation: a test build omits one layer, to see which other one still protects. In every other build it does nothing.
//!
//! The switch is part of the feature `ablation`, which does not compile without debug assertions, so that no release
//! has it. `main` reads it once. A layer that is switched off is left out of the layers in `SandboxSpec`, which each
//! layer's call site checks; a session does not require such a layer, and reports that it is missing.

#[cfg(all(feature = "ablation", not(debug_assertions)))]
compile_error!(
    "the feature `ablation` switches layers off: it is for tests, and no release may have it"
);

pub use switch::Ablation;

/// The shipped version: nothing can be switched off.
#[cfg(not(feature = "ablation"))]
mod switch {
    use crate::variables::Variables;
    use broker_protocol::Layer;
    use std::ffi::CString;
    use std::io;

    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Ablation;

    impl Ablation {
        /// Returns at once: there is nothing to read.
        pub fn read() -> io::Result<Self> {
            Ok(Self)
        }

        /// False: no layer can be off.
        pub fn is_off(&self, _: Layer) -> bool {
            false
        }

        /// True: what the rules on names refuse is refused.
        pub fn enforces_names(&self) -> bool {
            true
        }

        /// True: what a call has misplaced is taken away.
        pub fn takes_misplaced(&self) -> bool {
            true
        }

        pub fn landlock_abi(&self, kernel: u32) -> u32 {
            kernel
        }

        /// The one that was built.
        pub fn environment(&self, built: Vec<CString>, _: &Variables) -> Vec<CString> {
            built
        }

        pub fn descriptors(&self) -> &[u32] {
            &[]
        }
    }
}

/// The version that tests run with.
#[cfg(feature = "ablation")]
mod switch {
    use crate::variables::Variables;
    use broker_protocol::Layer;
    use std::ffi::CString;
    use std::fs;
    use std::io;
    use std::os::unix::ffi::{OsStrExt, OsStringExt};

    /// `LAYER`, which is switched off; `landlock-abi=N`, with which Landlock is no newer than that; `new-names`, with which supervisors let
    /// pass what their rules on new names refuse; or `new-names+quarantine`, with which it is not taken away after the call either.
    const VARIABLE: &str = "LAZARET_ABLATE";

    /// The layer, or the part of one, that is switched off.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub struct Ablation {
        layer: Option<Layer>,
        landlock_abi: Option<u32>,
        /// Whether the rules on new names are off, and the look at what was made too.
        new_names: bool,
        quarantine: bool,
        /// Descriptors that this process was started with, where it is let through.
        descriptors: Vec<u32>,
    }

    impl Ablation {
        /// Reads the switch.
        ///
        /// # Errors
        /// It names no layer.
        pub fn read() -> io::Result<Self> {
            let Some(word) = std::env::var_os(VARIABLE) else {
                return Ok(Self::default());
            };
            let word = word.to_string_lossy();
            let abi = word
                .strip_prefix("landlock-abi=")
                .and_then(|number| number.parse().ok());
            let layer = Layer::ALL.into_iter().find(|layer| layer.name() == word);
            let quarantine = word == "new-names+quarantine";
            let new_names = quarantine || word == "new-names";
            if layer.is_none() && abi.is_none() && !new_names {
                return Err(io::Error::other(format!(
                    "{VARIABLE} names no layer: {word:?}"
                )));
            }
            let descriptors = if layer == Some(Layer::Descriptors) {
                inherited()?
            } else {
                Vec::new()
            };
            Ok(Self {
                layer,
                landlock_abi: abi,
                new_names,
                quarantine,
                descriptors,
            })
        }

        /// Whether a layer is switched off.
        pub fn is_off(&self, layer: Layer) -> bool {
            self.layer == Some(layer)
        }

        /// Whether what the rules on names refuse is refused.
        pub fn enforces_names(&self) -> bool {
            !self.new_names
        }

        /// Whether what a call has misplaced is taken away.
        pub fn takes_misplaced(&self) -> bool {
            !self.quarantine
        }

        /// The Landlock ABI that is used on a kernel.
        pub fn landlock_abi(&self, kernel: u32) -> u32 {
            self.landlock_abi.map_or(kernel, |abi| abi.min(kernel))
        }

        /// A cell's environment: the one that was built, or the one with which this process was started.
        pub fn environment(&self, built: Vec<CString>, ours: &Variables) -> Vec<CString> {
            if !self.is_off(Layer::Environment) {
                return built;
            }
            let entry = |name: &[u8], value: &[u8]| CString::new([name, b"=", value].concat()).ok();
            ours.iter()
                .filter_map(|(name, value)| entry(name.as_bytes(), value.as_bytes()))
                .collect()
        }

        /// Descriptors that are passed on to a cell.
        pub fn descriptors(&self) -> &[u32] {
            &self.descriptors
        }
    }

    fn inherited() -> io::Result<Vec<u32>> {
        let names = fs::read_dir("/proc/self/fd")?
            .flatten()
            .map(|entry| entry.file_name().into_vec());
        let numbers: Vec<u32> = names
            .filter_map(|name| String::from_utf8(name).ok()?.parse().ok())
            .collect();
        // The descriptor used for listing them is closed by now.
        let open = |number: &u32| fs::symlink_metadata(format!("/proc/self/fd/{number}")).is_ok();
        Ok(numbers
            .into_iter()
            .filter(|number| *number > 2)
            .filter(open)
            .collect())
    }
}
