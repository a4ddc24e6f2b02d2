//! Owners of claims as subjects of events.

use k8s_openapi::api::core::v1::ObjectReference;
use tenure_claims::owners::{Machine, StatefulFacts};

use super::super::owners::{INSTANCE, MACHINE, STATEFUL_SET};

/// A machine, or its instance if there is no machine.
pub(in crate::claims) fn of_machine(of: Machine<'_>) -> ObjectReference {
    let kind = if of.machine.is_some() { MACHINE } else { INSTANCE };
    let uid = of.machine.or(of.instance).map(|facts| facts.uid.clone());
    ObjectReference {
        api_version: Some("kubevirt.io/v1".to_owned()),
        kind: Some(kind.to_owned()),
        namespace: Some(of.namespace.to_owned()),
        name: Some(of.name.to_owned()),
        uid,
        ..ObjectReference::default()
    }
}

/// A StatefulSet.
pub(in crate::claims) fn of_stateful_set(set: &StatefulFacts) -> ObjectReference {
    ObjectReference {
        api_version: Some("apps/v1".to_owned()),
        kind: Some(STATEFUL_SET.to_owned()),
        namespace: Some(set.namespace.clone()),
        name: Some(set.name.clone()),
        uid: Some(set.uid.clone()),
        ..ObjectReference::default()
    }
}
