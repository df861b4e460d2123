#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod spec;
pub mod probe;
pub mod ladder;
pub mod environment;
pub mod caches;
pub mod relay;
pub mod descriptors;
pub mod limits;
pub mod cgroup;
pub mod namespaces;
pub mod mounts;
pub mod leased_mounts;
pub mod throw_away;
pub mod image;
pub mod protected;
pub mod discovery;
pub mod protected_objects;
pub mod linked_repository;
pub mod pins;
pub mod git_settings;
mod links;
pub mod capabilities;
pub mod no_new_privileges;
pub mod landlock;
pub mod seccomp;
pub mod self_check;
pub mod worker;
pub mod git_ignore;
pub mod undo_directory;
pub mod central_owner;
pub mod stale_temporaries;
pub mod take_back;
pub mod ablation;
pub mod error;
