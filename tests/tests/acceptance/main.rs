//! The acceptance criteria, each by its number, through the real programs.
#![allow(clippy::unwrap_used)]

mod application;
mod approval;
mod policy;
mod tools;
mod web;
mod workspace;
