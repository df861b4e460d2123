//! A server of the user's that the settings of `lazaret` start outside of cells: `lazaret-executor start`. It gets the user's environment
//! without variables that credentials come from, and is no program that commands of earlier sessions could have made.

use crate::roots;
use crate::sandbox::read_policies;
use crate::user::User;
use executor_credentials::{Owner, UserPrograms};
use executor_sys::spawn;
use std::convert::Infallible;
use std::ffi::CString;
use std::io;
use std::path::Path;

/// Makes this process that server, for who has started it in the directory `caller`.
///
/// # Errors
/// The policy cannot be read, the program is not to be started, or the kernel's.
pub(crate) fn become_server(
    words: &[String],
    (user, caller): (&User, &Path),
) -> io::Result<Infallible> {
    let refused = |why: String| io::Error::new(io::ErrorKind::PermissionDenied, why);
    let policies = read_policies(user).map_err(|error| refused(error.to_string()))?;
    let withheld = policies.withheld(&user.host());
    let withheld = withheld.map_err(|error| refused(error.to_string()))?;
    let mut written = roots::written_before(user);
    // Of all but the home, in which everything of the user's lies.
    written.extend((!user.home.starts_with(caller)).then(|| caller.to_owned()));
    let owner = Owner::new(&user.home, &user.variables, written);
    let programs = UserPrograms::of(&owner);
    let found = programs.find(words);
    found.map_err(|error| refused(error.to_string()))?;
    let passed = user.variables.iter().filter(|(name, _)| {
        let is_withheld = name.to_str().is_some_and(|name| withheld.contains(name));
        *name != "PATH" && !is_withheld
    });
    let passed = passed.map(|(name, value)| (name.clone(), value.clone()));
    let environment = programs.environment(passed);
    let words: Result<Vec<CString>, _> = words.iter().map(|word| CString::new(&**word)).collect();
    spawn::become_server(&words?, &environment)
}
