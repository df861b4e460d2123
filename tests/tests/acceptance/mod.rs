//! Promises to a client: tools, scopes, trust and rules, through the real programs.

mod application;
mod approval;
mod bundles;
mod errors;
mod policy;
mod tools;
mod web;
