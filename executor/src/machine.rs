//! What this machine supports: reported without a session, and used by every session to choose its layers.

use crate::user::User;
use broker_protocol::{Layer, LayerSet, Machine, Tier};
use executor_layers::probe;
use executor_spec::ablation::Ablation;
use executor_spec::caller_access::CallerAccess;
use executor_supervisor::SelfTest;

/// With the default profile.
pub(crate) fn machine(user: &User) -> Machine {
    let (kernel, access) = (probe::kernel(), CallerAccess::probe());
    let abi = user.ablation.landlock_abi(kernel.landlock_abi);
    let refusal = probe::namespaces().err();
    let tier = if refusal.is_none() {
        Tier::Namespaced
    } else {
        Tier::Flat
    };
    let mut layers = layers(tier, abi, &user.ablation);
    if SelfTest::begin(tier, access)
        .and_then(SelfTest::finish)
        .is_err()
    {
        layers = layers
            .iter()
            .filter(|layer| *layer != Layer::ProtectedNames)
            .collect();
    }
    Machine {
        landlock_abi: abi,
        tier,
        layers: probe::report(
            layers,
            (tier, access, true),
            abi,
            refusal.as_deref(),
            &user.ablation,
        ),
        kernel: kernel.release,
    }
}

/// The layers that a session applies on this kernel.
pub(crate) fn layers(tier: Tier, landlock_abi: u32, ablation: &Ablation) -> LayerSet {
    probe::layers(tier, landlock_abi)
        .iter()
        .filter(|layer| !ablation.is_off(*layer))
        .collect()
}
