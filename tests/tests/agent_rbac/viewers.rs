//! Who may read an agent's `/v1/node`, as the real API server says it to an agent that asks with its own token.

use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::Api;
use kube::api::PostParams;
use serde_json::json;
use tenure_daemon::{Guard, Right};
use tenure_handles::SystemClock;

use crate::bed::Bed;

/// A token of an account in the agents' namespace.
async fn token(bed: &Bed, account: &str, audiences: &[&str]) -> Result<String> {
    let accounts: Api<ServiceAccount> = Api::namespaced(bed.admin.clone(), "kube-system");
    let asked: TokenRequest = serde_json::from_value(json!({"spec": {"audiences": audiences}}))?;
    let made = accounts.create_token_request(account, &PostParams::default(), &asked).await?;
    Ok(made.status.context("a token")?.token)
}

#[tokio::test]
async fn an_agent_tells_its_node_to_the_viewers_tokens_for_this_very_agent_and_to_no_others() -> Result<()> {
    let bed = Box::pin(Bed::start()).await?;
    let right = Right { group: "tenure", resource: "nodes", subresource: "view", name: "node-1".to_owned() };
    let client = bed.agent_of("node-1").await?;
    let guard = Guard::new(client, Arc::new(SystemClock), "tenured/node-1".to_owned(), right);
    for (whose, account, audiences, expected) in [
        ("the viewer's", "tenure-viewer", &["tenured/node-1"][..], 200),
        ("the viewer's for another agent", "tenure-viewer", &["tenured/node-2"], 401),
        ("the viewer's for the API server", "tenure-viewer", &[], 401),
        ("an agent's for the API server", "tenured", &[], 401),
        ("an agent's for this agent", "tenured", &["tenured/node-1"], 403),
    ] {
        let token = token(&bed, account, audiences).await?;
        let status = guard.admit(Some(&token)).await.map_or_else(|denied| denied.status.as_u16(), |()| 200);
        ensure!(status == expected, "{whose}: {status}, not {expected}");
    }
    Ok(())
}
