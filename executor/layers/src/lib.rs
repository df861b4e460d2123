#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod probe;
pub mod ladder;
pub mod environment;
pub mod descriptors;
pub mod limits;
pub mod cgroup;
pub mod namespaces;
pub mod hosts_file;
pub mod mounts;
pub mod leased_mounts;
pub mod home_files;
mod protected_names;
pub mod zone_leases;
pub mod capabilities;
pub mod no_new_privileges;
pub mod landlock;
pub mod seccomp;
pub(crate) mod self_check;
