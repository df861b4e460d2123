#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod error;
mod bus_address;
mod bus_socket;
mod bus;
mod secret_service;
mod key_file;
mod login_key;
pub mod keyring;
pub mod find;
mod header_list;
mod held_answer;
pub mod held;
