//! `tenure pod NAME`: which addresses a pod or a container had when.

use anyhow::{Result, bail};
use clap::Args;
use tenure_history::{Query, Who};

use crate::history::{self, PastOptions, Row, or_dash, since, until};
use crate::query::QueryOptions;
use crate::table::{self, COULD_NOT_LOOK, Output};

/// The options of the verb.
#[derive(Args, Debug)]
pub(crate) struct PodOptions {
    #[command(flatten)]
    query: QueryOptions,
    #[command(flatten)]
    past: PastOptions,
    /// Namespace of the pod
    #[arg(short, long, value_name = "NAMESPACE", conflicts_with = "container")]
    namespace: Option<String>,
    /// NAME is the ID of a container, or its beginning: for hosts without pods
    #[arg(long)]
    container: bool,
    /// The pod: NAME, or NAMESPACE/NAME
    #[arg(value_name = "NAME")]
    name: String,
}

/// Runs the verb.
pub(crate) async fn run(options: PodOptions) -> Result<Output> {
    let who = who(&options)?;
    let (past, format) = (&options.past, options.query.output);
    let query = Query { who, from: past.at, to: past.at };
    let source = options.query.source().await?;
    let told = history::ask(&source, past, &query).await?;
    let mut found = history::merge(&told, (query.from, query.to));
    let Some(at) = past.at else { return found.output(format, addresses) };
    let certain = found.at(at).into_iter().any(|(had, _)| had == tenure_view::Had::Yes);
    found.periods = found.at(at).into_iter().map(|(_, row)| row.clone()).collect();
    let known = certain || found.periods.is_empty() && found.unknown.is_empty();
    let output = found.output(format, addresses)?;
    Ok(Output { code: if known { output.code } else { COULD_NOT_LOOK }, ..output })
}

fn who(options: &PodOptions) -> Result<Who> {
    let name = &options.name;
    if options.container {
        return Ok(Who::Container(name.clone()));
    }
    let (namespace, name) = match (name.split_once('/'), &options.namespace) {
        (None, None) => ("default", name.as_str()),
        (None, Some(namespace)) => (namespace.as_str(), name.as_str()),
        (Some((namespace, name)), None) => (namespace, name),
        (Some((named, name)), Some(namespace)) if named == namespace => (named, name),
        (Some((named, _)), Some(namespace)) => {
            bail!(
                "--namespace is \"{namespace}\", and the pod is of namespace \"{named}\"; accepted is one of them"
            )
        }
    };
    if namespace.is_empty() || name.is_empty() || name.contains('/') {
        bail!("the pod is \"{}\"; accepted are NAME and NAMESPACE/NAME", options.name);
    }
    Ok(Who::Pod { namespace: namespace.to_owned(), name: name.to_owned() })
}

fn addresses(rows: &[Row]) -> String {
    let row = |Row { node, period }: &Row| {
        let addresses = table::list(period.addresses.iter().map(ToString::to_string));
        let claim = period.claim.as_ref().map_or("", |claim| &claim.name);
        let interface = format!("{} of {}", period.holder.interface, period.holder.network);
        [
            since(period),
            until(period),
            addresses,
            node.clone(),
            interface,
            or_dash(&period.pool),
            or_dash(claim),
        ]
    };
    table::columns(["FROM", "TO", "ADDRESSES", "NODE", "INTERFACE", "POOL", "CLAIM"], rows.iter().map(row))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_is_named_with_its_namespace_in_either_way() {
        let asked = |name: &str, namespace: Option<&str>, container| {
            let (query, past) = (QueryOptions::default(), PastOptions::default());
            let namespace = namespace.map(str::to_owned);
            who(&PodOptions { query, past, namespace, container, name: name.to_owned() })
        };
        let pod = |namespace: &str, name: &str| Who::Pod { namespace: namespace.into(), name: name.into() };
        assert_eq!(asked("web", None, false).unwrap(), pod("default", "web"));
        assert_eq!(asked("web", Some("shop"), false).unwrap(), pod("shop", "web"));
        assert_eq!(asked("shop/web", None, false).unwrap(), pod("shop", "web"));
        assert_eq!(asked("shop/web", Some("shop"), false).unwrap(), pod("shop", "web"));
        assert_eq!(asked("c0ffee", None, true).unwrap(), Who::Container("c0ffee".into()));
        for (bad, namespace) in [("shop/web", Some("x")), ("/web", None), ("a/b/c", None), ("a/", None)] {
            let error = asked(bad, namespace, false).unwrap_err().to_string();
            assert!(error.contains("accepted"), "{error}");
        }
    }
}
