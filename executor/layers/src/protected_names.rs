//! Layer `protected-names`: names inside the zones that stay closed although the zone is open.
//!
//! *Guarantees*: in the namespaced tier, a protected name that exists when the session opens cannot be written,
//! replaced, renamed or removed (nor read, where the policy says so), under any other name of the same file in the
//! zone, and its parents cannot be moved away: each is a mount of its own. What a link with a protected name leads to is
//! protected as the name is, and each link on the way is held; a repository is known by its shape, whatever it is called
//! and wherever `.git` leads. What cannot be looked through is closed. In both tiers the cell's first process makes
//! the calls that make or move a name or open a file to change it (`executor-supervisor`), and refuses protected names
//! whether they exist or not, but for those that are open when new and made by the session itself; in the flat tier all
//! calls that take paths. *Does not*: keep the shell of the namespaced tier from reading or removing what the host makes
//! while the session is open; file tools check names in both tiers.
//! *Needs*: Linux 5.14, no other supervisor above, no `ptrace_scope` above 1, and the mount namespace for the pins. *Order*:
//! with the mounts; in the program's process before its order. *Fails*: the session does not open, or the cell does not
//! start. *Tested by*: `the_shell_neither_reads_nor_changes_them`, `nothing_is_planted_in_protected_names`,
//! `files_that_the_host_makes_during_a_call_are_not_changed`, `no_name_is_made_that_the_host_acts_on`,
//! `the_users_git_runs_nothing_that_a_cell_has_left`, `a_name_that_is_open_when_new_can_be_created_and_used`,
//! `without_supervision_nothing_runs`, `protected_files_are_not_read_by_any_name`, `target_of_a_protected_link_is_closed`,
//! `a_repository_elsewhere_is_protected_as_dot_git`, `a_directory_that_cannot_be_listed_is_closed`, `only_the_shared_part_of_a_worktrees_repository_is_open`,
//! `a_file_in_the_project_opens_no_repository`, corpus `SEC-*`.

// No code of its own: `executor-project` finds what exists, `mounts.rs` pins it, and `executor-supervisor` judges calls.
