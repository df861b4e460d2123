#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod sandbox;
pub mod ablation;
pub mod variables;
pub mod caller_access;
pub mod scratch;
pub mod relay;
pub mod pins;
pub mod birth_time;
pub mod protected_objects;
pub mod also_closed;
pub mod readable_secret;
pub mod packages;
pub mod known_directories;
pub mod linked_repository;
pub mod created;
pub mod made_repositories;
pub mod undo_directory;
pub mod warden_message;
pub mod cell_order;
pub mod cell_report;
pub mod refusals;
pub mod leftover;
pub mod leased_cell;
pub mod worker;
pub mod error;
