//! What `docs/reference/metrics.md` says of a metric, compared with what a running program serves.

use std::collections::{BTreeMap, BTreeSet};

use crate::pages::page;

/// The labels of each documented metric.
fn documented() -> BTreeMap<String, BTreeSet<String>> {
    let text = page("docs/reference/metrics.md").text;
    let rows = text.lines().filter(|line| line.starts_with("| `"));
    let names = |cell: &str| cell.split('`').skip(1).step_by(2).map(str::to_owned).collect();
    let row = |row: &str| {
        let cells: Vec<&str> = row.split(" | ").collect();
        Some((cells.first()?.split('`').nth(1)?.to_owned(), names(cells.get(2)?)))
    };
    rows.filter_map(row).collect()
}

/// What is wrong with the page, judged by what a program serves: metrics without a row, or with other labels.
pub fn wrong(served: &str) -> Vec<String> {
    let documented = documented();
    let mut histograms = BTreeSet::new();
    let mut wrong = BTreeSet::new();
    for line in served.lines() {
        if let Some(name) = line.strip_prefix("# TYPE ").and_then(|it| it.strip_suffix(" histogram")) {
            histograms.insert(name.to_owned());
        }
        let Some((series, _)) = line.rsplit_once(' ').filter(|_| !line.starts_with('#')) else { continue };
        let (name, labels) = series.split_once('{').unwrap_or((series, ""));
        let part = ["_bucket", "_sum", "_count"].iter().find_map(|it| name.strip_suffix(it));
        let name = part.filter(|it| histograms.contains(*it)).unwrap_or(name);
        // A label's name stands before `="`.
        let labels = labels.split("=\"").filter_map(|it| it.rsplit(['"', ',']).next());
        let labels: BTreeSet<String> =
            labels.filter(|it| !["", "}", "le"].contains(it)).map(str::to_owned).collect();
        match documented.get(name) {
            None => drop(wrong.insert(format!("{name} is not documented"))),
            Some(known) if *known != labels => {
                wrong.insert(format!("{name} has the labels {labels:?}, and the page says {known:?}"));
            }
            Some(_) => {}
        }
    }
    wrong.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::wrong;

    #[test]
    fn names_and_labels_are_compared() {
        let served = "# TYPE tenure_agent_call_seconds histogram\n\
                      tenure_agent_call_seconds_sum{verb=\"ADD\"} 0.5\n\
                      tenure_agent_call_seconds_bucket{verb=\"ADD\",le=\"0.1\"} 5\n\
                      tenure_agent_pool_addresses{pool=\"a,b\",state=\"free\"} 3\n\
                      tenure_agent_holds 4\n# EOF\n";
        assert_eq!(wrong(served), Vec::<String>::new());
        let other = "tenure_agent_holds{pool=\"a\"} 4\ntenure_unknown 1\n";
        assert_eq!(wrong(other).len(), 2, "{:?}", wrong(other));
    }
}
