//! The image of a session, if it has one: which paths may be one, and the policy with which cells see it.

use crate::roots;
use crate::user::User;
use broker_protocol::{Layer, LayerSet, Open};
use executor_project::image_views;
use executor_spec::linked_repository::LinkedRepository;
use executor_spec::sandbox::View;
use executor_spec::zones::Zones;
use nix::unistd::geteuid;
use policies::EffectivePolicy;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Why an image cannot be the root that cells see.
#[derive(Debug, Error)]
#[error("the image {} cannot be the root of cells: {why}", .path.display())]
pub(crate) struct ImageError {
    path: PathBuf,
    why: String,
}

const WORLD_WRITABLE: u32 = 0o002;

/// The policy with the profile's image, else the request's. A session may not replace the image of its profile.
pub(crate) fn choose(
    request: &Open,
    mut policy: EffectivePolicy,
    zones: &Zones,
    user: &User,
) -> Result<EffectivePolicy, ImageError> {
    let Some(given) = request
        .image
        .as_ref()
        .map(PathBuf::from)
        .or_else(|| policy.image.clone())
    else {
        return Ok(policy);
    };
    let root = check(&given, &policy, zones, user).map_err(|why| refused(&given, why))?;
    if let Some(own) = policy
        .image
        .as_ref()
        .filter(|own| fs::canonicalize(own).ok().as_ref() != Some(&root))
    {
        let why = format!(
            "the profile `{}` has {} already",
            policy.profile,
            own.display()
        );
        return Err(refused(&given, why));
    }
    policy.image = Some(root);
    Ok(policy)
}

fn refused(path: &Path, why: String) -> ImageError {
    ImageError {
        path: path.to_owned(),
        why,
    }
}

/// The resolved path of an image, if it may be one.
fn check(
    given: &Path,
    policy: &EffectivePolicy,
    zones: &Zones,
    user: &User,
) -> Result<PathBuf, String> {
    if !given.is_absolute() {
        return Err("give an absolute path".into());
    }
    let path = fs::canonicalize(given).map_err(|error| error.to_string())?;
    let metadata = fs::symlink_metadata(&path).map_err(|error| error.to_string())?;
    if !metadata.is_dir() {
        return Err("it is not a directory".into());
    }
    if ![0, geteuid().as_raw()].contains(&metadata.uid()) || metadata.mode() & WORLD_WRITABLE != 0 {
        return Err("users other than you and root can change it".into());
    }
    if let Some(zone) = zones.roots().into_iter().find(|zone| overlap(&path, zone)) {
        return Err(format!(
            "it shares files with {}, where commands may write",
            zone.display()
        ));
    }
    if let Some(why) = roots::closed(&path, policy, user) {
        return Err(why);
    }
    if !image_views::is_root(&path) {
        return Err(
            "it is not the root of a system: it lacks `etc`, or both `usr` and `bin`".into(),
        );
    }
    Ok(path)
}

fn overlap(one: &Path, other: &Path) -> bool {
    one.starts_with(other) || other.starts_with(one)
}

/// What cells see of the policy's image, and the resulting policy.
pub(crate) fn show(
    policy: EffectivePolicy,
    layers: LayerSet,
    zones: &Zones,
    linked: Option<&LinkedRepository>,
    user: &User,
) -> Result<(EffectivePolicy, Vec<View>), ImageError> {
    let Some(root) = policy.image.clone() else {
        return Ok((policy, Vec::new()));
    };
    if !layers.has(Layer::MountNamespace) {
        let why = "this takes mounts of the session's own, which this machine does not give here (`lazaret doctor` tells more); without \
                   them a program's root is the machine's";
        return Err(refused(&root, why.into()));
    }
    let common = linked.map(|linked| linked.common.as_path());
    if let Some(common) = common.filter(|common| overlap(&root, common)) {
        return Err(refused(
            &root,
            format!(
                "it shares files with the project's repository {}",
                common.display()
            ),
        ));
    }
    let own: Vec<&Path> = zones
        .roots()
        .into_iter()
        .chain([user.home.as_path()])
        .chain(common)
        .collect();
    let views =
        image_views::views(&root, &own).map_err(|error| refused(&root, error.to_string()))?;
    let policy = policy.with_image(root.clone(), image_views::paths(&views));
    Ok((
        policy.map_err(|error| refused(&root, error.to_string()))?,
        views,
    ))
}
