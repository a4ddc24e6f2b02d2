//! What Coil's webhook accepts and refuses of a pool, by the rules in the schema.

use anyhow::{Context, Result};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tenure_api::coil::AddressPool;

use super::Server;

/// Tries all of it, and says what was answered otherwise.
pub(super) async fn pools_are_accepted_and_refused_as_by_coil(server: &Server) -> Result<()> {
    let pools: Api<AddressPool> = Api::all(server.with(tenure_api::crds()).await?);
    let create = async |name: &str, spec: Value| {
        let pool = json!({"apiVersion": "coil.cybozu.com/v2", "kind": "AddressPool", "metadata": {"name": name}, "spec": spec});
        let pool: AddressPool = serde_json::from_value(pool).with_context(|| name.to_owned())?;
        anyhow::Ok(pools.create(&PostParams::default(), &pool).await)
    };
    let four = |cidr: &str| json!({"ipv4": cidr});

    // One family, the other, both.
    let dual = json!({"ipv4": "10.244.0.0/24", "ipv6": "fd00:10:244::/120"});
    for (name, subnet) in
        [("v4", four("10.224.0.0/24")), ("v6", json!({"ipv6": "fd00:10:224::/120"})), ("dual", dual)]
    {
        let made = create(name, json!({"subnets": [subnet]})).await??;
        assert_eq!(made.spec.block_size_bits, 5, "the default of {name}");
    }
    let single = create("single", json!({"blockSizeBits": 0, "subnets": [four("10.9.0.0/32")]})).await??;
    assert_eq!(single.spec.block_size_bits, 0);

    for (name, spec) in [
        ("no-cidr", json!({"subnets": [four("10.1.0.0")]})),
        ("negative", json!({"blockSizeBits": -1, "subnets": [four("10.1.0.0/24")]})),
        ("empty", json!({"subnets": []})),
        ("too-small", json!({"blockSizeBits": 5, "subnets": [four("10.1.0.0/30")]})),
    ] {
        assert!(create(name, spec).await?.is_err_and(is_refusal), "{name} was accepted");
    }

    let grown = [four("10.5.0.0/24"), four("10.6.0.0/24")];
    create("growing", json!({"blockSizeBits": 5, "subnets": [grown[0]]})).await??;
    let change = async |spec: Value| {
        let patch = Patch::Merge(json!({"spec": spec}));
        pools.patch("growing", &PatchParams::default(), &patch).await
    };
    change(json!({"subnets": grown})).await.context("appending a subnet")?;
    for (what, spec) in [
        ("shrinking", json!({"subnets": [grown[0]]})),
        ("changing a subnet", json!({"subnets": [grown[0], four("10.7.0.0/24")]})),
        ("another block size", json!({"blockSizeBits": 6})),
        ("appending what is too small", json!({"subnets": [grown[0], grown[1], four("10.8.0.0/30")]})),
    ] {
        assert!(change(spec).await.is_err_and(is_refusal), "{what} was accepted");
    }
    Ok(())
}

fn is_refusal(error: kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 422)
}
