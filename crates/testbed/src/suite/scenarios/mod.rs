//! The scenarios, one file per area. Names state the behaviour; the recordings show what the real server does.

mod bad_requests;
mod conflicts;
mod definitions;
mod deletion;
mod discovery;
mod events;
mod expiry;
mod finalizers;
mod generations;
mod kinds;
mod leases;
mod lists;
mod names;
mod namespaces;
mod nodes_and_pods;
mod objects;
mod owners;
mod patches;
mod rules;
mod runtime;
mod scale;
mod schemas;
mod selectors;
mod tables;
mod tenure_kinds;
mod watches;

use super::Scenario;

pub(super) use tenure_kinds::install as install_tenure_kinds;

/// Every scenario.
pub(super) fn all() -> Vec<Scenario> {
    [
        objects::SCENARIOS,
        names::SCENARIOS,
        conflicts::SCENARIOS,
        generations::SCENARIOS,
        patches::SCENARIOS,
        lists::SCENARIOS,
        selectors::SCENARIOS,
        watches::SCENARIOS,
        finalizers::SCENARIOS,
        deletion::SCENARIOS,
        owners::SCENARIOS,
        namespaces::SCENARIOS,
        scale::SCENARIOS,
        leases::SCENARIOS,
        events::SCENARIOS,
        nodes_and_pods::SCENARIOS,
        kinds::SCENARIOS,
        definitions::SCENARIOS,
        schemas::SCENARIOS,
        rules::SCENARIOS,
        tables::SCENARIOS,
        discovery::SCENARIOS,
        bad_requests::SCENARIOS,
        tenure_kinds::SCENARIOS,
        runtime::SCENARIOS,
    ]
    .concat()
}

/// Those that need a server with a short event history.
pub(super) fn forgetful() -> Vec<Scenario> {
    expiry::SCENARIOS.to_vec()
}

/// The scenarios of an area: `scenarios![area: function, …]`.
macro_rules! scenarios {
    ($area:ident: $($name:ident),+ $(,)?) => {
        pub(super) const SCENARIOS: &[$crate::suite::Scenario] = &[$($crate::suite::Scenario {
            area: stringify!($area),
            name: stringify!($name),
            run: |recorder| Box::pin($name(recorder)),
        }),+];
    };
}
use scenarios;
