use super::*;

fn served(kind: Kind, nodes: usize, networks: usize, pods: usize) -> (Run, Figures) {
    let mut run = Run::embedded(Plan { kind, nodes, networks, pods, workers: 0, durable: false }).unwrap();
    let figures = run.cold(false).unwrap();
    let adds = nodes * networks * pods;
    assert_eq!(figures.value("adds"), Some(crate::host::sampled::count(adds)), "{figures:?}");
    assert_eq!(figures.value("failed"), Some(0.0), "{figures:?}");
    (run, figures)
}

#[test]
fn all_nodes_serve_pods_of_pools_and_go_on_after_a_restart() {
    let (mut run, _) = served(Kind::Blocks, 3, 2, 2);
    assert!(run.restart().unwrap().value("away_max").is_some());
    let figures = run.replace().unwrap();
    assert_eq!(figures.value("adds"), Some(4.0), "{figures:?}");
    let figures = run.churn(20.0, 1, false).unwrap();
    assert!(figures.value("adds") > Some(0.0) && figures.value("failed") == Some(0.0), "{figures:?}");
}

#[test]
fn all_nodes_serve_pods_of_ranges() {
    served(Kind::Unsliced, 3, 2, 2);
    served(Kind::Sliced, 3, 2, 2);
}

#[test]
fn all_nodes_serve_pods_with_claims() {
    served(Kind::Claims, 2, 2, 2);
}
